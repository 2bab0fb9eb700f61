//! `--suite`: every row of the table of bars, with verdicts.

use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind;
use serde::Serialize;

use super::WIDTH;
use super::config::Options;
use super::main::{Bench, medians};
use super::result::RunResult;
use super::rows::{Case, Row, rows};
use super::supervise;
use super::table;
use super::verdict::{Check, Measured, Verdict};
use super::workload::Workload;
use crate::executor::Runtime;
use crate::host::Host;
use crate::interrupt;
use crate::report::{json, print, wrap};

/// The object that `--suite --json` prints.
#[derive(Serialize)]
struct SuiteReport {
    bench: &'static str,
    host: Host,
    config: Workload,
    rows: Vec<RowReport>,
    interrupted: bool,
}

#[derive(Serialize)]
struct RowReport {
    name: &'static str,
    about: &'static str,
    checks: Vec<Check>,
    cases: Vec<CaseReport>,
}

#[derive(Serialize)]
struct CaseReport {
    name: &'static str,
    config: Workload,
    runs: Vec<RunResult>,
}

/// Runs the rows that are asked for. A missed bar is a failure only with `--strict`.
pub fn main(options: &Options, workload: &Workload) -> ExitCode {
    let rows = chosen(options, &base(workload)).unwrap_or_else(|error| error.exit());
    let host = Host::read();
    interrupt::install();
    let runtimes = options.runtimes();
    let mut bench = Bench::new(options);
    let total = rows
        .iter()
        .flat_map(|row| &row.cases)
        .map(|case| time(case, options))
        .sum();
    bench.expect_time(total);
    if !options.json {
        print(&heading(&host, workload, options, total));
    }
    let (mut measured, mut reports) = (Measured::new(), Vec::new());
    for row in &rows {
        for case in &row.cases {
            // A case without Morpheus says nothing; without a baseline its bar cannot be judged, and says so.
            let chosen: Vec<Runtime> = case
                .runtimes
                .iter()
                .copied()
                .filter(|r| runtimes.contains(r))
                .collect();
            let rounds = rounds(case, options);
            measured.insert(case.name, bench.measure(&case.workload, &chosen, rounds));
        }
        let checks: Vec<Check> = row.bars.iter().map(|bar| bar.judge(&measured)).collect();
        if !options.json {
            bench
                .progress
                .suspend(|| print(&shown(row, &measured, &checks, options)));
        }
        reports.push(report(row, &measured, checks));
        if interrupt::happened() {
            break;
        }
    }
    bench.progress.clear();
    let missed = reports
        .iter()
        .flat_map(|row| &row.checks)
        .any(|c| c.verdict == Verdict::Missed);
    if options.json {
        let report = SuiteReport {
            bench: "starvation",
            host,
            config: workload.clone(),
            rows: reports,
            interrupted: interrupt::happened(),
        };
        print(&json(&report));
    } else {
        print(&summary(&reports, rows.len()));
    }
    if interrupt::happened() {
        return ExitCode::from(130);
    }
    ExitCode::from(u8::from(missed && options.strict))
}

/// The rows change hogs and innocents themselves; sleepers, workers, durations stay as asked.
fn base(workload: &Workload) -> Workload {
    Workload {
        hogs: 0,
        hog_ms: 200.0,
        off: Vec::new(),
        ..workload.clone()
    }
}

fn chosen(options: &Options, base: &Workload) -> Result<Vec<Row>, clap::Error> {
    let mut rows = rows(base);
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    for name in &options.suite_only {
        if !names.contains(&name.as_str()) {
            let text = format!("unknown row '{name}': there are {}", names.join(", "));
            return Err(Options::command().error(ErrorKind::ValueValidation, text));
        }
    }
    if !options.suite_only.is_empty() {
        rows.retain(|row| options.suite_only.iter().any(|name| name == row.name));
    }
    Ok(rows)
}

fn rounds(case: &Case, options: &Options) -> usize {
    options.rounds().max(case.least_rounds)
}

fn time(case: &Case, options: &Options) -> Duration {
    let runtimes = options.runtimes();
    let runs = case
        .runtimes
        .iter()
        .filter(|r| runtimes.contains(r))
        .count()
        * rounds(case, options);
    supervise::expected(&case.workload) * runs as u32
}

fn heading(host: &Host, workload: &Workload, options: &Options, total: Duration) -> String {
    let mut text = format!("{}\n", host.line(WIDTH));
    if workload.workers != 2 || host.cpus != 2 {
        text +=
            "The bars are meant for two CPUs and two workers: elsewhere the verdicts are a hint.\n";
    }
    if host.load.is_some_and(|load| load > 0.5 * host.cpus as f64) {
        text += "The machine was busy when this began: the verdicts are a hint.\n";
    }
    let minutes = total.as_secs_f64() / 60.0;
    text + &format!(
        "At least {minutes:.0} minutes, {} rounds.\n",
        options.rounds()
    )
}

fn shown(row: &Row, measured: &Measured, checks: &[Check], options: &Options) -> String {
    let mut text = format!("\n== {}: {}\n", row.name, row.about);
    for case in &row.cases {
        let Some(runs) = measured.get(case.name).filter(|runs| !runs.is_empty()) else {
            continue;
        };
        let medians = medians(runs, case.runtimes);
        let title = table::title(&case.workload, rounds(case, options));
        text += &format!(
            "\n{}\n{}",
            wrap(&format!("{}: {title}", case.name), WIDTH),
            table::render(&medians)
        );
    }
    text.push('\n');
    for check in checks {
        let word = match check.verdict {
            Verdict::Ok => "ok      ",
            Verdict::Missed => "missed  ",
            Verdict::Reported => "reported",
            Verdict::CannotJudge => "cannot judge:",
        };
        text += &format!(
            "  {word} {}\n",
            wrap(&check.text, WIDTH - 16).replace('\n', "\n           ")
        );
    }
    text
}

fn report(row: &Row, measured: &Measured, checks: Vec<Check>) -> RowReport {
    let case = |case: &Case| CaseReport {
        name: case.name,
        config: case.workload.clone(),
        runs: measured.get(case.name).cloned().unwrap_or_default(),
    };
    RowReport {
        name: row.name,
        about: row.about,
        checks,
        cases: row.cases.iter().map(case).collect(),
    }
}

/// The worst of each row, and how many of each there are.
fn summary(reports: &[RowReport], rows: usize) -> String {
    let mut text = String::from("\n== Verdicts\n");
    let mut counts = [0; 4];
    for row in reports {
        let count = |verdict| row.checks.iter().filter(|c| c.verdict == verdict).count();
        let verdicts = [
            Verdict::Ok,
            Verdict::Missed,
            Verdict::CannotJudge,
            Verdict::Reported,
        ]
        .map(count);
        counts
            .iter_mut()
            .zip(verdicts)
            .for_each(|(sum, n)| *sum += n);
        let worst = match verdicts {
            [_, missed, _, _] if missed > 0 => format!("missed ({missed} of {})", row.checks.len()),
            [0, 0, _, 0] => "cannot judge".into(),
            [_, _, unclear, _] if unclear > 0 => {
                format!("ok, cannot judge {unclear} of {}", row.checks.len())
            }
            _ => "ok".into(),
        };
        text += &format!("  {:<12} {worst}\n", row.name);
    }
    let [ok, missed, unclear, reported] = counts;
    text +=
        &format!("{ok} ok, {missed} missed, {unclear} cannot be judged here, {reported} reported");
    if reports.len() < rows {
        text += &format!("; ended early after {} of {rows} rows", reports.len());
    }
    text + ".\n"
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_bar_is_about_a_case_of_its_row() {
        let mut names = HashSet::new();
        for row in rows(&base(&workload())) {
            assert!(
                row.cases.iter().all(|case| names.insert(case.name)),
                "{}",
                row.name
            );
            assert!(!row.bars.is_empty(), "{}", row.name);
            let cases: Vec<String> = row
                .cases
                .iter()
                .map(|case| format!("\"{}\"", case.name))
                .collect();
            for bar in &row.bars {
                let bar = format!("{bar:?}");
                let known = cases.iter().any(|case| bar.contains(case.as_str()));
                assert!(known || bar.contains("Elsewhere"), "{bar}");
            }
        }
    }

    /// A name that the runtime does not know fails in the child, after minutes of other cases.
    #[test]
    fn every_mechanism_that_a_case_switches_off_exists() {
        let mut switched_off = 0;
        for row in rows(&base(&workload())) {
            for case in row.cases {
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
    fn nothing_measured_is_never_ok() {
        for row in rows(&base(&workload())) {
            for bar in row.bars {
                let check = bar.judge(&Measured::new());
                assert!(
                    check.verdict != Verdict::Ok && check.verdict != Verdict::Missed,
                    "{check:?}"
                );
            }
        }
    }
}
