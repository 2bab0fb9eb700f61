//! Handlers that occupy their worker, several at once, until the test releases them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::PATIENCE;

/// The minimum time that a hog spends in its poll.
pub const POLL: Duration = Duration::from_millis(200);

const MS: Duration = Duration::from_millis(1);

/// How a hog occupies its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It uses a CPU.
    Computes,
    /// It sleeps in the kernel.
    Sleeps,
}

/// The end of a hog's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After [`POLL`].
    Time,
    /// After [`POLL`], but not before the neighbour has its answer. On tokio the poll would never end.
    Answered,
}

/// Hogs that belong together, and their progress. Clones refer to the same hogs.
///
/// They gather before they begin ([`Hogs::turn`]), so that all requests are in flight when the first hog
/// takes its worker. The time of each counts from the moment when enough of them are in their polls at once
/// ([`Hogs::together`]).
#[derive(Clone, Debug)]
pub struct Hogs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kind: Kind,
    until: Until,
    together: usize,
    start: Semaphore,
    gathered: AtomicUsize,
    entered: AtomicUsize,
    left: AtomicUsize,
    answered: AtomicBool,
}

impl Hogs {
    /// Makes hogs of which `together` will be in their polls at once.
    #[must_use]
    pub fn new(kind: Kind, until: Until, together: usize) -> Hogs {
        Hogs(Arc::new(Shared {
            kind,
            until,
            together,
            start: Semaphore::new(0),
            gathered: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
        }))
    }

    /// Waits until the test lets the hog begin, and then occupies the worker for one long poll. A handler
    /// awaits it.
    pub async fn hog(&self) {
        self.turn().await;
        self.hold();
    }

    /// Waits asynchronously until the test lets the hogs begin.
    pub async fn turn(&self) {
        self.0.gathered.fetch_add(1, Ordering::SeqCst);
        if let Ok(permit) = self.0.start.acquire().await {
            permit.forget();
        }
    }

    /// Computes or sleeps, and does not return to the runtime meanwhile.
    pub fn hold(&self) {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let last_resort = Instant::now() + PATIENCE;
        self.pass_until(|| self.entered() >= self.0.together || Instant::now() > last_resort);
        match self.0.kind {
            Kind::Computes => {
                let end = Instant::now() + POLL;
                self.pass_until(|| Instant::now() >= end);
            }
            Kind::Sleeps => std::thread::sleep(POLL),
        }
        if self.0.until == Until::Answered {
            self.pass_until(|| {
                self.0.answered.load(Ordering::SeqCst) || Instant::now() > last_resort
            });
        }
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }

    /// Computes or sleeps until `condition` holds.
    fn pass_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            match self.0.kind {
                // Arithmetic and no `spin_loop`: in a virtual machine that may give the CPU away.
                Kind::Computes => (0..1000).for_each(|i| {
                    std::hint::black_box(i);
                }),
                Kind::Sleeps => std::thread::sleep(MS),
            }
        }
    }

    /// The number of hogs that have reached [`Hogs::turn`].
    #[must_use]
    pub fn gathered(&self) -> usize {
        self.0.gathered.load(Ordering::SeqCst)
    }

    /// The number of hogs that have begun their long poll.
    #[must_use]
    pub fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    /// The number of hogs that have ended their long poll.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.left.load(Ordering::SeqCst)
    }

    /// The number of hogs that are in their polls at once before any of them ends.
    #[must_use]
    pub fn together(&self) -> usize {
        self.0.together
    }

    /// Lets `hogs` of them begin.
    pub fn begin(&self, hogs: usize) {
        self.0.start.add_permits(hogs);
    }

    /// Releases the hogs, once the neighbour has its answer.
    pub fn answered(&self) {
        self.0.answered.store(true, Ordering::SeqCst);
    }
}
