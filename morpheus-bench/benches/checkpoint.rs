//! What a checkpoint costs: on a thread without a slot, inside a watched poll, and when asked to yield.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Builder, Policy, Runtime, checkpoint_sync, yield_requested};

/// A loop that does as little as a loop can; what a checkpoint costs is the difference to it.
fn empty_loop(turns: u64) -> Duration {
    let start = Instant::now();
    for turn in 0..turns {
        black_box(turn);
    }
    start.elapsed()
}

fn checkpoints(turns: u64) -> Duration {
    let start = Instant::now();
    for turn in 0..turns {
        black_box(turn);
        if checkpoint_sync() {
            black_box(());
        }
    }
    start.elapsed()
}

fn runtime(policy: Policy) -> Runtime {
    Builder::new()
        .workers(1)
        .policy(policy)
        .build()
        .expect("a runtime with one worker")
}

/// Measures inside a poll of a watched task.
fn watched(runtime: &Runtime, measure: impl FnOnce() -> Duration + Send + 'static) -> Duration {
    let task = runtime.spawn(async move { measure() });
    runtime
        .block_on(task)
        .expect("the task neither panics nor is aborted")
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkpoint_sync");
    group.bench_function("empty loop", |b| b.iter_custom(empty_loop));
    group.bench_function("no slot", |b| b.iter_custom(checkpoints));
    {
        // Policy Observe: the poll takes as long as it takes, and nobody asks it to yield.
        let runtime = runtime(Policy::Observe);
        group.bench_function("slot attached", |b| {
            b.iter_custom(|turns| watched(&runtime, move || checkpoints(turns)));
        });
    }
    {
        let runtime = runtime(Policy::Request);
        group.bench_function("requested", |b| {
            b.iter_custom(|turns| {
                watched(&runtime, move || {
                    // Over its budget soon. Once it was asked, every checkpoint of this poll says so.
                    while !yield_requested() {
                        black_box(());
                    }
                    checkpoints(turns)
                })
            });
        });
    }
    group.finish();
}

criterion_group!(checkpoint, benches);
criterion_main!(checkpoint);
