//! The table of bars: which cases are measured, and what is asked of them.
//!
//! The bars are meant for two CPUs, two workers and an unprivileged user.

use super::figures::{
    CONTROLLER, HOG_CPU, LIFO_P99, MIXED_P99, MIXED_POLLS, NEIGHBOURS, POLLS, REQUEST_P99,
    REQUESTS, TIMER_P99, WAKE_P50, WAKE_P99, WAKEUPS,
};
use super::workload::{HogKind, Workload};
use crate::executor::Runtime::{self, Morpheus, MorpheusFlag, TokioTuned};
use Bar::{AtLeastTimes, AtMost, AtMostTimes, Finished};

/// A case on a runtime.
pub type At = (&'static str, Runtime);

/// What is asked of a figure, by its name.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Morpheus' figure is at most this (nanoseconds, or a share of a CPU).
    AtMost(&'static str, &'static str, f64),
    /// The first figure is at most this many times the second.
    AtMostTimes(&'static str, At, At, f64),
    /// The first figure is at least this many times the second.
    AtLeastTimes(&'static str, At, At, f64),
    /// Every hog came out of its polls.
    Finished(&'static str),
}

const TOKIO: Runtime = Runtime::TOKIO;
const MORE: Runtime = Runtime::TOKIO_32;
const SLICE: Runtime = Runtime::TOKIO_32_SLICE;
/// Morpheus without and with the flag, tokio, the two baselines that Morpheus must never be worse than, and tokio as an expert
/// tunes it.
const CONTENDERS: &[Runtime] = &[Morpheus, MorpheusFlag, TOKIO, MORE, SLICE, TokioTuned];
const TWO: &[Runtime] = &[Morpheus, TOKIO];
const OWN: &[Runtime] = &[Morpheus];

/// Microseconds in nanoseconds.
const fn us(us: u64) -> f64 {
    (us * 1_000) as f64
}

/// Something to measure.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub workload: Workload,
    pub runtimes: &'static [Runtime],
    pub least_rounds: usize,
}

/// Cases to measure and what is asked of their figures (and of those of groups before).
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    pub about: &'static str,
    pub cases: Vec<Case>,
    pub bars: Vec<Bar>,
}

/// A group as the table has it.
struct Entry {
    name: &'static str,
    about: &'static str,
    least_rounds: usize,
    /// Whether what every group with hogs is asked comes on top of `bars`; see [`the_usual`].
    is_usual: bool,
    /// The names of the cases, the runtimes, and the fields of the [`Workload`] that differ from the base.
    cases: &'static [(&'static str, &'static [Runtime], &'static str)],
    bars: &'static [Bar],
}

const GROUP: Entry = Entry {
    name: "",
    about: "",
    least_rounds: 1,
    is_usual: false,
    cases: &[],
    bars: &[],
};

#[rustfmt::skip]
const GROUPS: &[Entry] = &[
    Entry { name: "hogs-2", about: "2 computing hogs of 200 ms, nothing watched", is_usual: true, cases: &[
        ("2 hogs", &Runtime::NAMED, "hogs=2"),
    ], bars: &[
        AtMost("2 hogs", WAKE_P99, us(300)),
        AtMost("2 hogs", TIMER_P99, us(3_000)),
        AtLeastTimes(TIMER_P99, ("2 hogs", TOKIO), ("2 hogs", Morpheus), 100.0),
        AtLeastTimes(TIMER_P99, ("2 hogs", Runtime::GO), ("2 hogs", Morpheus), 10.0),
    ], ..GROUP },
    Entry { name: "hogs-more", about: "6 hogs of 200 ms, 6 of 5 ms, 2 of 3 ms", is_usual: true, cases: &[
        ("6 hogs", CONTENDERS, "hogs=6"),
        ("6 hogs of 5 ms", CONTENDERS, "hogs=6 hog_ms=5"),
        ("2 hogs of 3 ms", CONTENDERS, "hogs=2 hog_ms=3"),
    ], bars: &[
        AtMost("6 hogs", WAKE_P99, us(500)),
        AtMost("6 hogs of 5 ms", WAKE_P99, us(500)),
        AtMost("2 hogs of 3 ms", WAKE_P99, us(1_000)),
    ], ..GROUP },
    Entry { name: "hogs-20", about: "20 hogs of 200 ms, via tokio-spawn and via spawn, and rewritten for tokio", is_usual: true, cases: &[
        ("20 hogs", CONTENDERS, "hogs=20"),
        ("20 watched hogs", CONTENDERS, "hogs=20 hog_via=spawn"),
        ("20 hogs in spawn_blocking", &[TOKIO], "hogs=20 hog_code=spawn-blocking"),
        ("20 hogs behind a semaphore", &[TOKIO], "hogs=20 hog_code=bounded"),
        ("20 hogs in block_in_place", &[TOKIO], "hogs=20 hog_code=in-place"),
    ], bars: &[
        AtMost("20 hogs", WAKE_P99, us(1_500)),
        AtMost("20 watched hogs", WAKE_P99, us(500)),
        AtMostTimes(WAKE_P99, ("20 hogs", MorpheusFlag), ("20 hogs in spawn_blocking", TOKIO), 1.0),
        AtMostTimes(WAKE_P99, ("20 hogs", MorpheusFlag), ("20 hogs behind a semaphore", TOKIO), 1.0),
        AtMostTimes(WAKE_P99, ("20 hogs", MorpheusFlag), ("20 hogs in block_in_place", TOKIO), 1.0),
        AtLeastTimes(HOG_CPU, ("20 hogs", MorpheusFlag), ("20 hogs in spawn_blocking", TOKIO), 0.95),
    ], ..GROUP },
    Entry { name: "crowd", about: "60 and 200 computing hogs at once via spawn, after 500 ms", is_usual: true, cases: &[
        ("60 watched hogs", CONTENDERS, "hogs=60 hog_via=spawn warmup_s=0.5"),
        ("60 watched hogs, new tasks", CONTENDERS, "hogs=60 hog_via=spawn fresh=true warmup_s=0.5"),
        ("200 watched hogs", CONTENDERS, "hogs=200 hog_via=spawn warmup_s=0.5"),
        ("200 watched hogs, new tasks", CONTENDERS, "hogs=200 hog_via=spawn fresh=true warmup_s=0.5"),
    ], bars: &[
        AtMost("60 watched hogs", WAKE_P99, us(500)),
        AtMost("60 watched hogs", TIMER_P99, us(50_000)), // "Served throughout": a timer that waited for a hog would be 200 ms late.
        AtMost("60 watched hogs, new tasks", WAKE_P99, us(500)),
        AtMost("60 watched hogs, new tasks", TIMER_P99, us(50_000)),
        AtMost("200 watched hogs", WAKE_P99, us(500)),
        AtMost("200 watched hogs", TIMER_P99, us(50_000)),
        AtMost("200 watched hogs, new tasks", WAKE_P99, us(500)),
        AtMost("200 watched hogs, new tasks", TIMER_P99, us(50_000)),
    ], ..GROUP },
    Entry { name: "blocked", about: "2 and 20 hogs blocked in the kernel via tokio-spawn, 200 via spawn", is_usual: true, cases: &[
        ("sleep-2", CONTENDERS, "hogs=2 hog_kind=sleep"),
        ("sleep-20", CONTENDERS, "hogs=20 hog_kind=sleep"),
        ("sleep-200-watched", CONTENDERS, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
        ("mutex-2", CONTENDERS, "hogs=2 hog_kind=mutex"),
        ("mutex-20", CONTENDERS, "hogs=20 hog_kind=mutex"),
        ("mutex-200-watched", CONTENDERS, "hogs=200 hog_kind=mutex hog_via=spawn warmup_s=1"),
        ("read-2", CONTENDERS, "hogs=2 hog_kind=read"),
        ("read-20", CONTENDERS, "hogs=20 hog_kind=read"),
        ("read-200-watched", CONTENDERS, "hogs=200 hog_kind=read hog_via=spawn warmup_s=1"),
    ], bars: &[
        AtMost("sleep-2", WAKE_P99, us(500)),
        AtMost("sleep-20", WAKE_P99, us(500)),
        AtMost("sleep-200-watched", WAKE_P99, us(500)),
        AtMost("mutex-2", WAKE_P99, us(500)),
        AtMost("mutex-20", WAKE_P99, us(500)),
        AtMost("mutex-200-watched", WAKE_P99, us(500)),
        AtMost("read-2", WAKE_P99, us(500)),
        AtMost("read-20", WAKE_P99, us(500)),
        AtMost("read-200-watched", WAKE_P99, us(500)),
    ], ..GROUP },
    Entry { name: "load", about: "an echo server with 16 clients at a fixed rate (about half of what it can serve)", is_usual: true, cases: &[
        ("TCP", TWO, "load=16 warmup_s=2"),
        ("TCP, 2 hogs", CONTENDERS, "load=16 warmup_s=2 hogs=2"),
        ("TCP, 20 watched hogs", CONTENDERS, "load=16 warmup_s=2 hogs=20 hog_via=spawn"),
        ("TCP, 20 hogs", CONTENDERS, "load=16 warmup_s=2 hogs=20"),
    ], bars: &[
        AtLeastTimes(REQUESTS, ("TCP, 2 hogs", Morpheus), ("TCP", Morpheus), 0.98),
        AtMostTimes(REQUEST_P99, ("TCP, 2 hogs", Morpheus), ("TCP", Morpheus), 3.0),
        AtLeastTimes(HOG_CPU, ("TCP, 2 hogs", Morpheus), ("TCP, 2 hogs", SLICE), 0.85), // Of those that serve both.
        AtLeastTimes(REQUESTS, ("TCP, 20 watched hogs", Morpheus), ("TCP", Morpheus), 0.98),
        AtMostTimes(REQUEST_P99, ("TCP, 20 watched hogs", Morpheus), ("TCP", Morpheus), 3.0),
    ], ..GROUP },
    Entry { name: "saturated", about: "64 tasks of short polls that saturate the machine, beside hogs", is_usual: true, cases: &[
        ("busy-64x20", CONTENDERS, "hogs=2 busy=64 busy_us=20"),
        ("busy-64x300", CONTENDERS, "hogs=6 busy=64 busy_us=300"),
    ], bars: &[
        AtLeastTimes(POLLS, ("busy-64x20", Morpheus), ("busy-64x20", MORE), 0.85),
        AtLeastTimes(POLLS, ("busy-64x20", Morpheus), ("busy-64x20", SLICE), 0.85),
        AtLeastTimes(POLLS, ("busy-64x20", Morpheus), ("busy-64x20", TOKIO), 1.3),
        AtLeastTimes(HOG_CPU, ("busy-64x20", Morpheus), ("busy-64x20", SLICE), 0.5), // What is left is shared.
        AtLeastTimes(POLLS, ("busy-64x300", Morpheus), ("busy-64x300", MORE), 0.85),
        AtLeastTimes(POLLS, ("busy-64x300", Morpheus), ("busy-64x300", SLICE), 0.85),
        AtLeastTimes(POLLS, ("busy-64x300", Morpheus), ("busy-64x300", TOKIO), 1.3),
        AtLeastTimes(HOG_CPU, ("busy-64x300", Morpheus), ("busy-64x300", SLICE), 0.5),
    ], ..GROUP },
    Entry { name: "calm", about: "no hogs: the probes alone and short polls, ten interleaved pairs", least_rounds: 10, cases: &[
        ("calm", TWO, "busy=0 busy_us=0"),
        ("calm-8x300", TWO, "busy=8 busy_us=300"),
        ("calm-8x300-watched", TWO, "busy=8 busy_us=300 busy_via=spawn"),
        ("calm-64x300", TWO, "busy=64 busy_us=300"),
        ("calm-64x300-watched", TWO, "busy=64 busy_us=300 busy_via=spawn"),
        ("calm-300x500", TWO, "busy=300 busy_us=500"),
        ("calm-300x500-watched", TWO, "busy=300 busy_us=500 busy_via=spawn"),
    ], bars: &[
        AtMostTimes(WAKE_P50, ("calm", Morpheus), ("calm", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm", Morpheus), ("calm", TOKIO), 1.3),
        AtMostTimes(WAKE_P50, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 0.95),
        AtMostTimes(WAKE_P50, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 0.95),
        AtMostTimes(WAKE_P50, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 0.97),
        AtMostTimes(WAKE_P50, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 0.97),
        AtMostTimes(WAKE_P50, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 0.97),
        AtMostTimes(WAKE_P50, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 1.1),
        AtMostTimes(WAKE_P99, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 1.3),
        AtLeastTimes(POLLS, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 0.97),
    ], ..GROUP },
    Entry { name: "neighbours", about: "two busy threads of another process; no hogs, 2, and 20 via spawn", cases: &[
        ("neighbours-0", TWO, "neighbours=2 hogs=0"),
        ("neighbours-2", TWO, "neighbours=2 hogs=2"),
        ("neighbours-20-watched", TWO, "neighbours=2 hogs=20 hog_via=spawn"),
    ], bars: &[
        AtLeastTimes(NEIGHBOURS, ("neighbours-0", Morpheus), ("neighbours-0", TOKIO), 0.85),
        AtLeastTimes(NEIGHBOURS, ("neighbours-2", Morpheus), ("neighbours-2", TOKIO), 0.85),
        AtLeastTimes(NEIGHBOURS, ("neighbours-20-watched", Morpheus), ("neighbours-20-watched", TOKIO), 0.85),
        AtMostTimes(WAKE_P99, ("neighbours-0", Morpheus), ("neighbours-0", TOKIO), 1.0),
        AtMost("neighbours-2", WAKE_P99, us(500)),
        AtMost("neighbours-20-watched", WAKE_P99, us(1_000)),
    ], ..GROUP },
    // With as many workers as tokio has by default under the quota.
    Entry { name: "quota", about: "a CPU quota of 1, 1.5 and 1.9 CPUs: 4 hogs, confined and by default; 64 busy tasks, no hogs (needs root; see --uid)", cases: &[
        ("quota-1-confined", OWN, "quota=1 workers=1 confine=true hogs=4"),
        ("quota-1-hogs", TWO, "quota=1 workers=1 hogs=4"),
        ("quota-1-busy", TWO, "quota=1 workers=1 busy=64"),
        ("quota-1.5-confined", OWN, "quota=1.5 workers=1 confine=true hogs=4"),
        ("quota-1.5-hogs", TWO, "quota=1.5 workers=1 hogs=4"),
        ("quota-1.5-busy", TWO, "quota=1.5 workers=1 busy=64"),
        ("quota-1.9-confined", OWN, "quota=1.9 workers=1 confine=true hogs=4"),
        ("quota-1.9-hogs", TWO, "quota=1.9 workers=1 hogs=4"),
        ("quota-1.9-busy", TWO, "quota=1.9 workers=1 busy=64"),
    ], bars: &[
        AtMost("quota-1-confined", TIMER_P99, us(4_000)),
        AtMostTimes(TIMER_P99, ("quota-1-hogs", Morpheus), ("quota-1-hogs", TOKIO), 1.0),
        AtLeastTimes(POLLS, ("quota-1-busy", Morpheus), ("quota-1-busy", TOKIO), 0.97),
        AtMostTimes(TIMER_P99, ("quota-1-busy", Morpheus), ("quota-1-busy", TOKIO), 1.0),
        AtMost("quota-1.5-confined", TIMER_P99, us(4_000)),
        AtMostTimes(TIMER_P99, ("quota-1.5-hogs", Morpheus), ("quota-1.5-hogs", TOKIO), 1.0),
        AtLeastTimes(POLLS, ("quota-1.5-busy", Morpheus), ("quota-1.5-busy", TOKIO), 0.97),
        AtMostTimes(TIMER_P99, ("quota-1.5-busy", Morpheus), ("quota-1.5-busy", TOKIO), 1.0),
        AtMost("quota-1.9-confined", TIMER_P99, us(4_000)),
        AtMostTimes(TIMER_P99, ("quota-1.9-hogs", Morpheus), ("quota-1.9-hogs", TOKIO), 1.0),
        AtLeastTimes(POLLS, ("quota-1.9-busy", Morpheus), ("quota-1.9-busy", TOKIO), 0.97),
        AtMostTimes(TIMER_P99, ("quota-1.9-busy", Morpheus), ("quota-1.9-busy", TOKIO), 1.0),
    ], ..GROUP },
    // Hogs of 20 ms: with 200 the label would have too few polls for a p99.
    Entry { name: "label", about: "innocents under a label of which every tenth poll is a hog's", cases: &[
        ("label-watched", OWN, "label_mix=true hogs=2 hog_ms=20 hog_via=spawn"),
        ("label-plain", TWO, "label_mix=true hogs=2 hog_ms=20"),
    ], bars: &[
        AtMost("label-watched", MIXED_P99, us(5_000)),
        AtLeastTimes(MIXED_POLLS, ("label-watched", Morpheus), ("label-plain", Morpheus), 0.9),
    ], ..GROUP },
    Entry { name: "lifo", about: "a task woken by a hog that then computes 200 ms: nothing known, known, with checkpoints", cases: &[
        ("lifo-unknown", TWO, "hogs=2 lifo=unknown"),
        ("lifo-known", OWN, "hogs=2 lifo=known"),
        ("lifo-checkpoint", OWN, "hogs=2 lifo=checkpoint"),
    ], bars: &[
        AtMost("lifo-known", LIFO_P99, us(1_000)),
        AtMost("lifo-checkpoint", LIFO_P99, us(1_000)),
    ], ..GROUP },
    // `canary`: more hogs than any reserve, and not asleep, so only the canary sees that nothing serves. `reserve`: the reserve that
    // trouble enlarges is what others share a full machine by. `poke`: a hog that a timer wakes, so that its worker has the driver; the
    // others are parked, and none polls the driver until the next outside wake moves one of them, so wakes must be rare. Canary
    // and reserve move workers, too: without them the poke is alone.
    Entry { name: "off", about: "each mechanism off makes a figure worse; with all off it is tokio's", cases: &[
        ("on-takeover", OWN, "hogs=2"),
        ("off-takeover", OWN, "hogs=2 off=takeover"),
        ("on-canary", OWN, "hogs=24"),
        ("off-canary", OWN, "hogs=24 off=canary"),
        ("on-watch", OWN, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
        ("off-watch", OWN, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1 off=watch"),
        ("on-reserve", OWN, "hogs=2 busy=64 busy_us=20"),
        ("off-reserve", OWN, "hogs=2 busy=64 busy_us=20 off=reserve"),
        ("on-slice", OWN, "hogs=6 hog_ms=5"),
        ("off-slice", OWN, "hogs=6 hog_ms=5 off=slice"),
        ("on-handoffs", OWN, "hogs=200 hog_via=spawn"),
        ("off-handoffs", OWN, "hogs=200 hog_via=spawn off=handoffs"),
        ("on-permits", OWN, "hogs=200 hog_via=spawn"),
        ("off-permits", OWN, "hogs=200 hog_via=spawn off=permits"),
        ("on-poke", OWN, "hogs=1 lifo=unknown period_us=50000 off=reserve,canary"),
        ("off-poke", OWN, "hogs=1 lifo=unknown period_us=50000 off=reserve,canary,poke"),
        ("off-all", TWO, "hogs=2 off=takeover,canary,watch,reserve,slice,handoffs,permits,poke,stacks"),
    ], bars: &[
        AtLeastTimes(WAKE_P99, ("off-takeover", Morpheus), ("on-takeover", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-canary", Morpheus), ("on-canary", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-watch", Morpheus), ("on-watch", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-reserve", Morpheus), ("on-reserve", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-slice", Morpheus), ("on-slice", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-handoffs", Morpheus), ("on-handoffs", Morpheus), 1.3),
        AtLeastTimes(WAKE_P99, ("off-permits", Morpheus), ("on-permits", Morpheus), 1.3),
        AtLeastTimes(TIMER_P99, ("off-poke", Morpheus), ("on-poke", Morpheus), 1.3),
        AtLeastTimes(TIMER_P99, ("off-all", Morpheus), ("off-all", TOKIO), 0.5), // Of the same size: how long a poll of 200 ms is waited for varies.
        AtMostTimes(TIMER_P99, ("off-all", Morpheus), ("off-all", TOKIO), 2.0),
    ], ..GROUP },
    Entry { name: "idle", about: "an idle runtime for 10 s, and what the controller costs a busy one", cases: &[
        ("idle", TWO, "idle=true duration_s=10"),
        ("controller-64", OWN, "busy=64 busy_us=300 busy_via=spawn"),
        ("controller-200-asleep", OWN, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
    ], bars: &[
        AtMost("idle", WAKEUPS, 0.0),
        AtMost("controller-64", CONTROLLER, 0.015),
        AtMost("controller-200-asleep", CONTROLLER, 0.03),
    ], ..GROUP },
];

/// All groups, upon a base that has no hogs.
pub fn groups(base: &Workload) -> Vec<Group> {
    let group = |entry: &Entry| {
        let case = |&(name, runtimes, change): &(&'static str, &'static [Runtime], &str)| Case {
            name,
            workload: changed(base, change),
            runtimes,
            least_rounds: entry.least_rounds,
        };
        let cases: Vec<Case> = entry.cases.iter().map(case).collect();
        let usual = cases.iter().filter(|_| entry.is_usual).flat_map(the_usual);
        Group {
            name: entry.name,
            about: entry.about,
            bars: entry.bars.iter().copied().chain(usual).collect(),
            cases,
        }
    };
    GROUPS.iter().map(group).collect()
}

/// The base with other values in some fields: `hogs=6 hog_via=spawn off=reserve,canary`.
fn changed(base: &Workload, change: &str) -> Workload {
    let mut fields = serde_json::to_value(base).expect("numbers and names");
    for (name, text) in change.split(' ').filter_map(|word| word.split_once('=')) {
        let field = fields.get_mut(name).expect("a field of a workload");
        *field = match field {
            serde_json::Value::Array(_) => text.split(',').collect(),
            _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        };
    }
    serde_json::from_value(fields).expect("a value that the field can have")
}

/// What is asked of a case of every group with hogs: every poll finished, and the hogs' share of an unsaturated machine.
fn the_usual(case: &Case) -> Vec<Bar> {
    let (name, workload) = (case.name, &case.workload);
    if !case.runtimes.contains(&MORE) || workload.hogs == 0 {
        return Vec::new();
    }
    let mut bars = vec![Finished(name)];
    let is_saturated = workload.busy > 0 || workload.load > 0;
    if workload.hog_kind == HogKind::Cpu && !is_saturated {
        bars.push(AtLeastTimes(HOG_CPU, (name, Morpheus), (name, TOKIO), 0.9));
    }
    bars
}
