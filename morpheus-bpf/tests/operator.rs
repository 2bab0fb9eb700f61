// SPDX-License-Identifier: GPL-2.0-only
//! The reports of a daemon to its operator: the connections, the lines, the file for Prometheus. Needs root and a kernel
//! with BTF.

mod common;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::client::Client;
use common::daemon::{Daemon, Kind, program};
use common::guest::stalled_worker;
use common::{PATIENCE, can_run, turn};
use morpheus_tools::status::{self, Status};
use serde_json::Value;

fn run(daemon: &Daemon, arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .arg("--socket")
        .arg(&daemon.socket)
        .output()
        .unwrap()
}

/// Until the numbers are so; what they were at last.
fn numbers_when(daemon: &Daemon, condition: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let numbers = daemon.numbers();
        if condition(&numbers) || Instant::now() > until {
            return numbers;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connected_processes_and_their_stalled_workers_are_told() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for kind in Kind::all() {
        let daemon = kind.start();
        assert_eq!(daemon.numbers()["connections"], serde_json::json!([]));
        let client = Arc::new(Client::new(&daemon));
        // Bound and parked, and so not stalled.
        client.register(3);
        let stalled = stalled_worker(&client, 0, |_| {});
        let numbers = numbers_when(&daemon, |numbers| numbers["connections"][0]["stalled"] == 1);
        let process = &numbers["connections"][0];
        assert_eq!(process["stalled"], 1, "{numbers}");
        assert_eq!(process["workers"], 2, "{numbers}");
        assert_eq!(
            process["demoted"], 0,
            "its policy does not allow it: {numbers}"
        );
        assert_eq!(process["pid"], std::process::id());
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(process["comm"], name.trim_end_matches('\n'));

        let text = run(&daemon, &["status", "--prometheus"]);
        assert!(text.status.success());
        let text = String::from_utf8(text.stdout).unwrap();
        let sample = format!(
            "scx_morpheus_process_ladder{{pid=\"{}\",comm=\"{}\",state=\"stalled\"}} 1\n",
            std::process::id(),
            name.trim_end_matches('\n')
        );
        assert!(text.contains(&sample), "{sample} is not in\n{text}");
        drop(stalled);
        drop(client);
        let numbers = numbers_when(&daemon, |numbers| numbers["processes"] == 0);
        assert_eq!(numbers["connections"], serde_json::json!([]));
    }
}

#[test]
fn the_file_for_prometheus_is_kept_up_to_date_and_goes_with_the_daemon() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("morpheus-operator-{}.prom", std::process::id()));
    let daemon = Daemon::start(&[
        "--prometheus",
        path.to_str().unwrap(),
        "--prometheus-interval",
        "1",
    ]);
    let wait_for = |line: &str| {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.lines().any(|found| found == line) {
                return;
            }
            assert!(Instant::now() < until, "{line} is not in\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("scx_morpheus_info{runs=\"observer\"} 1");
    wait_for("scx_morpheus_processes 0");
    let _client = Client::new(&daemon);
    wait_for("scx_morpheus_processes 1");
    daemon.stop();
    assert!(!path.exists());
}

#[test]
fn the_history_is_recorded_and_printed_while_the_daemon_runs_and_afterwards() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let path =
        std::env::temp_dir().join(format!("morpheus-operator-{}.history", std::process::id()));
    let _ = fs::remove_file(&path);
    let daemon = Daemon::start(&["--history", path.to_str().unwrap()]);
    assert_eq!(daemon.numbers()["history"], path.to_str().unwrap());
    let _client = Client::new(&daemon);
    let printed = |more: &[&str]| {
        let output = Command::new(program())
            .arg("history")
            .arg(&path)
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = || -> Value { serde_json::from_str(&printed(&["--json"])).unwrap() };
    let until = Instant::now() + PATIENCE;
    loop {
        let history = json();
        let seconds = history["seconds"].as_array().unwrap();
        if seconds
            .iter()
            .filter(|second| second["processes"] == 1)
            .count()
            >= 2
        {
            break;
        }
        assert!(Instant::now() < until, "{history}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(printed(&["--by", "seconds"]).lines().count() > 2);
    daemon.stop();
    // The minute that had begun.
    let history = json();
    assert_eq!(history["minutes"].as_array().unwrap().len(), 1, "{history}");
    assert_eq!(history["damaged_records"], 0);
    assert_eq!(printed(&[]).lines().count(), 2);
    // Another file's content stays, and the daemon says so and goes on without.
    fs::write(&path, "precious").unwrap();
    let daemon = Daemon::spawn(
        &["--observe", "--history", path.to_str().unwrap()],
        "observing",
    );
    assert_eq!(daemon.numbers()["history"], Value::Null);
    let said = daemon.errors.recv_timeout(PATIENCE).unwrap();
    assert!(said.contains("no history is recorded"), "{said}");
    daemon.stop();
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_file(path).unwrap();
}

#[test]
fn the_monitor_tells_rates_and_ends_with_its_reader() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Arc::new(Client::new(&daemon));
    let _stalled = stalled_worker(&client, 0, |_| {});
    // A client that asks whether it is there is not refused.
    assert_eq!(status::ask(&daemon.socket), Status::Answers);
    assert_eq!(daemon.numbers()["refused"], 0);
    let started = Instant::now();
    let mut monitor = Command::new(program())
        .args(["--monitor", "1", "--socket"])
        .arg(&daemon.socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(monitor.stdout.take().unwrap()));
    let line = lines.next().unwrap().unwrap();
    assert!(
        line.starts_with("processes 1, workers 1, refused 0"),
        "{line}"
    );
    assert!(
        started.elapsed() > Duration::from_millis(900),
        "of a second"
    );
    // Without a reader it ends by itself, and well.
    drop(lines);
    assert!(monitor.wait().unwrap().success());
}

#[test]
fn without_a_daemon_or_a_terminal_it_says_so() {
    let nowhere = std::env::temp_dir().join("morpheus-operator-nowhere/broker.sock");
    let fails = |arguments: &[&str], says: &str| {
        let output = Command::new(program())
            .args(arguments)
            .arg("--socket")
            .arg(&nowhere)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    };
    fails(&["--monitor", "1"], "no daemon answers at");
    fails(&["status", "--prometheus"], "no daemon listens there");
    fails(&["top"], "--monitor 1");
    fails(
        &["history", "/nowhere/history"],
        "/nowhere/history: No such file",
    );
    fails(
        &["history", "/proc/self/status"],
        "no history of scx_morpheus",
    );
}
