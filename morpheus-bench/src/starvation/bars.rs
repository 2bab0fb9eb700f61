//! The table of bars: which cases are measured, and what is asked of them.
//!
//! The bars are meant for two CPUs, two workers and an unprivileged user.

use morpheus_harness::arguments::one_of;
use morpheus_harness::pairs::Limit::{self, AtLeast, AtMost};

use super::figures::{
    CONTROLLER, HOG_CPU, LIFO_MAX, MEANT_WAKE_P99, MIXED_P99, MIXED_POLLS, NEIGHBOURS, POLLS,
    REQUEST_P99, REQUESTS, TIMER_P99, UNFINISHED, WAKE_P50, WAKE_P99, WAKEUPS,
};
use super::workload::Workload;
use crate::executor::Runtime::{self, Morpheus, MorpheusFlag, TokioTuned};

/// A case on a runtime.
pub type At = (&'static str, Runtime);

/// A requirement of a figure: its name, where it is measured, where the figure that it is divided by is measured (if any), and the
/// limit. A time is in nanoseconds, a share is one of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Bar(pub &'static str, pub At, pub Option<At>, pub Limit);

const TOKIO: Runtime = Runtime::TOKIO;
const MORE: Runtime = Runtime::TOKIO_32;
const SLICE: Runtime = Runtime::TOKIO_32_SLICE;
/// Morpheus without and with the flag, tokio, the two baselines that Morpheus must never be worse than, and tokio as an expert
/// tunes it.
const CONTENDERS: &[Runtime] = &[Morpheus, MorpheusFlag, TOKIO, MORE, SLICE, TokioTuned];
const TWO: &[Runtime] = &[Morpheus, TOKIO];
/// Those with and without the flag.
const FOUR: &[Runtime] = &[Morpheus, MorpheusFlag, TOKIO, TokioTuned];
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
    /// The names of the cases, the runtimes, and the fields of the [`Workload`] that differ from the base.
    cases: &'static [(&'static str, &'static [Runtime], &'static str)],
    /// The requirements of each case.
    each: &'static [Each],
    /// Figures that are never above those of [`TUNED`] contenders. Wakes count twice: from the wake, and from when it was meant to be. The
    /// thread that wakes shares the CPUs with the contender, so the first one leaves out what that makes it wait.
    against: &'static [&'static str],
    bars: &'static [Bar],
}

/// A requirement of a figure of Morpheus in a case: its name, the runtime whose figure it is divided by, and the limit. A case in
/// which one of the two is not measured is not asked.
type Each = (&'static str, Option<Runtime>, Limit);

/// Every hog came out of its polls.
const FINISHED: Each = (UNFINISHED, None, AtMost(0.0));
/// The hogs have their share of a machine that is not saturated.
const FAIR: Each = (HOG_CPU, Some(TOKIO), AtLeast(0.9));

/// The tuned contenders, than which Morpheus is never later where a group says so.
const TUNED: [Runtime; 3] = [MORE, SLICE, TokioTuned];

const GROUP: Entry = Entry {
    name: "",
    about: "",
    least_rounds: 1,
    cases: &[],
    each: &[],
    against: &[],
    bars: &[],
};

#[rustfmt::skip]
const GROUPS: &[Entry] = &[
    Entry { name: "hogs-2", about: "1 and 2 computing hogs of 200 ms, nothing watched", each: &[FINISHED, FAIR], against: &[WAKE_P99, MEANT_WAKE_P99, TIMER_P99], cases: &[
        ("1 hog", FOUR, "hogs=1"),
        ("2 hogs", &Runtime::NAMED, "hogs=2"),
    ], bars: &[
        Bar(WAKE_P99, ("2 hogs", Morpheus), None, AtMost(us(300))),
        Bar(TIMER_P99, ("2 hogs", Morpheus), None, AtMost(us(3_000))),
        Bar(TIMER_P99, ("2 hogs", TOKIO), Some(("2 hogs", Morpheus)), AtLeast(100.0)),
        Bar(TIMER_P99, ("2 hogs", Runtime::GO), Some(("2 hogs", Morpheus)), AtLeast(10.0)),
    ], ..GROUP },
    Entry { name: "hogs-more", about: "6 hogs of 200 ms, 6 of 5 ms, 2 of 3 ms", each: &[FINISHED, FAIR], against: &[WAKE_P99, MEANT_WAKE_P99, TIMER_P99], cases: &[
        ("6 hogs", CONTENDERS, "hogs=6"),
        ("6 hogs of 5 ms", CONTENDERS, "hogs=6 hog_ms=5"),
        ("2 hogs of 3 ms", CONTENDERS, "hogs=2 hog_ms=3"),
    ], bars: &[
        Bar(WAKE_P99, ("6 hogs", Morpheus), None, AtMost(us(500))),
        Bar(WAKE_P99, ("6 hogs of 5 ms", Morpheus), None, AtMost(us(500))),
        Bar(WAKE_P99, ("2 hogs of 3 ms", Morpheus), None, AtMost(us(1_000))),
    ], ..GROUP },
    Entry { name: "hogs-20", about: "20 hogs of 200 ms, via tokio-spawn and via spawn, and rewritten for tokio", each: &[FINISHED, FAIR], against: &[WAKE_P99, MEANT_WAKE_P99, TIMER_P99], cases: &[
        ("20 hogs", CONTENDERS, "hogs=20"),
        ("20 watched hogs", CONTENDERS, "hogs=20 hog_via=spawn"),
        ("20 hogs in spawn_blocking", &[TOKIO], "hogs=20 hog_code=spawn-blocking"),
        ("20 hogs behind a semaphore", &[TOKIO, TokioTuned], "hogs=20 hog_code=bounded"),
        ("20 hogs in block_in_place", &[TOKIO], "hogs=20 hog_code=in-place"),
    ], bars: &[
        Bar(WAKE_P99, ("20 hogs", Morpheus), None, AtMost(us(1_500))),
        Bar(WAKE_P99, ("20 watched hogs", Morpheus), None, AtMost(us(500))),
        Bar(WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs in spawn_blocking", TOKIO)), AtMost(1.0)),
        Bar(WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TOKIO)), AtMost(1.0)),
        Bar(TIMER_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TOKIO)), AtMost(1.0)),
        Bar(WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TokioTuned)), AtMost(1.0)),
        Bar(TIMER_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TokioTuned)), AtMost(1.0)),
        Bar(WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs in block_in_place", TOKIO)), AtMost(1.0)),
        Bar(MEANT_WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TOKIO)), AtMost(1.0)),
        Bar(MEANT_WAKE_P99, ("20 hogs", MorpheusFlag), Some(("20 hogs behind a semaphore", TokioTuned)), AtMost(1.0)),
        Bar(HOG_CPU, ("20 hogs", MorpheusFlag), Some(("20 hogs in spawn_blocking", TOKIO)), AtLeast(0.95)),
    ], ..GROUP },
    Entry { name: "crowd", about: "60 and 200 computing hogs at once via spawn, after 500 ms", cases: &[
        ("60 watched hogs", CONTENDERS, "hogs=60 hog_via=spawn warmup_s=0.5"),
        ("60 watched hogs, new tasks", CONTENDERS, "hogs=60 hog_via=spawn fresh=true warmup_s=0.5"),
        ("200 watched hogs", CONTENDERS, "hogs=200 hog_via=spawn warmup_s=0.5"),
        ("200 watched hogs, new tasks", CONTENDERS, "hogs=200 hog_via=spawn fresh=true warmup_s=0.5"),
    ], each: &[
        FINISHED,
        FAIR,
        (WAKE_P99, None, AtMost(us(500))),
        (TIMER_P99, None, AtMost(us(50_000))), // "Served throughout": a timer that waited for a hog would be 200 ms late.
    ], ..GROUP },
    Entry { name: "blocked", about: "2 and 20 hogs blocked in the kernel via tokio-spawn, 200 via spawn", cases: &[
        ("sleep-2", CONTENDERS, "hogs=2 hog_kind=sleep"),
        ("sleep-20", CONTENDERS, "hogs=20 hog_kind=sleep"),
        ("sleep-200-watched", CONTENDERS, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
        ("mutex-2", CONTENDERS, "hogs=2 hog_kind=mutex"),
        ("mutex-20", CONTENDERS, "hogs=20 hog_kind=mutex"),
        ("mutex-200-watched", CONTENDERS, "hogs=200 hog_kind=mutex hog_via=spawn warmup_s=1"),
        ("read-2", CONTENDERS, "hogs=2 hog_kind=read"),
        ("read-20", CONTENDERS, "hogs=20 hog_kind=read"),
        ("read-200-watched", CONTENDERS, "hogs=200 hog_kind=read hog_via=spawn warmup_s=1"),
    ], each: &[
        FINISHED,
        (WAKE_P99, None, AtMost(us(500))),
    ], ..GROUP },
    Entry { name: "load", about: "an echo server with 16 clients at a fixed rate (about half of what it can serve)", against: &[WAKE_P99, MEANT_WAKE_P99, TIMER_P99, REQUEST_P99], cases: &[
        ("TCP", TWO, "load=16 warmup_s=2"),
        ("TCP, 2 hogs", CONTENDERS, "load=16 warmup_s=2 hogs=2"),
        ("TCP, 20 watched hogs", CONTENDERS, "load=16 warmup_s=2 hogs=20 hog_via=spawn"),
        ("TCP, 20 hogs", CONTENDERS, "load=16 warmup_s=2 hogs=20"),
        ("TCP, 20 hogs behind a semaphore", &[TOKIO, TokioTuned], "load=16 warmup_s=2 hogs=20 hog_code=bounded"),
    ], bars: &[
        Bar(REQUEST_P99, ("TCP, 20 watched hogs", Morpheus), Some(("TCP, 20 hogs behind a semaphore", TokioTuned)), AtMost(1.0)),
        Bar(REQUEST_P99, ("TCP, 20 hogs", MorpheusFlag), Some(("TCP, 20 hogs behind a semaphore", TokioTuned)), AtMost(1.0)),
        Bar(REQUESTS, ("TCP, 2 hogs", Morpheus), Some(("TCP", Morpheus)), AtLeast(0.98)),
        Bar(REQUEST_P99, ("TCP, 2 hogs", Morpheus), Some(("TCP", Morpheus)), AtMost(3.0)),
        Bar(HOG_CPU, ("TCP, 2 hogs", Morpheus), Some(("TCP, 2 hogs", SLICE)), AtLeast(0.85)), // Of those that serve both.
        Bar(REQUESTS, ("TCP, 20 watched hogs", Morpheus), Some(("TCP", Morpheus)), AtLeast(0.98)),
        Bar(REQUEST_P99, ("TCP, 20 watched hogs", Morpheus), Some(("TCP", Morpheus)), AtMost(3.0)),
        Bar(UNFINISHED, ("TCP, 2 hogs", Morpheus), None, AtMost(0.0)),
        Bar(UNFINISHED, ("TCP, 20 watched hogs", Morpheus), None, AtMost(0.0)),
        Bar(UNFINISHED, ("TCP, 20 hogs", Morpheus), None, AtMost(0.0)),
    ], ..GROUP },
    Entry { name: "saturated", about: "64 tasks of short polls that saturate the machine, beside hogs", cases: &[
        ("busy-64x20", CONTENDERS, "hogs=2 busy=64 busy_us=20"),
        ("busy-64x300", CONTENDERS, "hogs=6 busy=64 busy_us=300"),
    ], each: &[
        FINISHED,
        (POLLS, Some(MORE), AtLeast(0.85)),
        (POLLS, Some(SLICE), AtLeast(0.85)),
        (HOG_CPU, Some(SLICE), AtLeast(0.5)), // The rest is shared.
    ], bars: &[
        Bar(POLLS, ("busy-64x20", Morpheus), Some(("busy-64x20", TOKIO)), AtLeast(1.3)),
        Bar(POLLS, ("busy-64x300", Morpheus), Some(("busy-64x300", TOKIO)), AtLeast(1.3)),
    ], ..GROUP },
    Entry { name: "calm", about: "no hogs: the probes alone and short polls, ten interleaved pairs", least_rounds: 10, cases: &[
        ("calm", TWO, "busy=0 busy_us=0"),
        ("calm-8x300", TWO, "busy=8 busy_us=300"),
        ("calm-8x300-watched", TWO, "busy=8 busy_us=300 busy_via=spawn"),
        ("calm-64x300", TWO, "busy=64 busy_us=300"),
        ("calm-64x300-watched", TWO, "busy=64 busy_us=300 busy_via=spawn"),
        ("calm-300x500", TWO, "busy=300 busy_us=500"),
        ("calm-300x500-watched", TWO, "busy=300 busy_us=500 busy_via=spawn"),
    ], each: &[
        (WAKE_P50, Some(TOKIO), AtMost(1.1)),
        (WAKE_P99, Some(TOKIO), AtMost(1.3)),
    ], bars: &[
        Bar(POLLS, ("calm-8x300", Morpheus), Some(("calm-8x300", TOKIO)), AtLeast(0.95)),
        Bar(POLLS, ("calm-8x300-watched", Morpheus), Some(("calm-8x300-watched", TOKIO)), AtLeast(0.95)),
        Bar(POLLS, ("calm-64x300", Morpheus), Some(("calm-64x300", TOKIO)), AtLeast(0.97)),
        Bar(POLLS, ("calm-64x300-watched", Morpheus), Some(("calm-64x300-watched", TOKIO)), AtLeast(0.97)),
        Bar(POLLS, ("calm-300x500", Morpheus), Some(("calm-300x500", TOKIO)), AtLeast(0.97)),
        Bar(POLLS, ("calm-300x500-watched", Morpheus), Some(("calm-300x500-watched", TOKIO)), AtLeast(0.97)),
    ], ..GROUP },
    Entry { name: "neighbours", about: "two busy threads of another process; no hogs, 2, and 20 via spawn", cases: &[
        ("neighbours-0", TWO, "neighbours=2 hogs=0"),
        ("neighbours-2", TWO, "neighbours=2 hogs=2"),
        ("neighbours-20-watched", TWO, "neighbours=2 hogs=20 hog_via=spawn"),
    ], each: &[
        (NEIGHBOURS, Some(TOKIO), AtLeast(0.85)),
    ], bars: &[
        Bar(WAKE_P99, ("neighbours-0", Morpheus), Some(("neighbours-0", TOKIO)), AtMost(1.0)),
        Bar(WAKE_P99, ("neighbours-2", Morpheus), None, AtMost(us(500))),
        Bar(WAKE_P99, ("neighbours-20-watched", Morpheus), None, AtMost(us(1_000))),
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
    ], each: &[
        (TIMER_P99, Some(TOKIO), AtMost(1.0)),
    ], bars: &[
        Bar(TIMER_P99, ("quota-1-confined", Morpheus), None, AtMost(us(4_000))),
        Bar(POLLS, ("quota-1-busy", Morpheus), Some(("quota-1-busy", TOKIO)), AtLeast(0.97)),
        Bar(TIMER_P99, ("quota-1.5-confined", Morpheus), None, AtMost(us(4_000))),
        Bar(POLLS, ("quota-1.5-busy", Morpheus), Some(("quota-1.5-busy", TOKIO)), AtLeast(0.97)),
        Bar(TIMER_P99, ("quota-1.9-confined", Morpheus), None, AtMost(us(4_000))),
        Bar(POLLS, ("quota-1.9-busy", Morpheus), Some(("quota-1.9-busy", TOKIO)), AtLeast(0.97)),
    ], ..GROUP },
    // Hogs of 20 ms: with 200 the label would have too few polls for a p99.
    Entry { name: "label", about: "innocents under a label of which every tenth poll is a hog's", cases: &[
        ("label-watched", OWN, "label_mix=true hogs=2 hog_ms=20 hog_via=spawn"),
        ("label-plain", TWO, "label_mix=true hogs=2 hog_ms=20"),
    ], bars: &[
        Bar(MIXED_P99, ("label-watched", Morpheus), None, AtMost(us(5_000))),
        Bar(MIXED_POLLS, ("label-watched", Morpheus), Some(("label-plain", Morpheus)), AtLeast(0.9)),
    ], ..GROUP },
    Entry { name: "lifo", about: "a task woken by a hog that then computes 200 ms: nothing known, known, with checkpoints", cases: &[
        ("lifo-unknown", FOUR, "hogs=2 lifo=unknown"),
        ("lifo-known", OWN, "hogs=2 lifo=known"),
        ("lifo-checkpoint", OWN, "hogs=2 lifo=checkpoint"),
    ], bars: &[
        Bar(LIFO_MAX, ("lifo-unknown", MorpheusFlag), None, AtMost(us(1_000))),
        Bar(LIFO_MAX, ("lifo-known", Morpheus), None, AtMost(us(1_000))),
        Bar(LIFO_MAX, ("lifo-checkpoint", Morpheus), None, AtMost(us(1_000))),
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
        ("on-confine", OWN, "hogs=20 load=16 warmup_s=2"),
        ("off-confine", OWN, "hogs=20 load=16 warmup_s=2 off=confine"),
        ("on-handoffs", OWN, "hogs=200 hog_via=spawn"),
        ("off-handoffs", OWN, "hogs=200 hog_via=spawn off=handoffs"),
        ("on-permits", OWN, "hogs=200 hog_via=spawn"),
        ("off-permits", OWN, "hogs=200 hog_via=spawn off=permits"),
        ("on-poke", OWN, "hogs=1 lifo=unknown period_us=50000 off=reserve,canary"),
        ("off-poke", OWN, "hogs=1 lifo=unknown period_us=50000 off=reserve,canary,poke"),
        ("off-all", TWO, "hogs=2 off=takeover,canary,watch,reserve,slice,confine,handoffs,permits,poke,stacks"),
    ], bars: &[
        Bar(WAKE_P99, ("off-takeover", Morpheus), Some(("on-takeover", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-canary", Morpheus), Some(("on-canary", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-watch", Morpheus), Some(("on-watch", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-reserve", Morpheus), Some(("on-reserve", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-slice", Morpheus), Some(("on-slice", Morpheus)), AtLeast(1.3)),
        Bar(REQUEST_P99, ("off-confine", Morpheus), Some(("on-confine", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-handoffs", Morpheus), Some(("on-handoffs", Morpheus)), AtLeast(1.3)),
        Bar(WAKE_P99, ("off-permits", Morpheus), Some(("on-permits", Morpheus)), AtLeast(1.3)),
        Bar(TIMER_P99, ("off-poke", Morpheus), Some(("on-poke", Morpheus)), AtLeast(1.3)),
        Bar(TIMER_P99, ("off-all", Morpheus), Some(("off-all", TOKIO)), AtLeast(0.5)), // Of the same size: how long a poll of 200 ms is waited for varies.
        Bar(TIMER_P99, ("off-all", Morpheus), Some(("off-all", TOKIO)), AtMost(2.0)),
    ], ..GROUP },
    Entry { name: "idle", about: "an idle runtime for 10 s, and what the controller costs a busy one", cases: &[
        ("idle", TWO, "idle=true duration_s=10"),
        ("controller-64", OWN, "busy=64 busy_us=300 busy_via=spawn"),
        ("controller-200-asleep", OWN, "hogs=200 hog_kind=sleep hog_via=spawn warmup_s=1"),
    ], bars: &[
        Bar(WAKEUPS, ("idle", Morpheus), None, AtMost(0.0)),
        Bar(CONTROLLER, ("controller-64", Morpheus), None, AtMost(0.015)),
        Bar(CONTROLLER, ("controller-200-asleep", Morpheus), None, AtMost(0.03)),
    ], ..GROUP },
];

/// The name of a group, on the command line.
pub fn group_name(name: &str) -> Result<String, String> {
    one_of(name, "row", GROUPS.iter().map(|group| group.name))
}

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
        let mut bars = entry.bars.to_vec();
        for case in &cases {
            let is_there = |runtime| case.runtimes.contains(&runtime);
            let own = |runtime| (case.name, runtime);
            let against = entry
                .against
                .iter()
                .flat_map(|&figure| TUNED.map(|runtime| (figure, Some(runtime), AtMost(1.0))));
            for (figure, to, limit) in entry.each.iter().copied().chain(against) {
                if is_there(Morpheus) && to.is_none_or(is_there) {
                    bars.push(Bar(figure, own(Morpheus), to.map(own), limit));
                }
            }
        }
        Group {
            name: entry.name,
            about: entry.about,
            cases,
            bars,
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
