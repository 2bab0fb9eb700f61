//! The benchmark `request`: what it prints, and what it refuses.

use std::process::{Command, Output};

fn request(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_request"))
        .args(arguments)
        .env("MORPHEUS_SOCKET", "/nonexistent")
        .output()
        .unwrap()
}

#[test]
fn polls_are_asked_to_yield() {
    let output = request(&["--polls", "20", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["link"], "watchdog");
    let used = &report["used_ns"];
    assert_eq!(used["n"], 20);
    // One that is known to be slow is asked after half its budget.
    assert!(
        used["p50"].as_u64().unwrap() >= 500_000 / 2,
        "asked before it had used anything: {used}"
    );
    let passed = &report["passed_ns"];
    assert!(passed["max"].as_u64() >= used["max"].as_u64());
}

#[test]
fn without_the_daemon_it_says_so() {
    for link in ["observer", "scheduler"] {
        let output = request(&["--link", link, "--polls", "1"]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("request: ") && said.contains("/nonexistent"),
            "{said}"
        );
    }
}

#[test]
fn no_polls_is_no_measurement() {
    assert_eq!(request(&["--polls", "0"]).status.code(), Some(2));
}
