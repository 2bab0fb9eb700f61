//! The clients: OS threads outside of any runtime, so that the service alone causes the delays that they see.
//!
//! Each request of a timetable is due at a fixed time, and its latency counts from there, even if the service kept the connection
//! waiting. So there is no coordinated omission. Requests that have no answer within [`TAIL`] of the window's end count with their
//! age.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::http::{Connection, get, post};
use crate::histogram::{Latencies, Summary};
use crate::thread::precise;
use crate::{clock, interrupt};

/// How often Ctrl-C is looked for, and progress shown.
const LOOK: Duration = Duration::from_millis(50);
/// How long the last answers are waited for, with the service kept busy.
pub const TAIL: Duration = Duration::from_millis(500);
/// What is written.
const ROW: &str = r#"{"text":"milk"}"#;

/// Requests at fixed times.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    path: &'static str,
    /// Each is a thread.
    connections: u32,
    /// Of each connection.
    period: Duration,
    /// Every how many requests is a POST; 0 is none.
    writes: usize,
}

/// A thousand a second.
pub const PING: Timetable = Timetable {
    path: "/ping",
    connections: 4,
    period: Duration::from_millis(4),
    writes: 0,
};

/// Requests to the database, `per_s` a second; none if that is 0.
pub fn db(per_s: f64) -> Option<Timetable> {
    let connections = 2;
    (per_s > 0.0).then(|| Timetable {
        path: "/db",
        connections,
        period: Duration::from_secs_f64(f64::from(connections) / per_s),
        writes: 4,
    })
}

/// The time that counts. What comes before it warms the service up.
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

/// Requests of a timetable.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Those that were due in the window.
    pub due: u64,
    /// Those of them that had an answer.
    pub answered: u64,
    /// From when they were due until their answers; what has none counts with its age.
    pub late: Summary,
}

impl Asked {
    /// The share of what was due that has an answer, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.answered as f64 / self.due.max(1) as f64
    }
}

/// What the clients saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub ping: Asked,
    pub db: Asked,
    /// Answers a second to the clients that keep the service busy.
    pub work_per_s: f64,
}

/// What all clients share.
struct Shared {
    server: SocketAddr,
    window: Window,
    /// From here on errors are expected: the sockets were shut down.
    is_over: AtomicBool,
    /// Answers to the clients that keep the service busy.
    worked: AtomicU64,
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    ping: Vec<JoinHandle<Timed>>,
    db: Vec<JoinHandle<Timed>>,
    busy: JoinHandle<io::Result<()>>,
    streams: Vec<TcpStream>,
}

impl Load {
    /// Starts the timetables, that of `/db` with `db_per_s` requests a second, and `clients` that ask for `path` again and again.
    ///
    /// # Errors
    /// Those of sockets and threads.
    pub fn start(
        server: SocketAddr,
        path: &str,
        clients: usize,
        db_per_s: f64,
        window: Window,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            server,
            window,
            is_over: AtomicBool::new(false),
            worked: AtomicU64::new(0),
        });
        let mut streams = Vec::new();
        let mut connect = || {
            let connection = Connection::open(server, None)?;
            streams.push(connection.stream()?);
            io::Result::Ok(connection)
        };
        let ping = timetable(PING, &shared, &mut connect)?;
        let db = db(db_per_s).map(|db| timetable(db, &shared, &mut connect));
        let db = db.transpose()?.unwrap_or_default();
        let connections = (0..clients).map(|_| connect());
        let connections = connections.collect::<io::Result<Vec<Connection>>>()?;
        let (request, of_busy) = (get(server, path), Arc::clone(&shared));
        let client = move || ask_again(connections, &request, &of_busy);
        Ok(Self {
            shared,
            ping,
            db,
            busy: thread::Builder::new().spawn(client)?,
            streams,
        })
    }

    /// Waits for the end of the window and the answers to what was due in it, or for Ctrl-C, and ends the clients. `tick` is called
    /// a few times a second.
    ///
    /// # Errors
    /// The first error that a client met before the end.
    pub fn finish(self, mut tick: impl FnMut()) -> Result<Seen, String> {
        let end = self.shared.window.end;
        let timed = || self.ping.iter().chain(&self.db);
        let is_waiting = || Instant::now() < end || !timed().all(JoinHandle::is_finished);
        while is_waiting() && Instant::now() < end + TAIL && !interrupt::happened() {
            thread::sleep(LOOK);
            tick();
        }
        // Release: a client that finds its socket shut down afterwards finds this as well (Acquire in `unless_over`).
        self.shared.is_over.store(true, Ordering::Release);
        for stream in &self.streams {
            // Ends a client that waits for an answer. An error means that the socket is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let busy = self.busy.join();
        let busy = busy.map_err(|_| "the thread that keeps it busy panicked")?;
        busy.map_err(|error| format!("a client that keeps it busy: {error}"))?;
        let window = self.shared.window;
        Ok(Seen {
            ping: all("/ping", self.ping)?,
            db: all("/db", self.db)?,
            // Relaxed: a number alone, of threads that have been joined.
            work_per_s: self.shared.worked.load(Ordering::Relaxed) as f64
                / (window.end - window.from).as_secs_f64(),
        })
    }
}

/// What all threads of a timetable saw.
fn all(path: &str, threads: Vec<JoinHandle<Timed>>) -> Result<Asked, String> {
    let (mut latencies, mut answered) = (Latencies::default(), 0);
    for thread in threads {
        let timed = thread
            .join()
            .map_err(|_| format!("a client of {path} panicked"))?;
        timed.result.map_err(|error| format!("{path}: {error}"))?;
        answered += timed.answered;
        latencies.add(&timed.latencies);
    }
    Ok(Asked {
        due: latencies.len(),
        answered,
        late: latencies.summary(),
    })
}

/// The requests of one thread.
struct Timed {
    latencies: Latencies,
    answered: u64,
    result: io::Result<()>,
}

impl Timed {
    fn send(
        mut connection: Connection,
        timetable: Timetable,
        first: Instant,
        shared: &Shared,
    ) -> Self {
        precise();
        let reads = get(shared.server, timetable.path);
        let writes = post(shared.server, timetable.path, ROW);
        let mut timed = Self {
            latencies: Latencies::default(),
            answered: 0,
            result: Ok(()),
        };
        let window = shared.window;
        let mut due = first;
        for number in 1.. {
            // Relaxed: a thread that misses it meets a socket that was shut down.
            if due >= window.end || shared.is_over.load(Ordering::Relaxed) {
                break;
            }
            clock::sleep_until(due);
            let is_write = timetable.writes > 0 && number % timetable.writes == 0;
            if let Err(error) = connection.ask(if is_write { &writes } else { &reads }) {
                timed.result = unless_over(error, shared);
                break;
            }
            if window.contains(due) {
                timed.answered += 1;
                timed.latencies.record(due.elapsed());
            }
            due += timetable.period;
        }
        // What waits since it was due, and what came due behind it.
        let now = Instant::now();
        while due < window.end {
            if window.contains(due) {
                timed.latencies.record(now.saturating_duration_since(due));
            }
            due += timetable.period;
        }
        timed
    }
}

/// Starts the clients of a timetable.
fn timetable(
    timetable: Timetable,
    shared: &Arc<Shared>,
    mut connect: impl FnMut() -> io::Result<Connection>,
) -> io::Result<Vec<JoinHandle<Timed>>> {
    let start = |i: u32| {
        let (connection, shared) = (connect()?, Arc::clone(shared));
        // Spread over the period: clients that all send at once would measure their own queue.
        let first = Instant::now() + timetable.period * i / timetable.connections;
        let client = move || Timed::send(connection, timetable, first, &shared);
        thread::Builder::new().spawn(client)
    };
    (0..timetable.connections).map(start).collect()
}

/// All clients that ask again once they have their answer, in one thread: so they take little CPU time from the service.
fn ask_again(mut connections: Vec<Connection>, request: &[u8], shared: &Shared) -> io::Result<()> {
    let wait_for = |connection: &Connection| libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut ready: Vec<libc::pollfd> = connections.iter().map(wait_for).collect();
    for connection in &mut connections {
        connection.send(request)?;
    }
    // Relaxed: a thread that misses it meets a socket that was shut down.
    while !shared.is_over.load(Ordering::Relaxed) {
        let timeout_ms = LOOK.as_millis() as libc::c_int;
        // SAFETY: poll writes into the array alone, which has this many elements and outlives the call; the files are open, for
        // `connections` has them.
        let count =
            unsafe { libc::poll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, timeout_ms) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            continue;
        }
        for (connection, _) in connections
            .iter_mut()
            .zip(&ready)
            .filter(|(_, one)| one.revents != 0)
        {
            // There is something to read, so that this does not block.
            let next = connection.receive().and_then(|is_whole| {
                if is_whole {
                    if shared.window.contains(Instant::now()) {
                        shared.worked.fetch_add(1, Ordering::Relaxed); // A number alone.
                    }
                    connection.send(request)?;
                }
                Ok(())
            });
            if let Err(error) = next {
                return unless_over(error, shared);
            }
        }
    }
    Ok(())
}

fn unless_over(error: io::Error, shared: &Shared) -> io::Result<()> {
    // Acquire: its partner is the store in `finish`, before the sockets are shut down.
    if shared.is_over.load(Ordering::Acquire) {
        Ok(())
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn load(listener: &TcpListener, clients: usize, length: Duration) -> Load {
        let from = Instant::now();
        let window = Window {
            from,
            end: from + length,
        };
        let server = listener.local_addr().unwrap();
        Load::start(server, "/report", clients, 250.0, window).unwrap()
    }

    #[test]
    fn timetables_are_as_dense_as_they_say() {
        let per_s = |timetable: Timetable| {
            f64::from(timetable.connections) / timetable.period.as_secs_f64()
        };
        assert!((per_s(PING) - 1_000.0).abs() < 1e-9);
        assert!((per_s(db(250.0).unwrap()) - 250.0).abs() < 1e-9);
        assert!(db(0.0).is_none());
    }

    #[test]
    fn a_server_that_never_answers_counts_with_every_missed_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seen = load(&listener, 1, Duration::from_millis(400))
            .finish(|| ())
            .unwrap();
        assert_eq!((seen.ping.share(), seen.work_per_s), (0.0, 0.0));
        assert!((350..=400).contains(&seen.ping.due), "{seen:?}");
        assert!((85..=100).contains(&seen.db.due), "{seen:?}");
        assert!(seen.ping.late.p50.unwrap() > 500_000_000, "{seen:?}");
    }

    #[test]
    fn a_connection_that_breaks_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closer = listener.try_clone().unwrap();
        let closes = std::thread::spawn(move || {
            for _ in 0..PING.connections + db(250.0).unwrap().connections {
                drop(closer.accept());
            }
        });
        let error = load(&listener, 0, Duration::from_secs(1))
            .finish(|| ())
            .unwrap_err();
        assert!(error.starts_with("/ping: "), "{error}");
        closes.join().unwrap();
    }
}
