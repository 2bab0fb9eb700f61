//! The rows of the table of bars: what is run, and what is asked of it.
//!
//! The bars are meant for two CPUs, two workers, an unprivileged user and medians of three runs.

use super::figure::Figure::{self, HogCpu, LoadP99, LoadRate, Polls, TimerP99, WakeP50, WakeP99};
use super::verdict::Bar::{
    self, AtLeast, AtLeastTimes, AtMost, AtMostTimes, Elsewhere, Finished, NotWorse, Reported,
};
use super::workload::{HogKind, Via, Workload};
use crate::code::Code;
use crate::executor::Runtime::{self, Go, Morpheus, MorpheusFlag, TokioTuned};

const TOKIO: Runtime = Runtime::TOKIO;
const MORE: Runtime = Runtime::TOKIO_32;
const MORE_SLICE: Runtime = Runtime::TOKIO_32_SLICE;
/// Morpheus without and with the flag, tokio, the two baselines that Morpheus must never be worse than, and tokio as an expert
/// tunes it.
const CONTENDERS: [Runtime; 6] = [Morpheus, MorpheusFlag, TOKIO, MORE, MORE_SLICE, TokioTuned];
/// Morpheus and tokio.
pub(super) const TWO: [Runtime; 2] = [Morpheus, TOKIO];

/// Microseconds in nanoseconds.
pub(super) const fn us(us: u64) -> f64 {
    (us * 1_000) as f64
}

/// Something to measure. A case is measured once, however many rows look at it.
pub struct Case {
    pub name: &'static str,
    pub workload: Workload,
    pub runtimes: Vec<Runtime>,
    pub least_rounds: usize,
}

/// A row: cases to measure and what is asked of their figures (and of those of rows before).
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub cases: Vec<Case>,
    pub bars: Vec<Bar>,
}

impl Row {
    pub(super) fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            cases: Vec::new(),
            bars: Vec::new(),
        }
    }

    pub(super) fn case(
        mut self,
        name: &'static str,
        runtimes: &[Runtime],
        base: &Workload,
        change: impl FnOnce(&mut Workload),
    ) -> Self {
        let mut workload = base.clone();
        change(&mut workload);
        self.cases.push(Case {
            name,
            workload,
            runtimes: runtimes.to_vec(),
            least_rounds: 1,
        });
        self
    }

    pub(super) fn bars(mut self, bars: impl IntoIterator<Item = Bar>) -> Self {
        self.bars.extend(bars);
        self
    }

    /// What is asked of every row with hogs: never worse than the baselines, every poll finished, and the
    /// hogs' share of an unsaturated machine.
    fn and_the_usual(mut self) -> Self {
        for case in &self.cases {
            if !case.runtimes.contains(&MORE) || case.workload.hogs == 0 {
                continue;
            }
            let name = case.name;
            self.bars.extend([
                NotWorse(name, MORE),
                NotWorse(name, MORE_SLICE),
                Finished(name),
            ]);
            let saturated = case.workload.busy > 0 || case.workload.load > 0;
            if case.workload.hog_kind == HogKind::Cpu && !saturated {
                self.bars
                    .push(AtLeastTimes(HogCpu, (name, Morpheus), (name, TOKIO), 0.9));
            }
        }
        self
    }
}

fn hogs(count: usize, ms: f64, via: Via) -> impl FnOnce(&mut Workload) {
    move |workload| {
        workload.hogs = count;
        workload.hog_ms = ms;
        workload.hog_via = via;
    }
}

const PLAIN: Via = Via::TokioSpawn;
const WATCHED: Via = Via::Spawn;

/// All rows, upon a base that has no hogs.
pub fn rows(base: &Workload) -> Vec<Row> {
    let mut rows = vec![
        two_hogs(base),
        short_hogs(base),
        twenty(base),
        crowd(base),
        axum(),
    ];
    rows.extend([blocked(base), load(base), saturated(base), calm(base)]);
    rows.extend(super::rows_more::rows(base));
    rows
}

fn two_hogs(base: &Workload) -> Row {
    Row::new("hogs-2", "2 computing hogs of 200 ms, nothing watched")
        .case("hogs-2", &Runtime::NAMED, base, hogs(2, 200.0, PLAIN))
        .bars([
            AtMost("hogs-2", WakeP99, us(300)),
            AtMost("hogs-2", TimerP99, us(3_000)),
            AtLeastTimes(TimerP99, ("hogs-2", TOKIO), ("hogs-2", Morpheus), 100.0),
            AtLeastTimes(TimerP99, ("hogs-2", Go), ("hogs-2", Morpheus), 10.0),
        ])
        .and_the_usual()
}

fn short_hogs(base: &Workload) -> Row {
    Row::new("hogs-more", "6 hogs of 200 ms, 6 of 5 ms, 2 of 3 ms")
        .case("hogs-6x200", &CONTENDERS, base, hogs(6, 200.0, PLAIN))
        .case("hogs-6x5", &CONTENDERS, base, hogs(6, 5.0, PLAIN))
        .case("hogs-2x3", &CONTENDERS, base, hogs(2, 3.0, PLAIN))
        .bars([
            AtMost("hogs-6x200", WakeP99, us(500)),
            AtMost("hogs-6x5", WakeP99, us(500)),
            AtMost("hogs-2x3", WakeP99, us(1_000)),
        ])
        .and_the_usual()
}

fn twenty(base: &Workload) -> Row {
    let written = |code| {
        move |workload: &mut Workload| {
            hogs(20, 200.0, PLAIN)(workload);
            workload.hog_code = code;
        }
    };
    let flag = ("hogs-20", MorpheusFlag);
    let (on_the_pool, in_place) = ("hogs-20-spawn-blocking", "hogs-20-in-place");
    let bounded = "hogs-20-bounded";
    Row::new(
        "hogs-20",
        "20 hogs of 200 ms, via tokio-spawn and via spawn, and rewritten for tokio",
    )
    .case("hogs-20", &CONTENDERS, base, hogs(20, 200.0, PLAIN))
    .case(
        "hogs-20-watched",
        &CONTENDERS,
        base,
        hogs(20, 200.0, WATCHED),
    )
    .case(on_the_pool, &[TOKIO], base, written(Code::SpawnBlocking))
    .case(bounded, &[TOKIO], base, written(Code::Bounded))
    .case(in_place, &[TOKIO], base, written(Code::InPlace))
    .bars([
        AtMost("hogs-20", WakeP99, us(1_500)),
        AtMost("hogs-20-watched", WakeP99, us(500)),
        AtMostTimes(WakeP99, flag, (on_the_pool, TOKIO), 1.0),
        AtMostTimes(WakeP99, flag, (bounded, TOKIO), 1.0),
        AtMostTimes(WakeP99, flag, (in_place, TOKIO), 1.0),
        AtLeastTimes(HogCpu, flag, (on_the_pool, TOKIO), 0.95),
    ])
    .and_the_usual()
}

fn crowd(base: &Workload) -> Row {
    let mut row = Row::new(
        "crowd",
        "60 and 200 computing hogs at once via spawn, after 500 ms",
    );
    let cases = [
        ("crowd-60", 60, false),
        ("crowd-60-fresh", 60, true),
        ("crowd-200", 200, false),
        ("crowd-200-fresh", 200, true),
    ];
    for (name, count, fresh) in cases {
        row = row
            .case(name, &CONTENDERS, base, |workload| {
                hogs(count, 200.0, WATCHED)(workload);
                workload.fresh = fresh;
                workload.warmup_s = 0.5;
            })
            .bars([
                AtMost(name, WakeP99, us(500)),
                // "Served throughout": a timer that waited for a hog would be 200 ms late.
                AtMost(name, TimerP99, us(50_000)),
            ]);
    }
    row.and_the_usual()
}

fn axum() -> Row {
    let elsewhere = "measured by: cargo run --release --example axum_hog";
    Row::new(
        "axum",
        "an unchanged axum server, four /hash clients, /ping 1,000/s",
    )
    .bars([Elsewhere(elsewhere)])
}

fn blocked(base: &Workload) -> Row {
    let mut row = Row::new(
        "blocked",
        "2 and 20 hogs blocked in the kernel via tokio-spawn, 200 via spawn",
    );
    let cases = [
        ("sleep-2", HogKind::Sleep, 2),
        ("sleep-20", HogKind::Sleep, 20),
        ("sleep-200-watched", HogKind::Sleep, 200),
        ("mutex-2", HogKind::Mutex, 2),
        ("mutex-20", HogKind::Mutex, 20),
        ("mutex-200-watched", HogKind::Mutex, 200),
        ("read-2", HogKind::Read, 2),
        ("read-20", HogKind::Read, 20),
        ("read-200-watched", HogKind::Read, 200),
    ];
    for (name, kind, count) in cases {
        row = row
            .case(name, &CONTENDERS, base, |workload| {
                hogs(count, 200.0, if count == 200 { WATCHED } else { PLAIN })(workload);
                workload.hog_kind = kind;
                if count == 200 {
                    workload.warmup_s = 1.0;
                }
            })
            .bars([AtMost(name, WakeP99, us(500))]);
    }
    row.and_the_usual()
}

fn load(base: &Workload) -> Row {
    let served = |change: fn(&mut Workload)| {
        move |workload: &mut Workload| {
            workload.load = 16;
            workload.warmup_s = 2.0;
            change(workload);
        }
    };
    let calm = ("load-calm", Morpheus);
    let like_calm = |name: &'static str| {
        [
            AtLeastTimes(LoadRate, (name, Morpheus), calm, 0.98),
            AtMostTimes(LoadP99, (name, Morpheus), calm, 3.0),
        ]
    };
    Row::new(
        "load",
        "an echo server with 16 clients at a fixed rate (about half of what it can serve)",
    )
    .case("load-calm", &TWO, base, served(|_| ()))
    .case(
        "load-2",
        &CONTENDERS,
        base,
        served(|w| hogs(2, 200.0, PLAIN)(w)),
    )
    .case(
        "load-20-watched",
        &CONTENDERS,
        base,
        served(|w| hogs(20, 200.0, WATCHED)(w)),
    )
    .case(
        "load-20",
        &CONTENDERS,
        base,
        served(|w| hogs(20, 200.0, PLAIN)(w)),
    )
    .bars(like_calm("load-2"))
    .bars(like_calm("load-20-watched"))
    .bars([Reported("load-20", LoadRate), Reported("load-20", LoadP99)])
    .and_the_usual()
}

fn saturated(base: &Workload) -> Row {
    let mut row = Row::new(
        "saturated",
        "64 tasks of short polls that saturate the machine, beside hogs",
    );
    for (name, busy_us, count) in [("busy-64x20", 20.0, 2), ("busy-64x300", 300.0, 6)] {
        let own = (name, Morpheus);
        row = row
            .case(name, &CONTENDERS, base, |workload| {
                hogs(count, 200.0, PLAIN)(workload);
                workload.busy = 64;
                workload.busy_us = busy_us;
            })
            .bars([
                AtLeastTimes(Polls, own, (name, MORE), 0.85),
                AtLeastTimes(Polls, own, (name, MORE_SLICE), 0.85),
                AtLeastTimes(Polls, own, (name, TOKIO), 1.3),
                AtLeast(name, HogCpu, 0.05),
            ]);
    }
    row.and_the_usual()
}

fn calm(base: &Workload) -> Row {
    let mut row = Row::new(
        "calm",
        "no hogs: the probes alone and short polls, ten interleaved pairs",
    );
    let cases = [
        ("calm", 0, 0.0, PLAIN, 0.0),
        ("calm-8x300", 8, 300.0, PLAIN, 0.95),
        ("calm-8x300-watched", 8, 300.0, WATCHED, 0.95),
        ("calm-64x300", 64, 300.0, PLAIN, 0.97),
        ("calm-64x300-watched", 64, 300.0, WATCHED, 0.97),
        ("calm-300x500", 300, 500.0, PLAIN, 0.97),
        ("calm-300x500-watched", 300, 500.0, WATCHED, 0.97),
    ];
    for (name, busy, busy_us, via, polls) in cases {
        let (own, other) = ((name, Morpheus), (name, TOKIO));
        row = row
            .case(name, &TWO, base, |workload| {
                workload.busy = busy;
                workload.busy_us = busy_us;
                workload.busy_via = via;
            })
            .bars([
                AtMostTimes(WakeP50, own, other, 1.1),
                AtMostTimes(WakeP99, own, other, 1.3),
            ]);
        if busy > 0 {
            row = row.bars([AtLeastTimes(Figure::Polls, own, other, polls)]);
        }
    }
    for case in &mut row.cases {
        case.least_rounds = 10;
    }
    row
}
