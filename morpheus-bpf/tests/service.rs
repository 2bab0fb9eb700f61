// SPDX-License-Identifier: GPL-2.0-only
//! The files for systemd in `dist/`: that systemd takes them, that the program knows the options that they name, and that
//! the rights suffice that they leave to it.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use common::client::Client;
use common::daemon::program;
use common::guest::stalled_worker;
use common::{PATIENCE, can_run, in_guest, turn};
use rustix::process::{Pid, Signal, kill_process};

const UNIT: &str = include_str!("../dist/scx_morpheus.service");
const OPTIONS: &str = include_str!("../dist/scx_morpheus.default");

/// The settings of the unit, in all lines of this name.
fn settings(name: &str) -> Vec<&'static str> {
    UNIT.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .collect()
}

fn directory(what: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("morpheus-{what}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// Words such as "--stats", which are options of some program, from the lines that set something.
fn options(text: &str) -> BTreeSet<&str> {
    text.split(|character: char| character.is_whitespace() || matches!(character, '"' | '='))
        .filter(|word| word.starts_with("--"))
        .collect()
}

/// A runtime in a container has it mounted, and waits there for the next daemon.
#[test]
fn a_restart_leaves_the_directory_of_the_socket() {
    assert_eq!(settings("RuntimeDirectoryPreserve"), ["yes"]);
}

#[test]
fn every_option_that_is_named_exists() {
    let help = Command::new(program()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known: BTreeSet<&str> = help
        .split(|character: char| character.is_whitespace() || character == ',')
        .filter(|word| word.starts_with("--"))
        .collect();
    let settings: Vec<&str> = OPTIONS
        .lines()
        .filter_map(|line| line.split_once("SCX_MORPHEUS_FLAGS="))
        .map(|(_, value)| value)
        .collect();
    assert!(settings.len() >= 4, "{settings:?}");
    for value in settings {
        assert!(!options(value).is_empty(), "{value}");
        for option in options(value) {
            assert!(known.contains(option), "{option} in {value}");
        }
        // All of them together are a command line that is taken: with --help it ends well, and else with 2.
        let words = value.trim_matches('"').split(' ');
        let mut command = Command::new(program());
        let output = command.args(words).arg("check").output().unwrap();
        assert_ne!(output.status.code(), Some(2), "{value}: {output:?}");
    }
    assert!(
        options(settings_of_start()).is_empty(),
        "the unit leaves all to the file"
    );
    // A user who has chosen no options gets none.
    for line in OPTIONS.lines() {
        assert!(line.is_empty() || line.starts_with('#'), "{line}");
    }
    for code in settings_of_exit() {
        assert!(
            help.contains(&format!("\n  {code}  ")),
            "{code} is no exit code"
        );
    }
}

fn settings_of_start() -> &'static str {
    settings("ExecStart")[0]
}

fn settings_of_exit() -> Vec<&'static str> {
    let codes: Vec<_> = settings("RestartPreventExitStatus")[0].split(' ').collect();
    assert!(
        codes.contains(&"3"),
        "a scheduler that was thrown out stays out"
    );
    codes
}

#[test]
fn systemd_takes_the_unit() {
    let directory = directory("unit");
    let path = directory.join("scx_morpheus.service");
    // It looks whether the program is there.
    let program = fs::canonicalize(program()).unwrap_or_else(|_| "/bin/scx_morpheus".into());
    let unit = UNIT.replace("/usr/bin/scx_morpheus", program.to_str().unwrap());
    assert_ne!(unit, UNIT);
    fs::write(&path, unit).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&path).output()
    };
    let verified = match analyze(&["verify", "--man=no", "--recursive-errors=no"]) {
        Ok(output) => output,
        Err(_) => {
            morpheus_testing::skip("there is no systemd-analyze to look at the unit");
            return;
        }
    };
    let complaints = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{complaints}");
    // Unknown settings are ignored with a message.
    assert!(
        !complaints.contains("scx_morpheus.service:"),
        "{complaints}"
    );
    // From 0, safe, to 100: what is left is mostly that it is root and may load programs into the kernel.
    match analyze(&["security", "--offline=true", "--threshold=30", "--no-pager"]) {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(error) => panic!("{error}"),
    }
    fs::remove_dir_all(directory).unwrap();
}

/// The daemon with the unit's capabilities, and no others: root without them has few rights.
#[test]
fn the_rights_suffice() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // Busybox has one of this name that cannot do it.
    let version = Command::new("setpriv").arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("util-linux")) {
        morpheus_testing::skip("there is no setpriv of util-linux to take rights away");
        return;
    }
    let capabilities: String = settings("CapabilityBoundingSet")[0]
        .split(' ')
        .map(|name| format!(",+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()))
        .collect();
    let kinds: &[(&str, &[&str])] = if in_guest() {
        &[("observing", &["--observe"]), ("scheduling", &[])]
    } else {
        &[("observing", &["--observe"])]
    };
    for (ready, arguments) in kinds {
        let directory = directory("rights");
        let socket = directory.join("broker.sock");
        let child = Command::new("setpriv")
            .args(["--no-new-privs", "--inh-caps=-all"])
            .arg(format!("--bounding-set=-all{capabilities}"))
            .arg("--")
            .arg(program())
            .args(*arguments)
            .arg("--socket")
            .arg(&socket)
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = errors.next().and_then(Result::ok).unwrap_or_default();
        assert!(first.contains(ready), "{first}");
        let client = Arc::new(Client::at(&socket));
        let stalled = stalled_worker(&client, 0, |_| {});
        let until = Instant::now() + PATIENCE;
        loop {
            let numbers = morpheus_tools::stats::ask(&socket).unwrap();
            let process = &numbers["connections"][0];
            if process["stalled"] == 1 {
                assert_eq!(process["workers"], 1, "{process}");
                break;
            }
            assert!(Instant::now() < until, "{numbers}");
        }
        drop(stalled);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        let _ = fs::remove_dir_all(directory);
    }
}
