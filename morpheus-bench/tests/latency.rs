//! The binary as its users call it.

mod common;

use std::process::Output;

use common::{Found, median};
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_latency");

fn latency(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    let found: Found = common::json(PROGRAM, arguments);
    assert!(found.failed.is_empty(), "{found:?}");
    found
}

const RESPONSE: &str = "response time, from the intended start";
const SERVICE: &str = "service time, raw";

#[test]
fn operations_are_counted_with_and_without_checkpoints() {
    for with in ["", "--with-checkpoints --checkpoint-every 100 --pressure"] {
        let found = found(&format!(
            "--duration 0.5 --workers 2 --ops-per-second 200 {with}"
        ));
        let response = |figure: &str| median(&found, RESPONSE, figure);
        assert_eq!(
            (found.bench.as_str(), response("asked for/s")),
            ("latency", 400.0)
        );
        // 200 in half a second.
        let asked = response("samples");
        assert!((190.0..=260.0).contains(&asked), "{found:?}");
        let done = median(&found, SERVICE, "samples");
        assert!(done > 0.0 && done <= asked, "{found:?}");
        assert!(
            response("time p50") >= median(&found, SERVICE, "time p50"),
            "{found:?}"
        );
        assert_eq!(found.config["with_checkpoints"], !with.is_empty());
    }
}

/// No machine computes 2 µs 16 million times a second: what is not reached has a reason, and counts.
#[test]
fn a_rate_beyond_the_machine_is_explained() {
    let found = found("--duration 0.1 --workers 16 --ops-per-second 1000000");
    let response = |figure: &str| median(&found, RESPONSE, figure);
    assert!(response("reached/s") < 0.9 * response("asked for/s"));
    assert!(found.notes[0].contains("needs"), "{found:?}");
    assert!(response("samples") > median(&found, SERVICE, "samples"));
}

#[test]
fn pairs_have_a_verdict_and_few_have_none() {
    let found = found("--paired --pairs 12 --workers 1");
    let ratio = found.rows[1].ratio.as_ref().unwrap();
    assert_eq!(ratio.pairs.differences.len(), 12);
    assert!(found.notes[0].contains("passes 1 checkpoints"), "{found:?}");
    assert!(
        median(&found, "without checkpoints", "CPU time") > 100.0,
        "{found:?}"
    );
    let few = String::from_utf8(latency("--paired --pairs 2 --workers 1").stdout).unwrap();
    assert!(
        few.contains("n too small") && few.contains("undecided"),
        "{few}"
    );
}

#[test]
fn people_get_a_table_and_a_log() {
    let path = std::env::temp_dir().join(format!("latency-{}.hlog", std::process::id()));
    let line = format!(
        "--duration 0.2 --workers 1 --ops-per-second 100 --histogram {}",
        path.display()
    );
    let text = String::from_utf8(latency(&line).stdout).unwrap();
    let expected = ["from the intended start", "asked for"];
    common::assert_table(&text, WIDTH, &expected);
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for tag in ["Tag=response,", "Tag=service,"] {
        assert!(log.contains(tag), "{log}");
    }
}
