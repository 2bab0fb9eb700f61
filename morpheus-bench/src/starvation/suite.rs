//! `--suite`: every group of the table of bars, with verdicts.

use std::process::ExitCode;
use std::time::Duration;

use morpheus_harness::arguments::asked;
use morpheus_harness::envelope::Envelope;
use morpheus_harness::rows::Row;
use morpheus_harness::rows::view::find;
use morpheus_harness::unit::Unit;
use morpheus_harness::{host, interrupt, pairs};

use super::bars::{At, Bar, Case, groups};
use super::config::Options;
use super::figures::FIGURES;
use super::main::{Bench, Config, Measured};
use super::supervise;
use super::title::title;
use super::workload::Workload;
use crate::executor::Runtime;

/// Measures the groups that are asked for. A missed bar is a failure only with `--strict`.
pub fn main(options: &Options, workload: &Workload) -> ExitCode {
    let base = base(workload);
    let mut groups = groups(&base);
    groups.retain(|group| asked(&options.suite_only, group.name));
    let mut found = Envelope::new("starvation", Config::new(options, base));
    if workload.workers != 2 || host::cpus() != 2 {
        let note =
            "The bars are meant for two CPUs and two workers: elsewhere the verdicts are a hint.";
        found.notes.push(note.into());
    }
    let cases = groups.iter().flat_map(|group| &group.cases);
    let total = cases.map(|case| time(case, options)).sum();
    let mut bench = Bench::new(options, total);
    for group in interrupt::until(&groups) {
        // A group that was not begun has no bars.
        let measured = |case| measured(case, group.about, options);
        let cases: Vec<Measured<'_>> = group.cases.iter().map(measured).collect();
        bench.measure(&cases, &mut found);
        for bar in &group.bars {
            hold(bar, &mut found.rows);
        }
    }
    bench.progress.clear();
    let judged: Vec<(String, pairs::Bar)> = found
        .rows
        .iter()
        .filter_map(|row| Some((format!("{}, {}", row.case, row.figure), row.judged?)))
        .collect();
    found.notes.push(summary(&judged));
    let missed = judged.iter().any(|bar| bar.1 == pairs::Bar::Missed);
    let code = found.conclude(options.json);
    match missed && options.strict && code == ExitCode::SUCCESS {
        true => ExitCode::FAILURE,
        false => code,
    }
}

/// The groups change hogs and innocents themselves; sleepers, workers, durations stay as asked.
fn base(workload: &Workload) -> Workload {
    Workload {
        hogs: 0,
        hog_ms: 200.0,
        off: Vec::new(),
        ..workload.clone()
    }
}

fn measured<'a>(case: &'a Case, about: &str, options: &Options) -> Measured<'a> {
    Measured {
        name: case.name,
        about: format!("{about}; {}", title(&case.workload)),
        workload: &case.workload,
        runtimes: runtimes(case, options),
        rounds: rounds(case, options),
    }
}

fn rounds(case: &Case, options: &Options) -> usize {
    options.rounds().max(case.least_rounds)
}

/// A case without Morpheus says nothing; without a baseline its bar cannot be judged, and says so.
fn runtimes(case: &Case, options: &Options) -> Vec<Runtime> {
    let asked = options.runtimes();
    let runtimes = case.runtimes.iter().copied();
    runtimes.filter(|runtime| asked.contains(runtime)).collect()
}

fn time(case: &Case, options: &Options) -> Duration {
    let runs = runtimes(case, options).len() * rounds(case, options);
    supervise::expected(&case.workload) * runs as u32
}

/// Holds what was measured against a bar. A figure that is not there is undecided.
fn hold(&Bar(figure, of, to, limit): &Bar, rows: &mut Vec<Row>) {
    if let Some(to) = to {
        rows.push(times(figure, of, to, rows).held(limit));
        return;
    }
    let (case, runtime) = (of.0, of.1.to_string());
    let is = |row: &Row| row.case == case && row.contender == runtime && row.figure == figure;
    let place = rows.iter().position(is).unwrap_or_else(|| {
        let known = FIGURES.iter().find(|known| known.name == figure);
        let unit = known.map_or(Unit::Count, |known| known.unit);
        rows.push(Row::new(case, &runtime, figure, unit, Vec::new()));
        rows.len() - 1
    });
    rows[place] = rows[place].clone().held(limit);
}

/// A figure over the same of another runtime or case, round by round: the cases of a group are measured in turns.
fn times(figure: &str, (case, runtime): At, (other_case, other): At, rows: &[Row]) -> Row {
    let than = match case == other_case {
        true => other.to_string(),
        false if runtime == other => other_case.to_owned(),
        false => format!("{other} in {other_case}"),
    };
    let named = format!("{figure} ÷ {than}");
    let runtime = runtime.to_string();
    let own = find(rows, case, &runtime, figure);
    let to = find(rows, other_case, &other.to_string(), figure);
    let of = own.zip(to);
    let times = of.and_then(|(own, to)| own.over(to, (&named, Unit::Factor), |own, to| own / to));
    times.unwrap_or_else(|| Row::new(case, &runtime, &named, Unit::Factor, Vec::new()))
}

/// How many bars are met, and which are not.
fn summary(judged: &[(String, pairs::Bar)]) -> String {
    let of = |which: pairs::Bar| -> Vec<&str> {
        let own = judged.iter().filter(|(_, judged)| *judged == which);
        own.map(|(name, _)| name.as_str()).collect()
    };
    let (met, all) = (of(pairs::Bar::Met).len(), judged.len());
    let mut text = format!("{met} of {all} bars are met");
    for which in [pairs::Bar::Missed, pairs::Bar::Undecided] {
        let names = of(which);
        if !names.is_empty() {
            text += &format!("; {} {which}: {}", names.len(), names.join("; "));
        }
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Limit::{AtLeast, AtMost};
    use std::collections::HashSet;

    use super::super::workload::tests::workload;
    use super::*;

    #[test]
    fn every_bar_is_about_a_figure_of_a_case_of_its_group() {
        let mut names = HashSet::new();
        for group in groups(&base(&workload())) {
            let new = group.cases.iter().all(|case| names.insert(case.name));
            assert!(new && !group.bars.is_empty(), "{}", group.name);
            let cases: Vec<&str> = group.cases.iter().map(|case| case.name).collect();
            for bar in &group.bars {
                let Bar(figure, of, to, _) = bar;
                let own = [Some(*of), *to].into_iter().flatten();
                assert!(
                    own.into_iter().all(|(case, _)| cases.contains(&case)),
                    "{bar:?}"
                );
                assert!(FIGURES.iter().any(|known| known.name == *figure), "{bar:?}");
            }
        }
    }

    /// A name that the runtime does not know fails in the child, after minutes of other cases.
    #[test]
    fn every_mechanism_that_a_case_switches_off_exists() {
        let mut switched_off = 0;
        for group in groups(&base(&workload())) {
            for case in group.cases {
                let is_all = case.workload.off.len() == morpheus_runtime::Mechanism::ALL.len();
                assert_eq!(is_all, case.name == "off-all", "{}", case.name);
                for name in &case.workload.off {
                    let mechanism = name.parse::<morpheus_runtime::Mechanism>();
                    assert!(mechanism.is_ok(), "{}: {name}", case.name);
                    switched_off += 1;
                }
            }
        }
        assert!(switched_off > 8, "{switched_off}");
    }

    #[test]
    fn nothing_measured_is_undecided() {
        for group in groups(&base(&workload())) {
            for bar in &group.bars {
                let mut rows = Vec::new();
                hold(bar, &mut rows);
                assert_eq!(rows[0].judged, Some(pairs::Bar::Undecided), "{bar:?}");
            }
        }
    }

    #[test]
    fn bars_hold_rows_and_relations_between_cases() {
        let row = |case: &str, runtime: Runtime, ns: [f64; 3]| {
            Row::new(
                case,
                &runtime.to_string(),
                "wake p99",
                Unit::Time,
                ns.into(),
            )
        };
        let mut rows = vec![
            row("on", Runtime::Morpheus, [1e5, 2e5, 3e5]),
            row("off", Runtime::Morpheus, [4e5, 4e5, 9e5]),
        ];
        let own = |case| (case, Runtime::Morpheus);
        let on = own("on");
        for bar in [
            Bar("wake p99", on, None, AtMost(3e5)),
            Bar("wake p99", own("off"), Some(on), AtLeast(1.3)),
            Bar("wake p99", on, Some(("on", Runtime::TOKIO)), AtMost(1.0)),
        ] {
            hold(&bar, &mut rows);
        }
        assert_eq!(rows[0].judged, Some(pairs::Bar::Met));
        let times = &rows[2];
        assert_eq!(
            (times.figure.as_str(), times.median),
            ("wake p99 ÷ on", Some(3.0))
        );
        assert_eq!(times.judged, Some(pairs::Bar::Met));
        let judged = [
            ("a".into(), pairs::Bar::Met),
            ("b, c".into(), pairs::Bar::Missed),
        ];
        assert_eq!(summary(&judged), "1 of 2 bars are met; 1 missed: b, c.");
    }
}
