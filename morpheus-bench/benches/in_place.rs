//! The cost of a poll in place, compared with tokio's `block_in_place`, on which it rests.
//!
//! `inline`: the poll of a watched future of which nothing bad is known. `in place`: the same future under a label
//! that has offended, so that it is polled where nothing queues behind it: a permit, the worker's queue handed to
//! another thread, the poll, the queue taken back. `block_in_place`: tokio's call around nothing, on tokio alone.
//! Timed is the call; the task then yields, for a second call in one poll would find the queue given away already,
//! and cost nothing. `turn` is timed from poll to poll, what follows a lost queue included.
//!
//! The future counts its polls and the count is checked, so that none is optimised away. A poll counts as one in place
//! if the runtime counted one more; in between the label is made to offend again, which it must for a suspicion to
//! last, outside of the time.

mod support;

use std::future::poll_fn;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Runtime, Watch};

/// Stuck polls after which a label stays suspect for dozens of good ones.
const OFFENCES: usize = 16;
/// Well beyond a budget, with the sample that finds it over.
const STUCK: Duration = Duration::from_millis(4);
/// Offences in vain after which there is nothing to measure.
const TRIES: usize = 200;

/// A future that is never ready, and stands still where it is told to.
type Target = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The order that a [`Target`] reads at each poll, and its count of polls.
#[derive(Default)]
struct Orders {
    is_stuck: AtomicBool,
    polls: AtomicU64,
}

fn target(orders: Arc<Orders>, label: &'static str) -> Target {
    let future = poll_fn(move |_| {
        orders.polls.fetch_add(1, Relaxed);
        if orders.is_stuck.load(Relaxed) {
            std::thread::sleep(STUCK);
        }
        Poll::Pending
    });
    Box::pin(future.watched(label))
}

fn poll(target: &mut Target) -> Duration {
    let mut context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let result = target.as_mut().poll(&mut context);
    let lasted = start.elapsed();
    assert!(result.is_pending());
    lasted
}

/// Polls `turns` times, in place or inline, each in a poll of its own of an unwatched task.
async fn polls(runtime: Arc<Runtime>, in_place: bool, turns: u64) -> Duration {
    let orders = Arc::new(Orders::default());
    let label = if in_place { "offends" } else { "is good" };
    let mut target = target(orders.clone(), label);
    let counted = || runtime.metrics().handoff_polls;
    let (mut done, mut lasted, mut tries) = (0, Duration::ZERO, 0);
    // A new label is on probation, and costs more.
    for _ in 0..100 {
        poll(&mut target);
        tokio::task::yield_now().await;
    }
    while done < turns {
        tokio::task::yield_now().await;
        assert!(tokio::runtime::worker_index().is_some(), "on a worker");
        let (polls, places) = (orders.polls.load(Relaxed), counted());
        let took = poll(&mut target);
        assert_eq!(orders.polls.load(Relaxed), polls + 1, "one call, one poll");
        if (counted() == places + 1) == in_place {
            (done, lasted, tries) = (done + 1, lasted + took, 0);
            continue;
        }
        assert!(in_place, "a good label is polled in place");
        tries += 1;
        assert!(tries < TRIES, "a label that offends is not polled in place");
        orders.is_stuck.store(true, Relaxed);
        for _ in 0..OFFENCES {
            tokio::task::yield_now().await;
            poll(&mut target);
        }
        orders.is_stuck.store(false, Relaxed);
    }
    lasted
}

/// Tokio's call around nothing: `turns` times, each in a poll of its own.
async fn blocks(turns: u64) -> Duration {
    let (mut lasted, mut calls) = (Duration::ZERO, 0);
    for _ in 0..turns {
        tokio::task::yield_now().await;
        assert!(tokio::runtime::worker_index().is_some(), "on a worker");
        let start = Instant::now();
        tokio::task::block_in_place(|| calls += black_box(1));
        lasted += start.elapsed();
    }
    assert_eq!(calls, turns);
    lasted
}

/// The same, or nothing, from poll to poll.
async fn turns(block: bool, turns: u64) -> Duration {
    let start = Instant::now();
    for turn in 0..turns {
        if block {
            tokio::task::block_in_place(|| black_box(turn));
        }
        tokio::task::yield_now().await;
    }
    start.elapsed()
}

fn benches(criterion: &mut Criterion) {
    let stock = support::stock();
    let runtime = support::with_spare();
    let runtime = Arc::new(runtime);
    let mut group = criterion.benchmark_group("in_place");
    for (name, in_place) in [("inline", false), ("in place", true)] {
        group.bench_function(name, |b| {
            b.iter_custom(|turns| {
                let measured = polls(runtime.clone(), in_place, turns);
                support::unwatched(runtime.handle(), measured)
            });
        });
    }
    group.bench_function("block_in_place", |b| {
        b.iter_custom(|turns| support::unwatched(stock.handle(), blocks(turns)));
    });
    for (name, block) in [("turn without", false), ("turn with block_in_place", true)] {
        group.bench_function(name, |b| {
            b.iter_custom(|count| support::unwatched(stock.handle(), turns(block, count)));
        });
    }
    group.finish();
}

criterion_group!(in_place, benches);
criterion_main!(in_place);
