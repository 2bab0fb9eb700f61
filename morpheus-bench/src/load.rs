//! Clients with a timetable, from threads outside of any runtime: what they send late is not their fault.
//!
//! Every request has a time at which it is meant to be sent, and its latency counts from there, whether
//! the server (or the client's turn on the CPU) was late or not: the histogram is free of coordinated
//! omission. A connection carries one request at a time; requests that fell due meanwhile are sent at
//! once, one after another. Those still waiting at the end count with their age.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use morpheus_harness::histogram::{Latencies, Summary};
use morpheus_harness::{clock, thread};
use serde::{Deserialize, Serialize};

use crate::begin::Begin;

/// Bytes of a request to an echo server and of its answer.
pub const MESSAGE: usize = 64;

/// The longest time between two requests of a connection, in seconds.
const DAY_S: f64 = 86_400.0;

/// When requests are due.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    /// Each is a thread.
    connections: u32,
    /// Of each connection.
    period: Duration,
    /// Nothing is due from here on. `None`: something is due until [`Load::finish`].
    end: Option<Instant>,
}

impl Timetable {
    /// `per_s` requests a second of all `connections` together; no connection if that is 0.
    pub fn new(connections: u32, per_s: f64, end: Option<Instant>) -> Self {
        // A longer time is as good as for ever, and its multiples are times still.
        let each_s = (f64::from(connections) / per_s).min(DAY_S);
        let (connections, period) = match per_s > 0.0 {
            true => (connections, Duration::from_secs_f64(each_s)),
            false => (0, Duration::from_secs_f64(DAY_S)),
        };
        Self {
            connections,
            period,
            end,
        }
    }
}

/// The clients' answers and latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// Answers a second, to what was due between the beginning and the end of counting: anything else is no work of this time.
    pub requests_per_s: f64,
    /// Requests a second that were meant to be sent.
    pub wanted_per_s: f64,
    /// Latency from the intended time, in nanoseconds; requests without an answer at the end are pending. Without an end of the timetable
    /// those count as well that are due after the end of counting, until the clients have ended.
    pub latency_ns: Summary,
}

/// All that the clients saw.
#[derive(Debug)]
pub struct Finished {
    /// Of what counts.
    pub seen: LoadSummary,
    /// Of what was due before that, likewise.
    pub warm_up_ns: Summary,
    /// The first error that a client met before the end.
    pub result: io::Result<()>,
}

/// Clients at work.
pub struct Load {
    clients: Vec<JoinHandle<Client>>,
    streams: Vec<TcpStream>,
    /// From here on errors are expected.
    is_over: Arc<AtomicBool>,
    timetable: Timetable,
    begin: Begin,
}

struct Client {
    /// Of what was due in the warm-up.
    warm_up: Latencies,
    latencies: Latencies,
    /// Its first request was due then, ...
    first: Instant,
    /// ... and the first without an answer.
    next: Instant,
    result: io::Result<()>,
}

impl Load {
    /// Connects `connections` clients to an echo server, each with `rate` requests a second; what is meant to be sent before
    /// `begin` warms up and is not counted.
    ///
    /// # Errors
    /// When a connection cannot be made within five seconds.
    pub fn of_echo(
        server: SocketAddr,
        connections: usize,
        rate: f64,
        begin: Begin,
    ) -> io::Result<Self> {
        let timetable = Timetable::new(connections as u32, rate * connections as f64, None);
        Self::start(timetable, begin, |_| {
            let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            let mut message = [7; MESSAGE];
            let handle = Some(stream.try_clone()?);
            let exchange = move |_: u64| {
                stream.write_all(&message)?;
                stream.read_exact(&mut message)
            };
            Ok((handle, exchange))
        })
    }

    /// Starts the clients. `connect` returns how a client exchanges a request, which has a number from 1 on, for its answer, and a handle
    /// of its socket: a client without one ends its exchange by an error once the flag is set, which says that all is over. A request
    /// that is due before `begin` does not count.
    ///
    /// # Errors
    /// Those of `connect` and of threads.
    pub fn start<E: FnMut(u64) -> io::Result<()> + Send + 'static>(
        timetable: Timetable,
        begin: Begin,
        connect: impl Fn(&Arc<AtomicBool>) -> io::Result<(Option<TcpStream>, E)>,
    ) -> io::Result<Self> {
        let mut load = Self {
            clients: Vec::new(),
            streams: Vec::new(),
            is_over: Arc::default(),
            timetable,
            begin,
        };
        for i in 0..timetable.connections {
            let (stream, exchange) = connect(&load.is_over)?;
            load.streams.extend(stream);
            // Spread over the period: clients that all fire at once would measure their own queue.
            let first = Instant::now() + timetable.period * i / timetable.connections;
            let client = std::thread::Builder::new().name("client".into());
            let (begin, is_over) = (load.begin.clone(), load.is_over.clone());
            let run = move || run(exchange, first, timetable, &begin, &is_over);
            load.clients.push(client.spawn(run)?);
        }
        Ok(load)
    }

    /// Whether there is an answer to everything that was due until the end of the timetable.
    pub fn is_done(&self) -> bool {
        self.clients.iter().all(JoinHandle::is_finished)
    }

    /// Ends the clients; `end` is the end of what is measured, and what has no answer `now` counts with its age.
    pub fn finish(self, end: Instant, now: Instant) -> Finished {
        // Release: a client that finds its socket shut down afterwards finds this as well (Acquire in `run`).
        self.is_over.store(true, Ordering::Release);
        for stream in &self.streams {
            // Ends a client that waits for an answer. An error means that it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let (mut latencies, mut warm_up) = (Latencies::default(), Latencies::default());
        let mut answers = 0;
        let mut result = Ok(());
        let from = self.begin.from().unwrap_or(end);
        for client in self.clients {
            let Ok(client) = client.join() else {
                result = Err(io::Error::other("a client panicked"));
                continue;
            };
            result = result.and(client.result);
            latencies.add(&client.latencies);
            warm_up.add(&client.warm_up);
            let mut due = client.first;
            while due < end {
                let age = now.saturating_duration_since(due);
                match (due < client.next, due < from) {
                    (true, is_early) => answers += u64::from(!is_early),
                    (false, true) => warm_up.record_pending(age),
                    (false, false) => latencies.record_pending(age),
                }
                due += self.timetable.period;
            }
        }
        let elapsed = end.saturating_duration_since(from).as_secs_f64();
        let connections = f64::from(self.timetable.connections);
        let seen = LoadSummary {
            requests_per_s: answers as f64 / elapsed,
            wanted_per_s: connections / self.timetable.period.as_secs_f64(),
            latency_ns: latencies.summary(),
        };
        Finished {
            seen,
            warm_up_ns: warm_up.summary(),
            result,
        }
    }
}

fn run(
    mut exchange: impl FnMut(u64) -> io::Result<()>,
    first: Instant,
    timetable: Timetable,
    begin: &Begin,
    is_over: &AtomicBool,
) -> Client {
    thread::precise();
    let mut client = Client {
        warm_up: Latencies::default(),
        latencies: Latencies::default(),
        first,
        next: first,
        result: Ok(()),
    };
    for number in 1.. {
        if timetable.end.is_some_and(|end| client.next >= end) {
            break;
        }
        clock::sleep_until(client.next);
        if let Err(error) = exchange(number) {
            // Acquire: its partner is the store in `finish`, before the sockets are shut down.
            if !is_over.load(Ordering::Acquire) {
                client.result = Err(error);
            }
            break;
        }
        let late = client.next.elapsed();
        match begin.counts(client.next) {
            true => client.latencies.record(late),
            false => client.warm_up.record(late),
        }
        client.next += timetable.period;
    }
    client
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
            Load::of_echo(listener.local_addr().unwrap(), 2, 1_000.0, Begin::at(from)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let end = Instant::now();
        let finished = load.finish(end, end);
        let summary = finished.seen;
        assert!(finished.result.is_ok(), "{:?}", finished.result);
        assert_eq!(finished.warm_up_ns, Summary::default());
        assert_eq!(summary.requests_per_s, 0.0);
        assert!(summary.latency_ns.n >= 300, "{summary:?}");
        assert_eq!(summary.latency_ns.pending, summary.latency_ns.n);
        let answered = summary.latency_ns.ended();
        assert_eq!((answered, summary.wanted_per_s), (0.0, 2_000.0));
        assert!(summary.latency_ns.p50.unwrap() > 50_000_000, "{summary:?}");
    }

    /// The server answers nothing for 200 ms, and then at once: what was due meanwhile is no work of the time that counts.
    #[test]
    fn answers_to_what_was_due_in_the_warm_up_do_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let from = Instant::now() + Duration::from_millis(200);
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            clock::sleep_until(from);
            let mut message = [0; MESSAGE];
            while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
        });
        let load = Load::of_echo(server, 1, 1_000.0, Begin::at(from)).unwrap();
        clock::sleep_until(from + Duration::from_millis(200));
        let end = Instant::now();
        let Finished {
            seen, warm_up_ns, ..
        } = load.finish(end, end);
        answers.join().unwrap();
        assert!(warm_up_ns.n >= 100, "{warm_up_ns:?}");
        assert!(seen.requests_per_s <= seen.wanted_per_s * 1.01, "{seen:?}");
        assert!(seen.requests_per_s > seen.wanted_per_s * 0.5, "{seen:?}");
    }
}
