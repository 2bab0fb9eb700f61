//! The binary as its users call it. How long anything takes is the machine's affair and not judged here.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use morpheus_bench::cpus::{Cpus, allowed};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_overhead");

fn command(arguments: &str) -> Command {
    common::command(PROGRAM, arguments)
}

fn overhead(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn json(arguments: &str) -> Value {
    common::json(PROGRAM, arguments)
}

/// Runs it where only CPU `cpu` may be used.
fn on_one_cpu(cpu: usize, arguments: &str) -> Output {
    let mut command = command(arguments);
    let set = Cpus::of(&[cpu]);
    let pin = move || set.take();
    // SAFETY: `pin` makes one system call and allocates nothing.
    unsafe { command.pre_exec(pin) };
    command.output().unwrap()
}

fn error(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_preemption_is_divided_by_what_was_counted() {
    let report = json("preemption --experiments 8 --yields 50");
    assert_eq!(report["bench"], "overhead");
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "bench",
            "conditions",
            "experiments",
            "host",
            "interrupted",
            "preemption"
        ]
    );
    assert_eq!(report["conditions"]["cpus"].as_array().unwrap().len(), 1);
    let measured = &report["preemption"];
    assert_eq!(measured["yields"], 50);
    assert!(measured["switches_per_yield"].as_f64().unwrap() > 0.0);
    for figure in ["switch", "call"] {
        assert_eq!(measured[figure]["n"], 8);
        assert!(measured[figure]["min_ns"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(measured["net"]["interval_ns"].as_array().unwrap().len(), 2);
}

#[test]
fn policy_and_memory_are_said_and_refusals_noted() {
    let report = json("preemption --experiments 1 --yields 5");
    let conditions = &report["conditions"];
    let notes = conditions["notes"].to_string();
    match conditions["policy"].as_str().unwrap() {
        "SCHED_FIFO" => assert!(!notes.contains("No real-time priority"), "{notes}"),
        "SCHED_OTHER" => assert!(notes.contains("No real-time priority"), "{notes}"),
        other => panic!("{other}"),
    }
    let locked = conditions["memory_locked"].as_bool().unwrap();
    assert_eq!(locked, !notes.contains("not locked"), "{notes}");
    // One experiment is not enough for an interval.
    assert!(report["preemption"]["net"]["interval_ns"].is_null());
}

#[test]
fn a_migration_has_its_null_call_and_its_parts() {
    let [from, to, ..] = allowed()[..] else {
        return morpheus_testing::skip("needs two CPUs");
    };
    let report = json(&format!("migration --experiments 8 --cpus {to},{from}"));
    assert_eq!(
        report["conditions"]["cpus"].to_string(),
        format!("[{to},{from}]")
    );
    let measured = &report["migration"];
    for figure in [
        "call",
        "to_idle",
        "to_awake",
        "net_to_idle",
        "net_to_awake",
        "same_idle",
        "same_awake",
    ] {
        assert_eq!(measured[figure]["n"], 8, "{figure}");
    }
    let parts = measured["parts"].as_object().unwrap();
    assert_eq!(parts.len(), 5);
    for part in parts.values().filter(|part| !part.is_null()) {
        assert!(part["min_ns"].as_f64().unwrap() >= 0.0);
    }
}

#[test]
fn a_cache_has_every_way_for_every_size() {
    if allowed().len() < 2 {
        return morpheus_testing::skip("needs two CPUs");
    }
    let report = json("cache --experiments 6 --sizes 8,300 --seed 9");
    let measured = &report["cache"];
    assert_eq!(measured["seed"], 9);
    let line_bytes = measured["geometry"]["line_bytes"].as_u64().unwrap();
    let sizes = measured["sizes"].as_array().unwrap();
    let bytes: Vec<u64> = sizes
        .iter()
        .map(|size| size["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(bytes, [8 << 10, 300 << 10]);
    for size in sizes {
        let lines = size["lines"].as_u64().unwrap();
        assert_eq!(lines, size["bytes"].as_u64().unwrap() / line_bytes);
        for figure in [
            "walk",
            "control",
            "refill",
            "same",
            "second",
            "linear",
            "read_only",
        ] {
            assert_eq!(size[figure]["n"], 6, "{figure}");
        }
        let whole = size["refill"]["median_ns"].as_f64().unwrap();
        let line = size["refill_of_line"]["median_ns"].as_f64().unwrap();
        assert!((whole - line * lines as f64).abs() <= 1e-6 * whole.abs().max(1.0));
    }
}

#[test]
fn people_get_the_table_of_the_source() {
    let output = overhead("preemption --experiments 6 --yields 20");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for word in [
        "minimum",
        "maximum",
        "average",
        "median",
        "95 % interval",
        "A/A",
        "context switches were counted",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= morpheus_bench::overhead::WIDTH, "{text}");
    if allowed().len() > 1 {
        let output = overhead("cache --experiments 6 --sizes 8,128");
        let text = String::from_utf8(output.stdout).unwrap();
        for word in [
            "minimum",
            "refill a line",
            "linear",
            "read only",
            "2nd method",
            "Past L1",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= morpheus_bench::overhead::WIDTH, "{text}");
    }
}

#[test]
fn one_cpu_is_a_clear_refusal_but_for_a_preemption() {
    let cpu = allowed()[0];
    for what in ["migration", "cache"] {
        let error = error(&on_one_cpu(cpu, what), 1);
        assert!(
            error.contains(&format!("{what} needs 2 CPUs")) && error.contains("may use 1"),
            "{error}"
        );
    }
    let output = on_one_cpu(cpu, "preemption --experiments 2 --yields 10");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn cpus_that_cannot_be_used_are_refused() {
    let message = error(&overhead("preemption --cpus 999999"), 1);
    assert!(
        message.contains("CPU 999999 is not among those"),
        "{message}"
    );
    if let [a, b, ..] = allowed()[..] {
        let message = error(&overhead(&format!("preemption --cpus {a},{b}")), 1);
        assert!(message.contains("takes one CPU"), "{message}");
        for cpus in [format!("{a}"), format!("{a},{a}")] {
            let message = error(&overhead(&format!("migration --cpus {cpus}")), 1);
            assert!(message.contains("two different CPUs"), "{message}");
        }
    }
}

#[test]
fn ctrl_c_ends_it_early_and_what_was_measured_is_shown() {
    // More than a start takes, and far less than all of it.
    let after = Duration::from_millis(700);
    let arguments = "preemption --experiments 100000 --yields 1000";
    let report: Value = common::json_of_interrupted(PROGRAM, arguments, after);
    assert_eq!(report["interrupted"], true);
}

#[test]
fn a_histogram_log_has_a_line_for_each_kind() {
    let path = std::env::temp_dir().join(format!("overhead-{}.hlog", std::process::id()));
    let line = format!(
        "preemption --experiments 3 --yields 5 --json --histogram {}",
        path.display()
    );
    let output = overhead(&line);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warmup = &report["preemption"]["warmup"];
    assert!((15..=50).contains(&warmup["experiments"].as_u64().unwrap()));
    assert!(warmup["settled"].is_boolean(), "{warmup}");
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for tag in ["Tag=switch,", "Tag=yield,"] {
        assert!(log.contains(tag), "{log}");
    }
    let refused = overhead("preemption --experiments 1 --yields 5 --histogram /nowhere/file");
    assert!(error(&refused, 1).contains("/nowhere/file cannot be written"));
}
