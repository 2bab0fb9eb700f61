// SPDX-License-Identifier: GPL-2.0-only
//! The operator's commands, as they are typed. Most need neither root nor a daemon.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::daemon::program;
use common::{can_run, in_guest, turn};
use rustix::process::{Pid, Signal, kill_process};

fn run(arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn directory(what: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("morpheus-{what}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn the_probe_measures_and_ends_early_when_it_is_told() {
    let json: serde_json::Value =
        serde_json::from_str(&text(&run(&["probe", "--seconds", "1", "--json"]))).unwrap();
    let wakeups = json["wakeups"].as_u64().unwrap();
    assert!((1..=1000).contains(&wakeups), "{json}");
    let us = |name: &str| json[name].as_f64().unwrap();
    assert!(us("p50_us") > 0.0, "{json}");
    assert!(
        us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"),
        "{json}"
    );

    let started = std::time::Instant::now();
    let child = Command::new(program())
        .args(["probe", "--seconds", "1000", "--period-us", "500"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output).contains("p99.9"), "{output:?}");
    assert!(started.elapsed().as_secs() < 100);
    for bad in [["probe", "--seconds=0"], ["probe", "--period-us=1"]] {
        assert_eq!(run(&bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn the_manual_and_the_completions_have_every_command() {
    let page = text(&run(&["man"]));
    for part in [
        ".TH",
        "scx_morpheus",
        "prometheus",
        "SUBCOMMANDS",
        "completions",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let directory = directory("man");
    text(&run(&["man", "--dir", directory.to_str().unwrap()]));
    for command in [
        "check",
        "status",
        "start",
        "top",
        "probe",
        "dmesg",
        "bench",
        "history",
        "install",
        "uninstall",
        "man",
        "completions",
    ] {
        let page = directory.join(format!("scx_morpheus-{command}.1"));
        assert!(page.exists(), "{}", page.display());
    }
    assert!(directory.join("scx_morpheus.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completions", shell]));
        for part in ["probe", "prometheus-interval", "mode"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
    let script = directory.join("completions.bash");
    fs::write(&script, text(&run(&["completions", "bash"]))).unwrap();
    match Command::new("bash").arg("-n").arg(&script).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => morpheus_testing::skip("there is no bash to read its completions"),
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn bench_runs_what_is_beside_it() {
    let directory = directory("bench");
    let own = directory.join("scx_morpheus");
    // In a guest the program is in the path.
    let source = if in_guest() {
        PathBuf::from("/bin/scx_morpheus")
    } else {
        program()
    };
    if fs::copy(&source, &own).is_err() {
        assert!(in_guest());
        return;
    }
    let bench = |arguments: &[&str]| {
        Command::new(&own)
            .arg("bench")
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = bench(&[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cargo build --release -p morpheus-bench --bin scale"),
        "{error}"
    );

    let scale = directory.join("scale");
    let mut file = fs::File::create(&scale).unwrap();
    file.write_all(b"#!/bin/sh\nfor argument; do echo \"<$argument>\"; done\nexit 7\n")
        .unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755))
        .unwrap();
    drop(file);
    let output = bench(&["--cpus", "2,4", "--help", "--socket", "a b"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "<--cpus>\n<2,4>\n<--help>\n<--socket>\n<a b>\n"
    );
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn install_and_uninstall_in_a_root_of_their_own() {
    let root = directory("install");
    let to = |command: &str, more: &[&str]| {
        let mut arguments = vec![
            command,
            "--root",
            root.to_str().unwrap(),
            "--prefix",
            "/usr",
        ];
        arguments.extend(more);
        run(&arguments)
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let planned = text(&to("install", &["--dry-run"]));
    assert!(planned.contains("usr/bin/scx_morpheus\n"), "{planned}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    assert_eq!(text(&to("install", &[])), planned);
    // The installed program runs, and has a page for each command.
    let installed = root.join("usr/bin/scx_morpheus");
    let version = Command::new(&installed).arg("--version").output().unwrap();
    assert_eq!(text(&version), text(&run(&["--version"])));
    for command in ["install", "doctor"] {
        let page = format!("usr/share/man/man1/scx_morpheus-{command}.1");
        assert!(root.join(&page).exists(), "{page}");
    }
    let doctor = Command::new(root.join("usr/bin/morpheus-doctor"))
        .args(["--pid", "1", "--name", "a b"])
        .output()
        .unwrap();
    assert_eq!(doctor.status.code(), Some(2), "{doctor:?}");
    assert_eq!(
        said(&doctor),
        said(&run(&["doctor", "--pid", "1", "--name", "a b"]))
    );
    assert!(!text(&to("install", &[])).contains("write"));

    fs::write(&installed, "another").unwrap();
    let refused = to("install", &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("--force"), "{}", said(&refused));
    assert!(text(&to("install", &["--force"])).contains("replace "));
    let options = root.join("etc/default/scx_morpheus");
    fs::write(&options, "SCX_MORPHEUS_FLAGS=--observe\n").unwrap();

    assert!(text(&to("uninstall", &["--dry-run"])).contains("remove "));
    assert!(installed.exists());
    let done = to("uninstall", &[]);
    assert!(text(&done).contains("keep "), "{done:?}");
    assert!(said(&done).contains("left: "), "{done:?}");
    assert!(options.exists() && !root.join("usr").exists());
    let again = to("uninstall", &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("nothing was installed"), "{again:?}");
    assert_eq!(
        run(&["install", "--prefix", "relative"]).status.code(),
        Some(1)
    );

    // Without rights nothing is written.
    fs::remove_dir_all(&root).unwrap();
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = Command::new(program())
        .args(["install", "--root"])
        .arg(&root)
        .uid(65534)
        .output();
    // Where others may run the program.
    if let Ok(output) = as_nobody {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said(&output).contains("run as root"), "{output:?}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_kernels_log_is_read_to_its_end_or_it_says_why_not() {
    if rustix::process::geteuid().is_root() && fs::metadata("/dev/kmsg").is_ok() {
        let output = run(&["dmesg"]);
        if output.status.success() && output.stdout.is_empty() {
            let note = String::from_utf8_lossy(&output.stderr);
            assert!(note.contains("lines in the kernel's log"), "{note}");
        }
    }
    // Uid 65534 may read it, or may not; where the program cannot even be run by others, there is nothing to see.
    let as_nobody = Command::new(program()).arg("dmesg").uid(65534).output();
    if let Ok(output) = as_nobody
        && !output.status.success()
    {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains("run as root or with CAP_SYSLOG")
                || error.contains("cannot read /dev/kmsg"),
            "{error}"
        );
    }
}

#[test]
fn start_without_systemd_runs_it_here() {
    if !can_run() || std::path::Path::new("/run/systemd/system").exists() {
        return;
    }
    let _turn = turn();
    let directory = directory("start");
    let mut child = Command::new(program())
        .args(["--observe", "start", "--socket"])
        .arg(directory.join("broker.sock"))
        .arg("--log-dir")
        .arg(directory.join("log"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let note = next();
    assert!(
        note.contains("scx_morpheus.service is not installed"),
        "{note}"
    );
    let ready = next();
    assert!(ready.contains("observing"), "{ready}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(directory.join("log/kernel.log")).unwrap();
    assert!(log.contains("starts, process"), "{log}");
    let refused = Command::new(program())
        .args(["--observe", "start", "--log-dir", "/dev/null/log"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("cannot write /dev/null/log/kernel.log"),
        "{said}"
    );
    let _ = fs::remove_dir_all(directory);
}
