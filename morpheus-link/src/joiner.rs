//! The thread that keeps the link: finds the daemon, has the slots move to its memory, and binds their threads.
//!
//! It sleeps in `poll` and has no timer of its own, but for the first seconds after a failure.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use morpheus_common::broker::DEFAULT_SOCKET;
use morpheus_common::slot::{SlotFlag, WorkerState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::area::SharedArea;
use crate::choice::{ActiveLink, Link, LinkError};
use crate::client::{self, Client};
use crate::presence;
use crate::ring::Ring;
use crate::state::{self, Handed, State};
use crate::table::{Lease, Table};
use morpheus_system::supervise::supervise;
use morpheus_system::{clock, threads};

/// The waits before further tries after a failure. Afterwards the joiner tries only when something changes at the socket.
/// These tries find a daemon that appeared just before the first try, or was not quite ready then.
const TRIES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// A daemon that refuses, or ends a link soon, may have room later, and one that does not answer may have been stopped, or be swapped
/// out. Nothing tells when that is over.
const LATER: Duration = Duration::from_secs(30);
/// A link of this length was in order. One that ends sooner counts as a failure, or it would be made again and again.
const LASTING: Duration = Duration::from_secs(5);
/// How long `Required` waits.
const REQUIRED_WITHIN: Duration = Duration::from_secs(10);
/// A daemon takes a thousand requests in a second, over the burst; half of that leaves room.
const REQUESTS_PER_SECOND: u32 = 500;

pub use crate::client::Terms;

/// The result of a try.
enum Tried {
    Failed,
    /// The daemon refused, or did not answer in time, or this process had no memory or descriptors for the link.
    FailedForNow,
    /// A link, which ended after this time.
    Joined(Duration),
}

/// When to try again.
struct Tries(std::slice::Iter<'static, Duration>);

impl Tries {
    fn new() -> Tries {
        Tries(TRIES.iter())
    }

    /// The pause until the next try; none where only a change at the socket is a reason for one.
    fn pause_after(&mut self, tried: Tried) -> Option<Duration> {
        let may_heal = match tried {
            Tried::Failed => false,
            Tried::Joined(lasted) if lasted >= LASTING => {
                *self = Tries::new();
                false
            }
            Tried::FailedForNow | Tried::Joined(_) => true,
        };
        self.0.next().copied().or(may_heal.then_some(LATER))
    }
}

/// Whether a later try may succeed though nothing changes at the socket: the daemon may take the runtime then, or this system may have
/// memory and descriptors.
fn is_for_now(error: &LinkError) -> bool {
    match error {
        LinkError::Refused { .. } => true,
        LinkError::Failed { source, .. } => {
            let lacks_descriptors =
                matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
            lacks_descriptors
                || matches!(
                    source.kind(),
                    io::ErrorKind::TimedOut
                        | io::ErrorKind::OutOfMemory
                        | io::ErrorKind::QuotaExceeded
                )
        }
        _ => false,
    }
}

/// The runtime whose link is kept.
pub trait Host: Send + Sync + 'static {
    /// The state that the joiner shares with the runtime.
    fn link(&self) -> &State;
    /// The slots, which move into the daemon's memory.
    fn slots(&self) -> &Table;
    /// Returns the terms of the runtime for the daemon. Called before each try.
    fn terms(&self) -> Terms;
    /// The controller's thread id; 0 until it runs.
    fn controller_tid(&self) -> u32;
    /// Wakes the controller, so that it takes its end of a link or gives it up.
    fn wake_controller(&self);
    /// Takes an event of the link.
    fn report(&self, event: LinkEvent<'_>);
}

/// An event of a link, for the runtime.
#[derive(Debug)]
pub enum LinkEvent<'a> {
    /// No daemon was joined.
    NoLink(&'a LinkError),
    /// A daemon was joined.
    Joined(ActiveLink),
    /// The daemon has ended.
    DaemonGone(io::Error),
    /// The joiner's thread panicked.
    Panicked {
        /// The text of the panic.
        text: &'a str,
        /// Whether it starts again.
        restarts: bool,
    },
}

/// Starts the thread, unless no daemon's link is wanted, or no daemon has been on this machine: then the controller calls
/// [`start_late`] when one has.
///
/// # Errors
///
/// With [`Link::Required`], when no daemon was joined.
pub fn start<H: Host>(host: &Arc<H>, link: Link, socket: Option<PathBuf>) -> Result<(), LinkError> {
    if link == Link::Watchdog {
        return Ok(());
    }
    let named = socket.or_else(state::named_socket);
    if named.is_none() && link == Link::Auto && !state::has_default_directory() {
        host.link().wait_for_directory();
        return Ok(());
    }
    let path = named.unwrap_or_else(|| DEFAULT_SOCKET.into());
    let failed = |source| LinkError::failed(&path, source);
    let (sender, first) = bounded(1);
    let started = begin(host.clone(), path.clone(), sender);
    match (started, link) {
        (Err(error), Link::Required) => Err(failed(error)),
        // Without a descriptor or a thread for it: the watchdog alone, until there is one.
        (Err(_), _) => {
            if path == Path::new(DEFAULT_SOCKET) {
                host.link().wait_for_directory();
            }
            Ok(())
        }
        (Ok(()), Link::Required) => first
            .recv_timeout(REQUIRED_WITHIN)
            .unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into()))),
        (Ok(()), _) => Ok(()),
    }
}

/// Starts the thread at last, because the directory of the default socket is there. Without a descriptor or a thread for
/// it the directory is looked for again.
pub fn start_late<H: Host>(host: &Arc<H>) {
    let (sender, _) = bounded(1);
    if begin(host.clone(), DEFAULT_SOCKET.into(), sender).is_err() {
        host.link().wait_for_directory();
    }
}

fn begin<H: Host>(
    host: Arc<H>,
    path: PathBuf,
    first: Sender<Result<(), LinkError>>,
) -> io::Result<()> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (own, controllers) = (bell()?, bell()?);
    let _ = host.link().bell.set(own);
    let _ = host.link().controller_bell.set(controllers);
    let thread = std::thread::Builder::new().name("morpheus-link".into());
    threads::start(thread, move || serve(&host, &path, first))?;
    Ok(())
}

/// The life of the thread. A panic ends the link that there is; after too many there is none any more.
fn serve<H: Host>(host: &Arc<H>, path: &Path, first: Sender<Result<(), LinkError>>) {
    let mut first = Some(first);
    let link = host.link();
    supervise(
        || keep(host, path, &mut first),
        |text, restarts| {
            if link.active() != ActiveLink::Watchdog {
                count_lost(&**host);
            }
            leave(&**host);
            host.report(LinkEvent::Panicked { text, restarts });
        },
    );
}

/// Counts a link that ended while the runtime was there.
fn count_lost(host: &impl Host) {
    let link = host.link();
    // Relaxed, both: statistics.
    link.lost.fetch_add(1, Ordering::Relaxed);
    link.silent_ns.store(clock::now_ns(), Ordering::Relaxed);
}

/// Puts the watchdog in force, whatever was before.
fn leave(host: &impl Host) {
    host.slots().use_own_memory();
    host.link().set_active(ActiveLink::Watchdog);
    host.link().lose();
    host.wake_controller();
}

/// Joins a daemon, again and again, until the runtime ends.
fn keep<H: Host>(host: &Arc<H>, path: &Path, first: &mut Option<Sender<Result<(), LinkError>>>) {
    let Some(bell) = host.link().bell.get() else {
        return;
    };
    let mut tries = Tries::new();
    while !host.link().stops() {
        host.slots().return_memory();
        let joined = client::join(path, host.terms()).and_then(|(client, shared, ring)| {
            let begun = Session::begin(&**host, client, shared, ring);
            begun.map_err(|source| LinkError::failed(path, source))
        });
        let (result, session) = match joined {
            // Before the first answer: the thread that gets it finds the link in force.
            Ok(session) => (Ok(()), Some(session)),
            Err(error) => {
                host.report(LinkEvent::NoLink(&error));
                (Err(error), None)
            }
        };
        let is_for_now = result.as_ref().is_err_and(is_for_now);
        if let Some(first) = first.take() {
            let _ = first.send(result);
        }
        let tried = match session {
            Some(session) => {
                let begun = Instant::now();
                session.keep(bell);
                Tried::Joined(begun.elapsed())
            }
            None if is_for_now => Tried::FailedForNow,
            None => Tried::Failed,
        };
        if host.link().stops() {
            return;
        }
        let pause = tries.pause_after(tried);
        let begun = Instant::now();
        presence::wait(path, bell.as_fd(), pause);
        drain(bell);
        // Something changed: it may take a moment until it answers.
        if pause.is_none_or(|pause| begun.elapsed() < pause) {
            tries = Tries::new();
        }
    }
}

fn drain(bell: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(bell, &mut count);
}

/// A link in force.
struct Session<'a, H> {
    host: &'a H,
    client: Client,
    /// The thread that each slot is bound to; 0 for none.
    bound: Vec<u32>,
    second: Instant,
    requests: u32,
}

impl<'a, H: Host> Session<'a, H> {
    fn begin(
        host: &'a H,
        client: Client,
        shared: SharedArea,
        ring: Ring,
    ) -> io::Result<Session<'a, H>> {
        let link = host.link();
        let slots = shared.slots();
        let shared = host.slots().share(shared)?;
        introduce_controller(host, shared, slots - 1);
        // Relaxed: read by the controller after it was handed its end.
        link.is_lost.store(false, Ordering::Relaxed);
        link.hand(Handed {
            ring,
            lease: shared,
            joined_ns: clock::now_ns(),
        });
        link.set_active(ActiveLink::of_mode(client.mode));
        // SeqCst, pairs with the one in `State::slots_changed`.
        fence(Ordering::SeqCst);
        link.joined.fetch_add(1, Ordering::Relaxed);
        host.report(LinkEvent::Joined(link.active()));
        host.wake_controller();
        Ok(Session {
            host,
            client,
            bound: vec![0; slots],
            second: Instant::now(),
            requests: 0,
        })
    }

    /// Until the daemon goes, is found silent, or the runtime ends.
    fn keep(mut self, bell: &OwnedFd) {
        let link = self.host.link();
        let why = loop {
            if let Err(error) = self.bind_all() {
                break error;
            }
            let mut both = [
                PollFd::from_borrowed_fd(self.client.fd(), PollFlags::IN),
                PollFd::new(bell, PollFlags::IN),
            ];
            let _ = poll(&mut both, None);
            if !both[0].revents().is_empty() {
                break io::ErrorKind::ConnectionAborted.into();
            }
            drain(bell);
            if link.stops() || link.is_lost() {
                break io::ErrorKind::TimedOut.into();
            }
        };
        let is_lost = !link.stops();
        // First: with the watchdog in force again, the link is among those that were lost.
        if is_lost {
            count_lost(self.host);
        }
        leave(self.host);
        if is_lost {
            self.host.report(LinkEvent::DaemonGone(why));
        }
    }

    /// Binds the threads that have taken a slot since, and unbinds those that left theirs. Also those whose slots
    /// have not moved yet, for they parked, or are held, before the daemon came: nothing happens to them until they
    /// have, and then they are known.
    fn bind_all(&mut self) -> io::Result<()> {
        let slots = self.host.slots().in_use().min(self.bound.len() - 1);
        for index in 0..slots {
            // Acquire, pairs with the Release in `claim_slow`.
            let tid = self.host.slots().runtime(index).tid.load(Ordering::Acquire);
            self.bind(index, tid)?;
        }
        let controller = self.host.controller_tid();
        self.bind(self.bound.len() - 1, controller)
    }

    fn bind(&mut self, index: usize, tid: u32) -> io::Result<()> {
        if self.bound[index] == tid {
            return Ok(());
        }
        self.pace();
        if tid == 0 {
            self.client.unregister(index)?;
        } else {
            self.client.register(index, tid)?;
        }
        self.bound[index] = tid;
        Ok(())
    }

    /// Stays below the daemon's limit on requests: the daemon ends a connection that exceeds it.
    fn pace(&mut self) {
        let passed = self.second.elapsed();
        if passed >= Duration::from_secs(1) {
            self.second = Instant::now();
            self.requests = 0;
        } else if self.requests >= REQUESTS_PER_SECOND {
            std::thread::sleep(Duration::from_secs(1) - passed);
            self.second = Instant::now();
            self.requests = 0;
        }
        self.requests += 1;
    }
}

/// The controller has the last slot.
fn introduce_controller(host: &impl Host, shared: Lease, index: usize) {
    let slot = host.slots().slot_in(shared, index);
    slot.set_flag(SlotFlag::Controller);
    slot.tid.store(host.controller_tid(), Ordering::Relaxed);
    slot.set_state(WorkerState::Running);
}

#[cfg(test)]
mod tests {
    use morpheus_common::broker::Reply;

    use super::*;

    /// Else a daemon that ends each link, as one does whose limit the first requests exceed, would be joined fifty times in a second.
    #[test]
    fn a_link_that_ends_soon_is_a_failure() {
        let mut tries = Tries::new();
        let soon = || Tried::Joined(Duration::from_millis(1));
        let pauses: Vec<_> = (0..6).map(|_| tries.pause_after(soon())).collect();
        let mut expected: Vec<_> = TRIES.map(Some).to_vec();
        expected.extend([Some(LATER), Some(LATER)]);
        assert_eq!(pauses, expected);
        assert_eq!(tries.pause_after(Tried::Failed), None);
        assert_eq!(tries.pause_after(Tried::Joined(LASTING)), Some(TRIES[0]));
        assert_eq!(tries.pause_after(soon()), Some(TRIES[1]));
    }

    /// Its socket file does not change when it goes on, so that nothing else would have it tried again.
    #[test]
    fn a_daemon_that_does_not_answer_is_tried_again_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let terms = Terms {
            slots: 2,
            policy: 0,
            budget_ns: 1_000_000,
            grace_ns: 1_000_000,
        };
        let absent = client::join(&path, terms).unwrap_err();
        assert!(!is_for_now(&absent), "{absent}");
        // It listens, and is stopped.
        let _daemon = listener(&path);
        let silent = client::join(&path, terms).unwrap_err();
        assert!(is_for_now(&silent), "{silent}");
        let mut tries = Tries::new();
        let pauses = (0..6).map(|_| tries.pause_after(Tried::FailedForNow));
        assert_eq!(pauses.last(), Some(Some(LATER)));
    }

    /// A daemon's socket that gives no answer yet.
    fn listener(path: &Path) -> OwnedFd {
        let (family, kind) = (
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
        );
        let daemon = rustix::net::socket(family, kind, None).unwrap();
        let address = rustix::net::SocketAddrUnix::new(path).unwrap();
        rustix::net::bind(&daemon, &address).unwrap();
        rustix::net::listen(&daemon, 8).unwrap();
        daemon
    }

    /// The kernel keeps back the descriptors of a packet for which the process has no room. It may have room later.
    #[test]
    fn a_lack_of_descriptors_is_for_now() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for number in [libc::EMFILE, libc::ENFILE] {
            let error = LinkError::failed(&path, io::Error::from_raw_os_error(number));
            assert!(is_for_now(&error), "{error}");
        }
        let daemon = listener(&path);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = rustix::net::accept(&daemon).unwrap();
                let mut hello = [0_u8; 64];
                rustix::net::recv(&client, &mut hello, rustix::net::RecvFlags::empty()).unwrap();
                let welcome = Reply::Welcome { mode: 0, slots: 2 }.encode();
                let flags = rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(&client, welcome.bytes(), flags).unwrap();
            });
            let terms = Terms {
                slots: 2,
                policy: 0,
                budget_ns: 1_000_000,
                grace_ns: 1_000_000,
            };
            client::join(&path, terms).unwrap_err()
        });
        assert!(is_for_now(&error), "{error}");
    }
}
