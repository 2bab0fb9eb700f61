//! The binary as its users call it.

mod common;

use std::process::{Output, Stdio};

use common::Found;
use morpheus_bench::compare::cases::CASES;
use morpheus_harness::pairs::{LEAST_PAIRS, Verdict};
use morpheus_harness::report::WIDTH;
use morpheus_harness::rows::{Ratio, Row};

const PROGRAM: &str = env!("CARGO_BIN_EXE_compare");

fn compare(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    common::json(PROGRAM, arguments)
}

/// The rows of one case.
fn rows<'a>(found: &'a Found, case: &'a str) -> impl Iterator<Item = &'a Row> {
    found.rows.iter().filter(move |row| row.case == case)
}

/// The row of a contender's ratio.
fn ratio<'a>(found: &'a Found, case: &'a str, contender: &str, figure: &str) -> &'a Ratio {
    let mut rows = rows(found, case);
    let row = rows.find(|row| row.contender == contender && row.figure == figure);
    row.and_then(|row| row.ratio.as_ref()).unwrap()
}

/// A child that has done another number of operations than it was asked for says so, and the case has then failed.
#[test]
fn every_case_runs_on_every_runtime_and_does_what_it_counts() {
    let found = found("--pairs 1 --window-ms 0.3");
    assert!(found.failed.is_empty(), "{:?}", found.failed);
    let names: Vec<&str> = found.cases.iter().map(|case| case.name.as_str()).collect();
    let all: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names, all);
    for case in CASES {
        let figures = if case.least > 1 { 3 } else { 2 };
        assert_eq!(
            rows(&found, case.name).count(),
            3 * figures,
            "{}",
            case.name
        );
        for row in rows(&found, case.name) {
            let positive = row
                .median
                .is_some_and(|median| median.is_finite() && median > 0.0);
            assert!(positive && row.n == 1, "{row:?}");
            assert_eq!(row.ratio.is_some(), row.contender != "tokio", "{row:?}");
            if let Some(ratio) = &row.ratio {
                assert_eq!(ratio.verdict, Verdict::TooFew { pairs: 1 });
                assert_eq!(
                    (ratio.pairs.differences.len(), ratio.pairs.control.len()),
                    (1, 1)
                );
            }
        }
    }
}

#[test]
fn ten_pairs_give_a_verdict_and_a_mean() {
    let found = found("--case ping_pong --window-ms 1 --runtime morpheus");
    assert_eq!(found.config["pairs"], LEAST_PAIRS);
    let cpu = ratio(&found, "ping_pong", "morpheus", "CPU time");
    assert!(!matches!(cpu.verdict, Verdict::TooFew { .. }), "{cpu:?}");
    assert!(cpu.judged.is_some() && cpu.limit.is_some());
    let mean = ratio(&found, "mean of 1", "morpheus", "operations/s");
    assert!(mean.low <= mean.median && mean.median <= mean.high && mean.judged.is_some());
    assert!(!found.interrupted);
}

#[test]
fn anything_is_compared_with_anything() {
    let found = found(
        "--case spawn10 --pairs 1 --window-ms 1 --runtime morpheus-watched,tokio+4 --against morpheus,tokio+slice",
    );
    assert!(found.failed.is_empty(), "{:?}", found.failed);
    let compared = rows(&found, "spawn10").filter(|row| row.figure == "CPU time");
    let compared: Vec<[&str; 2]> = compared
        .filter_map(|row| Some([row.contender.as_str(), row.ratio.as_ref()?.to.as_str()]))
        .collect();
    let expected = [
        ["morpheus-watched", "morpheus"],
        ["tokio+4", "morpheus"],
        ["morpheus-watched", "tokio+slice"],
        ["tokio+4", "tokio+slice"],
    ];
    assert_eq!(compared, expected);
    let means = rows(&found, "mean of 1").filter(|row| row.figure == "CPU time");
    assert_eq!(means.count(), 4);
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
        "p99",
        "n too small",
        "undecided: spawn_many_remote_busy1, tcp_echo_1.",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn the_list_has_every_case() {
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
