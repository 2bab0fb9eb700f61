//! The time of a poll that tokio's task hooks mark, beside one that they do not: build it with `--cfg tokio_unstable`.
//!
//! Two tasks of one worker wake each other in turn; each turn is two polls. `tokio` has no hooks, `unmarked` is a runtime of
//! Morpheus that watches no task, `marked` one that watches all. Pin it to one CPU (`taskset -c 0`): the thread that waits for
//! the end is then no part of it, and no other CPU takes the worker.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use morpheus_runtime::Policy;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Turns before the first that counts, so that the label is known to be healthy.
const WARM_UP: u64 = 1_000;

fn turns(handle: &Handle, turns: u64) -> Duration {
    support::unwatched(handle, async move {
        let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let answers = {
            let (there, back) = (there.clone(), back.clone());
            tokio::spawn(async move {
                loop {
                    there.notified().await;
                    back.notify_one();
                }
            })
        };
        let turn = || {
            there.notify_one();
            back.notified()
        };
        for _ in 0..WARM_UP {
            turn().await;
        }
        let begun = Instant::now();
        for _ in 0..turns {
            turn().await;
        }
        let lasted = begun.elapsed();
        answers.abort();
        lasted
    })
}

fn benches(criterion: &mut Criterion) {
    if cfg!(not(tokio_unstable)) {
        eprintln!(
            "hooks: no hooks in this build; RUSTFLAGS=\"--cfg tokio_unstable\" makes one with them"
        );
        return;
    }
    let stock = support::stock();
    let [unmarked, marked] = [false, true].map(|marks| support::hooked(Policy::Request, marks));
    let runtimes = [
        ("tokio", stock.handle()),
        ("unmarked", unmarked.handle()),
        ("marked", marked.handle()),
    ];
    let mut group = criterion.benchmark_group("hooks");
    group.throughput(Throughput::Elements(2));
    for (name, handle) in runtimes {
        group.bench_function(name, |b| b.iter_custom(|n| turns(handle, n)));
    }
    group.finish();
}

criterion_group!(hooks, benches);
criterion_main!(hooks);
