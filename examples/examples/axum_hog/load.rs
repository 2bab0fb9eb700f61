//! The clients: OS threads outside of any runtime, so that the server alone causes the delays that they see.
//!
//! Each ping is due at a fixed time, and its latency counts from there, even if the server kept the
//! connection waiting. So there is no coordinated omission. Pings that still wait at the end count with their
//! age.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use morpheus_bench::clock;
use morpheus_bench::histogram::{Latencies, Summary};
use morpheus_bench::thread::precise;

use crate::app::Work;
use crate::http::Connection;

/// Pings a second, of all threads together.
pub const PINGS_PER_S: u32 = 1_000;
const PING_THREADS: u32 = 4;
/// The time between two pings of one thread.
const PERIOD: Duration =
    Duration::from_nanos(1_000_000_000 * PING_THREADS as u64 / PINGS_PER_S as u64);

/// The window that counts. The time before it warms the server up.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Instant,
    pub end: Instant,
}

impl Window {
    fn contains(self, at: Instant) -> bool {
        (self.from..self.end).contains(&at)
    }
}

/// The figures that the clients saw.
pub struct Seen {
    /// Latency of the pings that were due in the window.
    pub ping_ns: Summary,
    /// The part of them that was answered before the end.
    pub ping_answered: f64,
    /// Answers a second of the handlers that occupy workers.
    pub work_per_s: f64,
}

/// Clients at work.
pub struct Load {
    window: Window,
    pings: Vec<JoinHandle<Pings>>,
    work: Work,
    workers: Vec<JoinHandle<io::Result<()>>>,
    worked: Arc<AtomicU64>,
    streams: Vec<TcpStream>,
}

impl Load {
    /// Starts the pings and `clients` that repeat requests for `work`.
    pub fn start(
        server: SocketAddr,
        work: Work,
        clients: usize,
        window: Window,
    ) -> io::Result<Self> {
        let mut load = Self {
            window,
            pings: Vec::new(),
            work,
            workers: Vec::new(),
            worked: Arc::default(),
            streams: Vec::new(),
        };
        for i in 0..PING_THREADS {
            let connection = load.connect(server, "/ping")?;
            // Spread over the period: clients that all send at once would measure their own queue.
            let first = Instant::now() + PERIOD * i / PING_THREADS;
            let client = move || Pings::send(connection, first, window);
            load.pings.push(thread::Builder::new().spawn(client)?);
        }
        for _ in 0..clients {
            let connection = load.connect(server, work.path())?;
            let worked = load.worked.clone();
            let client = move || ask_for_work(connection, window, &worked);
            load.workers.push(thread::Builder::new().spawn(client)?);
        }
        Ok(load)
    }

    fn connect(&mut self, server: SocketAddr, path: &str) -> io::Result<Connection> {
        let connection = Connection::open(server, path)?;
        self.streams.push(connection.stream()?);
        Ok(connection)
    }

    /// Waits for the end of the window, and ends the clients.
    ///
    /// # Errors
    /// The first error that a client met before the end.
    pub fn finish(self) -> Result<Seen, String> {
        clock::sleep_until(self.window.end);
        for stream in &self.streams {
            // Ends a client that waits for an answer. An error means that the socket is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let mut all = Latencies::default();
        let mut answered = 0;
        for client in self.pings {
            let pings = client.join().map_err(|_| "a /ping client panicked")?;
            pings.result.map_err(|error| format!("/ping: {error}"))?;
            answered += pings.answered;
            all.add(&pings.latencies);
        }
        let path = self.work.path();
        for client in self.workers {
            let panicked = |_| format!("a {path} client panicked");
            let result = client.join().map_err(panicked)?;
            result.map_err(|error| format!("{path}: {error}"))?;
        }
        let seconds = (self.window.end - self.window.from).as_secs_f64();
        Ok(Seen {
            ping_answered: answered as f64 / all.len().max(1) as f64,
            ping_ns: all.summary(),
            work_per_s: self.worked.load(Relaxed) as f64 / seconds,
        })
    }
}

/// The pings of one thread.
struct Pings {
    latencies: Latencies,
    answered: u64,
    result: io::Result<()>,
}

impl Pings {
    fn send(mut connection: Connection, first: Instant, window: Window) -> Self {
        precise();
        let mut pings = Self {
            latencies: Latencies::default(),
            answered: 0,
            result: Ok(()),
        };
        let mut due = first;
        while due < window.end {
            clock::sleep_until(due);
            if let Err(error) = connection.get() {
                pings.result = unless_over(error, window);
                break;
            }
            if window.contains(due) {
                pings.answered += 1;
                pings.latencies.record(due.elapsed());
            }
            due += PERIOD;
        }
        pings.count_unanswered(due, window);
        pings
    }

    /// Counts the ping that waits since `due`, and those that came due behind it.
    fn count_unanswered(&mut self, mut due: Instant, window: Window) {
        while due < window.end {
            if window.contains(due) {
                self.latencies.record(window.end - due);
            }
            due += PERIOD;
        }
    }
}

fn ask_for_work(mut connection: Connection, window: Window, worked: &AtomicU64) -> io::Result<()> {
    while Instant::now() < window.end {
        if let Err(error) = connection.get() {
            return unless_over(error, window);
        }
        if window.contains(Instant::now()) {
            worked.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

/// After the end the error is expected: the socket was shut down.
fn unless_over(error: io::Error, window: Window) -> io::Result<()> {
    if Instant::now() < window.end {
        Err(error)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn window(length: Duration) -> Window {
        let from = Instant::now();
        Window {
            from,
            end: from + length,
        }
    }

    #[test]
    fn a_server_that_never_answers_counts_with_every_missed_ping() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let window = window(Duration::from_millis(400));
        let load = Load::start(listener.local_addr().unwrap(), Work::Read, 1, window).unwrap();
        let seen = load.finish().unwrap();
        assert_eq!((seen.ping_answered, seen.work_per_s), (0.0, 0.0));
        assert!((350..=400).contains(&seen.ping_ns.n), "{:?}", seen.ping_ns);
        assert!(
            seen.ping_ns.p50.unwrap() > 100_000_000,
            "{:?}",
            seen.ping_ns
        );
    }

    #[test]
    fn a_connection_that_breaks_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let closes = std::thread::spawn(move || {
            for _ in 0..PING_THREADS {
                drop(listener.accept());
            }
        });
        let load = Load::start(server, Work::Read, 0, window(Duration::from_secs(1))).unwrap();
        let error = load.finish().map(|seen| seen.ping_ns).unwrap_err();
        assert!(error.starts_with("/ping: "), "{error}");
        closes.join().unwrap();
    }
}
