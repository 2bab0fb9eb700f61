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

use crate::domain::Domain;
use crate::link::client::{self, Client, Terms};
use crate::link::ring::Ring;
use crate::link::{self, ActiveLink, Handed, Link, LinkError, presence};
use crate::report::event::{self, Report, Thread};
use crate::slot::area::SharedArea;
use crate::slot::table::Lease;
use crate::supervise::supervise;
use morpheus_system::clock;

/// After a failure it is tried again after so long; then only when something changes at the socket. What
/// changed just before the try, or was not quite ready, is found by these.
const TRIES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// A daemon that refuses may have room later, and nothing tells when.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// How long `Required` waits.
const REQUIRED_WITHIN: Duration = Duration::from_secs(10);
/// A daemon takes a thousand requests in a second, over the burst; half of that leaves room.
const REQUESTS_PER_SECOND: u32 = 500;

/// Starts the thread, unless no daemon's link is wanted, or no daemon has been on this machine: then the controller calls
/// [`start_late`] when one has.
///
/// # Errors
///
/// With [`Link::Required`], when no daemon was joined.
pub(crate) fn start(
    domain: &Arc<Domain>,
    link: Link,
    socket: Option<PathBuf>,
) -> Result<(), LinkError> {
    if link == Link::Watchdog {
        return Ok(());
    }
    let named = socket.or_else(link::named_socket);
    if named.is_none() && link == Link::Auto && !link::has_default_directory() {
        domain.link.wait_for_directory();
        return Ok(());
    }
    let path = named.unwrap_or_else(|| DEFAULT_SOCKET.into());
    let failed = |source: io::Error| LinkError::Failed {
        path: path.display().to_string(),
        source,
    };
    let (sender, first) = bounded(1);
    let started = begin(domain.clone(), path.clone(), sender);
    match (started, link) {
        // Without a descriptor or a thread for it: the watchdog alone.
        (Err(error), Link::Required) => Err(failed(error)),
        (Err(_), _) => Ok(()),
        (Ok(()), Link::Required) => first
            .recv_timeout(REQUIRED_WITHIN)
            .unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into()))),
        (Ok(()), _) => Ok(()),
    }
}

/// Starts the thread at last, because the directory of the default socket is there.
pub(crate) fn start_late(domain: &Arc<Domain>) {
    let (sender, _) = bounded(1);
    // Without a descriptor or a thread for it: the watchdog alone.
    let _ = begin(domain.clone(), DEFAULT_SOCKET.into(), sender);
}

fn begin(
    domain: Arc<Domain>,
    path: PathBuf,
    first: Sender<Result<(), LinkError>>,
) -> io::Result<()> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (own, controllers) = (bell()?, bell()?);
    let _ = domain.link.bell.set(own);
    let _ = domain.link.controller_bell.set(controllers);
    std::thread::Builder::new()
        .name("morpheus-link".into())
        .spawn(move || serve(&domain, &path, first))?;
    Ok(())
}

/// The life of the thread. A panic ends the link that there is; after too many there is none any more.
fn serve(domain: &Arc<Domain>, path: &Path, first: Sender<Result<(), LinkError>>) {
    let mut first = Some(first);
    let link = &domain.link;
    supervise(
        || keep(domain, path, &mut first),
        |text, restarts| {
            let was_joined = link.active() != ActiveLink::Watchdog;
            leave(domain);
            if was_joined {
                count_lost(domain);
            }
            // Relaxed: a statistic.
            domain
                .counters
                .joiner_restarts
                .fetch_add(u64::from(restarts), Ordering::Relaxed);
            domain.reports.send(Report::Panicked {
                thread: Thread::Joiner,
                text: text.to_owned(),
                restarts,
            });
        },
    );
}

/// Counts a link that ended while the runtime was there.
fn count_lost(domain: &Domain) {
    let link = &domain.link;
    // Relaxed, both: statistics.
    link.lost.fetch_add(1, Ordering::Relaxed);
    link.silent_ns.store(clock::now_ns(), Ordering::Relaxed);
}

/// Puts the watchdog in force, whatever was before.
fn leave(domain: &Domain) {
    domain.slots.use_own_memory();
    domain.link.set_active(ActiveLink::Watchdog);
    domain.link.lose();
    domain.wake_controller();
}

/// Joins a daemon, again and again, until the runtime ends.
fn keep(domain: &Arc<Domain>, path: &Path, first: &mut Option<Sender<Result<(), LinkError>>>) {
    let Some(bell) = domain.link.bell.get() else {
        return;
    };
    let mut tries = TRIES.iter();
    while !domain.link.stops() {
        #[cfg(test)]
        domain.faults.joiner.strike();
        let (result, session) = match client::join(path, terms(domain)) {
            // Before the first answer is given: who gets it finds the link in force.
            Ok((client, shared, ring)) => {
                let session = Session::begin(domain, client, shared, ring);
                (Ok(()), Some(session))
            }
            Err(error) => {
                if event::wants_details() {
                    domain.reports.send(Report::NoLink(error.to_string()));
                }
                (Err(error), None)
            }
        };
        let refused = matches!(result, Err(LinkError::Refused { .. }));
        if let Some(first) = first.take() {
            let _ = first.send(result);
        }
        if let Some(session) = session {
            session.keep(bell);
            tries = TRIES.iter();
        }
        if domain.link.stops() {
            return;
        }
        let pause = match tries.next() {
            Some(&pause) => Some(pause),
            None => refused.then_some(REFUSED_AGAIN),
        };
        let begun = Instant::now();
        presence::wait(path, bell.as_fd(), pause);
        drain(bell);
        // Something changed: it may take a moment until it answers.
        if pause.is_none_or(|pause| begun.elapsed() < pause) {
            tries = TRIES.iter();
        }
    }
}

fn terms(domain: &Domain) -> Terms {
    let settings = &domain.settings;
    Terms {
        // The last one is the controller's.
        slots: domain.slots.room() + 1,
        policy: settings.policy as u32,
        budget_ns: settings.budget_ns,
        grace_ns: settings.grace_ns,
    }
}

fn drain(bell: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(bell, &mut count);
}

/// A link in force.
struct Session<'a> {
    domain: &'a Arc<Domain>,
    client: Client,
    /// The thread that each slot is bound to; 0 for none.
    bound: Vec<u32>,
    second: Instant,
    requests: u32,
}

impl<'a> Session<'a> {
    fn begin(
        domain: &'a Arc<Domain>,
        client: Client,
        shared: SharedArea,
        ring: Ring,
    ) -> Session<'a> {
        let link = &domain.link;
        let slots = shared.slots();
        let shared = domain.slots.share(shared);
        introduce_controller(domain, shared, slots - 1);
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
        domain.reports.send(Report::Joined(link.active()));
        domain.wake_controller();
        Session {
            domain,
            client,
            bound: vec![0; slots],
            second: Instant::now(),
            requests: 0,
        }
    }

    /// Until the daemon goes, is found silent, or the runtime ends.
    fn keep(mut self, bell: &OwnedFd) {
        let link = &self.domain.link;
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
        leave(self.domain);
        if !link.stops() {
            count_lost(self.domain);
            self.domain.reports.send(Report::DaemonGone(why));
        }
    }

    /// Binds the threads that have taken a slot since, and unbinds those that left theirs. Also those whose slots
    /// have not moved yet, for they parked, or are held, before the daemon came: nothing happens to them until they
    /// have, and then they are known.
    fn bind_all(&mut self) -> io::Result<()> {
        let slots = self.domain.slots.in_use().min(self.bound.len() - 1);
        for index in 0..slots {
            // Acquire, pairs with the Release in `claim_slow`.
            let tid = self.domain.slots.runtime(index).tid.load(Ordering::Acquire);
            self.bind(index, tid)?;
        }
        let controller = self.domain.controller_tid.load(Ordering::Relaxed);
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

    /// Keeps below the daemon's limit: who exceeds it is thrown out.
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
fn introduce_controller(domain: &Domain, shared: Lease, index: usize) {
    let slot = domain.slots.slot_in(shared, index);
    slot.set_flag(SlotFlag::Controller);
    slot.tid.store(
        domain.controller_tid.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    slot.set_state(WorkerState::Running);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    #[test]
    fn a_joiner_that_panics_starts_again_and_stays_off_in_the_end() {
        let nowhere = std::env::temp_dir().join("morpheus-no-daemon-here");
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link_socket(nowhere);
        let runtime = builder.build().unwrap();
        let domain = runtime.domain();
        let restarts = || runtime.metrics().joiner_restarts;
        for expected in [1, 2, 3, 3] {
            domain.faults.joiner.arm(1);
            let until = Instant::now() + Duration::from_secs(60);
            while domain.faults.joiner.is_armed() || restarts() < expected {
                assert!(Instant::now() < until, "{expected} restarts");
                domain.link.wake_joiner();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!((restarts(), runtime.link()), (3, ActiveLink::Watchdog));
        assert_eq!(runtime.block_on(async { 7 }), 7);
    }

    #[test]
    fn required_says_no_when_the_joiner_stays_off() {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1);
        let runtime = builder.link(Link::Watchdog).build().unwrap();
        let domain = runtime.domain();
        domain.faults.joiner.arm(usize::MAX);
        let nowhere = std::env::temp_dir().join("morpheus-no-daemon-here");
        let began = Instant::now();
        let result = start(domain, Link::Required, Some(nowhere));
        assert!(
            matches!(result, Err(LinkError::Failed { .. })),
            "{result:?}"
        );
        assert!(began.elapsed() < REQUIRED_WITHIN);
    }
}
