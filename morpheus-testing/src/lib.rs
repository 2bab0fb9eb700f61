//! Reports tests that cannot run where they were started, waits for what a test expects, and makes what several tests need.
//!
//! libtest knows no outcome between passed and failed at run time: a test that lacks root, a tool or an optimized build
//! returns, and libtest calls that a pass. Such a test calls [`skip`] first, and a test that needs a guest of its own
//! calls [`leave_to_guest`]. `cargo xtask test` counts the lines that they print: for each it takes one test from those
//! that passed, and adds a skipped one for the first kind.
#![warn(missing_docs)]

use std::env;
use std::fmt::Display;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Begins each line that [`skip`] prints.
pub const SKIPPED: &str = "SKIPPED: ";
/// Begins each line that [`leave_to_guest`] prints.
pub const ELSEWHERE: &str = "NOT RUN HERE: ";

/// Prints why the calling test cannot run here. Call it at most once in a test, and return after it.
///
/// The line goes to standard error directly: libtest keeps back what `eprintln!` prints in a test that passes.
pub fn skip(reason: impl Display) {
    say(SKIPPED, reason);
}

/// Prints that the calling test runs only in a guest, an emulated machine that `cargo xtask test` boots for it. Call it at
/// most once in a test, and return after it.
pub fn leave_to_guest() {
    say(ELSEWHERE, "needs a guest of its own (cargo xtask vm)");
}

/// Runs the test `name` of this file in a process of its own, in which no other test runs, and returns true there. Elsewhere it returns
/// false: the test has passed. `module` is the caller's `module_path!()`.
///
/// Where the process cannot start itself, as in some emulators, it [`skip`]s the test.
///
/// # Panics
///
/// If the test fails there, with what it has said.
#[track_caller]
pub fn in_own_process(module: &str, name: &str) -> bool {
    const ALONE: &str = "MORPHEUS_TEST_ALONE";
    let in_crate = module.split_once("::").map_or("", |(_, rest)| rest);
    let test = format!("{in_crate}::{name}");
    if env::var_os(ALONE).is_some_and(|alone| alone == *test) {
        return true;
    }
    let output = env::current_exe().and_then(|program| {
        Command::new(program)
            .args(["--exact", &test, "--nocapture", "--test-threads=1"])
            .env(ALONE, &test)
            .output()
    });
    match output {
        Ok(output) => {
            let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            let [out, errors] = said;
            let passed = output.status.success() && out.contains("1 passed");
            assert!(passed, "{test}: {}\n{out}\n{errors}", output.status);
        }
        Err(error) => skip(format!("cannot start itself: {error}")),
    }
    false
}

/// Waits until something has come true.
///
/// # Panics
///
/// With `what`, if it has not after a minute.
#[track_caller]
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn say(marker: &str, reason: impl Display) {
    // One write of whole lines: tests run side by side, and libtest may have begun a line.
    let line = format!("\n{marker}{reason}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// As [`skip`], where `variable` is not set in the environment.
///
/// `cargo xtask test` sets such a variable for each tool that it has found or installed, so that a test cannot skip
/// itself where it has to run.
///
/// # Panics
///
/// If `variable` is set, and neither empty nor `0`.
pub fn skip_unless_required(reason: impl Display, variable: &str) {
    let required = env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!required, "{reason}, and {variable} is set");
    skip(reason);
}

/// A socket whose last owner waits for as long when it closes it, and its other end, which reads nothing.
///
/// # Panics
///
/// When the system gives no such sockets.
#[must_use]
pub fn lingering(linger: Duration) -> (TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&socket, Some(linger)).unwrap();
    (socket, listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no redis, and PATH is set")]
    fn a_required_test_fails() {
        skip_unless_required("no redis", "PATH");
    }

    /// A child process is this test program again, whose output libtest captures.
    #[test]
    fn the_line_passes_libtest() {
        const CHILD: &str = "MORPHEUS_TESTING_CHILD";
        if env::var_os(CHILD).is_some() {
            eprintln!("kept back");
            skip_unless_required("no such tool", "MORPHEUS_NOT_SET");
            return;
        }
        let output = std::process::Command::new(env::current_exe().unwrap())
            .args(["--exact", "tests::the_line_passes_libtest"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success());
        assert!(said.contains("\nSKIPPED: no such tool\n"), "{said}");
        assert!(!said.contains("kept back"), "{said}");
    }
}
