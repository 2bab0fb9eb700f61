//! Calling the binaries as their users do.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::rows::Row;
use serde::de::DeserializeOwned;

/// The `--json` output of a benchmark that prints rows.
pub type Found = Envelope<serde_json::Value>;

/// A figure of a contender in the first case that has it.
pub fn row<'a>(found: &'a Found, contender: &str, figure: &str) -> Option<&'a Row> {
    let is = |row: &&Row| row.contender == contender && row.figure == figure;
    found.rows.iter().find(is)
}

/// Its median.
///
/// # Panics
/// It is not there.
pub fn median(found: &Found, contender: &str, figure: &str) -> f64 {
    let median = row(found, contender, figure).and_then(|row| row.median);
    median.unwrap_or_else(|| panic!("{contender}, {figure}: {found:?}"))
}

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

/// Asserts that a table fits into `width` columns and has these words in it.
pub fn assert_table(text: &str, width: usize, expected: &[&str]) {
    assert!(
        text.lines().all(|line| line.chars().count() <= width),
        "{text}"
    );
    for words in expected {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Asserts that each of these lines is bad usage: exit code 2, nothing on standard output, and something said.
pub fn assert_refused(program: &str, lines: &[&str]) {
    for line in lines {
        let output = run(program, line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{line}: {output:?}"
        );
    }
}

/// The program's output with `--json`, which must succeed.
pub fn json<R: DeserializeOwned>(program: &str, arguments: &str) -> R {
    let output = run(program, &format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The program's output with `--json` when Ctrl-C comes `after` its start.
pub fn json_of_interrupted<R: DeserializeOwned>(
    program: &str,
    arguments: &str,
    after: Duration,
) -> R {
    let mut command = command(program, &format!("{arguments} --json"));
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    // SAFETY: kill touches no memory; the child has not been waited for, so the number is its own.
    let result = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(result, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
