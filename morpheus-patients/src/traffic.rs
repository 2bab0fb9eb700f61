//! Healthy traffic: short polls beside the fault, so that a runtime is not just the fault.
//!
//! An echo service with clients (400 requests a second), and pairs of tasks with a timer of 1 ms that exchange messages.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

const CLIENTS: usize = 2;
const PAIRS: usize = 2;
/// From one request of a client to its next.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(5);
const REQUEST: &[u8] = b"a request of a few dozen bytes, as they are\n";

/// Starts the traffic, over TCP where there is a loopback interface and in memory elsewhere. Call it within a runtime.
pub fn start() {
    tokio::spawn(async {
        for _ in 0..CLIENTS {
            match connected().await {
                Ok((server, client)) => start_echo(server, client),
                Err(_) => {
                    let (server, client) = duplex(4096);
                    start_echo(server, client);
                }
            }
        }
    });
    for _ in 0..PAIRS {
        let (sender, mut receiver) = mpsc::channel::<u64>(16);
        tokio::spawn(async move {
            let mut clock = interval(Duration::from_millis(1));
            clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut number = 0;
            while sender.send(number).await.is_ok() {
                number += 1;
                clock.tick().await;
            }
        });
        tokio::spawn(async move { while receiver.recv().await.is_some() {} });
    }
}

/// The two ends of a TCP connection.
async fn connected() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    Ok((server, client))
}

fn start_echo<S>(server: S, client: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(echo(server));
    tokio::spawn(async move {
        let mut clock = interval(BETWEEN_REQUESTS);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut client = client;
        let mut answer = [0; REQUEST.len()];
        loop {
            clock.tick().await;
            if client.write_all(REQUEST).await.is_err() {
                return;
            }
            if client.read_exact(&mut answer).await.is_err() {
                return;
            }
        }
    });
}

/// Answers each request with itself, until the client hangs up.
pub async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; 4096];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 || stream.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
