//! What people see: for each case the schedulers beside each other, over the iterations.

use super::ablation;
use super::bars;
use super::case::Case;
use super::result::{Measured, Report, Run};
use super::soak;
use crate::histogram::median;
use crate::report::{self, Table, WIDTH};
use crate::stats::Spread;

/// The scheduler that ratios are to.
const BASE: &str = "default";

/// Tables for each number of CPUs, and the bars.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    if let Some(host) = &report.host {
        text += &host.line(WIDTH);
        text.push('\n');
    }
    for cpus in report.cpus() {
        let cases = compared(report, cpus);
        if cases.is_empty() {
            continue;
        }
        let online = if cpus == 1 {
            "1 CPU".into()
        } else {
            format!("{cpus} CPUs")
        };
        if ablation::is_one(report) {
            text += &format!("\n{online}; what each feature buys\n\n");
            text += &ablation::render(report, cpus);
            text += &failures(report, cpus);
            continue;
        }
        text += &format!("\n{online}; median of the iterations, and how they lie\n");
        for case in cases {
            text.push('\n');
            text += &one(report, cpus, case);
        }
        text += &failures(report, cpus);
        text += &bars::render(report, cpus);
    }
    text + &soak::table::render(report)
}

/// The cases with so many CPUs that schedulers are compared by; a soak has a table of its own.
fn compared(report: &Report, cpus: usize) -> Vec<Case> {
    let runs = |case: &Case| {
        let of = |run: &Run| run.cpus == cpus && run.case == *case;
        *case != Case::Soak && report.runs.iter().any(of)
    };
    report.cases().into_iter().filter(runs).collect()
}

/// A case.
fn one(report: &Report, cpus: usize, case: Case) -> String {
    let about = case.about();
    let schedulers = report.schedulers();
    let values: Vec<Vec<f64>> = schedulers
        .iter()
        .map(|scheduler| report.values(cpus, case, scheduler))
        .collect();
    let spreads: Vec<Option<Spread>> = values.iter().map(|values| Spread::of(values)).collect();
    let base = schedulers.iter().position(|name| name == BASE);
    let base = base.and_then(|place| spreads[place]);
    let column = |figure: fn(&Spread) -> f64| -> Vec<String> {
        let cell = |spread: &Option<Spread>| {
            spread.map_or("–".into(), |spread| about.unit.show(figure(&spread)))
        };
        spreads.iter().map(cell).collect()
    };
    let ratios = spreads.iter().map(|spread| ratio(*spread, base)).collect();
    let mut table = Table::default();
    table.column(&format!("{}: {}", case.name(), about.figure), 0, schedulers);
    table.column("median", 0, column(|spread| spread.median));
    table.column("min", 1, column(|spread| spread.min));
    table.column("1st quartile", 2, column(|spread| spread.q1));
    table.column("3rd quartile", 2, column(|spread| spread.q3));
    table.column("max", 1, column(|spread| spread.max));
    table.column(
        "n",
        0,
        values
            .iter()
            .map(|values| values.len().to_string())
            .collect(),
    );
    table.column("× default", 0, ratios);
    for (head, figure) in MORE {
        let of = |scheduler: &String| {
            let runs = report.of(cpus, case, scheduler);
            let measured = runs.filter(|run| run.failed.is_none());
            let times: Vec<f64> = measured
                .filter_map(|run| figure(run.measured.as_ref()?))
                .map(|ns| ns as f64)
                .collect();
            median(times)
        };
        let times: Vec<Option<f64>> = report.schedulers().iter().map(of).collect();
        if times.iter().any(Option::is_some) {
            let cell = |ns: &Option<f64>| report::maybe_time(ns.map(|ns| ns as u64));
            table.column(head, 3, times.iter().map(cell).collect());
        }
    }
    table.render(WIDTH)
}

/// A figure in nanoseconds, where a measurement has it.
type Nanoseconds = fn(&Measured) -> Option<u64>;

/// What else some cases have, as medians of the iterations.
const MORE: [(&str, Nanoseconds); 5] = [
    ("timer p50", |measured| {
        Some(*measured.more.get("timer p50")? as u64)
    }),
    ("timer p99", |measured| {
        Some(*measured.more.get("timer p99")? as u64)
    }),
    ("p50", |measured| measured.latency_ns.as_ref()?.p50),
    ("longest", |measured| measured.latency_ns.as_ref()?.max),
    ("CPU time", |measured| measured.cpu_ns),
];

fn ratio(spread: Option<Spread>, base: Option<Spread>) -> String {
    let ratio = spread.zip(base).map(|(own, base)| own.median / base.median);
    match ratio {
        Some(ratio) if ratio.is_finite() => format!("{ratio:.2}"),
        _ => "–".into(),
    }
}

/// Each reason once, with how often there was it.
fn failures(report: &Report, cpus: usize) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    let own = |run: &&Run| run.cpus == cpus && run.case != Case::Soak;
    for run in report.runs.iter().filter(own) {
        let Some(why) = &run.failed else {
            continue;
        };
        let why = why.trim_end_matches('.');
        let line = format!("{} under {}: {why}", run.case.name(), run.scheduler);
        match reasons.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => reasons.push((line, 1)),
        }
    }
    let mut text = String::new();
    for (line, count) in reasons {
        let times = if count > 1 {
            format!(" ({count} times)")
        } else {
            String::new()
        };
        text += &report::wrap(&format!("Failed: {line}{times}."), WIDTH);
        text.push('\n');
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::run;
    use super::*;
    use crate::histogram::Summary;

    fn report() -> Report {
        let mut runs = Vec::new();
        for (iteration, (theirs, ours)) in [(4e6, 1e6), (2e6, 1.2e6), (9e6, 0.8e6)]
            .into_iter()
            .enumerate()
        {
            runs.push(run(Case::Latency, "default", iteration, theirs));
            runs.push(run(Case::Latency, "morpheus", iteration, ours));
        }
        Report { host: None, runs }
    }

    #[test]
    fn a_row_has_the_spread_and_the_ratio_of_medians() {
        let text = render(&report());
        let row = text
            .lines()
            .find(|line| line.starts_with("morpheus"))
            .unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let expected = "morpheus 1.0 ms 800 µs 900 µs 1.1 ms 1.2 ms 3 0.25";
        assert_eq!(words.join(" "), expected, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn latencies_have_their_median_and_the_longest_beside_the_figure() {
        let mut report = report();
        for run in &mut report.runs {
            let measured = run.measured.as_mut().unwrap();
            measured.latency_ns = Some(Summary {
                p50: Some(51_000),
                max: Some(7_000_000),
                ..Summary::default()
            });
        }
        let text = render(&report);
        let expected = ["p50", "longest", "51.0 µs", "7.0 ms"];
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
        assert!(!text.contains("CPU time"), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDTH), "{text}");
    }

    #[test]
    fn what_failed_is_said_once_with_how_often() {
        let mut report = report();
        for iteration in 4..7 {
            let mut run = run(Case::Burst, "morpheus", iteration, 1.0);
            run.failed = Some("the scheduler was thrown out".into());
            report.runs.push(run);
        }
        let text = render(&report);
        let expected = "Failed: burst under morpheus: the scheduler was thrown out (3 times).";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains('–'), "no figure: {text}");
    }
}
