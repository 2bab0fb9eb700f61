// SPDX-License-Identifier: GPL-2.0-only
//! `morpheus-doctor --no-bpf` on processes whose fault is known: what a user finds who may not load BPF programs. Needs the programs of
//! `morpheus-patients` where cargo has put the doctor, or in the directory that `MORPHEUS_PATIENTS` names.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use common::patient::{Process, built, doing, is_at};
use morpheus_doctor::model::{Doing, Finding, Method, Report};
use morpheus_patients::{CULPRIT, Fault, Patient};
use morpheus_testing::{skip, skip_unless_required};

/// The file of a patient. None, and said so, where it is not built.
fn file_of(program: &str) -> Option<PathBuf> {
    let file = built(program);
    if !file.exists() {
        let reason = format!("needs {}: cargo build -p morpheus-patients", file.display());
        skip_unless_required(reason, "MORPHEUS_REQUIRE_PATIENTS");
        return None;
    }
    Some(file)
}

/// A patient that serves. None, and said so, where there is none.
fn start(program: &str) -> Option<Process> {
    let file = file_of(program)?;
    let process = Process::start(&file, &[]);
    if process.is_none() {
        skip(format!("{program} has no fault here"));
    }
    process
}

/// Looks at a process without BPF.
fn sampled(process: &Process) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_morpheus-doctor"))
        .args(["--no-bpf", "--json", "--duration", "4", "--pid"])
        .arg(process.pid().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "it was asked for, and needs no word");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.method, Method::Proc);
    assert!(
        report.notes[0].contains("Without BPF"),
        "{:?}",
        report.notes
    );
    report
}

fn is_at_fault(finding: &Finding, patient: &Patient) -> bool {
    let culprit = finding.stack.culprit();
    culprit.is_some_and(|frame| is_at(frame, patient, CULPRIT))
}

/// The fault of a patient is among what is found, and first if nothing suffers from it.
fn is_found(name: &str) {
    // On a full machine samples are far apart, and a program that is not optimized fills one.
    if cfg!(debug_assertions) {
        skip("needs optimized programs: cargo test --release -p morpheus-bpf --test sampler");
        return;
    }
    let patient = Patient::named(name).unwrap();
    let Some(process) = start(patient.program) else {
        return;
    };
    let report = sampled(&process);
    let lacks_stacks = report
        .notes
        .iter()
        .any(|note| note.contains("perf_event_paranoid"));
    if lacks_stacks && patient.fault == Fault::Computing {
        skip("needs perf events of the same user (kernel.perf_event_paranoid of at most 2)");
        return;
    }
    let found = report.findings.iter();
    let place = found.clone().position(|one| is_at_fault(one, patient));
    let Some(place) = place else {
        let lines: Vec<_> = found.map(Finding::place).collect();
        panic!("{name}: found {lines:?}; {:?}", report.notes);
    };
    // Of a lock the wait may come first.
    assert!(place == 0 || name == "mutex" && place == 1, "{place}");
    let finding = &report.findings[place];
    assert_eq!(finding.doing, doing(patient.fault));
    assert!(finding.count >= 3, "{finding:?}");
    assert_eq!(report.runtimes.len(), 1);
    assert_eq!(report.runtimes[0].workers.len(), 2);
}

/// A script waits for something, and becomes the service then. It is neither given up nor ended.
#[test]
fn a_service_that_a_script_becomes_later_is_looked_at() {
    let Some(file) = file_of("patient-sleep") else {
        return;
    };
    let script = format!("sleep 2; exec '{}' >/dev/null", file.display());
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_morpheus-doctor"))
        .args(["--no-bpf", "--json", "--duration", "7", "--", "sh", "-c"])
        .arg(script)
        // The patient ends when its input does.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = doctor.stdin.take();
    let output = doctor.wait_with_output().unwrap();
    drop(input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("does not use tokio yet"), "{errors}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.runtimes.len(), 1, "{:?}", report.notes);
    assert_eq!(report.ended, "the time was over");
    assert!(!report.findings.is_empty(), "{:?}", report.notes);
}

/// Set for the process that hangs.
const HANGS: &str = "MORPHEUS_TEST_HANGS";

/// Workers of a runtime that wait for ever.
fn hang() {
    #[inline(never)]
    fn waits_for_ever() {
        let (_sender, receiver) = mpsc::channel::<()>();
        println!("waits");
        let _ = receiver.recv();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for _ in 0..2 {
        runtime.spawn(async { waits_for_ever() });
    }
    std::thread::sleep(std::time::Duration::from_secs(300));
}

/// Nothing happens in a service that hangs, and all that was of interest was over when the doctor came.
#[test]
fn a_service_that_hangs_is_diagnosed() {
    if std::env::var_os(HANGS).is_some() {
        return hang();
    }
    let mut service = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_service_that_hangs_is_diagnosed",
            "--nocapture",
        ])
        .env(HANGS, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(service.stdout.take().unwrap()).lines();
    let waits = lines.filter(|line| line.as_ref().is_ok_and(|line| line.ends_with("waits")));
    assert_eq!(waits.take(2).count(), 2);
    let reports = [&["--no-bpf"][..], &[]].map(|method| {
        let output = Command::new(env!("CARGO_BIN_EXE_morpheus-doctor"))
            .args(method)
            .args(["--json", "--duration", "2", "--pid"])
            .arg(service.id().to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout)
    });
    service.kill().unwrap();
    service.wait().unwrap();
    for report in reports {
        let report: Report = report.unwrap();
        let [finding] = &report.findings[..] else {
            panic!("{report:?}");
        };
        let culprit = &finding.stack.culprit().unwrap().function;
        assert!(culprit.ends_with("waits_for_ever"), "{culprit}");
        assert_eq!((finding.doing, finding.count), (Doing::Blocked, 2));
        assert!(finding.unserved_ns > report.length_ns / 3, "{finding:?}");
    }
}

#[test]
fn a_sleep_is_found() {
    is_found("sleep");
}

#[test]
fn a_full_pipe_is_found() {
    is_found("println");
}

#[test]
fn a_held_lock_is_found() {
    is_found("mutex");
}

#[test]
fn a_loop_is_found() {
    is_found("spin");
}

#[test]
fn a_hash_is_found() {
    is_found("argon2");
}
