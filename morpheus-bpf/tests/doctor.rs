// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus doctor` on processes whose fault is known, and on those that it cannot help. Needs root and a kernel with BTF.
//!
//! The processes are the programs of `morpheus-patients`: in the directory that `MORPHEUS_PATIENTS` names, in a guest in the path,
//! and else where cargo has put the daemon. A release build shows what the doctor makes of optimized code:
//! `cargo build --release -p morpheus-patients`.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::daemon::program;
use common::patient::{Process, built, doing, is_at};
use common::{in_guest, say, turn, window};
use libbpf_rs::query::ProgInfoIter;
use morpheus_doctor::model::{
    Doing, Finding, Flavor, Frame, LongPoll, Method, Report, Stack, Wait,
};
use morpheus_patients::{CROWD, CULPRIT, Fault, LABELLED, PATIENTS, Patient, VICTIM};
use morpheus_testing::{skip, skip_unless_required, wait_for};
use object::{Object, ObjectSymbol};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The user without rights.
const NOBODY: u32 = 65534;
/// Whether the tests can run here; where not, it says so loudly.
fn can_run() -> bool {
    if !common::can_run() {
        return false;
    }
    let patient = built("patient-sleep");
    if in_guest() || patient.exists() {
        return true;
    }
    skip_unless_required(
        format!(
            "needs {}: cargo build{} -p morpheus-patients",
            patient.display(),
            if cfg!(debug_assertions) {
                ""
            } else {
                " --release"
            }
        ),
        "MORPHEUS_REQUIRE_BPF",
    );
    false
}

/// The numbers of all BPF programs of this system.
fn bpf_programs() -> BTreeSet<u32> {
    ProgInfoIter::default().map(|program| program.id).collect()
}

/// Checks when dropped that there are no more BPF programs than when it was made. Only a guest has no others that come and go.
struct NothingLeft(Option<BTreeSet<u32>>);

impl NothingLeft {
    fn behind() -> NothingLeft {
        NothingLeft(in_guest().then(bpf_programs))
    }
}

impl Drop for NothingLeft {
    fn drop(&mut self) {
        if let (Some(before), false) = (&self.0, thread::panicking()) {
            wait_for("BPF programs are left behind", || {
                bpf_programs().is_subset(before)
            });
        }
    }
}

// --------------------------------------------------------------------------------------------------------- the doctor

fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("doctor").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    doctor(arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// The report of a run that has one.
fn report(output: &Output) -> Result<Report, String> {
    if output.status.code() != Some(0) {
        return Err(format!("{}: {}", output.status, errors(output)));
    }
    let report: Report =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("no report: {error}"))?;
    // A thread computes or sleeps, and never more than the poll is long. Samples have lengths that are right to their period.
    let is_longer = |poll: &&LongPoll| poll.cpu_ns + poll.blocked_ns > poll.length_ns;
    match report.polls.iter().find(is_longer) {
        Some(poll) if report.method == Method::Bpf => {
            Err(format!("more than its length: {poll:?}"))
        }
        _ => Ok(report),
    }
}

/// Looks at a process for some seconds.
fn examined(pid: u32, seconds: u64) -> Result<Report, String> {
    examined_with(pid, seconds, &[])
}

/// Does the same with more arguments.
fn examined_with(pid: u32, seconds: u64, more: &[&str]) -> Result<Report, String> {
    let (pid, seconds) = (pid.to_string(), seconds.to_string());
    let arguments = ["--pid", &pid, "--duration", &seconds, "--json"];
    report(&run(&[&arguments, more].concat()))
}

/// Checks that a run had no report: one sentence says why, in which all of `words` are.
#[track_caller]
fn has_failed(output: &Output, code: i32, words: &[&str]) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.len() > 20 && !said.contains("panicked"), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

// ------------------------------------------------------------------------------------------------------- the diagnosis

/// The names of lines and functions that are left in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// As cargo makes it: line tables and symbols.
    LineTables,
    /// Symbols alone: `strip --strip-debug`.
    Symbols,
    /// Neither: `strip`.
    Stripped,
}

impl Build {
    /// A copy of a program, or the program itself.
    fn of(self, file: &Path, directory: &TempDir) -> PathBuf {
        let (option, is_gone): (_, fn(&str) -> bool) = match self {
            Build::LineTables => return file.to_owned(),
            Build::Symbols => ("--strip-debug", |name| name.starts_with(".debug")),
            Build::Stripped => ("--strip-all", |name| {
                name.starts_with(".debug") || [".symtab", ".strtab"].contains(&name)
            }),
        };
        let copy = directory.path().join(file.file_name().unwrap());
        let strip = Command::new("strip")
            .arg(option)
            .arg("-o")
            .arg(&copy)
            .arg(file)
            .status();
        if !strip.is_ok_and(|status| status.success()) {
            // A guest has no binutils.
            fs::write(&copy, without(fs::read(file).unwrap(), is_gone)).unwrap();
        }
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        copy
    }
}

/// An ELF file of 64 bits and this machine's byte order, with the headers of some sections made empty, so that nothing finds the
/// sections any more.
fn without(mut elf: Vec<u8>, is_gone: impl Fn(&str) -> bool) -> Vec<u8> {
    let number = |elf: &[u8], at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&elf[at..at + length]);
        u64::from_le_bytes(bytes) as usize
    };
    let (headers, size) = (number(&elf, 0x28, 8), number(&elf, 0x3a, 2));
    let (count, of_names) = (number(&elf, 0x3c, 2), number(&elf, 0x3e, 2));
    let names = number(&elf, headers + of_names * size + 24, 8);
    for header in (0..count).map(|index| headers + index * size) {
        let name = &elf[names + number(&elf, header, 4)..];
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        if is_gone(std::str::from_utf8(&name[..end]).unwrap()) {
            elf[header..header + size].fill(0);
        }
    }
    elf
}

/// Whether the culprit is in the function of this name: it, or a closure that was inlined into it and has no name of its own.
fn is_in_function(stack: &Stack, function: &str) -> bool {
    let mut frames = stack
        .frames
        .iter()
        .skip(stack.culprit.unwrap_or(usize::MAX));
    // The inlined frames, and the first that is none: the function that has a symbol.
    loop {
        match frames.next() {
            Some(frame) if frame.function.contains(function) => return true,
            Some(frame) if frame.inlined => {}
            _ => return false,
        }
    }
}

/// How many workers each runtime has.
fn workers_of(report: &Report) -> Vec<usize> {
    let runtimes = report.runtimes.iter();
    runtimes.map(|runtime| runtime.workers.len()).collect()
}

/// The symbol of a program that an address belongs to.
fn symbol_at(file: &Path, address: u64) -> String {
    let bytes = fs::read(file).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let inside = |symbol: &object::Symbol<'_, '_>| {
        let from = symbol.address();
        (from..from + symbol.size()).contains(&address)
    };
    let symbol = elf.symbols().find(inside);
    let name = symbol.and_then(|symbol| symbol.name().ok().map(str::to_owned));
    name.unwrap_or_else(|| "no symbol".to_owned())
}

/// The finding that has to be the planted fault's: the first. Where patients are not optimized, a poll of their own traffic may rank
/// before it when the whole machine is taken away for a moment; then the first in the fault's function, if there is one.
fn worst_of<'a>(report: &'a Report, patient: &Patient) -> Option<&'a Finding> {
    let is_fault = |finding: &&Finding| is_in_function(&finding.stack, patient.function);
    let of_fault = report.findings.iter().find(is_fault);
    of_fault
        .filter(|_| !are_patients_optimized())
        .or(report.findings.first())
}

/// Checks the worst finding of a report against the fault that was planted.
fn is_right(
    report: &Report,
    patient: &Patient,
    build: Build,
    original: &Path,
) -> Result<(), String> {
    let Some(first) = worst_of(report, patient) else {
        return Err(format!("nothing was found; {:?}", report.notes));
    };
    let frame = first
        .stack
        .culprit()
        .ok_or_else(|| format!("no culprit in {:?}", first.stack))?;
    let place = first.place();
    if build == Build::Stripped {
        let module = original.file_name().unwrap().to_string_lossy();
        if frame.module != module {
            return Err(format!("the culprit is in {}: {place}", frame.module));
        }
        // The innermost function that can be told to be the application's: that of the fault, the one that calls it (an `async fn`,
        // which always may panic), or a generic function of a library that was compiled with the application.
        let symbol = symbol_at(original, frame.address);
        say(&format!("{}: {place}, in {symbol}", patient.name));
        let in_function = |frame: &Frame| {
            frame.module == module && symbol_at(original, frame.address).contains(patient.function)
        };
        if !first.stack.frames.iter().any(in_function) {
            return Err(format!("{} is not on the stack: {place}", patient.function));
        }
    } else if !is_in_function(&first.stack, patient.function) {
        return Err(format!("the function is not {}: {place}", patient.function));
    }
    if build == Build::LineTables && !is_at(frame, patient, CULPRIT) {
        return Err(format!(
            "the line is not {:?}: {place}",
            patient.line_with(CULPRIT)
        ));
    }
    if first.doing != doing(patient.fault) {
        return Err(format!("{:?}: {place}", first.doing));
    }
    let tells = |note: &String| note.contains("line-tables-only");
    if build != Build::LineTables && !report.notes.iter().any(tells) {
        return Err(format!(
            "nothing says how to have lines: {:?}",
            report.notes
        ));
    }
    Ok(())
}

/// Looks at a patient in one build, and checks what is said of it. `None` if its fault cannot be had here.
fn diagnose(patient: &Patient, build: Build, arguments: &[&str]) -> Option<Result<Report, String>> {
    let directory = tempfile::tempdir().unwrap();
    let original = built(patient.program);
    let process = Process::start(&build.of(&original, &directory), arguments)?;
    // An emulated CPU is some twenty times as slow, and the count of polls is found later.
    let seconds = if in_guest() { 8 } else { 3 };
    let report = match examined(process.pid(), seconds) {
        Ok(report) => report,
        Err(error) => return Some(Err(error)),
    };
    let right = is_right(&report, patient, build, &original);
    let right = right.and_then(|()| process.ends_unharmed());
    Some(right.map(|()| report))
}

/// The promises are for release builds. Others inline nothing, so that their stacks have another form, and a poll of theirs is long on a
/// full machine.
fn are_patients_optimized() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("MORPHEUS_PATIENTS").is_some()
}

/// The same; says so where they are not.
fn is_optimized() -> bool {
    let is_optimized = are_patients_optimized();
    if !is_optimized {
        skip(
            "needs optimized programs: cargo build --release -p morpheus-bpf -p morpheus-patients, then cargo test --release \
             -p morpheus-bpf --test doctor",
        );
    }
    is_optimized
}

/// Looks at all patients in one build.
fn diagnose_all(build: Build) {
    if !can_run() {
        return;
    }
    if !is_optimized() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    let (mut right, mut wrong) = (0, Vec::new());
    for patient in PATIENTS {
        match diagnose(patient, build, &[]) {
            Some(Ok(_)) => right += 1,
            Some(Err(error)) => wrong.push(format!("{}: {error}", patient.name)),
            None => say(&format!("{} has no fault here", patient.name)),
        }
    }
    say(&format!(
        "{build:?}: {right} of {} are right",
        PATIENTS.len()
    ));
    assert!(wrong.is_empty(), "{build:?}:\n{}", wrong.join("\n"));
    // One may have no fault here: `lookup`, where there are no namespaces.
    assert!(right >= PATIENTS.len() - 1);
}

#[test]
fn the_line_is_named() {
    diagnose_all(Build::LineTables);
}

#[test]
fn the_function_is_named_without_debug_information() {
    diagnose_all(Build::Symbols);
}

#[test]
fn the_address_is_named_in_a_stripped_program() {
    diagnose_all(Build::Stripped);
}

#[test]
fn a_runtime_of_one_thread_is_diagnosed() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for name in ["sleep", "spin"] {
        let patient = Patient::named(name).unwrap();
        let report = diagnose(patient, Build::LineTables, &["--current-thread"]);
        let report = report
            .unwrap()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(report.runtimes.len(), 1, "{name}: {:?}", report.runtimes);
        assert_eq!(report.runtimes[0].flavor, Flavor::CurrentThread, "{name}");
        // There is one worker, so that all the time of its long polls is unserved.
        let first = &report.findings[0];
        assert!(first.unserved_ns >= first.total_ns / 2, "{name}: {first:?}");
    }
}

/// From the oldest that the doctor knows; between them tokio's functions, and what compilers inline of them, have changed.
const VERSIONS: [&str; 7] = [
    "1.20.6", "1.24.2", "1.28.2", "1.32.1", "1.38.2", "1.44.2", "1.50.0",
];

/// Other ways to compile, for the oldest and the newest of these: what is inlined, and what unwinds, differs.
const PROFILES: [&str; 3] = [
    "lto = \"fat\"\ncodegen-units = 1\npanic = \"abort\"\n",
    "opt-level = 1\n",
    "opt-level = 0\n",
];

/// A program with a version of tokio, compiled in this way, with line tables. It has all of tokio's features, as most programs have:
/// they change the layout of what the doctor reads.
fn with_tokio(version: &str, profile: &str, directory: &Path) -> PathBuf {
    let package = directory.join(version);
    fs::create_dir_all(&package).unwrap();
    let source = include_str!("programs/any_tokio.rs");
    fs::write(package.join("main.rs"), source).unwrap();
    let manifest = format!(
        "[package]\nname = \"any-tokio\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[[bin]]\nname = \"any-tokio\"\n\
         path = \"main.rs\"\n\n[dependencies]\ntokio = {{ version = \"={version}\", features = [\"full\"] }}\n\n[profile.release]\n\
         debug = \"line-tables-only\"\n{profile}\n[workspace]\n"
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", package.join("target"))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{version}");
    package.join("target/release/any-tokio")
}

/// Looks at a program with one of the two faults, and checks the first finding.
fn is_known(file: &Path, original: &Path, fault: Fault, form: &str) -> Result<(), String> {
    let function = match fault {
        Fault::Computing => "computes",
        Fault::Blocked => "blocks",
    };
    let process = Process::start(file, &[function, form]).ok_or("it did not start")?;
    let report = examined(process.pid(), 3)?;
    let first = report.findings.first().ok_or("nothing was found")?;
    let in_function = |frame: &Frame| {
        Path::new(&frame.module).file_name() == file.file_name()
            && symbol_at(original, frame.address).contains(function)
    };
    let has_function = |finding: &&Finding| finding.stack.frames.iter().any(in_function);
    let workers = if form == "several" { 2 } else { 1 };
    // Where nothing is inlined and no function has a name, what the function calls may be findings of their own.
    let with_function = report.findings.iter().filter(has_function);
    let polls: u64 = with_function.map(|finding| finding.count).sum();
    // There are some 55; a slow machine has fewer.
    let is_right = first.doing == doing(fault)
        && has_function(&first)
        && polls >= 20
        && workers_of(&report) == [workers];
    match is_right {
        true => process.ends_unharmed(),
        false => Err(format!("{:?}: {first:?}", report.runtimes)),
    }
}

#[test]
#[ignore = "builds 13 programs with seven versions of tokio: cargo xtask test --all"]
fn each_version_of_tokio_is_known() {
    // It builds its programs itself.
    if !common::can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let usual = VERSIONS.map(|version| (version, ""));
    let ends = [VERSIONS[0], VERSIONS[VERSIONS.len() - 1]];
    let others = PROFILES
        .into_iter()
        .flat_map(|profile| ends.map(|version| (version, profile)));
    for (version, profile) in usual.into_iter().chain(others) {
        let original = with_tokio(version, profile, directory.path());
        for build in [Build::LineTables, Build::Stripped] {
            let file = build.of(&original, &directory);
            for fault in [Fault::Computing, Fault::Blocked] {
                for form in ["several", "one"] {
                    if let Err(error) = is_known(&file, &original, fault, form) {
                        wrong.push(format!(
                            "{version} {profile:?}, {build:?}, {fault:?}, {form}: {error}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lengths_and_counts_are_the_patients_own() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let patient = Patient::named("sleep").unwrap();
    let report = diagnose(patient, Build::LineTables, &[]).unwrap().unwrap();
    let first = worst_of(&report, patient).unwrap();
    let seconds = report.length_ns as f64 / 1e9;
    let rate = first.count as f64 / seconds;
    // Four tasks with a request every 200 ms and 12 ms for each: 19 a second.
    assert!((10.0..=22.0).contains(&rate), "{rate} long polls a second");
    assert!(
        (9_500_000..=20_000_000).contains(&first.p50_ns),
        "p50 {} ns",
        first.p50_ns
    );
    assert!(first.blocked_ns > first.total_ns / 2, "{first:?}");
    assert_eq!(report.method, Method::Bpf);
}

#[test]
fn polls_not_much_longer_than_the_threshold_are_seen_or_counted() {
    if !can_run() || !is_optimized() {
        return;
    }
    let _turn = turn();
    let process = Process::start(&built("patient-spin"), &[]).unwrap();
    // About half of its length, on every machine.
    let longest = examined(process.pid(), 2).unwrap().findings[0].p50_ns;
    let threshold = format!("{}us", longest / 1800);
    let report = examined_with(process.pid(), 4, &["--longer-than", &threshold]);
    process.ends_unharmed().unwrap();
    let report = report.unwrap();
    let polls = report.polls_in_all + report.polls_without_stack;
    let rate = polls as f64 / (report.length_ns as f64 / 1e9);
    // Four tasks with a request every 200 ms and some 20 ms for each: 18 a second.
    assert!(
        (9.0..=22.0).contains(&rate),
        "{rate} long polls a second, {} without a stack",
        report.polls_without_stack
    );
    assert!(
        report.polls_in_all > report.polls_without_stack,
        "{:?}",
        report.notes
    );
}

#[test]
fn what_blocked_polls_wait_for_is_told() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let is_awaited = |patient: &Patient, wait: &Wait| match patient.name {
        "sleep" => *wait == Wait::Sleep,
        "files" | "println" => matches!(wait, Wait::Pipe { .. }),
        "lookup" => matches!(wait, Wait::Socket { .. }),
        name => panic!("what does {name} wait for?"),
    };
    let mut wrong = Vec::new();
    for patient in PATIENTS
        .iter()
        .filter(|patient| patient.fault == Fault::Blocked)
    {
        match diagnose(patient, Build::LineTables, &[]) {
            Some(Ok(report)) => {
                let first = &report.findings[0];
                let wait = first.waits_for.first();
                if first.system_call.is_none()
                    || !wait.is_some_and(|wait| is_awaited(patient, wait))
                {
                    wrong.push(format!(
                        "{}: {:?} in {:?}",
                        patient.name, wait, first.system_call
                    ));
                }
            }
            Some(Err(error)) => wrong.push(format!("{}: {error}", patient.name)),
            None => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_line_that_waits_for_the_lock_is_named_too() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let patient = Patient::named("mutex").unwrap();
    let report = diagnose(patient, Build::LineTables, &[]).unwrap().unwrap();
    let waits = |finding: &&Finding| {
        let culprit = finding.stack.culprit();
        culprit.is_some_and(|frame| is_at(frame, patient, VICTIM))
    };
    let victim = report.findings.iter().find(waits);
    let victim = victim.unwrap_or_else(|| panic!("it is not found: {:?}", places(&report)));
    assert_eq!(victim.doing, Doing::Blocked);
    assert_eq!(victim.waits_for.first(), Some(&Wait::Lock));
}

#[test]
fn tasks_of_morpheus_have_their_labels() {
    if !can_run() || !is_optimized() {
        return;
    }
    let _turn = turn();
    for (method, more) in [(Method::Bpf, &[][..]), (Method::Proc, &["--no-bpf"])] {
        let process = Process::start(&built(LABELLED.program), &[]).unwrap();
        let pid = process.pid().to_string();
        let arguments = ["--pid", &pid, "--duration", "4", "--json"];
        let found = report(&run(&[&arguments, more].concat())).unwrap();
        process.ends_unharmed().unwrap();
        assert_eq!(found.method, method);
        let label_at = |marker| {
            let is_there = |finding: &&Finding| {
                let culprit = finding.stack.culprit();
                culprit.is_some_and(|frame| is_at(frame, &LABELLED, marker))
            };
            let finding = found.findings.iter().find(is_there)?;
            let label = finding.label.clone().filter(|label| !label.is_empty());
            // A sample may be read when its poll is over.
            assert!(label.is_some() || method == Method::Proc, "{finding:?}");
            Some((finding.count, label))
        };
        let both = label_at(CULPRIT).zip(label_at(VICTIM));
        let Some(((computed, named), (slept, at_spawn))) = both else {
            panic!("{:?}", places(&found));
        };
        // Each of the two has some 36 in the time, and the first moments are for learning.
        assert!(computed.min(slept) >= 12, "{:?}", places(&found));
        assert_eq!(named.as_deref().unwrap_or("reports"), "reports");
        let is_place = |label: String| {
            label.rsplit_once(':').is_some_and(|(file, line)| {
                file.ends_with(LABELLED.file) && line.parse::<u32>().is_ok()
            })
        };
        assert!(
            at_spawn.is_none_or(is_place),
            "another place than the spawn"
        );
    }
}

fn places(report: &Report) -> Vec<String> {
    let place = |finding: &Finding| {
        format!(
            "{:?} {} times, longest {} µs, on a CPU for {} µs in all, unserved {} µs: {}",
            finding.doing,
            finding.count,
            finding.longest_ns / 1000,
            finding.cpu_ns / 1000,
            finding.unserved_ns / 1000,
            finding.place()
        )
    };
    report.findings.iter().map(place).collect()
}

#[test]
fn nothing_is_found_in_a_healthy_process() {
    if !can_run() || !is_optimized() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    // An emulated machine has a hundredth of the speed, and its two CPUs run in turns: each one's time passes for a poll on the other.
    let (arguments, threshold): (&[&str], &[&str]) = match in_guest() {
        true => (&["--rate", "1000"], &["--longer-than", "5ms"]),
        false => (&[], &[]),
    };
    let seconds = window("MORPHEUS_DOCTOR_SECONDS").as_secs();
    let process = Process::start(&built("patient-healthy"), arguments).unwrap();
    let report = examined_with(process.pid(), seconds, threshold).unwrap();
    assert!(!report.runtimes.is_empty(), "no runtime was seen");
    // The time that the host of a virtual machine takes away, also from another CPU that the process waits for, is in no healthy
    // process's power.
    let found: u64 = report.findings.iter().map(|finding| finding.total_ns).sum();
    assert!(
        found <= report.stolen_ns,
        "the host took {} ns: {:#?}",
        report.stolen_ns,
        places(&report)
    );
    process.ends_unharmed().unwrap();
}

/// The one thread of such a runtime parks in the driver alone, and without names or a long poll nothing shows its loop.
#[test]
fn a_healthy_worker_without_names_and_others_is_known() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let stripped = Build::Stripped.of(&built("patient-healthy"), &directory);
    for form in [&["--workers", "1"][..], &["--current-thread"]] {
        let arguments = [form, &["--rate", "500"]].concat();
        let process = Process::start(&stripped, &arguments).unwrap();
        let report = examined(process.pid(), if in_guest() { 8 } else { 2 });
        let report = report.unwrap_or_else(|error| panic!("{form:?}: {error}"));
        assert_eq!(workers_of(&report), [1], "{form:?}: {:?}", report.runtimes);
        process.ends_unharmed().unwrap();
    }
}

// ------------------------------------------------------------------------------------------------ ways to name a process

#[test]
fn a_process_is_found_by_its_name() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let name = format!("p{}", std::process::id());
    let file = directory.path().join(&name);
    fs::copy(built("patient-sleep"), &file).unwrap();
    let process = Process::start(&file, &[]).unwrap();
    let output = run(&["--name", &name, "--duration", "2", "--json"]);
    let report = report(&output).unwrap();
    assert_eq!((report.pid, &report.name), (process.pid(), &name));
    let other = Process::start(&file, &[]).unwrap();
    let output = run(&["--name", &name, "--duration", "2", "--json"]);
    has_failed(
        &output,
        1,
        &[&process.pid().to_string(), &other.pid().to_string()],
    );
}

#[test]
fn a_command_is_started_and_looked_at() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let patient = Patient::named("sleep").unwrap();
    let file = built(patient.program);
    let file = file.to_str().unwrap();
    let output = doctor(&["--json", "--", file, "--seconds", "3"])
        .output()
        .unwrap();
    let report = report(&output).unwrap();
    is_right(&report, patient, Build::LineTables, Path::new(file)).unwrap();
    assert!(report.ended.contains("ended"), "{}", report.ended);
    assert!(!Path::new(&format!("/proc/{}", report.pid)).exists());
}

// -------------------------------------------------------------------------------------------------------- hostile cases

#[test]
fn wrong_arguments_are_told() {
    if !can_run() {
        return;
    }
    for wrong in [
        &[][..],
        &["--pid", "0"],
        &["--pid", "x"],
        &["--pid", "1", "--duration", "never"],
    ] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{wrong:?}"
        );
    }
}

#[test]
fn there_is_no_such_process() {
    if !can_run() {
        return;
    }
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    child.wait().unwrap();
    let output = run(&["--pid", &pid, "--duration", "2", "--json"]);
    has_failed(&output, 1, &[&pid]);
    let output = run(&["--name", "no-such-name", "--duration", "2", "--json"]);
    has_failed(&output, 1, &["no-such-name"]);
}

#[test]
fn a_process_does_not_use_tokio() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let output = run(&[
        "--pid",
        &child.id().to_string(),
        "--duration",
        "5",
        "--json",
    ]);
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    child.kill().unwrap();
    child.wait().unwrap();
    has_failed(&output, 1, &["tokio"]);
}

/// Looks for half a minute at a patient that does not last that long.
fn cut_short(arguments: &[&str]) -> Report {
    let patient = Patient::named("sleep").unwrap();
    let file = built(patient.program);
    let mut process = Process::start(&file, arguments).unwrap();
    let began = Instant::now();
    let looks = [
        "--pid",
        &process.pid().to_string(),
        "--duration",
        "30",
        "--json",
    ]
    .map(str::to_owned);
    let doctor = thread::spawn(move || run(&looks.each_ref().map(String::as_str)));
    if arguments.contains(&"--seconds") {
        // Takes its exit status, so that its number is free.
        process.child.wait().unwrap();
    }
    let output = doctor.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "it looked on");
    let report = report(&output).unwrap();
    is_right(&report, patient, Build::LineTables, &file).unwrap();
    report
}

#[test]
fn a_process_ends_during_the_run() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    let report = cut_short(&["--seconds", "3"]);
    assert!(report.ended.contains("ended"), "{}", report.ended);
}

#[test]
fn a_process_runs_another_program_during_the_run() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    let report = cut_short(&["--exec-after", "3"]);
    assert!(report.ended.contains("another program"), "{}", report.ended);
}

/// A command as a user without rights, whose program that user can read.
fn without_rights(file: &Path, directory: &TempDir) -> Command {
    let copy = directory.path().join(file.file_name().unwrap());
    fs::copy(file, &copy).unwrap();
    for path in [directory.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(copy);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

/// The daemon's file; in a guest it is in the path.
fn daemon() -> PathBuf {
    if in_guest() {
        built("scx_morpheus")
    } else {
        program()
    }
}

#[test]
fn there_are_no_rights() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(&built("patient-sleep"), &[]).unwrap();
    let output = without_rights(&daemon(), &directory)
        .args([
            "doctor",
            "--pid",
            &process.pid().to_string(),
            "--duration",
            "2",
            "--json",
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    has_failed(&output, 1, &["root"]);
    process.ends_unharmed().unwrap();
}

/// A kernel that was built without BTF has no such directory.
#[test]
fn there_is_no_btf() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let process = Process::start(&built("patient-sleep"), &[]).unwrap();
    let pid = process.pid().to_string();
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", hide])
        .arg(program())
        .args(["doctor", "--pid", &pid, "--duration", "2", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = errors(&output);
    assert!(
        said.contains("this kernel has no BTF") && said.contains("samples /proc"),
        "{said}"
    );
    // All that libbpf has to say of it is kept for --verbose.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(report(&output).unwrap().method, Method::Proc);
    process.ends_unharmed().unwrap();
}

#[test]
fn the_same_user_samples_without_bpf() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    if fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .is_ok_and(|scope| scope.trim() != "0")
    {
        skip(
            "needs a system on which users may trace their own processes (kernel.yama.ptrace_scope = 0)",
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let patient = Patient::named("sleep").unwrap();
    let file = built(patient.program);
    let process = Process::spawn(without_rights(&file, &directory)).unwrap();
    let output = without_rights(&daemon(), &directory)
        .args([
            "doctor",
            "--pid",
            &process.pid().to_string(),
            "--duration",
            "3",
            "--json",
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = report(&output).unwrap();
    assert_eq!(report.method, Method::Proc);
    assert!(!report.notes.is_empty(), "nothing says what is less exact");
    is_right(&report, patient, Build::LineTables, &file).unwrap();
    process.ends_unharmed().unwrap();
}

#[test]
fn a_process_has_ten_thousand_threads() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    match diagnose(&CROWD, Build::LineTables, &[]) {
        Some(right) => {
            right.unwrap();
        }
        None => skip("needs a system with room for 10,000 threads"),
    }
}

#[test]
fn a_doctor_that_is_killed_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _nothing = NothingLeft::behind();
    for name in ["sleep", "spin", "files"] {
        let patient = Patient::named(name).unwrap();
        let file = built(patient.program);
        let process = Process::start(&file, &[]).unwrap();
        let pid = process.pid().to_string();
        let mut doctor = doctor(&["--pid", &pid, "--duration", "30", "--json"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_secs(2));
        assert!(doctor.try_wait().unwrap().is_none(), "it has ended");
        doctor.kill().unwrap();
        doctor.wait().unwrap();
        // The next one finds the process as the first did.
        let report = examined(process.pid(), 3).unwrap();
        is_right(&report, patient, Build::LineTables, &file).unwrap();
        process
            .ends_unharmed()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn an_interrupt_ends_the_run_with_a_report() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let patient = Patient::named("sleep").unwrap();
    let file = built(patient.program);
    let process = Process::start(&file, &[]).unwrap();
    let pid = process.pid().to_string();
    let doctor = doctor(&["--pid", &pid, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(3));
    kill_process(Pid::from_child(&doctor), Signal::INT).unwrap();
    let output = doctor.wait_with_output().unwrap();
    let report = report(&output).unwrap();
    is_right(&report, patient, Build::LineTables, &file).unwrap();
    process.ends_unharmed().unwrap();
}

/// The substitute for `strip` where there is none does the same.
#[test]
fn sections_are_removed() {
    if in_guest() {
        return;
    }
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let symbols = |bytes: &[u8]| object::File::parse(bytes).unwrap().symbols().count();
    assert!(symbols(&bytes) > 0);
    let stripped = without(bytes, |name| {
        name == ".symtab" || name.starts_with(".debug")
    });
    assert_eq!(symbols(&stripped), 0);
    let elf = object::File::parse(&*stripped).unwrap();
    assert!(elf.section_by_name(".eh_frame").is_some());
    assert!(elf.section_by_name(".debug_line").is_none());
}
