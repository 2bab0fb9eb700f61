//! The binary as its users call it.

mod common;

use std::process::Stdio;
use std::time::Duration;

use morpheus_bench::footprint::{Report, Via, WIDTH};
use morpheus_bench::pairs::Bar;

const PROGRAM: &str = env!("CARGO_BIN_EXE_footprint");

/// Two sizes, and hardly any time to come to rest.
const QUICK: &str = "--spares 2,6 --workers 1 --runs 1 --settle-ms 20 --tasks 500";

#[test]
fn every_runtime_is_measured_with_its_threads_and_its_pages() {
    let report: Report = common::json(PROGRAM, &format!("{QUICK} --only idle"));
    let names = report.idle.iter().map(|row| row.runtime.to_string());
    let expected = [
        "tokio",
        "morpheus",
        "morpheus+2",
        "morpheus+6",
        "tokio+2",
        "tokio+6",
    ];
    assert!(names.eq(expected), "{report:?}");
    let [tokio, default, two, six, tokio_two, tokio_six] = &report.idle[..] else {
        panic!("{report:?}");
    };
    for row in &report.idle {
        let memory = row.memory;
        let split = memory.split;
        let sum = split.stacks + split.small_stacks + split.heap + split.other + split.files;
        assert!(
            memory.resident > 0 && memory.mapped > memory.resident,
            "{row:?}"
        );
        // Pages come and go between the two readings.
        assert!((sum - memory.resident).abs() < 256 << 10, "{row:?}");
        // At least a page for each.
        assert!(split.stacks >= 4096 * memory.threads, "{row:?}");
    }
    let threads = |row: &morpheus_bench::footprint::Idle| row.memory.threads;
    assert_eq!([tokio, tokio_two, tokio_six].map(threads), [1, 3, 7]);
    // A worker, the spares and the controller.
    assert_eq!([default, two, six].map(threads), [34, 4, 8]);
    assert_eq!(default.judged, Some(Bar::Undecided), "one round");
    assert!(tokio.over_tokio_bytes.is_none() && six.over_tokio_bytes.is_some());
    assert!(report.tasks.is_empty() && report.failed.is_none() && !report.interrupted);
}

/// What is requested does not depend on the machine, its load or the build.
#[test]
fn a_watched_task_requests_32_bytes_more() {
    let report: Report = common::json(PROGRAM, &format!("{QUICK} --only tasks"));
    let vias: Vec<Via> = report.tasks.iter().map(|row| row.via).collect();
    let expected = [
        Via::Tokio,
        Via::Tokio,
        Via::Spawn,
        Via::Watched,
        Via::WatchedAs,
    ];
    assert_eq!(vias, expected);
    for (row, more) in report.tasks.iter().zip([0.0, 0.0, 32.0, 32.0, 32.0]) {
        let plain = report.tasks[0].requested_bytes;
        assert_eq!(row.requested_bytes - plain, more, "{row:?}");
        assert!(row.sizes.iter().all(|size| size.blocks == 1.0), "{row:?}");
        assert!(row.resident_bytes > 0.0, "{row:?}");
        assert!(
            row.judged.is_none_or(|judged| judged == Bar::Met),
            "{row:?}"
        );
    }
    assert!(report.idle.is_empty());
}

#[test]
fn people_get_tables() {
    let output = common::run(PROGRAM, QUICK);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "An idle runtime",
        "morpheus+6",
        "Bar, at most 1,024 KiB over tokio",
        "A task, in bytes: 500 that wait",
        "Bar, at most 32 bytes more than tokio's: met.",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn bad_usage_exits_with_2_and_help_teaches() {
    common::assert_refused(
        PROGRAM,
        &[
            "--spares 0",
            "--spares x",
            "--workers 0",
            "--only both",
            "--tasks 0",
        ],
    );
    let help = String::from_utf8(common::run(PROGRAM, "--help").stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    assert!(help.lines().all(|line| line.chars().count() <= 120));
}

#[test]
fn a_child_without_a_job_says_that_it_is_for_itself() {
    let child = common::command(PROGRAM, "--child")
        .stdin(Stdio::null())
        .output();
    let output = child.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no job on stdin"), "{said}");
}

#[test]
fn what_cannot_be_built_is_said() {
    // Together they are more than a runtime may have, which is found out before any thread is started.
    let output = common::run(
        PROGRAM,
        "--spares 4000 --workers 97 --runs 1 --only idle --json",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let why = report.failed.unwrap();
    assert!(why.starts_with("morpheus+4000: "), "{why}");
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    let line = "--spares 2 --workers 1 --runs 5000 --settle-ms 1 --only idle";
    let report: Report = common::json_of_interrupted(PROGRAM, line, Duration::from_secs(3));
    assert!(report.interrupted && report.failed.is_none(), "{report:?}");
    let runs: Vec<usize> = report.idle.iter().map(|row| row.runs).collect();
    assert!(runs.iter().all(|n| *n == runs[0] && *n < 5_000), "{runs:?}");
}
