//! The output for people.

use super::WIDTH;
use super::cases::CASES;
use super::contender::Contender;
use super::result::{Compared, Mean, Measured, Ratio, Report};
use crate::pairs::{Bar, Verdict};
use crate::report::{Table, count, note_early_end, time, wrap};
use crate::stats::Median;

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    text += &format!(
        "{} workers, {} pairs, {} ms a measurement, each in a process of its own\n",
        report.workers, report.pairs, report.window_ms
    );
    if report.workers > report.host.cpus {
        let line = format!(
            "{} workers share {} CPUs: a check that everything works, and no measurement of a large machine.",
            report.workers, report.host.cpus
        );
        text += &(wrap(&line, WIDTH) + "\n");
    }
    for mean in &report.means {
        text += &part(report, mean);
    }
    for case in &report.cases {
        if let Some(why) = &case.failed {
            text += &wrap(
                &format!("{}: not measured to its end: {why}", case.case),
                WIDTH,
            );
            text += "\n";
        }
    }
    let unsettled: usize = report.cases.iter().map(|case| case.unsettled).sum();
    let all: usize = report.cases.iter().map(|case| case.measurements).sum();
    if unsettled > 0 {
        text +=
            &format!("{unsettled} of {all} measurements began before the warm-up had settled.\n");
    }
    note_early_end(&mut text, report.interrupted);
    text
}

/// One runtime beside another, over all cases.
fn part(report: &Report, mean: &Mean) -> String {
    let rows: Vec<(&Measured, &Compared)> = report
        .cases
        .iter()
        .filter(|case| case.against == mean.against && case.rate_per_s.is_some())
        .filter_map(|case| {
            let own = case.compared.iter().find(|one| one.runtime == mean.runtime);
            Some((case, own?))
        })
        .collect();
    let mut text = format!("\n{} against {}\n", mean.runtime, mean.against);
    text += &table(&rows, mean.against);
    let p99s = rows
        .iter()
        .filter_map(|(case, one)| Some((case, one.p99.as_ref()?)));
    for (case, p99) in p99s {
        let there = case.p99_ns.map_or("–".into(), |ns| time(ns as u64));
        let line = format!(
            "{}: p99 {there} on {}, × {}: {}.",
            case.case,
            mean.against,
            ratio(p99, 2),
            word(p99, "longer", "shorter")
        );
        text += &(wrap(&line, WIDTH) + "\n");
    }
    text += &bars("Bar of the rate", &rows, |one| &one.rate);
    text += &bars("Bar of CPU time", &rows, |one| &one.cpu);
    if let Some(rate) = mean.rate {
        let cpu = mean.cpu.map_or("–".into(), shown);
        let line = format!(
            "Geometric mean of {} cases (not those beside busy tasks): rate {}, CPU time {cpu}. Bar of the rate, {}: {}.",
            mean.cases,
            shown(rate),
            mean.bar,
            mean.judged
        );
        text += &(wrap(&line, WIDTH) + "\n");
    }
    text
}

fn shown(median: Median) -> String {
    format!(
        "{:.3} ({:.3} to {:.3})",
        median.median, median.low, median.high
    )
}

fn table(rows: &[(&Measured, &Compared)], against: Contender) -> String {
    let mut table = Table::default();
    let column = |cell: &dyn Fn(&Measured, &Compared) -> String| -> Vec<String> {
        rows.iter().map(|(case, one)| cell(case, one)).collect()
    };
    table.column("case", 0, column(&|case, _| case.case.clone()));
    let rate = |case: &Measured, _: &Compared| case.rate_per_s.map_or("–".into(), per_second);
    table.column(&format!("{against}/s"), 1, column(&rate));
    table.column("rate ×", 0, column(&|_, one| ratio(&one.rate, 2)));
    table.column("", 0, column(&|_, one| word(&one.rate, "faster", "slower")));
    let cpu =
        |case: &Measured, _: &Compared| case.cpu_ns.map_or("–".into(), |ns| time(ns as u64));
    table.column("CPU", 1, column(&cpu));
    table.column("CPU ×", 0, column(&|_, one| ratio(&one.cpu, 3)));
    table.column("", 0, column(&|_, one| word(&one.cpu, "more", "less")));
    table.column("A/A", 2, column(&|_, one| noise(&one.cpu)));
    table.render(WIDTH)
}

/// A rate in at most seven characters.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k", rate / 1e3),
        rate => count(rate as u64),
    }
}

fn ratio(ratio: &Ratio, digits: usize) -> String {
    match ratio.median() {
        Some((median, Some((low, high)))) => {
            format!("{median:.digits$} {low:.digits$}–{high:.digits$}")
        }
        Some((median, None)) => format!("{median:.digits$}"),
        None => "–".into(),
    }
}

/// What the pairs show, in a word or two.
fn word(ratio: &Ratio, more: &str, less: &str) -> String {
    match ratio.verdict {
        Verdict::TooFew { .. } => "n too small".into(),
        Verdict::InsideNoise { .. } => "no difference".into(),
        Verdict::Differs { difference, .. } if difference.median > 0.0 => more.into(),
        Verdict::Differs { .. } => less.into(),
    }
}

fn noise(ratio: &Ratio) -> String {
    match ratio.verdict {
        Verdict::TooFew { .. } => "–".into(),
        Verdict::InsideNoise { noise, .. } | Verdict::Differs { noise, .. } => {
            format!("±{:.1} %", noise * 100.0)
        }
    }
}

/// How many met a bar, and which did not.
fn bars(
    title: &str,
    rows: &[(&Measured, &Compared)],
    figure: impl Fn(&Compared) -> &Ratio,
) -> String {
    let Some(bar) = rows.first().and_then(|(_, one)| figure(one).bar) else {
        return String::new();
    };
    let with = |judged: Bar| -> Vec<&str> {
        rows.iter()
            .filter(|(_, one)| figure(one).judged == Some(judged))
            .map(|(case, _)| case.case.as_str())
            .collect()
    };
    let mut line = format!(
        "{title}, {bar}: met by {} of {}",
        with(Bar::Met).len(),
        rows.len()
    );
    for judged in [Bar::Missed, Bar::Undecided] {
        let names = with(judged);
        if !names.is_empty() {
            line += &format!("; {judged}: {}", names.join(", "));
        }
    }
    wrap(&(line + "."), WIDTH) + "\n"
}

/// The cases, and what one operation of each is.
pub fn list() -> String {
    let mut table = String::new();
    for case in CASES {
        table += &format!("{:24} {}\n", case.name, case.operation);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::report;
    use super::*;

    #[test]
    fn the_table_fits_and_says_what_there_is_to_say() {
        let line = "--runtime morpheus,morpheus-watched";
        let mut same = report("--runtime morpheus", 12, 1.0, 1.0);
        let slower = report("--runtime morpheus", 12, 1.25, 1.25);
        same.cases[0].case = "spawn_many_remote_busy1".into();
        same.cases.extend(slower.cases);
        let text = render(&same);
        for expected in [
            "morpheus against tokio",
            "no difference",
            "slower",
            "more",
            "0.80 0.80–0.80",
            "1.250 1.250–1.250",
            "Bar of the rate, 0.97: met by 1 of 2; missed: spawn.",
            "Bar of CPU time, 1.03: met by 1 of 2; missed: spawn.",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(line.contains("watched"));
    }

    #[test]
    fn more_workers_than_cpus_measure_nothing() {
        let mut report = report("--runtime morpheus --pairs 1", 1, 1.0, 1.0);
        report.host.cpus = report.workers;
        assert!(!render(&report).contains("no measurement"));
        report.host.cpus -= 1;
        let text = render(&report);
        assert!(text.contains("2 workers share 1 CPUs"), "{text}");
    }

    #[test]
    fn a_case_that_failed_is_said() {
        let mut report = report("--runtime morpheus --pairs 1", 0, 1.0, 1.0);
        report.cases[0].failed = Some("tokio: stands still".into());
        let text = render(&report);
        assert!(
            text.contains("spawn: not measured to its end: tokio: stands still"),
            "{text}"
        );
        assert!(!text.contains("met by"), "{text}");
    }

    #[test]
    fn rates_are_short() {
        let shown = [12.0, 9_999.0, 45_300.0, 3_456_789.0].map(per_second);
        assert_eq!(shown, ["12", "9,999", "45 k", "3.46 M"]);
        assert_eq!(list().lines().count(), CASES.len());
    }
}
