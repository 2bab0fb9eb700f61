//! Medians over the rounds, their spread, and the bars.

use super::record::Run;
use super::scene::{Figures, SCENES, Scene};
use super::variant::{VARIANTS, Variant};
use crate::histogram::median;
use crate::report::{self, Table, WIDTH};

/// Which of the figures.
type Figure = fn(&Figures) -> Option<f64>;

const WAKE_P99: Figure = |f| f.wake_p99_ns.map(|ns| ns as f64);
const TIMER_P50: Figure = |f| f.timer_p50_ns.map(|ns| ns as f64);
const TIMER_P99: Figure = |f| f.timer_p99_ns.map(|ns| ns as f64);
const REQUESTS: Figure = |f| f.requests_per_s;
const NEIGHBOURS: Figure = |f| f.neighbours_cpu;

/// What one scheduler reached in one scene.
fn values(runs: &[Run], variant: &Variant, scene: &Scene, figure: Figure) -> Vec<f64> {
    let name = variant.name();
    runs.iter()
        .filter(|run| run.scheduler == name && run.scene == scene.name && run.failed.is_none())
        .filter_map(|run| figure(&run.figures))
        .collect()
}

/// How many rounds there are.
fn rounds(runs: &[Run]) -> usize {
    let mut numbers: Vec<u16> = runs.iter().map(|run| run.round).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

fn cell(values: Vec<f64>) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let Some(middle) = median(values) else {
        return "–".into();
    };
    let time = |ns: f64| report::time(ns as u64);
    format!("{} ({} – {})", time(middle), time(least), time(most))
}

/// A table for each scene, then the bars.
pub fn render(chosen: &[&Variant], runs: &[Run]) -> String {
    let mut text = format!(
        "medians of {} rounds (and the least and most of them)\n",
        rounds(runs)
    );
    for scene in &SCENES {
        let column = |figure: Figure| -> Vec<String> {
            chosen
                .iter()
                .map(|variant| cell(values(runs, variant, scene, figure)))
                .collect()
        };
        let plain = |figure: Figure, show: fn(f64) -> String| -> Vec<String> {
            chosen
                .iter()
                .map(|variant| {
                    median(values(runs, variant, scene, figure)).map_or("–".into(), show)
                })
                .collect()
        };
        let mut table = Table::default();
        let names = chosen.iter().map(|variant| variant.name());
        table.column(scene.name, 0, names.collect());
        table.column("wake p99", 0, column(WAKE_P99));
        table.column("timer p50", 2, column(TIMER_P50));
        table.column("timer p99", 0, column(TIMER_P99));
        let requests = plain(REQUESTS, |x| report::count(x as u64));
        if requests.iter().any(|cell| cell != "–") {
            table.column("requests/s", 1, requests);
        }
        table.column(
            "neighbours",
            0,
            plain(NEIGHBOURS, |x| format!("{:.0} %", x * 100.0)),
        );
        text += "\n";
        text += &table.render(WIDTH);
    }
    text + "\n" + &bars(chosen, runs)
}

/// What scx_morpheus is to reach, as ratios of medians.
fn bars(chosen: &[&Variant], runs: &[Run]) -> String {
    let [default, _, bpfland, own] = &VARIANTS;
    if !chosen.iter().any(|variant| variant.name() == own.name()) {
        return String::new();
    }
    let (mut what, mut got, mut bar) = (Vec::new(), Vec::new(), Vec::new());
    let mut judge = |name: String, a: Option<f64>, b: Option<f64>, limit: f64, at_most: bool| {
        let (Some(a), Some(b)) = (a, b) else {
            return;
        };
        let ratio = a / b;
        let holds = if at_most {
            ratio <= limit
        } else {
            ratio >= limit
        };
        what.push(name);
        got.push(format!("{ratio:.2}"));
        let sign = if at_most { '≤' } else { '≥' };
        bar.push(format!(
            "{sign} {limit:.2}{}",
            if holds { "" } else { "  missed" }
        ));
    };
    let of =
        |variant: &Variant, scene: &Scene, figure| median(values(runs, variant, scene, figure));
    let limits: [(&str, Figure, &Variant, f64); 4] = [
        ("wake p99 / default's", WAKE_P99, default, 0.2),
        ("wake p99 / scx_bpfland's", WAKE_P99, bpfland, 1.2),
        ("timer p99 / default's", TIMER_P99, default, 2.0 / 3.0),
        ("timer p50 / scx_bpfland's", TIMER_P50, bpfland, 0.2),
    ];
    let [hogs @ .., no_hogs, with_hogs] = &SCENES;
    for scene in hogs {
        for (ratio, figure, other, limit) in limits {
            let (ours, theirs) = (of(own, scene, figure), of(other, scene, figure));
            judge(
                format!("{}: {ratio}", scene.name),
                ours,
                theirs,
                limit,
                true,
            );
        }
    }
    judge(
        "requests/s, 6 hogs / none".into(),
        of(own, with_hogs, REQUESTS),
        of(own, no_hogs, REQUESTS),
        0.9,
        false,
    );
    let mut table = Table::default();
    table.column("scx_morpheus", 0, what);
    table.column("ratio", 0, got);
    table.column("bar", 0, bar);
    table.render(WIDTH)
}
