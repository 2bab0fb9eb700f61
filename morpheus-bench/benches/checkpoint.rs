//! The cost of a checkpoint: outside of a runtime, in an unwatched task, in a watched poll, and in one that was asked
//! to yield.
//!
//! Each group times the same loop without a checkpoint (`none`): subtract it. Every turn goes through `black_box`,
//! or depends on the one before and its end goes through it, so that no turn is optimised away; how often a
//! checkpoint said "yield" is counted and must be never, or every time.
//!
//! Where a poll is watched, the loop is cut into polls of far less than a budget, for a longer one would be asked to
//! yield in the middle; one that was asked all the same is measured again.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Policy, Runtime, checkpoint_sync};

/// Turns in a poll: a tenth of a budget or less.
const TURNS_A_POLL: u64 = 20_000;

/// How long a loop took, and how often its checkpoints said "yield".
struct Timed {
    lasted: Duration,
    asked: u64,
}

/// Loops that do as little as a loop can. A checkpoint adds its whole length here: there is
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

    pub fn checked(turns: u64) -> Timed {
        let start = Instant::now();
        let mut asked = 0;
        for turn in 0..turns {
            black_box(turn);
            if checkpoint_sync() {
                asked += 1;
            }
        }
        let lasted = start.elapsed();
        Timed { lasted, asked }
    }
}

/// Loops whose turns depend on one another, as those of a hash or a sum do. The time that a checkpoint adds here is its
/// cost in a program.
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

    pub fn checked(turns: u64) -> Timed {
        let start = Instant::now();
        let (mut x, mut asked) = (black_box(1), 0);
        for _ in 0..turns {
            x = step(x);
            if checkpoint_sync() {
                asked += 1;
            }
        }
        black_box(x);
        let lasted = start.elapsed();
        Timed { lasted, asked }
    }
}

/// A loop without checkpoints, and one with them.
type Plain = fn(u64) -> Duration;
type Checked = fn(u64) -> Timed;

/// On a thread that was never in a runtime.
fn outside(checked: Checked, turns: u64) -> Duration {
    let measure = move || {
        support::never_requested();
        never_asked(checked(turns))
    };
    let thread = std::thread::spawn(measure);
    thread.join().expect("the loop does not panic")
}

/// On a worker, whose thread has a slot, in a poll that is not marked there. On a `fresh` one no poll ever was, and a
/// checkpoint has to look twice.
fn in_unwatched(runtime: &Runtime, fresh: bool, checked: Checked, turns: u64) -> Duration {
    if !fresh {
        support::watched(runtime, async { support::until_requested() });
    }
    support::unwatched(runtime.handle(), async move {
        support::never_requested();
        never_asked(checked(turns))
    })
}

fn never_asked(timed: Timed) -> Duration {
    assert_eq!(timed.asked, 0, "nobody can have asked");
    timed.lasted
}

/// In watched polls of which none was asked, on a thread of which a request was seen to reach the slot.
fn in_watched(runtime: &Runtime, checked: Checked, turns: u64) -> Duration {
    support::watched(runtime, async move {
        support::until_requested();
        let thread = std::thread::current().id();
        let (mut left, mut lasted) = (turns, Duration::ZERO);
        while left > 0 {
            tokio::task::yield_now().await;
            let now = left.min(TURNS_A_POLL);
            let timed = checked(now);
            if timed.asked == 0 {
                left -= now;
                lasted += timed.lasted;
            }
        }
        assert_eq!(std::thread::current().id(), thread, "there is one worker");
        lasted
    })
}

/// In a watched poll that was asked to yield, and goes on.
fn in_requested(runtime: &Runtime, checked: Checked, turns: u64) -> Duration {
    support::watched(runtime, async move {
        support::until_requested();
        let timed = checked(turns);
        assert_eq!(timed.asked, turns, "every checkpoint sees the request");
        timed.lasted
    })
}

fn benches(criterion: &mut Criterion) {
    // As far as asking, and no further: no stalled worker is taken over, and no request is remembered.
    let (runtime, fresh) = (
        support::runtime(Policy::Request),
        support::runtime(Policy::Request),
    );
    let loops: [(&str, Plain, Checked); 2] = [
        ("empty", empty::plain, empty::checked),
        ("computing", computing::plain, computing::checked),
    ];
    for (name, plain, checked) in loops {
        let mut group = criterion.benchmark_group(format!("checkpoint/{name} loop"));
        group.bench_function("none", |b| b.iter_custom(plain));
        group.bench_function("no slot", |b| {
            b.iter_custom(|turns| outside(checked, turns))
        });
        group.bench_function("unwatched task", |b| {
            b.iter_custom(|turns| in_unwatched(&runtime, false, checked, turns));
        });
        group.bench_function("unwatched task, fresh worker", |b| {
            b.iter_custom(|turns| in_unwatched(&fresh, true, checked, turns));
        });
        group.bench_function("slot", |b| {
            b.iter_custom(|turns| in_watched(&runtime, checked, turns));
        });
        group.bench_function("requested", |b| {
            b.iter_custom(|turns| in_requested(&runtime, checked, turns));
        });
        group.finish();
    }
}

criterion_group!(checkpoint, benches);
criterion_main!(checkpoint);
