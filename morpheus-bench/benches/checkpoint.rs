//! What a checkpoint costs: on a thread without a slot, inside a watched poll, and when asked to yield.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Builder, Policy, Runtime, checkpoint_sync, yield_requested};

/// Loops that do as little as a loop can. What a checkpoint adds here is its whole length: there is
/// nothing beside which the CPU could do it.
mod empty {
    use super::*;

    pub fn plain(turns: u64) -> Duration {
        let start = Instant::now();
        for turn in 0..turns {
            black_box(turn);
        }
        start.elapsed()
    }

    pub fn checked(turns: u64) -> Duration {
        let start = Instant::now();
        for turn in 0..turns {
            black_box(turn);
            if checkpoint_sync() {
                black_box(());
            }
        }
        start.elapsed()
    }
}

/// Loops whose turns depend on one another, as those of a hash or a sum do. What a checkpoint adds here is
/// what it costs a program.
mod computing {
    use super::*;

    fn step(mut x: u64) -> u64 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^ (x << 17)
    }

    pub fn plain(turns: u64) -> Duration {
        let start = Instant::now();
        black_box((0..turns).fold(black_box(1), |x, _| step(x)));
        start.elapsed()
    }

    pub fn checked(turns: u64) -> Duration {
        let start = Instant::now();
        let mut x = black_box(1);
        for _ in 0..turns {
            x = step(x);
            if checkpoint_sync() {
                x = black_box(x);
            }
        }
        black_box(x);
        start.elapsed()
    }
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

/// A way to measure so many turns.
type Loop = fn(u64) -> Duration;

fn benches(criterion: &mut Criterion) {
    // Policy Observe: the poll takes as long as it takes, and nobody asks it to yield.
    let (observed, requested) = (runtime(Policy::Observe), runtime(Policy::Request));
    let loops: [(&str, Loop, Loop); 2] = [
        ("in an empty loop", empty::plain, empty::checked),
        ("in a computing loop", computing::plain, computing::checked),
    ];
    for (name, plain, checked) in loops {
        let mut group = criterion.benchmark_group(format!("checkpoint_sync {name}"));
        group.bench_function("none", |b| b.iter_custom(plain));
        group.bench_function("no slot", |b| b.iter_custom(checked));
        group.bench_function("slot attached", |b| {
            b.iter_custom(|turns| watched(&observed, move || checked(turns)));
        });
        group.bench_function("requested", |b| {
            b.iter_custom(|turns| {
                watched(&requested, move || {
                    // Over its budget soon. Once it was asked, every checkpoint of this poll says so.
                    while !yield_requested() {
                        black_box(());
                    }
                    checked(turns)
                })
            });
        });
        group.finish();
    }
}

criterion_group!(checkpoint, benches);
criterion_main!(checkpoint);
