//! The binary as its users call it.

mod common;

use std::process::Output;

use morpheus_bench::latency::{Report, WIDTH};

const PROGRAM: &str = env!("CARGO_BIN_EXE_latency");

fn latency(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, arguments)
}

#[test]
fn operations_are_counted_with_and_without_checkpoints() {
    for with in ["", "--with-checkpoints --checkpoint-every 100 --pressure"] {
        let report = report(&format!(
            "--duration 0.5 --workers 2 --ops-per-second 200 {with}"
        ));
        let open = report.open.unwrap();
        assert_eq!(
            (report.bench.as_str(), open.asked_per_s),
            ("latency", 400.0)
        );
        // 200 in half a second.
        assert!((190..=260).contains(&open.asked), "{open:?}");
        assert!(
            open.operations > 0 && open.operations <= open.asked,
            "{open:?}"
        );
        assert_eq!(open.response_ns.n, open.asked);
        assert_eq!(open.service_ns.n, open.operations);
        assert!(open.response_ns.p50 >= open.service_ns.p50, "{open:?}");
        assert_eq!(report.with_checkpoints, !with.is_empty());
    }
}

/// Nobody computes 2 µs 16 million times a second: what is not reached has a reason, and counts.
#[test]
fn a_rate_beyond_the_machine_is_explained() {
    let report = report("--duration 0.1 --workers 16 --ops-per-second 1000000");
    let open = report.open.unwrap();
    assert!(open.ops_per_s < 0.9 * open.asked_per_s);
    assert!(open.why_not.unwrap().contains("needs"));
    assert!(open.response_ns.n > open.service_ns.n);
}

#[test]
fn pairs_have_a_verdict_and_few_have_none() {
    let pairs = report("--paired --pairs 12 --workers 1").cost.unwrap();
    assert_eq!((pairs.pairs.differences.len(), pairs.checkpoints), (12, 1));
    assert!(pairs.operation_ns > 100.0, "{pairs:?}");
    let few = String::from_utf8(latency("--paired --pairs 2 --workers 1").stdout).unwrap();
    assert!(
        few.contains("n too small: 2 pairs") && few.contains("undecided"),
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
    let expected = ["from the intended start", "that were asked for"];
    common::assert_table(&text, WIDTH, &expected);
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for tag in ["Tag=response,", "Tag=service,"] {
        assert!(log.contains(tag), "{log}");
    }
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [
        "--workers 0",
        "--ops-per-second 0",
        "--paired --with-checkpoints",
    ] {
        assert_eq!(latency(arguments).status.code(), Some(2), "{arguments}");
    }
}
