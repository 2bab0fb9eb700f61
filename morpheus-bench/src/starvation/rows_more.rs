//! More rows: neighbours, quotas, labels, the LIFO slot, each mechanism off, an idle runtime.

use super::figure::Figure::{
    Controller, LifoP99, MixP99, MixPolls, Neighbours, Polls, TimerP99, WakeP99, Wakeups,
};
use super::rows::{Row, TWO, us};
use super::verdict::Bar::{AtLeastTimes, AtMost, AtMostTimes, Elsewhere, Reported};
use super::workload::{HogKind, Lifo, Via, Workload};
use crate::executor::Runtime;
use crate::executor::Runtime::Morpheus;

const TOKIO: Runtime = Runtime::TOKIO;
const OWN: [Runtime; 1] = [Morpheus];

/// The rows, upon a base that has no hogs.
pub fn rows(base: &Workload) -> Vec<Row> {
    let mut rows = vec![neighbours(base), quota(base), label(base), lifo(base)];
    rows.extend([off(base), idle(base), elsewhere()]);
    rows
}

fn neighbours(base: &Workload) -> Row {
    let mut row = Row::new(
        "neighbours",
        "two busy threads of another process; no hogs, 2, and 20 via spawn",
    );
    let cases = [
        ("neighbours-0", 0, Via::TokioSpawn),
        ("neighbours-2", 2, Via::TokioSpawn),
        ("neighbours-20-watched", 20, Via::Spawn),
    ];
    for (name, hogs, via) in cases {
        row = row
            .case(name, &TWO, base, |workload| {
                workload.neighbours = 2;
                workload.hogs = hogs;
                workload.hog_via = via;
            })
            .bars([AtLeastTimes(
                Neighbours,
                (name, Morpheus),
                (name, TOKIO),
                0.85,
            )]);
    }
    row.bars([
        AtMostTimes(
            WakeP99,
            ("neighbours-0", Morpheus),
            ("neighbours-0", TOKIO),
            1.0,
        ),
        AtMost("neighbours-2", WakeP99, us(500)),
        AtMost("neighbours-20-watched", WakeP99, us(1_000)),
    ])
}

/// With as many workers as tokio has by default under the quota.
fn quota(base: &Workload) -> Row {
    let mut row = Row::new(
        "quota",
        "a CPU quota of 1, 1.5 and 1.9 CPUs: 4 hogs, confined and by default; 64 busy tasks, no hogs (needs root; see --uid)",
    );
    let cases = [
        (1.0, "quota-1-confined", "quota-1-hogs", "quota-1-busy"),
        (
            1.5,
            "quota-1.5-confined",
            "quota-1.5-hogs",
            "quota-1.5-busy",
        ),
        (
            1.9,
            "quota-1.9-confined",
            "quota-1.9-hogs",
            "quota-1.9-busy",
        ),
    ];
    for (cpus, confined, hogs, busy) in cases {
        let under_quota = |workload: &mut Workload| {
            workload.quota = Some(cpus);
            workload.workers = cpus as usize;
        };
        row = row
            .case(confined, &OWN, base, |workload| {
                under_quota(workload);
                workload.confine = true;
                workload.hogs = 4;
            })
            .case(hogs, &TWO, base, |workload| {
                under_quota(workload);
                workload.hogs = 4;
            })
            .case(busy, &TWO, base, |workload| {
                under_quota(workload);
                workload.busy = 64;
            })
            .bars([
                AtMost(confined, TimerP99, us(4_000)),
                AtMostTimes(TimerP99, (hogs, Morpheus), (hogs, TOKIO), 1.0),
                AtLeastTimes(Polls, (busy, Morpheus), (busy, TOKIO), 0.97),
                AtMostTimes(TimerP99, (busy, Morpheus), (busy, TOKIO), 1.0),
            ]);
    }
    row
}

fn label(base: &Workload) -> Row {
    // Hogs of 20 ms: with 200 the label would have too few polls for a p99.
    let mix = |via: Via| {
        move |workload: &mut Workload| {
            workload.label_mix = true;
            workload.hogs = 2;
            workload.hog_ms = 20.0;
            workload.hog_via = via;
        }
    };
    let (watched, plain) = (("label-watched", Morpheus), ("label-plain", Morpheus));
    Row::new(
        "label",
        "innocents under a label of which every tenth poll is a hog's",
    )
    .case("label-watched", &OWN, base, mix(Via::Spawn))
    .case("label-plain", &TWO, base, mix(Via::TokioSpawn))
    .bars([
        AtMost("label-watched", MixP99, us(5_000)),
        AtLeastTimes(MixPolls, watched, plain, 0.9),
    ])
}

fn lifo(base: &Workload) -> Row {
    let hog = |lifo: Lifo| {
        move |workload: &mut Workload| {
            workload.hogs = 2;
            workload.lifo = Some(lifo);
        }
    };
    Row::new(
        "lifo",
        "a task woken by a hog that then computes 200 ms: nothing known, known, with checkpoints",
    )
    .case("lifo-unknown", &TWO, base, hog(Lifo::Unknown))
    .case("lifo-known", &OWN, base, hog(Lifo::Known))
    .case("lifo-checkpoint", &OWN, base, hog(Lifo::Checkpoint))
    .bars([
        Reported("lifo-unknown", LifoP99),
        AtMost("lifo-known", LifoP99, us(1_000)),
        AtMost("lifo-checkpoint", LifoP99, us(1_000)),
    ])
}

/// A case that shows what each mechanism is worth, on and off.
fn off(base: &Workload) -> Row {
    type Change = fn(&mut Workload);
    let two: Change = |workload| workload.hogs = 2;
    let crowd: Change = |workload| {
        workload.hogs = 200;
        workload.hog_via = Via::Spawn;
    };
    let short: Change = |workload| {
        workload.hogs = 6;
        workload.hog_ms = 5.0;
    };
    let asleep: Change = |workload| {
        workload.hogs = 200;
        workload.hog_kind = HogKind::Sleep;
        workload.hog_via = Via::Spawn;
        workload.warmup_s = 1.0;
    };
    // More than any reserve, and not asleep: only the canary sees that nobody serves.
    let unseen: Change = |workload| workload.hogs = 24;
    // The reserve that trouble enlarges is what innocents share a full machine by.
    let full: Change = |workload| {
        workload.hogs = 2;
        workload.busy = 64;
        workload.busy_us = 20.0;
    };
    // A hog that a timer wakes, so that its worker has the driver; the others are parked, and nobody polls
    // the driver until the next outside wake moves one of them. So wakes must be rare. Canary and reserve
    // move workers, too: without them the poke is alone.
    let orphan: Change = |workload| {
        workload.hogs = 1;
        workload.lifo = Some(Lifo::Unknown);
        workload.period_us = 50_000;
        workload.off = vec!["reserve".into(), "canary".into()];
    };
    let cases = [
        ("takeover", "on-takeover", "off-takeover", two, WakeP99),
        ("canary", "on-canary", "off-canary", unseen, WakeP99),
        ("watch", "on-watch", "off-watch", asleep, WakeP99),
        ("reserve", "on-reserve", "off-reserve", full, WakeP99),
        ("slice", "on-slice", "off-slice", short, WakeP99),
        ("handoffs", "on-handoffs", "off-handoffs", crowd, WakeP99),
        ("permits", "on-permits", "off-permits", crowd, WakeP99),
        ("poke", "on-poke", "off-poke", orphan, TimerP99),
    ];
    let mut row = Row::new(
        "off",
        "each mechanism off makes a figure worse; with all off it is tokio's",
    );
    for (mechanism, on, off, change, figure) in cases {
        row = row
            .case(on, &OWN, base, change)
            .case(off, &OWN, base, |workload| {
                change(workload);
                workload.off.push(mechanism.into());
            })
            .bars([AtLeastTimes(figure, (off, Morpheus), (on, Morpheus), 1.3)]);
    }
    let (own, tokio) = (("off-all", Morpheus), ("off-all", TOKIO));
    row.case("off-all", &TWO, base, |workload| {
        workload.hogs = 2;
        workload.off = morpheus_runtime::Mechanism::ALL
            .map(|m| m.to_string())
            .to_vec();
    })
    // Of the same size: how long a poll of 200 ms is waited for varies from run to run.
    .bars([
        AtLeastTimes(TimerP99, own, tokio, 0.5),
        AtMostTimes(TimerP99, own, tokio, 2.0),
    ])
}

fn idle(base: &Workload) -> Row {
    Row::new(
        "idle",
        "an idle runtime for 10 s, and what the controller costs a busy one",
    )
    .case("idle", &TWO, base, |workload| {
        workload.idle = true;
        workload.duration_s = 10.0;
    })
    .case("controller-64", &OWN, base, |workload| {
        workload.busy = 64;
        workload.busy_us = 300.0;
        workload.busy_via = Via::Spawn;
    })
    .case("controller-200-asleep", &OWN, base, |workload| {
        workload.hogs = 200;
        workload.hog_kind = HogKind::Sleep;
        workload.hog_via = Via::Spawn;
        workload.warmup_s = 1.0;
    })
    .bars([
        AtMost("idle", Wakeups, 0.0),
        AtMost("controller-64", Controller, 0.015),
        AtMost("controller-200-asleep", Controller, 0.03),
    ])
}

fn elsewhere() -> Row {
    Row::new("criterion", "what a checkpoint and a watched poll cost").bars([
        Elsewhere("checkpoint_sync: cargo bench -p morpheus-bench --bench checkpoint"),
        Elsewhere("a watched poll: cargo bench -p morpheus-bench --bench watch"),
    ])
}
