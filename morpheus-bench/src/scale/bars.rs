//! What Morpheus's scheduler is to reach beside the kernel's own and others, as ratios of medians.

use super::case::Case;
use super::contender;
use super::result::Report;
use crate::histogram::median;
use crate::report::{Table, WIDTH};
use crate::stats::{self, Spread};

/// Whose 99th percentiles count together.
const WAKES: [Case; 4] = [Case::Latency, Case::Burst, Case::Longrun, Case::Mixed];
/// Their geometric mean is to be at most so much of the best of the others.
const WAKES_AT_MOST: f64 = 0.7;

/// A bar, and what was reached.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    what: String,
    /// What was reached; `None` where it cannot be said.
    ratio: Option<f64>,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::Below(limit) => ratio < limit,
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }

    fn show(self) -> String {
        match self {
            Self::Below(limit) => format!("< {limit:.2}"),
            Self::AtMost(limit) => format!("≤ {limit:.2}"),
            Self::AtLeast(limit) => format!("≥ {limit:.2}"),
        }
    }
}

/// The bars with this number of CPUs, where Morpheus's scheduler and another one were measured; else nothing.
pub fn render(report: &Report, cpus: usize) -> String {
    let bars = judge(report, cpus);
    if bars.is_empty() {
        return String::new();
    }
    let mut table = Table::default();
    let own = own(report).unwrap_or_default();
    table.column(
        &format!("{own}, as a ratio of medians"),
        0,
        bars.iter().map(|bar| bar.what.clone()).collect(),
    );
    let ratio = |bar: &Bar| bar.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
    table.column("ratio", 0, bars.iter().map(ratio).collect());
    table.column("bar", 0, bars.iter().map(|bar| bar.limit.show()).collect());
    let verdict = |bar: &Bar| match bar.ratio.map(|ratio| bar.limit.holds(ratio)) {
        Some(true) => "met",
        Some(false) => "missed",
        None => "undecided",
    };
    table.column(
        "",
        0,
        bars.iter().map(|bar| verdict(bar).to_owned()).collect(),
    );
    format!("\n{}", table.render(WIDTH))
}

fn own(report: &Report) -> Option<String> {
    let mut names = report.schedulers().into_iter();
    names.find(|name| contender::is_own(name))
}

fn judge(report: &Report, cpus: usize) -> Vec<Bar> {
    let Some(own) = own(report) else {
        return Vec::new();
    };
    // Variants of our own are no others.
    let is_other = |name: &String| !name.split(' ').next().is_some_and(contender::is_own);
    let others: Vec<String> = report.schedulers().into_iter().filter(is_other).collect();
    let median_of =
        |case, name: &str| Spread::of(&report.values(cpus, case, name)).map(|spread| spread.median);
    let ours = |case| median_of(case, &own);
    let theirs = |case| {
        others
            .iter()
            .map(|name| median_of(case, name))
            .collect::<Option<Vec<f64>>>()
    };
    let best = |case| theirs(case).and_then(|all| all.into_iter().reduce(f64::min));
    let measured = |case: Case| report.cases().contains(&case);
    let mut bars = Vec::new();
    if others.is_empty() {
        return bars;
    }
    let against = others.join(", ");
    let of_best: Vec<(Case, Option<f64>)> = WAKES
        .into_iter()
        .filter(|case| measured(*case))
        .map(|case| (case, ratio(ours(case), best(case))))
        .collect();
    for (case, ratio) in &of_best {
        bars.push(Bar {
            what: format!(
                "{} {}, to the best of {against}",
                case.name(),
                case.about().figure
            ),
            ratio: *ratio,
            limit: Limit::Below(1.0),
        });
    }
    if of_best.len() == WAKES.len() {
        let ratios: Option<Vec<f64>> = of_best.iter().map(|(_, ratio)| *ratio).collect();
        bars.push(Bar {
            what: "geometric mean of these four".into(),
            ratio: ratios.and_then(|ratios| stats::geometric_mean(&ratios)),
            limit: Limit::AtMost(WAKES_AT_MOST),
        });
    }
    bars.extend(of_the_runtime(report, cpus, &own));
    if measured(Case::Deadline) {
        bars.push(Bar {
            what: format!(
                "{}, to the best of {against}",
                Case::Deadline.about().figure
            ),
            ratio: ratio(ours(Case::Deadline), best(Case::Deadline)),
            limit: Limit::AtMost(0.5),
        });
    }
    let to_default = [
        (Case::Ipc, Limit::AtMost(1.2)),
        (Case::Messaging, Limit::AtLeast(0.92)),
        (Case::Pipe, Limit::AtLeast(0.92)),
        (Case::Throughput, Limit::AtLeast(0.98)),
    ];
    for (case, limit) in to_default {
        if measured(case) && others.iter().any(|name| name == "default") {
            bars.push(Bar {
                what: format!("{} {}, to default", case.name(), case.about().figure),
                ratio: ratio(ours(case), median_of(case, "default")),
                limit,
            });
        }
    }
    bars
}

/// What tasks of Morpheus's runtime are to feel under our scheduler, beside the kernel's own and scx_bpfland.
fn of_the_runtime(report: &Report, cpus: usize, own: &str) -> Vec<Bar> {
    const WITH_HOGS: [Case; 6] = [
        Case::RuntimeHogs2,
        Case::RuntimeHogs6,
        Case::RuntimeHogs20,
        Case::RuntimeWatched2,
        Case::RuntimeWatched6,
        Case::RuntimeWatched20,
    ];
    const LIMITS: [(&str, &str, Limit); 4] = [
        ("wake p99", "default/lazy", Limit::AtMost(0.2)),
        ("wake p99", "scx_bpfland", Limit::AtMost(1.2)),
        ("timer p99", "default/lazy", Limit::AtMost(2.0 / 3.0)),
        ("timer p50", "scx_bpfland", Limit::AtMost(0.2)),
    ];
    let median = |case: Case, scheduler: &str, figure: &str| {
        let runs = report.of(cpus, case, scheduler);
        let figures = runs.filter_map(|run| run.measured.as_ref()?.more.get(figure).copied());
        median(figures.collect())
    };
    let mut bars = Vec::new();
    for case in WITH_HOGS {
        for (figure, other, limit) in LIMITS {
            let both = (median(case, own, figure), median(case, other, figure));
            if let (Some(ours), Some(theirs)) = both {
                bars.push(Bar {
                    what: format!("{} {figure}, to {other}", case.name()),
                    ratio: ratio(Some(ours), Some(theirs)),
                    limit,
                });
            }
        }
    }
    let requests = |case| median(case, own, "requests/s");
    let both = (
        requests(Case::RuntimeServerHogs),
        requests(Case::RuntimeServer),
    );
    if let (Some(with), Some(without)) = both {
        bars.push(Bar {
            what: "requests/s of a server, beside hogs to without".into(),
            ratio: ratio(Some(with), Some(without)),
            limit: Limit::AtLeast(0.9),
        });
    }
    bars
}

/// Nothing of nothing is as good as any: a scheduler that misses no frame cannot be beaten there.
fn ratio(own: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (own?, other?) {
        (0.0, _) => Some(0.0),
        (own, other) => Some(own / other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::run;
    use super::*;

    fn report(values: &[(Case, &str, f64)]) -> Report {
        let runs = values
            .iter()
            .map(|(case, name, value)| run(*case, name, 1, *value));
        Report {
            host: None,
            runs: runs.collect(),
        }
    }

    fn found(bars: &[Bar], words: &str) -> (Option<f64>, bool) {
        let bar = bars.iter().find(|bar| bar.what.contains(words)).unwrap();
        (
            bar.ratio,
            bar.ratio.is_some_and(|ratio| bar.limit.holds(ratio)),
        )
    }

    #[test]
    fn the_best_of_the_others_is_what_counts() {
        let mut values = Vec::new();
        for case in WAKES {
            values.extend([
                (case, "default", 4.0),
                (case, "scx_bpfland", 2.0),
                (case, "morpheus", 1.0),
            ]);
        }
        let bars = judge(&report(&values), 2);
        assert_eq!(bars.len(), 5);
        assert_eq!(found(&bars, "burst"), (Some(0.5), true));
        let (mean, met) = found(&bars, "geometric");
        assert!((mean.unwrap() - 0.5).abs() < 1e-9 && met);
        values[2].2 = 3.0;
        let bars = judge(&report(&values), 2);
        assert_eq!(found(&bars, "latency"), (Some(1.5), false));
        let shown = render(&report(&values), 2);
        assert!(shown.contains("missed") && shown.contains("met"), "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= WIDTH),
            "{shown}"
        );
    }

    #[test]
    fn the_runtime_is_compared_with_the_kernels_own_and_with_bpfland() {
        let with = |case: Case, scheduler: &str, figure: &str, value: f64| {
            let mut run = run(case, scheduler, 1, value);
            run.measured
                .as_mut()
                .unwrap()
                .more
                .insert(figure.into(), value);
            run
        };
        let report = Report {
            host: None,
            runs: vec![
                with(Case::RuntimeHogs6, "default/lazy", "wake p99", 10.0),
                with(Case::RuntimeHogs6, "scx_bpfland", "wake p99", 1.0),
                with(Case::RuntimeHogs6, "morpheus", "wake p99", 1.5),
                with(Case::RuntimeServer, "morpheus", "requests/s", 400.0),
                with(Case::RuntimeServerHogs, "morpheus", "requests/s", 380.0),
            ],
        };
        let bars = judge(&report, 2);
        assert_eq!(bars.len(), 3, "{bars:?}");
        assert_eq!(found(&bars, "to default/lazy"), (Some(0.15), true));
        assert_eq!(found(&bars, "to scx_bpfland"), (Some(1.5), false));
        assert_eq!(found(&bars, "of a server"), (Some(0.95), true));
    }

    #[test]
    fn throughput_is_compared_with_the_kernels_own() {
        let values = [
            (Case::Throughput, "default", 100.0),
            (Case::Throughput, "morpheus", 97.0),
            (Case::Pipe, "default", 100.0),
            (Case::Pipe, "morpheus", 93.0),
            (Case::Throughput, "other", 200.0),
            (Case::Pipe, "other", 50.0),
        ];
        let bars = judge(&report(&values), 2);
        assert_eq!(found(&bars, "throughput"), (Some(0.97), false));
        assert_eq!(found(&bars, "pipe"), (Some(0.93), true));
    }

    #[test]
    fn no_misses_are_half_of_any_and_some_are_not_half_of_none() {
        let of = |ours, theirs| {
            let values = [
                (Case::Deadline, "default", theirs),
                (Case::Deadline, "morpheus", ours),
            ];
            found(&judge(&report(&values), 2), "frames").1
        };
        assert!(of(0.0, 0.0) && of(0.0, 0.5) && of(0.1, 0.2));
        assert!(!of(0.1, 0.0) && !of(0.11, 0.2));
    }

    #[test]
    fn where_one_has_no_figure_nothing_is_decided() {
        let mut report = report(&[
            (Case::Latency, "default", 1.0),
            (Case::Latency, "morpheus", 0.1),
            (Case::Latency, "other", 1.0),
        ]);
        report.runs[2].failed = Some("ejected".into());
        assert_eq!(found(&judge(&report, 2), "latency"), (None, false));
        assert!(render(&report, 2).contains("undecided"));
    }

    #[test]
    fn variants_of_our_own_are_no_others() {
        let alone = report(&[
            (Case::Latency, "morpheus", 1.0),
            (Case::Latency, "morpheus --off kick", 1.0),
        ]);
        assert!(judge(&alone, 2).is_empty());
        assert_eq!(render(&alone, 2), "");
    }
}
