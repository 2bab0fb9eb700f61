//! Each program runs, has its fault, and ends as it is told.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use morpheus_patients::service::ABSENT;
use morpheus_patients::{CROWD, Fault, LABELLED, PATIENTS, Patient};
use morpheus_testing::skip;
use serde_json::Value;

/// The least time that a fault takes, of the CPU or asleep, in microseconds: five times a long poll.
const LEAST_US: u64 = 5_000;

/// One test at a time: they measure.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program(name: &str) -> &'static str {
    match name {
        "sleep" => env!("CARGO_BIN_EXE_patient-sleep"),
        "files" => env!("CARGO_BIN_EXE_patient-files"),
        "lookup" => env!("CARGO_BIN_EXE_patient-lookup"),
        "mutex" => env!("CARGO_BIN_EXE_patient-mutex"),
        "regex" => env!("CARGO_BIN_EXE_patient-regex"),
        "argon2" => env!("CARGO_BIN_EXE_patient-argon2"),
        "json" => env!("CARGO_BIN_EXE_patient-json"),
        "spin" => env!("CARGO_BIN_EXE_patient-spin"),
        "sqlite" => env!("CARGO_BIN_EXE_patient-sqlite"),
        "println" => env!("CARGO_BIN_EXE_patient-println"),
        "threads" => env!("CARGO_BIN_EXE_patient-threads"),
        "labelled" => env!("CARGO_BIN_EXE_patient-labelled"),
        "healthy" => env!("CARGO_BIN_EXE_patient-healthy"),
        "echo" => env!("CARGO_BIN_EXE_patient-echo"),
        _ => panic!("no program {name}"),
    }
}

fn run(name: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program(name));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The number behind `word` and the next one.
fn figure(line: &str, word: &str) -> u64 {
    let mut words = line.split_whitespace().skip_while(|next| *next != word);
    let figure = words.nth(2).unwrap().trim_end_matches(',');
    figure.parse().unwrap()
}

fn has_its_fault(patient: &Patient, arguments: &[&str]) {
    let name = patient.name;
    let output = run(name, &[&["--seconds", "3"], arguments].concat());
    let said = text(&output.stderr);
    if output.status.code() == Some(i32::from(ABSENT)) {
        assert!(said.lines().count() == 1 && said.contains("here"), "{said}");
        skip(said.trim_end());
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{name}: {said}");
    let (ready, line) = said.split_once('\n').unwrap();
    assert_eq!(ready, "ready", "{name}");
    let calls: u64 = line.split(' ').next().unwrap().parse().unwrap();
    // 20 a second are asked for; without optimization, and beside other tests, some take more than a second.
    let least = if cfg!(debug_assertions) { 2 } else { 8 };
    assert!(calls >= least, "{name}: {line}");
    let (length, cpu) = (figure(line, "length_us"), figure(line, "cpu_us"));
    let median_cpu: u64 = line.rsplit(' ').next().unwrap().trim_end().parse().unwrap();
    match patient.fault {
        Fault::Computing => assert!(cpu >= LEAST_US, "{name}: {line}"),
        Fault::Blocked => {
            assert!(length >= LEAST_US, "{name}: {line}");
            assert!(median_cpu <= length / 4, "{name} computes: {line}");
        }
    }
}

macro_rules! faults {
    ($($test:ident $name:literal $arguments:expr;)*) => {$(
        #[test]
        fn $test() {
            let _turn = turn();
            has_its_fault(Patient::named($name).unwrap(), $arguments);
        }
    )*};
}

faults! {
    sleep "sleep" &[];
    files "files" &[];
    lookup "lookup" &[];
    mutex "mutex" &[];
    regex "regex" &[];
    argon2 "argon2" &[];
    json "json" &[];
    spin "spin" &[];
    sqlite "sqlite" &[];
    println "println" &[];
    threads "threads" &["--threads", "1000"];
    labelled "labelled" &[];
    on_one_thread "sleep" &["--current-thread"];
    with_one_worker "println" &["--workers", "1"];
}

#[test]
fn every_patient_is_helpful() {
    for patient in PATIENTS.iter().chain([&CROWD, &LABELLED]) {
        let output = run(patient.name, &["--help"]);
        assert!(output.status.success());
        let help = text(&output.stdout);
        for word in [patient.about, patient.program, "--seconds", "Exit codes"] {
            assert!(help.contains(word), "{}: {help}", patient.name);
        }
        assert_eq!(
            run(patient.name, &["--workers", "0"]).status.code(),
            Some(2)
        );
        assert_eq!(
            run(patient.name, &["--seconds", "-1"]).status.code(),
            Some(2)
        );
    }
}

/// A program that serves, and the rest of what it says.
fn serving(name: &str, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(program(name))
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, said)
}

#[test]
fn a_program_ends_when_it_is_told() {
    let (mut child, _said) = serving("sleep", &[]);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (mut child, _said) = serving("sleep", &[]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_program_replaces_itself() {
    let (mut child, mut said) = serving("sleep", &["--exec-after", "0.5", "--workers", "1"]);
    // After the line about the calls at fault.
    let mut lines = String::new();
    while lines.lines().count() < 2 {
        assert_ne!(said.read_line(&mut lines).unwrap(), 0, "{lines}");
    }
    assert!(lines.ends_with("ready\n"), "{lines}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    said.read_to_string(&mut lines).unwrap();
}

/// The figures that a program without a fault prints.
fn figures(name: &str, arguments: &[&str]) -> Value {
    let output = run(name, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_healthy_one_has_its_rate() {
    let _turn = turn();
    for transport in [&[][..], &["--tcp"]] {
        let arguments = [&["--seconds", "2", "--rate", "5000"], transport].concat();
        let figures = figures("healthy", &arguments);
        let rate = figures["rate"].as_f64().unwrap();
        assert!((4_000.0..=5_100.0).contains(&rate), "{figures}");
    }
}

#[test]
fn the_loaded_one_measures() {
    let _turn = turn();
    let figures = figures("echo", &["--seconds", "1", "--warm-up", "0.5"]);
    let of = |name: &str| figures[name].as_f64().unwrap();
    assert!((0.9..1.5).contains(&of("seconds")), "{figures}");
    assert!(of("requests") > 100.0, "{figures}");
    assert!((of("rate") - of("requests") / of("seconds")).abs() < 1.0);
    assert!(0.0 < of("p50_ns") && of("p50_ns") <= of("p99_ns") && of("p99_ns") <= of("max_ns"));
}

#[test]
fn what_runs_beside_is_measured() {
    let _turn = turn();
    let short = [
        "--pairs",
        "3",
        "--window",
        "0.3",
        "--settle",
        "0.1",
        "--warm-up",
        "0.2",
    ];
    let figures = figures("echo", &[&["--beside", "sleep 60 #"], &short[..]].concat());
    let is_complete = |spread: &serde_json::Value| {
        assert_eq!(spread["values"].as_array().unwrap().len(), 3, "{figures}");
        let [low, median, high] =
            ["low", "median", "high"].map(|key| spread[key].as_f64().unwrap());
        assert!(low <= median && median <= high, "{figures}");
    };
    is_complete(&figures["cpus"]);
    for name in ["rate_ratio", "p99_ratio", "rate_noise", "p99_noise"] {
        is_complete(&figures["all_pairs"][name]);
    }
    let calm = figures["calm_pairs"]["pairs"].as_u64().unwrap() as usize;
    let values = figures["calm_pairs"]["rate_ratio"]["values"]
        .as_array()
        .unwrap();
    assert!(calm <= 3 && values.len() == calm, "{figures}");
    assert!(figures["rate_alone"].as_f64().unwrap() > 100.0, "{figures}");

    // A program that has ended costs nothing, and must not be taken for a cheap one.
    let output = run("echo", &[&["--beside", "true"], &short[..]].concat());
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("the other program ended too soon"), "{said}");
}
