//! The binary as its users call it, on a directory that looks like `/sys` on a machine with governors.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Found, median};
use morpheus_bench::cpus::allowed as cpus;
use morpheus_harness::pairs::Bar;
use morpheus_harness::rows::Row;
use serde_json::Value;

/// Two policies, a state directory and room for studies; gone in the end.
struct Machine(PathBuf);

const WAIT: Duration = Duration::from_secs(30);

impl Machine {
    fn new(name: &str) -> Self {
        let machine = Self::without_governors(name);
        for policy in ["policy0", "policy1"] {
            let path = machine.policy(policy);
            fs::create_dir_all(path.join("stats")).unwrap();
            let cpus = match policy {
                "policy0" => cpu().to_string(),
                _ => "4000".into(),
            };
            for (file, text) in [
                ("affected_cpus", cpus.as_str()),
                ("scaling_governor", "ondemand"),
                (
                    "scaling_available_governors",
                    "ondemand powersave performance schedutil",
                ),
                ("scaling_min_freq", "600000"),
                ("scaling_max_freq", "2064000"),
                ("scaling_cur_freq", "900000"),
                ("cpuinfo_min_freq", "600000"),
                ("cpuinfo_max_freq", "2064000"),
                ("stats/time_in_state", "600000 300\n2064000 100"),
                ("stats/total_trans", "17"),
            ] {
                fs::write(path.join(file), format!("{text}\n")).unwrap();
            }
        }
        machine
    }

    fn without_governors(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("governor-it-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("sys/devices/system/cpu/cpufreq")).unwrap();
        Self(root)
    }

    fn policy(&self, name: &str) -> PathBuf {
        self.0.join("sys/devices/system/cpu/cpufreq").join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_governor"));
        command
            .current_dir(&self.0)
            .args(["--sysfs", "sys", "--state", "state"])
            .args(line.split_whitespace())
            .stdin(Stdio::null());
        command
    }

    fn call(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// A small study: kernels of a few channels, a window every 50 ms.
    fn small(line: &str) -> String {
        let policy = if line.contains("--policy") {
            ""
        } else {
            "--policy other"
        };
        format!(
            "run --cpu {} --channels 4 --taps 9 --hop 8 --warmup 0 --duration 0.2 --interval-ms 20 {policy} {line}",
            cpu()
        )
    }

    fn governors(&self) -> Vec<String> {
        let read = |name| fs::read_to_string(self.policy(name).join("scaling_governor")).unwrap();
        ["policy0", "policy1"]
            .map(read)
            .map(|text| text.trim().to_owned())
            .into()
    }

    fn state(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join("state")) else {
            return Vec::new();
        };
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        entries.flatten().map(name).collect()
    }

    /// A run that lasts for minutes, once it has changed the governors and measures.
    fn long_run(&self, line: &str) -> Running {
        let line = format!(
            "run --cpu {} --policy other --governors performance --warmup 0 --hop 8 {line}",
            cpu()
        );
        let mut command = self.command(&line);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let run = Running(child.unwrap());
        until("the governors are set", || {
            self.governors() == ["performance", "performance"]
        });
        run
    }
}

/// A run that ends with the test, however that ends.
struct Running(Child);

impl Running {
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill touches no memory; the child was not waited for, so the id is its own.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    /// Waits for it. It prints less than a pipe holds.
    fn finish(mut self) -> Output {
        let status = self.0.wait().unwrap();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut stdout)
            .unwrap();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_end(&mut stderr)
            .unwrap();
        Output {
            status,
            stdout,
            stderr,
        }
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<u32> {
        let parent = self.0.id().to_string();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let id = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let is_child = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // After the name, which may have anything in it: the state, then the parent.
            let fields = stat.rsplit(')').next().unwrap_or_default();
            fields.split_whitespace().nth(1) == Some(&parent)
        };
        processes.filter_map(id).filter(is_child).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < WAIT, "not within {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A CPU that this process may use.
fn cpu() -> usize {
    cpus()[0]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json<T: serde::de::DeserializeOwned>(output: &Output) -> T {
    assert_eq!(text(&output.stdout).lines().count(), 1, "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows<'a>(found: &'a Found, case: &'a str) -> impl Iterator<Item = &'a Row> {
    found.rows.iter().filter(move |row| row.case == case)
}

fn lines(path: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_study_measures_every_condition_and_leaves_the_machine_as_it_was() {
    let machine = Machine::new("study");
    let line = Machine::small(
        "--governors performance,schedutil --repeats 2 --load 1 --kernels car,noop --json",
    );
    let output = machine.call(&line);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
    assert_eq!(machine.state(), [""; 0]);

    let mut expected = vec!["performance", "schedutil"];
    if cpus().len() > 1 {
        expected.extend(["performance + load", "schedutil + load"]);
    }
    let found: Found = json(&output);
    assert_eq!((&*found.bench, found.interrupted), ("governor", false));
    let all = rows(&found, "latency").filter(|row| row.figure == "all kernels");
    let names: Vec<&str> = all.map(|row| &*row.contender).collect();
    assert_eq!(names, expected);
    let against = || rows(&found, "latency against performance");
    for name in expected.iter().copied() {
        assert!(median(&found, name, "all kernels") > 0.0, "{found:?}");
        let mut times = against().filter(|row| row.contender == name);
        assert!(times.any(|row| row.median.is_some()) || name == "performance");
        assert_eq!(median(&found, name, "frequency"), 900_000.0);
        for kernel in ["car", "noop"] {
            let own = rows(&found, kernel).filter(|row| row.contender == name);
            let own: Vec<&Row> = own.collect();
            let windows = own.iter().find(|row| row.figure == "windows").unwrap();
            assert_eq!(windows.median, Some(8.0), "2 repeats of 4 windows");
            let is_rare = |row: &&&Row| row.figure.contains("p99");
            assert_eq!(own.iter().find(is_rare), None, "too few");
        }
    }
    // Of two repeats neither is more than noise.
    let mut judged = against().filter_map(|row| Some((&*row.contender, &*row.figure, row.judged?)));
    assert_eq!(
        judged.next(),
        Some(("schedutil", "all kernels", Bar::Undecided))
    );
    assert_eq!(judged.next(), None);
    let course = found
        .courses
        .iter()
        .find(|course| course.contender == "schedutil");
    assert!(
        course
            .unwrap()
            .points
            .iter()
            .all(|(_, khz)| *khz == 900_000.0)
    );

    let study = machine.0.join("governor-study");
    let runs = lines(&study.join("raw/runs.ndjson"));
    assert_eq!(runs.len(), expected.len() * 4);
    let order: Vec<String> = runs
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|run| run["kernel"] == "car")
        .map(|run| format!("{}{}", run["governor"].as_str().unwrap(), run["load"]))
        .collect();
    let mut backwards = order.clone();
    backwards.reverse();
    assert_eq!(order, backwards, "A B B A");
    let run: Value = serde_json::from_str(&runs[0]).unwrap();
    assert_eq!(
        run["time_in_state"][0]["before"]["khz_and_10ms"][0][0],
        600_000
    );
    let log = lines(&study.join("raw/schedutil/frequency.csv"));
    assert_eq!(log[0], "elapsed_ms,policy,cpus,governor,khz,kernel,repeat");
    assert!(
        log.len() > 8 && log[1].contains(",schedutil,900000,car,"),
        "{log:?}"
    );
    let telemetry = lines(&study.join("raw/schedutil/car/telemetry.ndjson"));
    let window: Value = serde_json::from_str(&telemetry[0]).unwrap();
    for key in [
        "scheduler",
        "governor",
        "load",
        "kernel",
        "repeat",
        "release_ns",
        "service_ns",
        "response_ns",
        "missed",
    ] {
        assert!(!window[key].is_null(), "{key}: {window}");
    }

    // The same is in the study, for `report`.
    let kept = fs::read_to_string(study.join("study.json")).unwrap();
    assert_eq!(kept, text(&output.stdout));

    let second = machine.call(&Machine::small("--governors performance"));
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(text(&second.stderr).contains("has a study already"));
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
}

#[test]
fn without_governors_the_kernels_run_once() {
    let machine = Machine::without_governors("none");
    let output = machine.call(&Machine::small("--repeats 5 --policy fifo"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("no control over the CPUs' frequencies"));
    let shown = text(&output.stdout);
    for kernel in ["car", "notch_iir", "goertzel", "bandpass_fir"] {
        assert!(shown.contains(&format!("\n{kernel}, medians\n")), "{shown}");
    }
    let runs = lines(&machine.0.join("governor-study/raw/runs.ndjson"));
    assert_eq!(runs.len(), 4);
    // Real time is in force, or it is said that it is not.
    let run: Value = serde_json::from_str(&runs[0]).unwrap();
    match run["policy"].as_str().unwrap() {
        "fifo" => assert!(run["refused"].is_null()),
        "other" => {
            assert!(
                run["refused"]
                    .as_str()
                    .unwrap()
                    .contains("refuses the policy fifo")
            );
            assert!(shown.contains("measured as SCHED_OTHER"), "{shown}");
        }
        other => panic!("{other}"),
    }
    for line in ["set", "set performance", "record"] {
        let output = machine.call(line);
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert!(text(&output.stderr).contains("no control"), "{line}");
    }
}

/// Whether this process may load a scheduler, as far as its user goes.
fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

impl Machine {
    /// A kernel with sched_ext, and a program that pretends to schedule: it says so, and answers no client.
    fn with_sched_ext(name: &str) -> Self {
        let machine = Self::new(name);
        let directory = machine.0.join("sys/kernel/sched_ext");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("state"), "disabled\n").unwrap();
        let program = machine.0.join("scx");
        let state = directory.join("state").display().to_string();
        let line = format!(
            "#!/bin/sh\necho \"$@\" >{}\ntrap 'echo disabled >{state}; exit' INT\necho enabled >{state}\n\
             while :; do sleep 0.02; done\n",
            machine.0.join("called").display()
        );
        fs::write(&program, line).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn sched_ext(&self) -> String {
        let state = self.0.join("sys/kernel/sched_ext/state");
        fs::read_to_string(state).unwrap().trim().to_owned()
    }
}

#[test]
fn a_scheduler_that_cannot_be_had_costs_its_column_only() {
    let machine = Machine::new("no-scx");
    let line = Machine::small(
        "--governors schedutil+morpheus,powersave --repeats 1 --load 0 --kernels noop",
    );
    let output = machine.call(&line);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("schedutil+morpheus is not measured: this kernel has no sched_ext"),
        "{said}"
    );
    assert!(text(&output.stdout).contains("\npowersave "), "{output:?}");
    let runs = lines(&machine.0.join("governor-study/raw/runs.ndjson"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    // With nothing else to measure, nothing is changed.
    let output = machine.call(&Machine::small("--governors schedutil+morpheus --output b"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!machine.0.join("b").exists());
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
}

#[test]
fn the_scheduler_is_started_for_its_column_and_ended_whatever_happens() {
    let machine = Machine::with_sched_ext("scx");
    let line = Machine::small(
        "--governors schedutil,schedutil+morpheus --repeats 2 --load 0 --kernels noop --scx-morpheus scx",
    );
    let dry = machine.call(&format!("{line} --dry-run"));
    let shown = text(&dry.stdout);
    if !is_root() {
        assert!(text(&dry.stderr).contains("only root"), "{dry:?}");
        return morpheus_testing::skip("needs root to start the scheduler");
    }
    for part in ["schedutil + morpheus", "run scx --socket /", "on a worker"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!machine.0.join("called").exists(), "nothing was started");
    // The worker gets no answer at the socket: that column fails, and the other one does not.
    let output = machine.call(&line.replace("--scx-morpheus scx", "--scx-morpheus ./scx"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("schedutil + morpheus, noop: "), "{said}");
    assert!(said.contains("broker.sock"), "{said}");
    let called = fs::read_to_string(machine.0.join("called")).unwrap();
    assert!(called.starts_with("--socket /"), "{called}");
    assert_eq!(machine.sched_ext(), "disabled");
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
    assert_eq!(machine.state(), [""; 0]);
    let runs = lines(&machine.0.join("governor-study/raw/runs.ndjson"));
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(
        runs.iter()
            .all(|run| run.contains("\"scheduler\":\"kernel\""))
    );
}

#[test]
fn a_histogram_log_has_every_kernel_and_runs_say_whether_they_had_settled() {
    let machine = Machine::without_governors("histogram");
    let line = Machine::small("--kernels car,noop --histogram log");
    let output = machine.call(&line.replace("--warmup 0", "--warmup 0.1"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let log = fs::read_to_string(machine.0.join("log")).unwrap();
    for kernel in ["car", "noop"] {
        for kind in ["service", "response", "late"] {
            let tag = format!("Tag=as-it-is-{kernel}-{kind},");
            assert!(log.contains(&tag), "{tag}: {log}");
        }
    }
    // Four windows at the most are not three blocks.
    for run in lines(&machine.0.join("governor-study/raw/runs.ndjson")) {
        assert!(run.contains(r#""settled":false"#), "{run}");
    }
    assert!(text(&output.stdout).contains("In 2 of 2 runs the median had not settled"));
    let nowhere = machine.call(&Machine::small(
        "--kernels noop --output other --histogram /nowhere/file",
    ));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stdout).contains("/nowhere/file cannot be written"));
}

#[test]
fn what_a_killed_run_changed_is_put_back() {
    let machine = Machine::new("killed");
    let run = machine.long_run("--load 2 --kernels car --duration 1 --repeats 100");
    let second = machine.call(&Machine::small("--output other"));
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(text(&second.stderr).contains(&format!("another run (process {})", run.0.id())));
    assert_eq!(machine.call("restore").status.code(), Some(1));
    assert_eq!(machine.governors(), ["performance", "performance"]);

    let load = if cpus().len() > 1 { 2 } else { 0 };
    let mut busy = Vec::new();
    until("the load is on", || {
        busy = run.children();
        busy.len() == load
    });
    // A run of one second is over.
    let study = || fs::read(machine.0.join("governor-study/study.json")).unwrap_or_default();
    let found = || serde_json::from_slice::<Found>(&study());
    until("figures are in the study", || {
        found().is_ok_and(|found| !found.rows.is_empty())
    });
    run.signal(libc::SIGKILL);
    run.finish();
    until("the load dies with its parent", || {
        let is_gone = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        busy.iter().all(is_gone)
    });
    let left = found().unwrap();
    assert!(median(&left, "performance", "all kernels") > 0.0);
    assert_eq!(machine.governors(), ["performance", "performance"]);
    assert_eq!(machine.state(), ["run.json"]);
    let dry = machine.call("restore --dry-run");
    assert!(
        text(&dry.stdout).contains("would be ondemand again"),
        "{dry:?}"
    );
    assert_eq!(machine.governors(), ["performance", "performance"]);
    let output = machine.call("restore");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout).matches("is ondemand again").count(), 2);
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
    assert_eq!(machine.state(), [""; 0]);
    assert_eq!(
        text(&machine.call("restore").stdout),
        "nothing to put back\n"
    );
}

#[test]
fn the_next_run_puts_back_what_a_killed_one_changed() {
    let machine = Machine::new("next");
    let run = machine.long_run("--load 0");
    run.signal(libc::SIGKILL);
    run.finish();
    let output = machine.call(&Machine::small(
        "--governors powersave --load 0 --output next --kernels car --repeats 1",
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("as before a run that was killed"));
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
    // That is what the second run found, and not what the first had set.
    let study: Value =
        serde_json::from_str(&fs::read_to_string(machine.0.join("next/study.json")).unwrap())
            .unwrap();
    assert_eq!(study["config"]["policies"][0]["governor"], "ondemand");
}

#[test]
fn signals_end_it_early_and_put_everything_back() {
    for (name, number) in [
        ("int", libc::SIGINT),
        ("term", libc::SIGTERM),
        ("hup", libc::SIGHUP),
    ] {
        let machine = Machine::new(name);
        let run = machine.long_run("--load 0");
        std::thread::sleep(Duration::from_millis(300));
        run.signal(number);
        let output = run.finish();
        assert_eq!(output.status.code(), Some(130), "{name}: {output:?}");
        assert_eq!(machine.governors(), ["ondemand", "ondemand"], "{name}");
        assert_eq!(machine.state(), [""; 0], "{name}");
        assert!(
            text(&output.stdout).contains("Ended early by Ctrl-C"),
            "{name}: {output:?}"
        );
    }
}

#[test]
fn a_governor_that_somebody_else_sets_spoils_the_run() {
    let machine = Machine::new("spoilt");
    let run = machine
        .long_run("--load 0 --duration 1 --kernels car,noop --repeats 1 --interval-ms 10 --json");
    std::thread::sleep(Duration::from_millis(200));
    fs::write(
        machine.policy("policy0").join("scaling_governor"),
        "powersave\n",
    )
    .unwrap();
    let output = run.finish();
    assert!(
        text(&output.stdout).contains("which somebody else set"),
        "{output:?}"
    );
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
}

#[test]
fn a_governor_is_set_until_it_is_restored() {
    let machine = Machine::new("set");
    let shown = text(&machine.call("set").stdout);
    assert!(
        shown.contains("available: ondemand, powersave, performance, schedutil"),
        "{shown}"
    );
    assert!(
        shown.contains("900 MHz now, limits 600–2064 MHz"),
        "{shown}"
    );
    let dry = machine.call("set powersave --dry-run");
    assert!(
        text(&dry.stdout).contains("would be powersave, was ondemand"),
        "{dry:?}"
    );
    assert_eq!(
        (machine.governors(), machine.state().len()),
        (vec!["ondemand".into(); 2], 0)
    );
    for governor in ["powersave", "performance"] {
        let output = machine.call(&format!("set {governor}"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(machine.governors(), [governor, governor]);
    }
    // A study puts back what it found, and leaves what was set to stay.
    let output = machine.call(&Machine::small(
        "--governors powersave --load 0 --kernels car --repeats 1",
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(machine.governors(), ["performance", "performance"]);
    let restored: Value = json(&machine.call("restore --json"));
    assert_eq!(restored["done"].as_array().unwrap().len(), 2);
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
}

#[test]
fn frequencies_are_recorded() {
    let machine = Machine::new("record");
    let log = text(
        &machine
            .call("record --duration 0.3 --interval-ms 50")
            .stdout,
    );
    let rows: Vec<&str> = log.lines().collect();
    assert_eq!(rows[0], "elapsed_ms,policy,cpus,governor,khz");
    assert!(rows.len() >= 3 && !rows.len().is_multiple_of(2), "{log}");
    assert!(rows[2].contains("policy1,4000,ondemand,900000"), "{log}");
    let shown = text(
        &machine
            .call("record --duration 0.2 --output log.csv")
            .stdout,
    );
    assert!(shown.contains("900 MHz"), "{shown}");
    assert!(lines(&machine.0.join("log.csv")).len() >= 3);
    let found: Found = json(&machine.call("record --duration 0.2 --json"));
    let figures = [("policy0", "mean"), ("policy1", "p50")];
    for (policy, figure) in figures {
        let khz = median(&found, &format!("{policy}, ondemand"), figure);
        assert_eq!(khz, 900_000.0, "{figure}");
    }
    assert_eq!(found.courses.len(), 2);
}

#[test]
fn a_dry_run_says_it_all_and_does_nothing() {
    let machine = Machine::new("dry");
    let output = machine.call(&Machine::small("--governors powersave --load 3 --dry-run"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    for part in [
        "policy0",
        "write \"powersave\" to",
        "governor-study",
        "it takes",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(
        shown.contains("3 busy processes"),
        cpus().len() > 1,
        "{shown}"
    );
    assert_eq!(
        (machine.governors(), machine.state().len()),
        (vec!["ondemand".into(); 2], 0)
    );
    assert!(!machine.0.join("governor-study").exists());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let machine = Machine::new("refused");
    for (line, part) in [
        ("", "Usage"),
        ("fly", "unrecognized"),
        ("run --governors userspace", "this machine has ondemand"),
        (
            "run --governors performance+morpheus",
            "only schedutil+morpheus",
        ),
        ("run --cpu 4000", "may use the CPUs"),
        ("run --hop 200", "--hop must be at most --window"),
        ("run --interval-ms 0", "interval-ms"),
        ("run --kernels fft", "fft"),
        ("run --duration 86400 --rate 100000 --hop 1", "windows"),
        ("set userspace", "no governor \"userspace\""),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_governor"))
            .args(line.split_whitespace())
            .args(
                (!line.is_empty())
                    .then_some(["--sysfs", "sys", "--state", "state"])
                    .into_iter()
                    .flatten(),
            )
            .current_dir(&machine.0)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{line}: {output:?}");
    }
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
}

/// Nothing is changed unless it is written down first how it was.
#[test]
fn without_a_place_to_write_it_down_nothing_is_changed() {
    let machine = Machine::new("nowhere");
    fs::write(
        machine.0.join("state"),
        "a file, where a directory should be",
    )
    .unwrap();
    let output = machine.call(&Machine::small("--governors powersave"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("what is to be put back cannot be written"),
        "{output:?}"
    );
    assert_eq!(machine.governors(), ["ondemand", "ondemand"]);
    assert!(!machine.0.join("governor-study").exists());
    // Under the governor that is there, nothing needs to be written down.
    let output = machine.call(&Machine::small(
        "--governors ondemand --load 0 --kernels car --repeats 1",
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
