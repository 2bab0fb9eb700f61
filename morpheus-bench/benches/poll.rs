//! The cost of watching a poll: the same trivial future polled on a worker, watched and not.
//!
//! The difference of the two is the price; what is left is the loop and the call. The future and what it returns go
//! through `black_box`. That the one is watched and the other is not is shown first: of two futures that compute for
//! longer than a budget, only the one is asked to yield.

mod support;

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Policy, watch};

/// Polls after which a new origin is known to be good, and costs what a known one does.
const PROBATION: usize = 100;

/// Never ready, so that it can be polled for ever.
fn trivial() -> impl Future<Output = ()> {
    poll_fn(|_| black_box(Poll::Pending))
}

fn polls<F: Future<Output = ()>>(future: F, turns: u64) -> Duration {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..PROBATION {
        let _ = black_box(future.as_mut().poll(&mut context));
    }
    let start = Instant::now();
    for _ in 0..turns {
        let _ = black_box(future.as_mut().poll(&mut context));
    }
    start.elapsed()
}

/// Polls once.
fn once<F: Future>(future: F) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut context).is_ready());
}

fn benches(criterion: &mut Criterion) {
    let runtime = support::runtime(Policy::Request);
    let mut group = criterion.benchmark_group("poll");
    // In an unwatched task: there each poll of a watched future is a watched poll of its own.
    group.bench_function("unwatched", |b| {
        b.iter_custom(|turns| {
            support::unwatched(runtime.handle(), async move {
                once(async { support::never_requested() });
                polls(trivial(), turns)
            })
        });
    });
    group.bench_function("watched", |b| {
        b.iter_custom(|turns| {
            support::unwatched(runtime.handle(), async move {
                once(watch(async { support::until_requested() }));
                polls(watch(trivial()), turns)
            })
        });
    });
    group.finish();
}

criterion_group!(poll, benches);
criterion_main!(poll);
