//! The clients: OS threads outside of any runtime, so that the service alone causes the delays that they see.
//!
//! The requests of a timetable count from when they are due ([`crate::load`]), even if the service kept the connection waiting.
//! Those that have no answer within [`TAIL`] of the window's end count with their age.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use morpheus_harness::histogram::Summary;
use morpheus_harness::interrupt;

use super::connections::{Connections, Pool};
use super::http::{Connection, get, post};
use super::served::Client;
use crate::begin::Begin;
use crate::load::{self, LoadSummary, Timetable};

/// How often Ctrl-C is looked for, and progress shown.
const LOOK: Duration = Duration::from_millis(50);
/// How long the last answers are waited for, with the service kept busy.
pub const TAIL: Duration = Duration::from_millis(500);
/// The row that a client writes.
const ROW: &str = r#"{"text":"milk"}"#;

/// Requests a second to `/ping`.
const PINGS_PER_S: f64 = 1_000.0;
/// Threads that ask for `/ping`, and for `/db`, each on a connection of its own. A connection carries one request at a time, so there are
/// enough that one which waits for 60 ms keeps no other waiting: few would make of each delay a longer one.
const CONNECTIONS: [u32; 2] = [64, 16];
/// Every how many requests of a connection to `/db` is a POST.
const WRITES: u64 = 4;

/// The time that counts. Requests before it warm the service up.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Instant,
    pub end: Instant,
}

/// The clients' answers and latencies.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Of the pings that were due before the window.
    pub first_pings_ns: Summary,
    pub ping: LoadSummary,
    pub db: LoadSummary,
    /// Requests a second that were served, of the clients that keep the service busy.
    pub work_per_s: f64,
    /// The service's share of a CPU in the window, where that was read.
    pub cpu_share: Option<f64>,
}

/// The state that the clients that keep the service busy share with the thread that ends them.
struct Shared {
    window: Window,
    /// From here on errors are expected.
    is_over: AtomicBool,
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    ping: load::Load,
    db: load::Load,
    busy: JoinHandle<io::Result<f64>>,
}

impl Load {
    /// Starts the timetables, that of `/db` with `db_per_s` requests a second, and `clients` that ask for `path` again and again.
    ///
    /// # Errors
    /// Those of sockets and threads.
    pub fn start(
        server: SocketAddr,
        connections: Connections,
        path: &str,
        clients: usize,
        db_per_s: f64,
        window: Window,
    ) -> io::Result<Self> {
        let pool = Arc::new(Pool::new(server, connections));
        let shared = Arc::new(Shared {
            window,
            is_over: AtomicBool::new(false),
        });
        let timed = |path, threads, per_s, writes: u64| {
            let timetable = Timetable::new(threads, per_s, Some(window.end));
            load::Load::start(timetable, Begin::at(window.from), |is_over| {
                let (pool, is_over) = (Arc::clone(&pool), Arc::clone(is_over));
                let (read, write) = (get(server, path), post(server, path, ROW));
                let mut own = pool.put(pool.take(None)?);
                let handle = own.as_ref().map(Connection::stream).transpose()?;
                let exchange = move |number: u64| {
                    let is_write = number.is_multiple_of(writes);
                    let mut connection = pool.take(own.take())?;
                    connection.ask(if is_write { &write } else { &read }, &is_over)?;
                    own = pool.put(connection);
                    Ok(())
                };
                Ok((handle, exchange))
            })
        };
        // The numbers begin with 1, so that none is a multiple of 0.
        let ping = timed("/ping", CONNECTIONS[0], PINGS_PER_S, 0)?;
        let db = timed("/db", CONNECTIONS[1], db_per_s, WRITES)?;
        let (request, of_busy) = (get(server, path), Arc::clone(&shared));
        let client = move || ask_again(&pool, clients, &request, &of_busy);
        Ok(Self {
            shared,
            ping,
            db,
            busy: thread::Builder::new().spawn(client)?,
        })
    }

    /// Waits for the end of the window and the answers to what was due in it, or for Ctrl-C, and ends the clients. `tick` is called
    /// a few times a second.
    ///
    /// # Errors
    /// The first error that a client met before the end.
    pub fn finish(self, mut tick: impl FnMut()) -> Result<Seen, String> {
        let Window { from, end } = self.shared.window;
        let is_waiting = || Instant::now() < end || !(self.ping.is_done() && self.db.is_done());
        while is_waiting() && Instant::now() < end + TAIL && !interrupt::happened() {
            thread::sleep(LOOK);
            tick();
        }
        let now = Instant::now();
        // Relaxed: the clients look now and then.
        self.shared.is_over.store(true, Ordering::Relaxed);
        let busy = self.busy.join();
        let busy = busy.map_err(|_| "the thread that keeps it busy panicked")?;
        let served = busy.map_err(|error| format!("a client that keeps it busy: {error}"))?;
        let seen = |path: &str, load: load::Load| {
            let finished = load.finish(end, now);
            match finished.result {
                Ok(()) => Ok((finished.seen, finished.warm_up_ns)),
                Err(error) => Err(format!("{path}: {error}")),
            }
        };
        let (ping, first_pings_ns) = seen("/ping", self.ping)?;
        Ok(Seen {
            first_pings_ns,
            ping,
            db: seen("/db", self.db)?.0,
            work_per_s: served / (end - from).as_secs_f64(),
            cpu_share: None,
        })
    }
}

/// All clients that ask again once they have their answer, in one thread: so they take little CPU time from the service. Returns how
/// many requests were served in the window.
fn ask_again(pool: &Pool, clients: usize, request: &[u8], shared: &Shared) -> io::Result<f64> {
    let connections = (0..clients).map(|_| pool.take(None));
    let mut clients = Vec::with_capacity(clients);
    for mut connection in connections.collect::<io::Result<Vec<_>>>()? {
        connection.send(request)?;
        clients.push((connection, Client::new(Instant::now())));
    }
    ask_until_over(pool, &mut clients, request, shared)?;
    let now = Instant::now();
    let served = clients
        .iter()
        .map(|(_, client)| client.served(now, shared.window));
    Ok(served.sum())
}

fn ask_until_over(
    pool: &Pool,
    clients: &mut [(Connection, Client)],
    request: &[u8],
    shared: &Shared,
) -> io::Result<()> {
    let wait_for = |(connection, _): &(Connection, Client)| libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut ready: Vec<libc::pollfd> = clients.iter().map(wait_for).collect();
    // Relaxed: it looks again soon.
    while !shared.is_over.load(Ordering::Relaxed) {
        let timeout_ms = LOOK.as_millis() as libc::c_int;
        // SAFETY: poll writes into the array alone, which has this many elements and outlives the call; the files are open, for
        // `clients` has them.
        let count =
            unsafe { libc::poll(ready.as_mut_ptr(), ready.len() as libc::nfds_t, timeout_ms) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            continue;
        }
        let answered = clients
            .iter_mut()
            .zip(&mut ready)
            .filter(|(_, one)| one.revents != 0);
        for ((connection, client), one) in answered {
            // There is something to read, so that this does not block.
            if connection.receive()? {
                client.answered(Instant::now(), shared.window);
                pool.exchange(connection)?;
                one.fd = connection.as_raw_fd();
                connection.send(request)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The window begins when all clients have surely been started.
    fn load(listener: &TcpListener, clients: usize, length: Duration) -> Load {
        let from = Instant::now() + Duration::from_secs(2);
        let window = Window {
            from,
            end: from + length,
        };
        let server = listener.local_addr().unwrap();
        Load::start(server, Connections::Own, "/report", clients, 250.0, window).unwrap()
    }

    #[test]
    fn a_server_that_never_answers_counts_with_every_missed_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seen = load(&listener, 1, Duration::from_millis(400))
            .finish(|| ())
            .unwrap();
        assert_eq!((seen.ping.latency_ns.ended(), seen.work_per_s), (0.0, 0.0));
        let wanted = [seen.ping.wanted_per_s, seen.db.wanted_per_s];
        assert_eq!(wanted, [1_000.0, 250.0], "as dense as they say");
        // Due in the two seconds before the window, as dense.
        let first = seen.first_pings_ns;
        assert_eq!(first.ended(), 0.0, "{first:?}");
        assert!((1_700..=2_048).contains(&first.pending), "{first:?}");
        let [ping, db] = [seen.ping, seen.db].map(|seen| seen.latency_ns);
        // Each connection has a request every 64 ms: six or seven.
        assert!((64 * 6..=64 * 7).contains(&ping.n), "{ping:?}");
        assert!((16 * 6..=16 * 7).contains(&db.n), "{db:?}");
        assert!(ping.p50.unwrap() > 500_000_000, "{ping:?}");
    }

    #[test]
    fn a_connection_that_breaks_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closer = listener.try_clone().unwrap();
        let closes = std::thread::spawn(move || {
            for _ in 0..CONNECTIONS.iter().sum() {
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
