//! The binary as its users call it.

mod common;

use std::process::{Output, Stdio};
use std::time::Duration;

use morpheus_bench::compare::{Report, WIDTH, cases::CASES};
use morpheus_bench::pairs::{LEAST_PAIRS, Verdict};

const PROGRAM: &str = env!("CARGO_BIN_EXE_compare");

fn compare(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, arguments)
}

fn positive(number: Option<f64>) -> bool {
    number.is_some_and(|number| number.is_finite() && number > 0.0)
}

/// A child that has done another number of operations than it was asked for says so, and the case has then failed.
#[test]
fn every_case_runs_on_every_runtime_and_does_what_it_counts() {
    let report = report("--pairs 1 --window-ms 0.3");
    let names: Vec<&str> = report.cases.iter().map(|case| case.case.as_str()).collect();
    let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names, all);
    for (measured, case) in report.cases.iter().zip(CASES) {
        assert_eq!(measured.failed, None, "{measured:?}");
        assert_eq!(measured.measurements, 4, "{measured:?}");
        assert!(
            measured.operations >= case.least && measured.operations.is_multiple_of(case.batch)
        );
        assert!(
            positive(measured.rate_per_s) && positive(measured.cpu_ns),
            "{measured:?}"
        );
        assert_eq!(positive(measured.p99_ns), case.least > 1, "{measured:?}");
        let names = measured.compared.iter().map(|one| one.runtime.to_string());
        assert!(names.eq(["morpheus", "morpheus-watched"]));
        for one in &measured.compared {
            assert!(positive(one.rate_per_s) && positive(one.cpu_ns), "{one:?}");
            assert_eq!(one.rate.pairs.differences.len(), 1);
            assert_eq!(one.cpu.pairs.control.len(), 1);
            assert_eq!(one.p99.is_some(), case.least > 1);
            assert_eq!(one.rate.verdict, Verdict::TooFew { pairs: 1 });
        }
    }
}

#[test]
fn ten_pairs_give_a_verdict_and_a_mean() {
    let report = report("--case ping_pong --window-ms 1 --runtime morpheus");
    let compared = &report.cases[0].compared[0];
    assert_eq!(report.pairs, LEAST_PAIRS);
    assert!(
        !matches!(compared.rate.verdict, Verdict::TooFew { .. }),
        "{compared:?}"
    );
    assert!(compared.cpu.judged.is_some() && compared.cpu.bar == Some(1.03));
    let mean = &report.means[0];
    let rate = mean.rate.unwrap();
    assert!(mean.cases == 1 && rate.low <= rate.median && rate.median <= rate.high);
    assert!(!report.interrupted);
}

#[test]
fn anything_is_compared_with_anything() {
    let report = report(
        "--case spawn10 --pairs 1 --window-ms 1 --runtime morpheus-watched,tokio+4 --against morpheus,tokio+slice",
    );
    let against: Vec<String> = report
        .cases
        .iter()
        .map(|case| case.against.to_string())
        .collect();
    assert_eq!(against, ["morpheus", "tokio+slice"]);
    for case in &report.cases {
        let names = case.compared.iter().map(|one| one.runtime.to_string());
        assert!(names.eq(["morpheus-watched", "tokio+4"]));
        assert_eq!(case.failed, None);
    }
    assert_eq!(report.means.len(), 4);
}

#[test]
fn people_get_tables_and_small_n_is_said() {
    let text = String::from_utf8(
        compare("--case spawn_many_remote_busy1,tcp_echo_1 --pairs 2 --window-ms 1").stdout,
    )
    .unwrap();
    let expected = [
        "morpheus against tokio",
        "morpheus-watched against tokio",
        "spawn_many_remote_busy1",
        "tcp_echo_1: p99",
        "n too small",
        "undecided: spawn_many_remote_busy1, tcp_echo_1.",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn bad_usage_exits_with_2_and_help_teaches() {
    common::assert_refused(
        PROGRAM,
        &[
            "--case nonsense",
            "--pairs 0",
            "--workers 0",
            "--window-ms 0",
            "--against smol",
            "--runtime tokio-watched",
        ],
    );
    let help = String::from_utf8(compare("--help").stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    assert!(help.lines().all(|line| line.chars().count() <= 120));
    let list = String::from_utf8(compare("--list").stdout).unwrap();
    assert_eq!(list.lines().count(), CASES.len());
}

#[test]
fn a_child_without_a_job_says_that_it_is_for_itself() {
    let output = common::command(PROGRAM, "--child")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no job on stdin"), "{said}");
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    let child = common::command(PROGRAM, "--case spawn10 --pairs 5000 --window-ms 5 --json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    // SAFETY: a plain system call; the child is not waited for yet, so that its number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.interrupted);
    let case = &report.cases[0];
    assert_eq!(case.failed, None);
    assert!(case.measurements < 4 * 5_000, "{}", case.measurements);
    assert_eq!(case.measurements % 4, 0, "whole rounds");
}
