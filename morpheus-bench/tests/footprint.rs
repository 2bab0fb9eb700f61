//! The binary as its users call it.

mod common;

use std::process::Stdio;

use common::Found;
use morpheus_harness::pairs::Bar;
use morpheus_harness::report::WIDTH;
use morpheus_harness::rows::Row;

const PROGRAM: &str = env!("CARGO_BIN_EXE_footprint");

/// Two sizes, and hardly any time to come to rest.
const QUICK: &str = "--spares 2,6 --workers 1 --settle-ms 20 --tasks 500";

fn found(arguments: &str) -> Found {
    let found: Found = common::json(PROGRAM, &format!("{QUICK} {arguments}"));
    assert!(found.failed.is_empty() && !found.interrupted, "{found:?}");
    found
}

/// One figure of every contender that has it, in their order.
fn figure(found: &Found, figure: &str) -> Vec<Row> {
    let rows = found.rows.iter().filter(|row| row.figure == figure);
    rows.cloned().collect()
}

fn medians(found: &Found, name: &str) -> Vec<f64> {
    let rows = figure(found, name).into_iter();
    rows.filter_map(|row| row.median).collect()
}

#[test]
fn every_runtime_is_measured_with_its_threads_and_its_pages() {
    let found = found("--only idle --runs 1");
    let resident = figure(&found, "resident");
    let names = resident.iter().map(|row| row.contender.as_str());
    let expected = [
        "tokio",
        "morpheus",
        "morpheus+2",
        "morpheus+6",
        "tokio+2",
        "tokio+6",
    ];
    assert!(names.eq(expected), "{found:?}");
    let threads = medians(&found, "threads");
    // Of Morpheus: a worker, the spares, the worker that is always held, and the controller.
    assert_eq!(threads, [1.0, 35.0, 5.0, 9.0, 3.0, 7.0]);
    let resident = medians(&found, "resident");
    let parts = ["stacks", "small stacks", "heap", "other", "files"];
    let parts = parts.map(|part| medians(&found, part));
    let mapped = medians(&found, "mapped");
    for (place, resident) in resident.iter().enumerate() {
        assert!(*resident > 0.0 && mapped[place] > *resident, "{found:?}");
        // Pages come and go between the two readings.
        let sum: f64 = parts.iter().map(|part| part[place]).sum();
        assert!((sum - resident).abs() < f64::from(256 << 10), "{found:?}");
        // At least a page for each.
        assert!(parts[0][place] >= 4096.0 * threads[place], "{found:?}");
    }
    let over = figure(&found, "over tokio");
    assert_eq!(
        (over.len(), over[0].judged),
        (5, Some(Bar::Undecided)),
        "one round"
    );
    assert_eq!(found.cases.len(), 1);
}

/// The requested bytes do not depend on the machine, its load or the build.
#[test]
fn a_watched_task_requests_32_bytes_more() {
    let found = found("--only tasks --runs 2");
    let over = figure(&found, "over tokio");
    let names = over.iter().map(|row| row.contender.as_str());
    let expected = [
        "morpheus, tokio::spawn",
        "morpheus, morpheus_runtime::spawn",
        "morpheus, .watched(…)",
        "morpheus, .watched_as(…)",
    ];
    assert!(names.eq(expected), "{found:?}");
    assert_eq!(medians(&found, "over tokio"), [0.0, 32.0, 32.0, 32.0]);
    assert!(over.iter().all(|row| row.judged == Some(Bar::Met)));
    assert_eq!(medians(&found, "blocks"), [1.0; 5]);
    assert!(medians(&found, "resident").iter().all(|bytes| *bytes > 0.0));
    assert_eq!(found.cases.len(), 1);
}

#[test]
fn people_get_tables() {
    let output = common::run(PROGRAM, &format!("{QUICK} --runs 2"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // Resident memory depends on which pages of the program files are cached: any verdict may come of it.
    let expected = [
        "an idle runtime, medians",
        "morpheus+6",
        "morpheus, over tokio at most 1.00 MiB: ",
        "a task that waits, medians",
        "morpheus, .watched(…), over tokio at most 32.0 B: met, 32.0 B.",
    ];
    common::assert_table(&text, WIDTH, &expected);
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
    let found: Found = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found.failed[0].starts_with("morpheus+4000: "), "{found:?}");
}
