//! The benchmark `takeover`: what it prints, and what it refuses.

mod common;

use std::time::Duration;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_takeover");

#[test]
fn each_link_of_a_chain_is_counted() {
    let report: Value = common::json(PROGRAM, "--chains 2 --chain 10");
    assert_eq!(report["link"], "watchdog");
    assert_eq!(report["waited_ns"]["n"], 20);
    assert_eq!(report["interrupted"], false);
}

#[test]
fn ctrl_c_ends_it_after_the_present_chain() {
    let after = Duration::from_millis(1_500);
    let report: Value = common::json_of_interrupted(PROGRAM, "--chains 10000 --chain 10", after);
    assert_eq!(report["interrupted"], true);
    assert!(report["waited_ns"]["n"].as_u64().unwrap() >= 10, "{report}");
}

#[test]
fn without_the_daemon_it_says_so() {
    for link in ["observer", "scheduler"] {
        let mut command = common::command(PROGRAM, &format!("--link {link} --chains 1"));
        let output = command
            .env("MORPHEUS_SOCKET", "/nonexistent")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("takeover: ") && said.contains("/nonexistent"),
            "{said}"
        );
    }
}

#[test]
fn no_chains_are_no_measurement() {
    for arguments in ["--chains 0", "--chain 0"] {
        assert_eq!(common::run(PROGRAM, arguments).status.code(), Some(2));
    }
}
