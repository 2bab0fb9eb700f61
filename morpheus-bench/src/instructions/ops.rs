//! The operations, and the child process that does them under valgrind.

use std::future::poll_fn;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use morpheus_runtime::{
    Builder, Link, Mechanism, Policy, Watch as _, checkpoint, checkpoint_sync, watch,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

/// Operations of the smaller part; a multiple of the lots in which polls are counted.
pub const N: u64 = 5_120;
/// How often each measurement is made.
pub const ROUNDS: usize = 7;
/// Operations before the first round: allocators and queues have grown, and a new label is known to be good.
const WARMUP: u64 = 10_240;
/// No poll uses it up, however slow valgrind is.
const BUDGET: Duration = Duration::from_secs(3_600);

/// The operations that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A task is spawned and awaited.
    Spawn,
    /// A task wakes another on the same worker, yields, and goes on when that has been polled.
    Wake,
    /// A future is polled.
    Poll,
    /// `checkpoint().await`, not asked to yield.
    Checkpoint,
    /// `checkpoint_sync()`, not asked to yield.
    CheckpointSync,
}

/// Where, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Stock tokio, one worker.
    Tokio,
    /// Morpheus, one worker, in unwatched tasks.
    Unwatched,
    /// The same in watched tasks.
    Watched,
    /// The loop around an operation, without it.
    Loop,
}

impl Op {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Op::Spawn => "spawn and join",
            Op::Wake => "wake",
            Op::Poll => "poll",
            Op::Checkpoint => "checkpoint().await",
            Op::CheckpointSync => "checkpoint_sync()",
        }
    }
}

impl Place {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Place::Tokio => "tokio",
            Place::Unwatched => "morpheus",
            Place::Watched => "morpheus, watched",
            Place::Loop => "the loop alone",
        }
    }
}

/// One of them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The operation.
    pub op: Op,
    /// Where.
    pub place: Place,
}

/// All of them, in the order in which the child makes them, [`ROUNDS`] times each.
pub const MEASUREMENTS: &[Measurement] = &[
    at(Op::Spawn, Place::Tokio),
    at(Op::Wake, Place::Tokio),
    at(Op::Poll, Place::Tokio),
    at(Op::Spawn, Place::Unwatched),
    at(Op::Wake, Place::Unwatched),
    at(Op::Poll, Place::Unwatched),
    at(Op::Spawn, Place::Watched),
    at(Op::Wake, Place::Watched),
    at(Op::Poll, Place::Watched),
    at(Op::Checkpoint, Place::Loop),
    at(Op::Checkpoint, Place::Watched),
    at(Op::CheckpointSync, Place::Watched),
];

const fn at(op: Op, place: Place) -> Measurement {
    Measurement { op, place }
}

/// Ends a part of what is counted: valgrind writes its counts at each call, and begins again.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn morpheus_bench_part_ends() {
    black_box(());
}

/// Its name, for valgrind.
pub const PART_ENDS: &str = "morpheus_bench_part_ends";

/// Does everything once.
///
/// # Errors
/// When there is no runtime, or a task of it fails.
pub fn run_all() -> Result<(), String> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| format!("no tokio runtime: {error}"))?;
    let morpheus = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(0)
        .reserve(0)
        .budget(BUDGET)
        .policy(Policy::Request)
        .link(Link::Watchdog)
        .without(Mechanism::Canary)
        .without(Mechanism::Poke)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    // All of them once before any is counted, so that none is the first.
    let every = |counts: bool| MEASUREMENTS.iter().map(move |one| (*one, counts));
    for (measurement, counts) in every(false).chain(every(true)) {
        let handle = match measurement.place {
            Place::Tokio => tokio.handle(),
            _ => morpheus.handle(),
        };
        let parts = async move {
            operations(measurement, WARMUP).await;
            if counts {
                parts(measurement).await;
            }
        };
        // A poll that is watched marks itself; a checkpoint is live in a watched poll alone.
        let task = match measurement.op {
            Op::Checkpoint | Op::CheckpointSync => handle.spawn(watch(parts)),
            _ => handle.spawn(parts),
        };
        handle
            .block_on(task)
            .map_err(|error| format!("{measurement:?}: {error}"))?;
    }
    Ok(())
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// `n` operations in a loop.
fn operations(measurement: Measurement, n: u64) -> Boxed {
    let watched = measurement.place == Place::Watched;
    match measurement.op {
        Op::Spawn => Box::pin(spawns(watched, n)),
        Op::Wake => Box::pin(wakes(watched, n)),
        Op::Poll => Box::pin(async move {
            if watched {
                polls(watch(trivial()), n);
            } else {
                polls(trivial(), n);
            }
        }),
        Op::Checkpoint if !watched => Box::pin(async move {
            for turn in 0..n {
                black_box(turn);
            }
        }),
        Op::Checkpoint => Box::pin(async move {
            for turn in 0..n {
                black_box(turn);
                checkpoint().await;
            }
        }),
        Op::CheckpointSync => Box::pin(async move {
            for turn in 0..n {
                black_box(turn);
                assert!(!checkpoint_sync(), "nobody can have asked");
            }
        }),
    }
}

async fn parts(measurement: Measurement) {
    for _ in 0..ROUNDS {
        morpheus_bench_part_ends();
        operations(measurement, N).await;
        morpheus_bench_part_ends();
        operations(measurement, 2 * N).await;
        morpheus_bench_part_ends();
    }
}

async fn spawns(watched: bool, n: u64) {
    for number in 0..n {
        let done = async move { black_box(number) };
        let task = if watched {
            morpheus_runtime::spawn(done)
        } else {
            tokio::spawn(done)
        };
        assert_eq!(task.await.ok(), Some(number));
    }
}

/// Never ready, so that it can be polled for ever.
fn trivial() -> impl Future<Output = ()> {
    poll_fn(|_| black_box(Poll::Pending))
}

#[inline(never)]
fn polls<F: Future<Output = ()>>(future: F, n: u64) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..n {
        let _ = black_box(future.as_mut().poll(&mut context));
    }
}

/// A task that waits to be woken, and counts its polls.
#[derive(Default)]
struct Sleeper {
    waker: Mutex<Option<Waker>>,
    polls: AtomicU64,
    ends: AtomicBool,
}

impl Sleeper {
    async fn sleep(self: Arc<Self>) {
        poll_fn(|context| {
            // Relaxed, as all of these: both tasks are on one thread.
            if self.ends.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.polls.fetch_add(1, Ordering::Relaxed);
            let waker = context.waker().clone();
            *self
                .waker
                .lock()
                .expect("no thread panics while it holds the lock") = Some(waker);
            Poll::Pending
        })
        .await;
    }

    /// Wakes it, and waits until it was polled. Tokio polls who was woken last first.
    async fn wake(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        let waker = self
            .waker
            .lock()
            .expect("no thread panics while it holds the lock")
            .take();
        if let Some(waker) = waker {
            waker.wake();
        }
        while self.polls.load(Ordering::Relaxed) == polls && !self.ends.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }
}

async fn wakes(watched: bool, n: u64) {
    let sleeper = Arc::new(Sleeper::default());
    let sleep = sleeper.clone().sleep();
    let task = if watched {
        Handle::current().spawn(sleep.watched("instructions: wake"))
    } else {
        tokio::spawn(sleep)
    };
    while sleeper.polls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..n {
        sleeper.wake().await;
    }
    assert_eq!(
        sleeper.polls.load(Ordering::Relaxed),
        n + 1,
        "one wake, one poll"
    );
    sleeper.ends.store(true, Ordering::Relaxed);
    sleeper.wake().await;
    assert!(task.await.is_ok(), "the sleeper ends");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without valgrind: the operations are what they say, or the child panics.
    #[test]
    fn all_operations_are_done() {
        run_all().unwrap();
    }
}
