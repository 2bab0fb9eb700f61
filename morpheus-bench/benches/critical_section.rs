//! The cost of a critical section: entering and leaving it, in a watched poll, on a thread outside of any runtime,
//! and within another one.
//!
//! `none` is the loop without it: subtract it. Each turn passes its number through `black_box` while the guard is
//! there. That the section is one is shown first: in a poll that was asked to yield, a checkpoint says so before it
//! and after it, and not within.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Policy, Runtime, checkpoint_sync, critical_section};

fn plain(turns: u64) -> Duration {
    let start = Instant::now();
    for turn in 0..turns {
        black_box(turn);
    }
    start.elapsed()
}

fn guarded(turns: u64) -> Duration {
    let start = Instant::now();
    for turn in 0..turns {
        let section = critical_section();
        black_box(turn);
        drop(section);
    }
    start.elapsed()
}

/// In a watched poll, where a section was shown to hold a request back.
fn in_watched(runtime: &Runtime, measure: fn(u64) -> Duration, turns: u64) -> Duration {
    support::watched(runtime, async move {
        support::until_requested();
        assert!(checkpoint_sync(), "asked, and nothing protects it");
        let section = critical_section();
        assert!(!checkpoint_sync(), "the section protects it");
        drop(section);
        assert!(checkpoint_sync(), "the section is over");
        measure(turns)
    })
}

/// On a thread that was never in a runtime; it has a slot of those for such threads after its first section.
fn outside(turns: u64) -> Duration {
    let thread = std::thread::spawn(move || {
        support::never_requested();
        guarded(turns)
    });
    thread.join().expect("the loop does not panic")
}

fn benches(criterion: &mut Criterion) {
    let runtime = support::runtime(Policy::Request);
    let mut group = criterion.benchmark_group("critical_section");
    group.bench_function("none", |b| {
        b.iter_custom(|turns| in_watched(&runtime, plain, turns));
    });
    group.bench_function("watched task", |b| {
        b.iter_custom(|turns| in_watched(&runtime, guarded, turns));
    });
    group.bench_function("nested", |b| {
        b.iter_custom(|turns| {
            let nested = |turns| {
                let _outer = critical_section();
                guarded(turns)
            };
            in_watched(&runtime, nested, turns)
        });
    });
    group.bench_function("outside a runtime", |b| b.iter_custom(outside));
    group.finish();
}

criterion_group!(section, benches);
criterion_main!(section);
