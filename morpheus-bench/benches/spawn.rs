//! The cost of spawning a task, and of watching it.
//!
//! `call`: `spawn` alone, a batch of tasks at a time; they run and are joined outside of the time, though the one
//! worker has their memory to allocate within it. `to its end`: a task is spawned and awaited, one after another, so
//! that it includes the queue, one poll, the wake of who waits, and the memory given back.
//!
//! Each on tokio alone, on Morpheus unwatched (`tokio::spawn`), and watched (`morpheus_runtime::spawn`): the last two
//! differ by what watching costs. The task's result goes through `black_box` and is checked. That the one is watched
//! and the other is not is shown first, by who is asked to yield.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::Policy;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Tasks in a batch: few enough for a worker's queue of 256.
const BATCH: u64 = 128;

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Watched,
}

/// The task that is measured.
#[inline]
fn spawn(kind: Kind, number: u64) -> JoinHandle<u64> {
    match kind {
        Kind::Plain => tokio::spawn(async move { black_box(number) }),
        Kind::Watched => morpheus_runtime::spawn(async move { black_box(number) }),
    }
}

/// Shows that a task of this kind is watched, or is not.
async fn prove(kind: Kind) {
    let proof = match kind {
        Kind::Plain => tokio::spawn(async { support::never_requested() }),
        Kind::Watched => morpheus_runtime::spawn(async { support::until_requested() }),
    };
    proof.await.expect("the proof holds");
}

async fn calls(kind: Kind, turns: u64) -> Duration {
    let mut tasks = Vec::with_capacity(BATCH as usize);
    let (mut left, mut lasted) = (turns, Duration::ZERO);
    while left > 0 {
        let now = left.min(BATCH);
        let start = Instant::now();
        for number in 0..now {
            tasks.push(spawn(kind, number));
        }
        lasted += start.elapsed();
        for (number, task) in tasks.drain(..).enumerate() {
            assert_eq!(task.await.ok(), Some(number as u64));
        }
        left -= now;
    }
    lasted
}

async fn ends(kind: Kind, turns: u64) -> Duration {
    let start = Instant::now();
    for number in 0..turns {
        assert_eq!(spawn(kind, number).await.ok(), Some(number));
    }
    start.elapsed()
}

fn benches(criterion: &mut Criterion) {
    let (stock, morpheus) = (support::stock(), support::runtime(Policy::Request));
    let kinds: [(&str, &Handle, Kind); 3] = [
        ("tokio", stock.handle(), Kind::Plain),
        ("unwatched", morpheus.handle(), Kind::Plain),
        ("watched", morpheus.handle(), Kind::Watched),
    ];
    for (name, handle, kind) in kinds {
        criterion.bench_function(&format!("spawn/call/{name}"), |b| {
            b.iter_custom(|turns| {
                support::unwatched(handle, async move {
                    prove(kind).await;
                    calls(kind, turns).await
                })
            });
        });
    }
    for (name, handle, kind) in kinds {
        criterion.bench_function(&format!("spawn/to its end/{name}"), |b| {
            b.iter_custom(|turns| {
                support::unwatched(handle, async move {
                    prove(kind).await;
                    ends(kind, turns).await
                })
            });
        });
    }
}

criterion_group!(spawning, benches);
criterion_main!(spawning);
