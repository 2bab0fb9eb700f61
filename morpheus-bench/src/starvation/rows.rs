//! The rows of the table of bars: what is run, and what is asked of it.
//!
//! The bars are meant for two CPUs, two workers, an unprivileged user and medians of three runs.

use super::figure::Figure::{
    Controller, HogCpu, LifoP99, LoadP99, LoadRate, MixP99, MixPolls, Neighbours, Polls, TimerP99,
    WakeP50, WakeP99, Wakeups,
};
use super::verdict::Bar::{
    self, AtLeast, AtLeastTimes, AtMost, AtMostTimes, Elsewhere, Finished, NotWorse, Reported,
};
use super::workload::{HogKind, Workload};
use crate::executor::Runtime::{self, Go, Morpheus, MorpheusFlag, TokioTuned};

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

/// Something to measure. A case is measured once, however many rows look at it.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub workload: Workload,
    pub runtimes: &'static [Runtime],
    pub least_rounds: usize,
}

/// A row: cases to measure and what is asked of their figures (and of those of rows before).
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub cases: Vec<Case>,
    pub bars: Vec<Bar>,
}

/// A row as the table has it.
struct Entry {
    name: &'static str,
    about: &'static str,
    least_rounds: usize,
    /// Whether what every row with hogs is asked comes on top of `bars`; see [`the_usual`].
    is_usual: bool,
    /// The names of the cases, the runtimes, and the fields of the [`Workload`] that differ from the base.
    cases: &'static [(&'static str, &'static [Runtime], &'static str)],
    bars: &'static [Bar],
}

const ROW: Entry = Entry {
    name: "",
    about: "",
    least_rounds: 1,
    is_usual: false,
    cases: &[],
    bars: &[],
};

#[rustfmt::skip]
const ROWS: &[Entry] = &[
    Entry { name: "hogs-2", about: "2 computing hogs of 200 ms, nothing watched", is_usual: true, cases: &[
        ("hogs-2", &Runtime::NAMED, "hogs=2"),
    ], bars: &[
        AtMost("hogs-2", WakeP99, us(300)),
        AtMost("hogs-2", TimerP99, us(3_000)),
        AtLeastTimes(TimerP99, ("hogs-2", TOKIO), ("hogs-2", Morpheus), 100.0),
        AtLeastTimes(TimerP99, ("hogs-2", Go), ("hogs-2", Morpheus), 10.0),
    ], ..ROW },
    Entry { name: "hogs-more", about: "6 hogs of 200 ms, 6 of 5 ms, 2 of 3 ms", is_usual: true, cases: &[
        ("hogs-6x200", CONTENDERS, "hogs=6"),
        ("hogs-6x5", CONTENDERS, "hogs=6 hog_ms=5"),
        ("hogs-2x3", CONTENDERS, "hogs=2 hog_ms=3"),
    ], bars: &[
        AtMost("hogs-6x200", WakeP99, us(500)),
        AtMost("hogs-6x5", WakeP99, us(500)),
        AtMost("hogs-2x3", WakeP99, us(1_000)),
    ], ..ROW },
    Entry { name: "hogs-20", about: "20 hogs of 200 ms, via tokio-spawn and via spawn, and rewritten for tokio", is_usual: true, cases: &[
        ("hogs-20", CONTENDERS, "hogs=20"),
        ("hogs-20-watched", CONTENDERS, "hogs=20 hog_via=spawn"),
        ("hogs-20-spawn-blocking", &[TOKIO], "hogs=20 hog_code=spawn-blocking"),
        ("hogs-20-bounded", &[TOKIO], "hogs=20 hog_code=bounded"),
        ("hogs-20-in-place", &[TOKIO], "hogs=20 hog_code=in-place"),
    ], bars: &[
        AtMost("hogs-20", WakeP99, us(1_500)),
        AtMost("hogs-20-watched", WakeP99, us(500)),
        AtMostTimes(WakeP99, ("hogs-20", MorpheusFlag), ("hogs-20-spawn-blocking", TOKIO), 1.0),
        AtMostTimes(WakeP99, ("hogs-20", MorpheusFlag), ("hogs-20-bounded", TOKIO), 1.0),
        AtMostTimes(WakeP99, ("hogs-20", MorpheusFlag), ("hogs-20-in-place", TOKIO), 1.0),
        AtLeastTimes(HogCpu, ("hogs-20", MorpheusFlag), ("hogs-20-spawn-blocking", TOKIO), 0.95),
    ], ..ROW },
    Entry { name: "crowd", about: "60 and 200 computing hogs at once via spawn, after 500 ms", is_usual: true, cases: &[
        ("crowd-60", CONTENDERS, "hogs=60 hog_via=spawn warmup_s=0.5"),
        ("crowd-60-fresh", CONTENDERS, "hogs=60 hog_via=spawn fresh=true warmup_s=0.5"),
        ("crowd-200", CONTENDERS, "hogs=200 hog_via=spawn warmup_s=0.5"),
        ("crowd-200-fresh", CONTENDERS, "hogs=200 hog_via=spawn fresh=true warmup_s=0.5"),
    ], bars: &[
        AtMost("crowd-60", WakeP99, us(500)),
        AtMost("crowd-60", TimerP99, us(50_000)), // "Served throughout": a timer that waited for a hog would be 200 ms late.
        AtMost("crowd-60-fresh", WakeP99, us(500)),
        AtMost("crowd-60-fresh", TimerP99, us(50_000)),
        AtMost("crowd-200", WakeP99, us(500)),
        AtMost("crowd-200", TimerP99, us(50_000)),
        AtMost("crowd-200-fresh", WakeP99, us(500)),
        AtMost("crowd-200-fresh", TimerP99, us(50_000)),
    ], ..ROW },
    Entry { name: "axum", about: "an unchanged axum server, four /hash clients, /ping 1,000/s", bars: &[
        Elsewhere("measured by: cargo xtask service"),
    ], ..ROW },
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
        AtMost("sleep-2", WakeP99, us(500)),
        AtMost("sleep-20", WakeP99, us(500)),
        AtMost("sleep-200-watched", WakeP99, us(500)),
        AtMost("mutex-2", WakeP99, us(500)),
        AtMost("mutex-20", WakeP99, us(500)),
        AtMost("mutex-200-watched", WakeP99, us(500)),
        AtMost("read-2", WakeP99, us(500)),
        AtMost("read-20", WakeP99, us(500)),
        AtMost("read-200-watched", WakeP99, us(500)),
    ], ..ROW },
    Entry { name: "load", about: "an echo server with 16 clients at a fixed rate (about half of what it can serve)", is_usual: true, cases: &[
        ("load-calm", TWO, "load=16 warmup_s=2"),
        ("load-2", CONTENDERS, "load=16 warmup_s=2 hogs=2"),
        ("load-20-watched", CONTENDERS, "load=16 warmup_s=2 hogs=20 hog_via=spawn"),
        ("load-20", CONTENDERS, "load=16 warmup_s=2 hogs=20"),
    ], bars: &[
        AtLeastTimes(LoadRate, ("load-2", Morpheus), ("load-calm", Morpheus), 0.98),
        AtMostTimes(LoadP99, ("load-2", Morpheus), ("load-calm", Morpheus), 3.0),
        AtLeastTimes(LoadRate, ("load-20-watched", Morpheus), ("load-calm", Morpheus), 0.98),
        AtMostTimes(LoadP99, ("load-20-watched", Morpheus), ("load-calm", Morpheus), 3.0),
        Reported("load-20", LoadRate),
        Reported("load-20", LoadP99),
    ], ..ROW },
    Entry { name: "saturated", about: "64 tasks of short polls that saturate the machine, beside hogs", is_usual: true, cases: &[
        ("busy-64x20", CONTENDERS, "hogs=2 busy=64 busy_us=20"),
        ("busy-64x300", CONTENDERS, "hogs=6 busy=64 busy_us=300"),
    ], bars: &[
        AtLeastTimes(Polls, ("busy-64x20", Morpheus), ("busy-64x20", MORE), 0.85),
        AtLeastTimes(Polls, ("busy-64x20", Morpheus), ("busy-64x20", SLICE), 0.85),
        AtLeastTimes(Polls, ("busy-64x20", Morpheus), ("busy-64x20", TOKIO), 1.3),
        AtLeast("busy-64x20", HogCpu, 0.05),
        AtLeastTimes(Polls, ("busy-64x300", Morpheus), ("busy-64x300", MORE), 0.85),
        AtLeastTimes(Polls, ("busy-64x300", Morpheus), ("busy-64x300", SLICE), 0.85),
        AtLeastTimes(Polls, ("busy-64x300", Morpheus), ("busy-64x300", TOKIO), 1.3),
        AtLeast("busy-64x300", HogCpu, 0.05),
    ], ..ROW },
    Entry { name: "calm", about: "no hogs: the probes alone and short polls, ten interleaved pairs", least_rounds: 10, cases: &[
        ("calm", TWO, "busy=0 busy_us=0"),
        ("calm-8x300", TWO, "busy=8 busy_us=300"),
        ("calm-8x300-watched", TWO, "busy=8 busy_us=300 busy_via=spawn"),
        ("calm-64x300", TWO, "busy=64 busy_us=300"),
        ("calm-64x300-watched", TWO, "busy=64 busy_us=300 busy_via=spawn"),
        ("calm-300x500", TWO, "busy=300 busy_us=500"),
        ("calm-300x500-watched", TWO, "busy=300 busy_us=500 busy_via=spawn"),
    ], bars: &[
        AtMostTimes(WakeP50, ("calm", Morpheus), ("calm", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm", Morpheus), ("calm", TOKIO), 1.3),
        AtMostTimes(WakeP50, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-8x300", Morpheus), ("calm-8x300", TOKIO), 0.95),
        AtMostTimes(WakeP50, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-8x300-watched", Morpheus), ("calm-8x300-watched", TOKIO), 0.95),
        AtMostTimes(WakeP50, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-64x300", Morpheus), ("calm-64x300", TOKIO), 0.97),
        AtMostTimes(WakeP50, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-64x300-watched", Morpheus), ("calm-64x300-watched", TOKIO), 0.97),
        AtMostTimes(WakeP50, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-300x500", Morpheus), ("calm-300x500", TOKIO), 0.97),
        AtMostTimes(WakeP50, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 1.1),
        AtMostTimes(WakeP99, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 1.3),
        AtLeastTimes(Polls, ("calm-300x500-watched", Morpheus), ("calm-300x500-watched", TOKIO), 0.97),
    ], ..ROW },
    Entry { name: "neighbours", about: "two busy threads of another process; no hogs, 2, and 20 via spawn", cases: &[
        ("neighbours-0", TWO, "neighbours=2 hogs=0"),
        ("neighbours-2", TWO, "neighbours=2 hogs=2"),
        ("neighbours-20-watched", TWO, "neighbours=2 hogs=20 hog_via=spawn"),
    ], bars: &[
        AtLeastTimes(Neighbours, ("neighbours-0", Morpheus), ("neighbours-0", TOKIO), 0.85),
        AtLeastTimes(Neighbours, ("neighbours-2", Morpheus), ("neighbours-2", TOKIO), 0.85),
        AtLeastTimes(Neighbours, ("neighbours-20-watched", Morpheus), ("neighbours-20-watched", TOKIO), 0.85),
        AtMostTimes(WakeP99, ("neighbours-0", Morpheus), ("neighbours-0", TOKIO), 1.0),
        AtMost("neighbours-2", WakeP99, us(500)),
        AtMost("neighbours-20-watched", WakeP99, us(1_000)),
    ], ..ROW },
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
        AtMost("quota-1-confined", TimerP99, us(4_000)),
        AtMostTimes(TimerP99, ("quota-1-hogs", Morpheus), ("quota-1-hogs", TOKIO), 1.0),
        AtLeastTimes(Polls, ("quota-1-busy", Morpheus), ("quota-1-busy", TOKIO), 0.97),
        AtMostTimes(TimerP99, ("quota-1-busy", Morpheus), ("quota-1-busy", TOKIO), 1.0),
        AtMost("quota-1.5-confined", TimerP99, us(4_000)),
        AtMostTimes(TimerP99, ("quota-1.5-hogs", Morpheus), ("quota-1.5-hogs", TOKIO), 1.0),
        AtLeastTimes(Polls, ("quota-1.5-busy", Morpheus), ("quota-1.5-busy", TOKIO), 0.97),
        AtMostTimes(TimerP99, ("quota-1.5-busy", Morpheus), ("quota-1.5-busy", TOKIO), 1.0),
        AtMost("quota-1.9-confined", TimerP99, us(4_000)),
        AtMostTimes(TimerP99, ("quota-1.9-hogs", Morpheus), ("quota-1.9-hogs", TOKIO), 1.0),
        AtLeastTimes(Polls, ("quota-1.9-busy", Morpheus), ("quota-1.9-busy", TOKIO), 0.97),
        AtMostTimes(TimerP99, ("quota-1.9-busy", Morpheus), ("quota-1.9-busy", TOKIO), 1.0),
    ], ..ROW },
    // Hogs of 20 ms: with 200 the label would have too few polls for a p99.
    Entry { name: "label", about: "innocents under a label of which every tenth poll is a hog's", cases: &[
        ("label-watched", OWN, "label_mix=true hogs=2 hog_ms=20 hog_via=spawn"),
        ("label-plain", TWO, "label_mix=true hogs=2 hog_ms=20"),
    ], bars: &[
        AtMost("label-watched", MixP99, us(5_000)),
        AtLeastTimes(MixPolls, ("label-watched", Morpheus), ("label-plain", Morpheus), 0.9),
    ], ..ROW },
    Entry { name: "lifo", about: "a task woken by a hog that then computes 200 ms: nothing known, known, with checkpoints", cases: &[
        ("lifo-unknown", TWO, "hogs=2 lifo=unknown"),
        ("lifo-known", OWN, "hogs=2 lifo=known"),
        ("lifo-checkpoint", OWN, "hogs=2 lifo=checkpoint"),
    ], bars: &[
        Reported("lifo-unknown", LifoP99),
        AtMost("lifo-known", LifoP99, us(1_000)),
        AtMost("lifo-checkpoint", LifoP99, us(1_000)),
    ], ..ROW },
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
        AtLeastTimes(WakeP99, ("off-takeover", Morpheus), ("on-takeover", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-canary", Morpheus), ("on-canary", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-watch", Morpheus), ("on-watch", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-reserve", Morpheus), ("on-reserve", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-slice", Morpheus), ("on-slice", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-handoffs", Morpheus), ("on-handoffs", Morpheus), 1.3),
        AtLeastTimes(WakeP99, ("off-permits", Morpheus), ("on-permits", Morpheus), 1.3),
        AtLeastTimes(TimerP99, ("off-poke", Morpheus), ("on-poke", Morpheus), 1.3),
        AtLeastTimes(TimerP99, ("off-all", Morpheus), ("off-all", TOKIO), 0.5), // Of the same size: how long a poll of 200 ms is waited for varies.
        AtMostTimes(TimerP99, ("off-all", Morpheus), ("off-all", TOKIO), 2.0),
    ], ..ROW },
    Entry { name: "idle", about: "an idle runtime for 10 s, and what the controller costs a busy one", cases: &[
        ("idle", TWO, "idle=true duration_s=10"),
        ("controller-64", OWN, "busy=64 busy_us=300 busy_via=spawn"),
        ("controller-200-asleep", OWN, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
    ], bars: &[
        AtMost("idle", Wakeups, 0.0),
        AtMost("controller-64", Controller, 0.015),
        AtMost("controller-200-asleep", Controller, 0.03),
    ], ..ROW },
    Entry { name: "criterion", about: "what a checkpoint and a watched poll cost", bars: &[
        Elsewhere("checkpoint_sync: cargo bench -p morpheus-bench --bench checkpoint"),
        Elsewhere("a watched poll: cargo bench -p morpheus-bench --bench watch"),
    ], ..ROW },
];

/// All rows, upon a base that has no hogs.
pub fn rows(base: &Workload) -> Vec<Row> {
    let row = |entry: &Entry| {
        let case = |&(name, runtimes, change): &(&'static str, &'static [Runtime], &str)| Case {
            name,
            workload: changed(base, change),
            runtimes,
            least_rounds: entry.least_rounds,
        };
        let cases: Vec<Case> = entry.cases.iter().map(case).collect();
        let usual = cases.iter().filter(|_| entry.is_usual).flat_map(the_usual);
        Row {
            name: entry.name,
            about: entry.about,
            bars: entry.bars.iter().copied().chain(usual).collect(),
            cases,
        }
    };
    ROWS.iter().map(row).collect()
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

/// What is asked of a case of every row with hogs: never worse than the baselines, every poll finished, and the hogs' share of an
/// unsaturated machine.
fn the_usual(case: &Case) -> Vec<Bar> {
    let (name, workload) = (case.name, &case.workload);
    if !case.runtimes.contains(&MORE) || workload.hogs == 0 {
        return Vec::new();
    }
    let mut bars = vec![NotWorse(name, MORE), NotWorse(name, SLICE), Finished(name)];
    let is_saturated = workload.busy > 0 || workload.load > 0;
    if workload.hog_kind == HogKind::Cpu && !is_saturated {
        bars.push(AtLeastTimes(HogCpu, (name, Morpheus), (name, TOKIO), 0.9));
    }
    bars
}
