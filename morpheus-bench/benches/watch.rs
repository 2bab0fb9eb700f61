//! What it costs that a poll is watched: the same trivial future polled on a worker, watched and not.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Builder, Runtime, watch};

/// Never ready, so that it can be polled for ever.
fn trivial() -> impl Future<Output = ()> {
    poll_fn(|_| black_box(Poll::Pending))
}

fn polls<F: Future<Output = ()>>(future: F, turns: u64) -> Duration {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    for _ in 0..turns {
        let _ = black_box(future.as_mut().poll(&mut context));
    }
    start.elapsed()
}

/// Measures in a task that nobody watches, on a worker: there each poll of a watched future is a watched
/// poll of its own.
fn on_worker(runtime: &Runtime, measure: impl FnOnce() -> Duration + Send + 'static) -> Duration {
    let task = runtime.handle().spawn(async move { measure() });
    runtime
        .block_on(task)
        .expect("the task neither panics nor is aborted")
}

fn benches(criterion: &mut Criterion) {
    let runtime = Builder::new()
        .workers(1)
        .build()
        .expect("a runtime with one worker");
    let mut group = criterion.benchmark_group("poll");
    group.bench_function("unwatched", |b| {
        b.iter_custom(|turns| on_worker(&runtime, move || polls(trivial(), turns)));
    });
    group.bench_function("watched", |b| {
        b.iter_custom(|turns| on_worker(&runtime, move || polls(watch(trivial()), turns)));
    });
    group.finish();
}

criterion_group!(watched_poll, benches);
criterion_main!(watched_poll);
