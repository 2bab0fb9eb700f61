// SPDX-License-Identifier: GPL-2.0-only
//! The daemon when the kernel ejects its scheduler: it starts again, a few times. Needs a guest of its own.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::daemon::{Daemon, program};
use common::eject::{self, eject};
use common::guest::{can_run, state};
use common::{PATIENCE, say, turn};
use morpheus_runtime::{ActiveLink, Builder};
use rustix::process::{Pid, Signal, kill_process};

/// How long it may take to load and verify the programs again: an emulated processor is slow.
const LOADS_WITHIN: Duration = Duration::from_secs(60);

/// Waits until `holds`, and says how long that took.
fn wait_for(what: &str, most: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < most, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

/// The next line on the daemon's standard error that has these words.
fn line(daemon: &Daemon, words: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        let line = daemon.errors.recv_timeout(rest);
        let line = line.unwrap_or_else(|_| panic!("the daemon does not say {words:?}"));
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn an_ejected_scheduler_comes_back_four_times() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = Daemon::schedule(&[]);
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .link_socket(&daemon.socket)
        .build()
        .unwrap();
    let joined = || runtime.link() == ActiveLink::Scheduler;
    wait_for("joined", PATIENCE, joined);
    for (ejection, pause) in (1..).zip([1, 2, 4, 8]) {
        let pause = Duration::from_secs(pause);
        eject();
        wait_for("ejected", PATIENCE, || state() == "disabled");
        let said = line(&daemon, "took the scheduler out");
        assert!(said.contains(eject::MESSAGE), "{said}");
        let counted = format!("ejection {ejection} of 5");
        assert!(said.contains(&counted), "{said}");
        wait_for("the watchdog alone", PATIENCE, || {
            runtime.link() == ActiveLink::Watchdog
        });
        let enabled = wait_for("enabled", pause + LOADS_WITHIN, || state() == "enabled");
        let again = wait_for("joined again", LOADS_WITHIN, joined);
        say(&format!(
            "ejection {ejection}: the scheduler is back after {enabled:.1?}, and the runtime {again:.1?} later"
        ));
        // It was found out up to a tenth of a second, and some tests of ours, earlier.
        assert!(enabled + Duration::from_millis(900) > pause, "{enabled:?}");
        assert!(daemon.is_alive());
    }
    // The fifth one is the last.
    eject();
    let status = daemon.child.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    let said = line(&daemon, "ejection 5 of 5");
    assert!(said.contains(eject::MESSAGE), "{said}");
    assert_eq!(state(), "disabled");
    wait_for("the watchdog alone", PATIENCE, || {
        runtime.link() == ActiveLink::Watchdog
    });
}

/// With `start`, what the kernel said of an ejection is in a file when the daemon has gone on, and when it has ended.
#[test]
fn an_ejection_is_in_the_log_of_the_run() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = std::env::temp_dir().join("morpheus-ejection-log");
    let _ = std::fs::remove_dir_all(&directory);
    let mut child = Command::new(program())
        .args(["--no-procdb", "start", "--log-dir"])
        .arg(directory.join("log"))
        .arg("--socket")
        .arg(directory.join("broker.sock"))
        .spawn()
        .unwrap();
    wait_for("enabled", LOADS_WITHIN, || state() == "enabled");
    let log = || std::fs::read_to_string(directory.join("log/kernel.log")).unwrap();
    eject();
    let lines = [
        "sched_ext: BPF scheduler \"morpheus\" disabled",
        eject::MESSAGE,
        "scx_morpheus: the kernel took the scheduler out",
    ];
    wait_for("logged", PATIENCE, || {
        lines.iter().all(|line| log().contains(line))
    });
    wait_for("enabled again", LOADS_WITHIN, || state() == "enabled");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let log = log();
    // The kernel's line of the last second, too, and nothing of others.
    let last = log.rfind("disabled (unregistered from user space)");
    assert!(last > log.find("took the scheduler out"), "{log}");
    assert!(log.contains("scx_morpheus: stopped"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    say(&log);
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn a_daemon_that_waits_to_start_again_can_be_stopped() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    eject();
    line(&daemon, "ejection 1 of 5");
    wait_for("enabled", LOADS_WITHIN, || state() == "enabled");
    eject();
    // The pause is two seconds.
    line(&daemon, "ejection 2 of 5");
    let start = Instant::now();
    assert!(daemon.stop().success());
    assert!(start.elapsed() < Duration::from_secs(1));
}
