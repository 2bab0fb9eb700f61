//! The binary as its users call it.

mod common;

use std::process::Output;
use std::time::Duration;

use morpheus_bench::jitter::{Report, WIDTH};

const PROGRAM: &str = env!("CARGO_BIN_EXE_jitter");

fn jitter(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, arguments)
}

#[test]
fn json_has_a_row_for_each_slack_and_load() {
    let report = report("2 40 --load 1");
    assert_eq!(report.bench, "jitter");
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| (row.slack_ns, row.load))
        .collect();
    assert_eq!(rows, [(50_000, 0), (1, 0), (50_000, 1), (1, 1)]);
    for row in &report.rows {
        assert_eq!((row.lateness_ns.n, row.interval_ns), (40, 2_000_000));
        assert_eq!(row.slack_in_force_ns, row.slack_ns);
        assert!(
            row.mean_ns.unwrap() > 0.0 && row.deviation_ns.is_some(),
            "{row:?}"
        );
        let median = row.median_ns.unwrap();
        assert!(median.low <= median.median && median.median <= median.high);
        assert!(row.lateness_ns.p99.is_none() && row.corrected_ns.is_none());
    }
    assert!(!report.interrupted && report.answer.is_none());
}

#[test]
fn relative_sleeps_are_raw_and_have_corrected_figures_beside_them() {
    let report = report("1 20 --relative");
    let row = &report.rows[0];
    assert_eq!(row.counts.to_string(), "raw");
    assert!(row.corrected_ns.as_ref().unwrap().n >= row.lateness_ns.n);
}

#[test]
fn a_sweep_answers() {
    let report = report("1 8 --sweep");
    assert_eq!(report.rows.len(), 15);
    assert!(
        report
            .answer
            .unwrap()
            .starts_with("Do longer sleeps wake later?")
    );
    assert!(report.cpu.is_some());
}

#[test]
fn people_get_tables() {
    let text = String::from_utf8(jitter("1 10").stdout).unwrap();
    let expected = [
        "in µs",
        "mean",
        "stdev",
        "slack 50.0 µs",
        "slack 1 ns",
        "p99.9",
        "n too small",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn cyclictest_lines_have_its_form() {
    let text = String::from_utf8(jitter("1 10 --cyclictest").stdout).unwrap();
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        assert!(line.starts_with("T: "), "{line}");
        for part in [" P: 0 I:1000 C:     10 Min:", " Act:", " Avg:", " Max:"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

#[test]
fn a_histogram_log_has_a_line_for_each_kind() {
    let path = std::env::temp_dir().join(format!("jitter-{}.hlog", std::process::id()));
    let output = jitter(&format!("1 10 --relative --histogram {}", path.display()));
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let tagged = log
        .lines()
        .filter(|line| line.starts_with("Tag=nanosleep-1000us-slack-"));
    assert_eq!(tagged.count(), 4, "{log}");
    assert!(
        log.contains("HIST") && log.contains("#[StartTime:"),
        "{log}"
    );
    let refused = jitter("1 1 --histogram /nowhere/file");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/nowhere/file"));
}

/// Whether it may depends on who runs the tests; either it does it or it says why not.
#[test]
fn a_real_time_policy_is_taken_or_explained() {
    for policy in ["fifo", "rr", "deadline"] {
        let output = jitter(&format!("5 5 --json --policy {policy}"));
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert!(String::from_utf8_lossy(&output.stdout).contains(policy)),
            code => {
                assert_eq!(code, Some(1), "{said}");
                assert!(
                    said.contains(&format!("refuses the policy {policy}")),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    // After the warm-up, which takes at most two seconds.
    let after = Duration::from_millis(3_500);
    let report: Report = common::json_of_interrupted(PROGRAM, "5 100000", after);
    assert!(report.interrupted && report.rows[0].lateness_ns.n > 0);
}

#[test]
fn bad_usage_exits_with_2_and_says_what_is_right() {
    for (arguments, expected) in [
        ("0", "from 10us to 60s"),
        ("10 0", "from 1 to"),
        ("1 1 --policy idle", "deadline"),
        ("1 1 --policy deadline --cpu 0", "leave --cpu out"),
    ] {
        let output = jitter(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(said.contains(expected), "{arguments}: {said}");
    }
    let nowhere = jitter("1 1 --cpu 1023");
    assert_eq!(nowhere.status.code(), Some(1));
}
