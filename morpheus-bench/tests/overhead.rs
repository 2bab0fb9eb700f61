//! The binary as its users call it. How long anything takes is the machine's affair and not judged here.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use morpheus_bench::cpus::{Cpus, allowed};
use morpheus_harness::report::WIDTH;

use common::Found;

const PROGRAM: &str = env!("CARGO_BIN_EXE_overhead");

fn command(arguments: &str) -> Command {
    common::command(PROGRAM, arguments)
}

fn overhead(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn json(arguments: &str) -> Found {
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
    let found = json("preemption --experiments 8 --yields 50");
    assert_eq!(found.bench, "overhead");
    assert_eq!(found.config["cpus"].as_array().unwrap().len(), 1);
    assert_eq!(found.config["cost"], "preemption");
    assert_eq!(found.config["yields"], 50);
    assert!(common::median(&found, "a preemption", "switches a yield") > 0.0);
    for cost in ["a switch, with the call", "sched_yield alone"] {
        let row = common::row(&found, cost, "time").unwrap();
        assert_eq!(row.n, 8);
        assert!(row.rounds.iter().all(|ns| *ns > 0.0), "{row:?}");
    }
    let net = common::row(&found, "the switch alone", "time").unwrap();
    assert!(net.low.is_some() && net.high.is_some(), "{net:?}");
    assert!(net.limit.is_some() && net.judged.is_some(), "{net:?}");
    let warmup = common::median(&found, "a preemption", "warm-up");
    assert!((15.0..=50.0).contains(&warmup), "{warmup}");
}

#[test]
fn policy_and_memory_are_said_and_refusals_noted() {
    let found = json("preemption --experiments 1 --yields 5");
    let notes = found.notes.join(" ");
    match found.config["policy"].as_str().unwrap() {
        "SCHED_FIFO" => assert!(!notes.contains("No real-time priority"), "{notes}"),
        "SCHED_OTHER" => assert!(notes.contains("No real-time priority"), "{notes}"),
        other => panic!("{other}"),
    }
    let locked = found.config["memory_locked"].as_bool().unwrap();
    assert_eq!(locked, !notes.contains("not locked"), "{notes}");
    // One experiment is not enough for an interval, or for a verdict.
    let net = common::row(&found, "the switch alone", "time").unwrap();
    assert!(net.low.is_none() && net.judged.is_none(), "{net:?}");
}

#[test]
fn a_migration_has_its_null_call_and_its_parts() {
    let [from, to, ..] = allowed()[..] else {
        return morpheus_testing::skip("needs two CPUs");
    };
    let found = json(&format!("migration --experiments 8 --cpus {to},{from}"));
    assert_eq!(found.config["cpus"].to_string(), format!("[{to},{from}]"));
    let rows = |case: &'static str| found.rows.iter().filter(move |row| row.case == case);
    assert_eq!(rows("a migration").count(), 7);
    assert!(rows("a migration").all(|row| row.n == 8), "{found:?}");
    assert_eq!(
        rows("a migration")
            .filter(|row| row.limit.is_some())
            .count(),
        2
    );
    assert!((2..=5).contains(&rows("where the time goes").count()));
    for part in rows("where the time goes") {
        assert!(part.rounds.iter().all(|ns| *ns >= 0.0), "{part:?}");
    }
}

#[test]
fn a_cache_has_every_way_for_every_size() {
    if allowed().len() < 2 {
        return morpheus_testing::skip("needs two CPUs");
    }
    let found = json("cache --experiments 6 --sizes 8,300 --seed 9");
    assert_eq!(found.config["seed"], 9);
    let line_bytes = found.config["line_bytes"].as_f64().unwrap();
    for (name, bytes) in [("8 KiB", 8 << 10), ("300 KiB", 300 << 10)] {
        let lines = common::median(&found, name, "lines");
        assert_eq!(lines, (f64::from(bytes) / line_bytes).floor());
        for figure in [
            "time",
            "random cycle",
            "A/A",
            "2nd method",
            "linear",
            "read only",
            "own lines",
            "the walk",
        ] {
            assert_eq!(common::row(&found, name, figure).unwrap().n, 6, "{figure}");
        }
        let [whole, line] = ["time", "random cycle"].map(|of| common::median(&found, name, of));
        assert!((whole - line * lines).abs() <= 1e-6 * whole.abs().max(1.0));
    }
}

#[test]
fn people_get_the_table_of_the_source() {
    let table = |arguments: &str, expected: &[&str]| {
        let output = overhead(arguments);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        common::assert_table(&text, WIDTH, expected);
    };
    let heads = ["minimum", "maximum", "average", "95 % interval", "A/A"];
    table("preemption --experiments 6 --yields 20", &heads);
    table(
        "preemption --experiments 2 --yields 20",
        &["medians", "n too small", "context switches were counted"],
    );
    if allowed().len() > 1 {
        let words = ["refill a line", "linear", "read only", "2nd method"];
        let all: Vec<&str> = heads.into_iter().chain(words).collect();
        table("cache --experiments 6 --sizes 8,128", &all);
        let small = ["No size past L1"];
        table("cache --experiments 6 --sizes 1", &small);
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
    // More than a start and the warm-up take, and far less than all of it.
    let after = Duration::from_secs(3);
    let arguments = "preemption --experiments 100000 --yields 1000";
    let found: Found = common::json_of_interrupted(PROGRAM, arguments, after);
    assert!(found.interrupted && found.failed.is_empty(), "{found:?}");
    assert!(common::median(&found, "the switch alone", "time") > 0.0);
}

#[test]
fn a_histogram_log_has_a_line_for_each_kind() {
    let path = std::env::temp_dir().join(format!("overhead-{}.hlog", std::process::id()));
    let line = format!(
        "preemption --experiments 3 --yields 5 --histogram {}",
        path.display()
    );
    let output = overhead(&line);
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for tag in ["Tag=switch,", "Tag=yield,"] {
        assert!(log.contains(tag), "{log}");
    }
    let refused = overhead("preemption --experiments 1 --yields 5 --histogram /nowhere/file");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let text = String::from_utf8(refused.stdout).unwrap();
    for expected in ["/nowhere/file cannot be written", "the switch alone"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
