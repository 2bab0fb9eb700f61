//! Calling the binaries as their users do.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::process::{Command, Output};

use serde::de::DeserializeOwned;

/// A program (`env!("CARGO_BIN_EXE_…")`) with a line of arguments.
pub fn command(program: &str, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    command
}

/// Runs it to its end.
pub fn run(program: &str, arguments: &str) -> Output {
    command(program, arguments).output().unwrap()
}

/// What it prints with `--json`, which must succeed.
pub fn json<R: DeserializeOwned>(program: &str, arguments: &str) -> R {
    let output = run(program, &format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
