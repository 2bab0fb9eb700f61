//! The benchmark `escalation`: what it prints, and what it refuses.

mod common;

use common::Found;

const PROGRAM: &str = env!("CARGO_BIN_EXE_escalation");

/// The median of a figure in a case that begins so.
fn median(found: &Found, case: &str, figure: &str) -> f64 {
    let is =
        |row: &&morpheus_harness::rows::Row| row.case.starts_with(case) && row.figure == figure;
    let row = found.rows.iter().find(is);
    let median = row.and_then(|row| row.median);
    median.unwrap_or_else(|| panic!("{case}, {figure}: {found:?}"))
}

#[test]
fn polls_are_asked_to_yield_and_workers_replaced() {
    let line = "--polls 20 --chains 2 --chain 10 --stalls 2 --rest-ms 100";
    let found: Found = common::json(PROGRAM, line);
    assert!(found.failed.is_empty() && !found.interrupted, "{found:?}");
    let names: Vec<&str> = found
        .rows
        .iter()
        .map(|row| row.contender.as_str())
        .collect();
    assert!(
        names.iter().all(|name| *name == "link watchdog"),
        "{names:?}"
    );
    let asked = "a poll that computes";
    assert_eq!(median(&found, asked, "polls"), 20.0);
    // One that is known to be slow is asked after half its budget.
    assert!(
        median(&found, asked, "CPU time p50") >= 250_000.0,
        "asked before it had used anything: {found:?}"
    );
    assert!(median(&found, asked, "elapsed max") >= median(&found, asked, "CPU time max"));
    assert_eq!(median(&found, "a worker that blocks is", "stalls"), 20.0);
    assert_eq!(
        median(&found, "a worker that blocks after a rest", "stalls"),
        2.0
    );
}

#[test]
fn without_the_daemon_it_says_so() {
    for (link, only) in [("observer", "takeover"), ("scheduler", "request")] {
        let mut command = common::command(PROGRAM, &format!("--link {link} --only {only}"));
        let output = command
            .env("MORPHEUS_SOCKET", "/nonexistent")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.contains("not measured to its end") && said.contains("/nonexistent"),
            "{said}"
        );
    }
}
