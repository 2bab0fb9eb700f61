//! TCP clients at a fixed rate, from threads outside of any runtime.
//!
//! Every request has a time at which it is meant to be sent, and its latency counts from there, whether
//! the server (or the client's turn on the CPU) was late or not: the histogram is free of coordinated
//! omission. A connection carries one request at a time; requests that fell due meanwhile are sent at
//! once, one after another. Those still waiting at the end count with their age.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::begin::Begin;
use crate::clock;
use crate::histogram::{Latencies, Summary};
use crate::thread;

/// Bytes of a request and of its answer.
pub const MESSAGE: usize = 64;

/// What the clients saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// Answers a second.
    pub requests_per_s: f64,
    /// Requests a second that were meant to be sent.
    pub wanted_per_s: f64,
    /// Requests without an answer at the end.
    #[serde(default)]
    pub unanswered: u64,
    /// Latency from the intended time, in nanoseconds; unanswered requests count with their age.
    #[serde(flatten)]
    pub latency_ns: Summary,
}

/// Clients at work.
pub struct Load {
    clients: Vec<JoinHandle<Client>>,
    streams: Vec<TcpStream>,
    begin: Begin,
    period: Duration,
}

struct Client {
    latencies: Latencies,
    answers: u64,
    next: Instant,
}

impl Load {
    /// Connects `connections` clients to `server`, each with `rate` requests a second; what is meant to
    /// be sent before `begin` warms up and is not counted.
    ///
    /// # Errors
    /// When a connection cannot be made within five seconds.
    pub fn start(
        server: SocketAddr,
        connections: usize,
        rate: f64,
        begin: Begin,
    ) -> io::Result<Self> {
        let period = Duration::from_secs_f64(1.0 / rate);
        let mut load = Self {
            clients: Vec::new(),
            streams: Vec::new(),
            begin,
            period,
        };
        for i in 0..connections {
            let stream = TcpStream::connect_timeout(&server, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            load.streams.push(stream.try_clone()?);
            // Spread over the period: clients that all fire at once would measure their own queue.
            let first = Instant::now() + period.mul_f64(i as f64 / connections as f64);
            let client = std::thread::Builder::new().name("client".into());
            let begin = load.begin.clone();
            load.clients
                .push(client.spawn(move || run(stream, first, period, &begin))?);
        }
        Ok(load)
    }

    /// Ends the clients; `end` is the end of what is measured.
    pub fn finish(self, end: Instant) -> LoadSummary {
        for stream in &self.streams {
            // Ends a client that waits for an answer. An error means that it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let (mut latencies, mut answers, mut unanswered) = (Latencies::default(), 0, 0);
        let connections = self.clients.len();
        let from = self.begin.from().unwrap_or(end);
        for client in self.clients.into_iter().flat_map(JoinHandle::join) {
            answers += client.answers;
            latencies.add(&client.latencies);
            let mut due = client.next.max(from);
            while due < end {
                latencies.record(end - due);
                unanswered += 1;
                due += self.period;
            }
        }
        let elapsed = end.saturating_duration_since(from).as_secs_f64();
        LoadSummary {
            requests_per_s: answers as f64 / elapsed,
            wanted_per_s: connections as f64 / self.period.as_secs_f64(),
            unanswered,
            latency_ns: latencies.summary(),
        }
    }
}

fn run(mut stream: TcpStream, first: Instant, period: Duration, begin: &Begin) -> Client {
    thread::precise();
    let mut message = [7; MESSAGE];
    let mut client = Client {
        latencies: Latencies::default(),
        answers: 0,
        next: first,
    };
    loop {
        clock::sleep_until(client.next);
        let exchange = stream
            .write_all(&message)
            .and_then(|()| stream.read_exact(&mut message));
        if exchange.is_err() {
            return client;
        }
        let now = Instant::now();
        if begin.counts(now) {
            client.answers += 1;
        }
        if begin.counts(client.next) {
            client.latencies.record(now - client.next);
        }
        client.next += period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_never_answers_counts_with_every_missed_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = Instant::now();
        let load =
            Load::start(listener.local_addr().unwrap(), 2, 1_000.0, Begin::at(from)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let summary = load.finish(Instant::now());
        assert_eq!(summary.requests_per_s, 0.0);
        assert!(summary.latency_ns.n >= 300, "{summary:?}");
        assert_eq!(summary.unanswered, summary.latency_ns.n);
        assert!(summary.latency_ns.p50.unwrap() > 50_000_000, "{summary:?}");
    }
}
