// SPDX-License-Identifier: GPL-2.0-only
//! `morpheus-doctor --no-bpf` on processes whose fault is known: what a user finds who may not load BPF programs. Needs the programs of
//! `morpheus-patients` where cargo has put the doctor, or in the directory that `MORPHEUS_PATIENTS` names.

mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

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

/// Looks at a process for some seconds. Returns what is found, and what is said besides.
fn examined(process: &Process, seconds: &str, more: &[&str]) -> (Report, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_morpheus-doctor"))
        .args(more)
        .args(["--json", "--duration", seconds, "--pid"])
        .arg(process.pid().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    (serde_json::from_slice(&output.stdout).unwrap(), errors)
}

/// Looks at a process without BPF.
fn sampled(process: &Process) -> Report {
    let (report, errors) = examined(process, "4", &["--no-bpf"]);
    assert_eq!(errors, "", "it was asked for, and needs no word");
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

/// A hang that begins before the doctor's eyes is one event, though the stacks of sleeping threads are read meanwhile, too.
#[test]
fn a_hang_that_begins_later_counts_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_morpheus-doctor"))
        .args(["--json", "--duration", "14", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hangs", "--nocapture"])
        .env(HANGS, "4")
        .env(AFTER, "5")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // The process has the same standard output.
    let begins = output.stdout.iter().position(|&byte| byte == b'{').unwrap();
    let report: Report = serde_json::from_slice(&output.stdout[begins..]).unwrap();
    if report.method == Method::Proc {
        return skip("needs BPF: sampled, it is not known to be one poll");
    }
    let [finding] = &report.findings[..] else {
        panic!("{report:?}");
    };
    assert_eq!((finding.doing, finding.count), (Doing::Blocked, 2));
    // The park that follows is none of it, though nothing was known of parks until then.
    let expected = 3_900_000_000..5_000_000_000;
    assert!(expected.contains(&finding.longest_ns), "{finding:?}");
}

/// For how many seconds the process hangs that this is set for.
const HANGS: &str = "MORPHEUS_TEST_HANGS";
/// After how many seconds it builds its runtime, and hangs.
const AFTER: &str = "MORPHEUS_TEST_HANGS_AFTER";

/// Not a test: the process that hangs, with both workers of its runtime in a poll that waits.
#[test]
fn hangs() {
    #[inline(never)]
    fn waits(time: Duration) {
        static WAITING: AtomicU32 = AtomicU32::new(0);
        let (_sender, receiver) = mpsc::channel::<()>();
        if WAITING.fetch_add(1, Ordering::Relaxed) == 1 {
            // As the patients say it.
            eprintln!("ready");
        }
        let _ = receiver.recv_timeout(time);
    }
    let seconds = |name| -> Option<Duration> {
        let value = std::env::var(name).ok()?;
        Some(Duration::from_secs_f64(value.parse().unwrap()))
    };
    let Some(time) = seconds(HANGS) else {
        return;
    };
    // A doctor that is no relative may look, too, where Yama asks for one.
    // SAFETY: it takes a number.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    std::thread::sleep(seconds(AFTER).unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for _ in 0..2 {
        runtime.spawn(async move { waits(time) });
    }
    std::thread::sleep(Duration::from_secs(300));
}

/// The process that hangs, from now on for some seconds.
fn hung(seconds: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hangs", "--nocapture"]);
    command.env(HANGS, seconds);
    Process::spawn(command).unwrap()
}

/// Both polls of the process are one finding, and no worker served it meanwhile.
#[track_caller]
fn is_diagnosed(report: &Report) {
    let [finding] = &report.findings[..] else {
        panic!("{report:?}");
    };
    let culprit = &finding.stack.culprit().unwrap().function;
    assert!(culprit.ends_with("waits"), "{culprit}");
    assert_eq!((finding.doing, finding.count), (Doing::Blocked, 2));
    assert!(finding.longest_ns > 1_000_000_000, "{finding:?}");
    assert!(finding.unserved_ns > finding.longest_ns / 2, "{finding:?}");
}

/// Nothing happens in a service that hangs, and all that was of interest was over when the doctor came.
#[test]
fn a_service_that_hangs_is_diagnosed() {
    let hung = hung("300");
    is_diagnosed(&examined(&hung, "5", &["--no-bpf"]).0);
    is_diagnosed(&examined(&hung, "5", &[]).0);
}

/// Also one that ends while the doctor looks: by then the stack is another one.
#[test]
fn a_hang_that_ends_is_told() {
    let (report, _) = examined(&hung("20"), "24", &[]);
    match report.method {
        Method::Bpf => is_diagnosed(&report),
        Method::Proc => skip("needs BPF: sampled, it is not known to be one poll"),
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
