//! Hogs: tasks that stall in every poll.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use morpheus_harness::clock;
use tokio::sync::{Semaphore, oneshot};

use super::blocker::Blocker;
use super::result::HogSummary;
use super::workload::{HogKind, Via, Workload};
use crate::code::Code;
use crate::executor::{Executor, Spawn};
use crate::work;

/// One hog.
pub struct Hog {
    kind: HogKind,
    time: Duration,
    blocker: Option<Blocker>,
    polls: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Hog {
    /// Stalls once. `tick` is called about every 10 µs by a hog that computes.
    pub fn stick(&self, mut tick: impl FnMut()) {
        let before = self.cpu_ns.load(Relaxed);
        let start = clock::thread_cpu();
        match (self.kind, &self.blocker) {
            // The time is put down as it is used, so that a window may begin and end within a poll.
            (HogKind::Cpu, _) => work::burn(self.time, |used| {
                self.cpu_ns.store(before + used.as_nanos() as u64, Relaxed);
                tick();
            }),
            (_, Some(blocker)) => blocker.block(self.time),
            (_, None) => std::thread::sleep(self.time),
        }
        let used = clock::thread_cpu() - start;
        self.cpu_ns.store(before + used.as_nanos() as u64, Relaxed);
        self.polls.fetch_add(1, Relaxed);
    }
}

/// All hogs of a run.
pub struct Hogs {
    /// Padded: hogs that count on different CPUs do not share a cache line.
    hogs: Vec<Arc<CachePadded<Hog>>>,
    herd: Arc<Herd>,
}

/// How the code of the hogs is written, how they are told to end, and how many have not yet.
pub struct Herd {
    code: Code,
    permits: Semaphore,
    stop: AtomicBool,
    /// Each hog that has not ended has another handle.
    alive: Arc<()>,
}

impl Herd {
    /// A hog stalls once, in a task.
    async fn stick(&self, hog: Arc<CachePadded<Hog>>) {
        let stuck = self.code.run(&self.permits, move || hog.stick(|| ()));
        // An error means that the runtime ends.
        drop(stuck.await);
    }

    /// Whether the hogs are to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Counts a hog for as long as what is returned lives.
    pub fn living(&self) -> Arc<()> {
        self.alive.clone()
    }

    fn count_alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}

/// The polls and CPU time of hogs at one moment.
#[derive(Clone, Copy)]
pub struct Reading {
    polls: u64,
    cpu_ns: u64,
}

impl Hogs {
    /// Makes the hogs of a workload; none of them runs yet.
    ///
    /// # Errors
    /// When what blocking hogs wait for cannot be made.
    pub fn new(workload: &Workload) -> io::Result<Self> {
        let kind = workload.hog_kind;
        let mut blockers = match kind {
            HogKind::Mutex | HogKind::Read => Blocker::start(kind, workload.hogs)?,
            HogKind::Cpu | HogKind::Sleep => Vec::new(),
        };
        let mut hog = || Hog {
            kind,
            time: workload.hog_time(),
            blocker: blockers.pop(),
            polls: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
        };
        Ok(Self {
            hogs: (0..workload.hogs)
                .map(|_| Arc::new(CachePadded::new(hog())))
                .collect(),
            herd: Arc::new(Herd {
                code: workload.hog_code,
                permits: Semaphore::new(workload.workers),
                stop: AtomicBool::new(false),
                alive: Arc::default(),
            }),
        })
    }

    /// The hogs, for those who start them in their own way.
    pub fn each(&self) -> impl Iterator<Item = (Arc<CachePadded<Hog>>, Arc<Herd>)> {
        self.hogs.iter().map(|hog| (hog.clone(), self.herd.clone()))
    }

    /// Starts them: each stalls, yields, and stalls again.
    pub fn spawn<E: Executor>(&self, executor: &E, via: Via) {
        for (hog, herd) in self.each() {
            let living = herd.living();
            executor.spawn(via.into(), async move {
                let _living = living;
                while !herd.stopped() {
                    herd.stick(hog.clone()).await;
                    E::yield_now().await;
                }
            });
        }
    }

    /// Starts small unwatched parents; each poll of a hog is a new task of its parent.
    pub fn spawn_fresh<E: Executor>(&self, executor: &E, via: Via) {
        for (hog, herd) in self.each() {
            let (living, own) = (herd.living(), executor.clone());
            executor.spawn(Spawn::Plain, async move {
                let _living = living;
                while !herd.stopped() {
                    let (done, is_done) = oneshot::channel::<()>();
                    let (hog, herd) = (hog.clone(), herd.clone());
                    own.spawn(via.into(), async move {
                        let _done = done;
                        // One that has waited for its turn until the end need not begin.
                        if !herd.stopped() {
                            herd.stick(hog).await;
                        }
                    });
                    // An error is how a sender that is dropped says so.
                    let _ = is_done.await;
                }
            });
        }
    }

    /// The polls and CPU time of the hogs so far.
    pub fn read(&self) -> Reading {
        Reading {
            polls: self.hogs.iter().map(|hog| hog.polls.load(Relaxed)).sum(),
            cpu_ns: self.hogs.iter().map(|hog| hog.cpu_ns.load(Relaxed)).sum(),
        }
    }

    /// Tells them to end and waits for at most `bound` until their polls have.
    pub fn finish(
        &self,
        window: (Reading, Reading),
        elapsed: Duration,
        bound: Duration,
    ) -> HogSummary {
        self.herd.stop.store(true, Relaxed);
        let pause = Duration::from_millis(2);
        clock::within(bound, pause, || self.herd.count_alive() == 0);
        let cpu_ns = window.1.cpu_ns - window.0.cpu_ns;
        let polls = self.hogs.iter().map(|hog| hog.polls.load(Relaxed));
        HogSummary {
            polls: window.1.polls - window.0.polls,
            cpu_share: cpu_ns as f64 / elapsed.as_nanos().max(1) as f64,
            unfinished: self.herd.count_alive(),
            without_a_poll: polls.filter(|polls| *polls == 0).count(),
        }
    }
}

impl From<Via> for Spawn {
    fn from(via: Via) -> Self {
        match via {
            Via::Spawn => Self::Watched,
            Via::TokioSpawn => Self::Plain,
        }
    }
}
