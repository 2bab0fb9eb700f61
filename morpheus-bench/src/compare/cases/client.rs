//! Clients of a server that is measured: one thread with an event loop of its own, whose CPU time is taken off.
//!
//! A client asks again when it has its answer: how fast the server can be, and not how late it is at a given load. The
//! next round trip of a connection begins when the one before has ended, so what p99 leaves out is what would have been
//! asked meanwhile; `latency` and `starvation` count that.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use morpheus_harness::clock;
use morpheus_harness::histogram::Latencies;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::{Done, shares};
use crate::http::is_whole;
use crate::load;

/// The messages that a client sends, and the answers that it expects.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// A message, and the same again.
    Echo,
    /// A request on a connection that is kept, and an answer of whatever length it says.
    Http,
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
/// No answer of a server here is longer.
const LONGEST: usize = 4_096;

/// The thread, and how to talk to it.
pub struct Clients {
    jobs: UnboundedSender<u64>,
    answers: Receiver<Result<Done, String>>,
}

impl Clients {
    /// Connects.
    ///
    /// # Errors
    /// When a connection cannot be made; the text is for people.
    pub fn connect(
        server: SocketAddr,
        connections: usize,
        protocol: Protocol,
    ) -> Result<Self, String> {
        let (jobs, todo) = unbounded_channel();
        let (sender, answers) = channel();
        let client = move || {
            let runtime = Builder::new_current_thread().enable_io().build();
            let outcome = runtime.and_then(|runtime| {
                runtime.block_on(serve(server, connections, protocol, todo, &sender))
            });
            if let Err(error) = outcome {
                let _ = sender.send(Err(format!("a connection on the loopback failed: {error}")));
            }
        };
        let named = std::thread::Builder::new().name("client".into());
        named
            .spawn(client)
            .map_err(|error| format!("no thread: {error}"))?;
        let clients = Self { jobs, answers };
        // The first answer says that all are connected.
        clients.answer()?;
        Ok(clients)
    }

    /// Makes `n` round trips, spread over the connections.
    ///
    /// # Errors
    /// When a connection fails.
    pub fn round_trips(&self, n: u64) -> Result<Done, String> {
        // Where the thread is gone, its last answer says why.
        let _ = self.jobs.send(n);
        self.answer()
    }

    fn answer(&self) -> Result<Done, String> {
        let gone = |_| Err("the thread of the clients is gone".into());
        self.answers.recv().unwrap_or_else(gone)
    }
}

async fn serve(
    server: SocketAddr,
    connections: usize,
    protocol: Protocol,
    mut todo: UnboundedReceiver<u64>,
    answers: &Sender<Result<Done, String>>,
) -> io::Result<()> {
    let mut idle = Vec::with_capacity(connections);
    for _ in 0..connections {
        idle.push(Connection::new(server, protocol).await?);
    }
    let _ = answers.send(Ok(Done::default()));
    while let Some(n) = todo.recv().await {
        let before = clock::thread_cpu();
        let mut busy = JoinSet::new();
        let shares = shares(n, connections as u64);
        for (connection, share) in idle.drain(..).zip(shares) {
            busy.spawn(connection.round_trips(share));
        }
        let mut took = Vec::with_capacity(connections);
        while let Some(ended) = busy.join_next().await {
            let (connection, own) = ended.map_err(io::Error::other)??;
            idle.push(connection);
            took.push(own);
        }
        let others_cpu = clock::thread_cpu() - before;
        let mut latencies = Latencies::default();
        for ns in took.iter().flatten() {
            latencies.record_ns(*ns);
        }
        let done = Done {
            operations: latencies.len(),
            latencies,
            others_cpu,
        };
        let _ = answers.send(Ok(done));
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    /// Makes each message another.
    number: u64,
}

impl Connection {
    async fn new(server: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            protocol,
            number: 0,
        })
    }

    /// Makes `n` round trips, and returns what each took.
    async fn round_trips(mut self, n: u64) -> io::Result<(Self, Vec<u64>)> {
        let mut took = Vec::with_capacity(n as usize);
        for _ in 0..n {
            let start = Instant::now();
            match self.protocol {
                Protocol::Echo => self.echo().await?,
                Protocol::Http => self.request().await?,
            }
            took.push(start.elapsed().as_nanos() as u64);
        }
        Ok((self, took))
    }

    async fn echo(&mut self) -> io::Result<()> {
        self.number += 1;
        let mut message = [0; load::MESSAGE];
        message[..8].copy_from_slice(&self.number.to_ne_bytes());
        let sent = message;
        self.stream.write_all(&message).await?;
        self.stream.read_exact(&mut message).await?;
        if message != sent {
            return Err(io::Error::other("another message came back"));
        }
        Ok(())
    }

    async fn request(&mut self) -> io::Result<()> {
        self.stream.write_all(REQUEST).await?;
        let mut answer = [0; LONGEST];
        let mut have = 0;
        loop {
            let more = self.stream.read(&mut answer[have..]).await?;
            if more == 0 {
                return Err(io::Error::other(
                    "an answer does not end, or the connection did",
                ));
            }
            have += more;
            if is_whole(&answer[..have])? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_to_connect_to_is_said() {
        let nobody = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let error = Clients::connect(nobody, 1, Protocol::Echo).err().unwrap();
        assert!(error.contains("loopback"), "{error}");
    }
}
