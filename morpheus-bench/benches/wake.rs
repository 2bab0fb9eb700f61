//! From the wake of a task to its next poll.
//!
//! `parked`: another thread wakes it while the worker sleeps, which is waited for and read from tokio's own counter;
//! the worker's way out of the kernel is included. `busy`: another task of the same worker wakes it, and is done:
//! what is left is tokio's queue. The time is taken before `wake` and at the beginning of the poll; one reading of
//! the clock (`clock`) is included: subtract it where it matters. Both times leave the loop in its sum.
//!
//! Each on tokio alone, on Morpheus unwatched, and watched. (Workers of Morpheus have shorter slices, which shows where
//! the machine is not idle.) That the task is watched, or is not, is shown first, by
//! whether it is asked to yield; each wake must lead to one poll.

mod support;

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::Policy;
use tokio::runtime::Handle;

/// A task that notes when it is polled, and the waker of its last poll.
struct Sleeper {
    origin: Instant,
    waker: Mutex<Option<Waker>>,
    polls: AtomicU64,
    polled_ns: AtomicU64,
    ends: AtomicBool,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            waker: Mutex::default(),
            polls: AtomicU64::new(0),
            polled_ns: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        })
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    async fn sleep(self: Arc<Self>, watched: bool) {
        if watched {
            support::until_requested();
        } else {
            support::never_requested();
        }
        poll_fn(|context| {
            let now_ns = self.now_ns();
            if self.ends.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let mut waker = self.waker.lock().expect("nobody panics with it");
            *waker = Some(context.waker().clone());
            self.polled_ns.store(now_ns, Ordering::Relaxed);
            // Release: pairs with the Acquire in `polls`, so that a thread that sees the poll sees its time.
            self.polls.fetch_add(1, Ordering::Release);
            Poll::Pending
        })
        .await;
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Acquire)
    }

    fn wake(&self) {
        let waker = self.waker.lock().expect("nobody panics with it").take();
        waker.expect("it has been polled").wake();
    }

    /// Wakes it once, and says how long it took until it was polled; `pause` is called until it was.
    fn woken(&self, mut pause: impl FnMut()) -> Duration {
        let polls = self.polls();
        let woken_ns = self.now_ns();
        self.wake();
        while self.polls() == polls {
            pause();
        }
        assert_eq!(self.polls(), polls + 1, "one wake, one poll");
        Duration::from_nanos(self.polled_ns.load(Ordering::Relaxed) - woken_ns)
    }

    fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake();
    }
}

/// Whether the one worker that is in play sleeps. Tokio counts parks and unparks together: odd is parked.
fn is_parked(handle: &Handle) -> bool {
    let metrics = handle.metrics();
    (0..metrics.num_workers()).any(|worker| metrics.worker_park_unpark_count(worker) % 2 == 1)
}

fn start(handle: &Handle, watched: bool) -> Arc<Sleeper> {
    let sleeper = Sleeper::new();
    let task = sleeper.clone().sleep(watched);
    let _runtime = handle.enter();
    if watched {
        drop(morpheus_runtime::spawn(task));
    } else {
        drop(tokio::spawn(task));
    }
    while sleeper.polls() == 0 {
        std::thread::yield_now();
    }
    sleeper
}

/// Wakes from this thread, each time when the worker sleeps.
fn parked(handle: &Handle, watched: bool, turns: u64) -> Duration {
    let sleeper = start(handle, watched);
    let mut lasted = Duration::ZERO;
    for _ in 0..turns {
        while !is_parked(handle) {
            std::hint::spin_loop();
        }
        // Asleep in the kernel, too, and not on its way there.
        std::thread::sleep(Duration::from_micros(50));
        lasted += sleeper.woken(std::hint::spin_loop);
    }
    sleeper.end();
    lasted
}

/// Wakes from another task, on the same worker: there is only one.
fn busy(handle: &Handle, watched: bool, turns: u64) -> Duration {
    let sleeper = start(handle, watched);
    support::unwatched(handle, async move {
        let mut lasted = Duration::ZERO;
        for _ in 0..turns {
            let polls = sleeper.polls();
            let woken_ns = sleeper.now_ns();
            sleeper.wake();
            while sleeper.polls() == polls {
                tokio::task::yield_now().await;
            }
            assert_eq!(sleeper.polls(), polls + 1, "one wake, one poll");
            let polled_ns = sleeper.polled_ns.load(Ordering::Relaxed);
            lasted += Duration::from_nanos(polled_ns - woken_ns);
        }
        sleeper.end();
        lasted
    })
}

fn benches(criterion: &mut Criterion) {
    let stock = support::stock();
    let morpheus = support::undisturbed(Policy::Request);
    criterion.bench_function("wake/clock", |b| {
        let origin = Instant::now();
        b.iter(|| black_box(origin.elapsed()));
    });
    let kinds = [
        ("tokio", stock.handle(), false),
        ("unwatched", morpheus.handle(), false),
        ("watched", morpheus.handle(), true),
    ];
    for (name, handle, watched) in kinds {
        criterion.bench_function(&format!("wake/parked/{name}"), |b| {
            b.iter_custom(|turns| parked(handle, watched, turns));
        });
    }
    for (name, handle, watched) in kinds {
        criterion.bench_function(&format!("wake/busy/{name}"), |b| {
            b.iter_custom(|turns| busy(handle, watched, turns));
        });
    }
}

criterion_group!(wake, benches);
criterion_main!(wake);
