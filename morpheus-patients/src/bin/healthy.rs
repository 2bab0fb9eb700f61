//! A service with a hundred thousand short requests a second, and no long poll.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use morpheus_patients::service::{Failure, Options};
use morpheus_patients::{service, traffic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

const PROGRAM: &str = "patient-healthy";
const ABOUT: &str = "A service on plain tokio without a fault: clients make short requests at a given rate, each a message to the task of a server \
    and its answer. At the end it prints the rate that it had, as JSON.";
const PERIOD: Duration = Duration::from_millis(5);

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// Requests a second, of all clients together
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,

    /// Clients, each with a server of its own
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,

    /// Over TCP on the loopback interface instead of channels
    #[arg(long)]
    tcp: bool,
}

/// How many requests a client has made, and how many it should have.
struct Quota {
    made: Arc<AtomicU64>,
    began: Instant,
    per_second: f64,
}

impl Quota {
    /// How many are due. Where the machine is too slow it is not more than twice what a period has, so that they do not pile up.
    fn due(&self) -> u64 {
        let due = self.began.elapsed().as_secs_f64() * self.per_second;
        let missing = (due as u64).saturating_sub(self.made.load(Ordering::Relaxed));
        missing.min((2.0 * self.per_second * PERIOD.as_secs_f64()) as u64 + 1)
    }

    fn made(&self) {
        // Read at the end alone, and for the rate: no other memory depends on it.
        self.made.fetch_add(1, Ordering::Relaxed);
    }
}

/// Prints what was done, when it is dropped.
struct Tally {
    transport: &'static str,
    began: Instant,
    made: Vec<Arc<AtomicU64>>,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let seconds = self.began.elapsed().as_secs_f64();
        let made = self.made.iter().map(|made| made.load(Ordering::Relaxed));
        let requests: u64 = made.sum();
        let line = serde_json::json!({
            "transport": self.transport,
            "seconds": seconds,
            "requests": requests,
            "rate": requests as f64 / seconds,
        });
        service::print(PROGRAM, &line);
    }
}

async fn over_channels(quota: Quota) {
    let (ask, mut asked) = mpsc::channel::<u64>(1);
    let (answer, mut answers) = mpsc::channel::<u64>(1);
    tokio::spawn(async move {
        while let Some(number) = asked.recv().await {
            if answer.send(number + 1).await.is_err() {
                return;
            }
        }
    });
    let mut clock = interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        clock.tick().await;
        for number in 0..quota.due() {
            if ask.send(number).await.is_err() || answers.recv().await.is_none() {
                return;
            }
            quota.made();
        }
    }
}

async fn over_tcp(quota: Quota, mut client: TcpStream) {
    let mut clock = interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut buffer = [7; 32];
    loop {
        clock.tick().await;
        for _ in 0..quota.due() {
            if client.write_all(&buffer).await.is_err() {
                return;
            }
            if client.read_exact(&mut buffer).await.is_err() {
                return;
            }
            quota.made();
        }
    }
}

fn start(arguments: &Arguments) -> Result<Tally, Failure> {
    let mut tally = Tally {
        transport: if arguments.tcp { "tcp" } else { "channels" },
        began: Instant::now(),
        made: Vec::new(),
    };
    let listener = match arguments.tcp {
        true => Some(std::net::TcpListener::bind(("127.0.0.1", 0))?),
        false => None,
    };
    let mut connections = Vec::new();
    if let Some(listener) = listener {
        for _ in 0..arguments.clients {
            let client = std::net::TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            for stream in [&client, &server] {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
            }
            tokio::spawn(traffic::echo(TcpStream::from_std(server)?));
            connections.push(TcpStream::from_std(client)?);
        }
    }
    tally.began = Instant::now();
    for number in 0..arguments.clients {
        let made = Arc::new(AtomicU64::new(0));
        tally.made.push(Arc::clone(&made));
        let quota = Quota {
            made,
            began: tally.began,
            per_second: f64::from(arguments.rate) / f64::from(arguments.clients),
        };
        let connection = connections.pop();
        tokio::spawn(async move {
            // Spread over the period, so that the load is even.
            tokio::time::sleep(PERIOD.mul_f64(f64::from(number % 5) / 5.0)).await;
            match connection {
                Some(connection) => over_tcp(quota, connection).await,
                None => over_channels(quota).await,
            }
        });
    }
    Ok(tally)
}

fn main() -> ExitCode {
    let arguments: Arguments = service::arguments(PROGRAM, ABOUT);
    service::serve(PROGRAM, &arguments.options, || start(&arguments))
}
