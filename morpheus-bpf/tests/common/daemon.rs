// SPDX-License-Identifier: GPL-2.0-only
//! The daemon, started and stopped by a test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{PATIENCE, in_guest};

/// The program under test. In a guest it is in the path, and not where it was built.
pub fn program() -> PathBuf {
    if in_guest() {
        PathBuf::from("scx_morpheus")
    } else {
        PathBuf::from(env!("CARGO_BIN_EXE_scx_morpheus"))
    }
}

/// Where no daemon has listened yet.
fn fresh_socket() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir()
        .join(format!("morpheus-test-{}-{number}", std::process::id()))
        .join("broker.sock")
}

/// The kinds of daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Observer,
    Scheduler,
}

impl Kind {
    /// Those that can be tested here.
    pub fn all() -> &'static [Kind] {
        if in_guest() {
            &[Kind::Observer, Kind::Scheduler]
        } else {
            &[Kind::Observer]
        }
    }

    pub fn start(self) -> Daemon {
        match self {
            Kind::Observer => Daemon::start(&[]),
            Kind::Scheduler => Daemon::schedule(&[]),
        }
    }
}

/// The daemon, as a child; stopped when it is dropped.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
    /// The lines that it prints with `--stats 1`.
    pub lines: Receiver<String>,
    /// The lines on its standard error, after the first one.
    pub errors: Receiver<String>,
}

impl Daemon {
    /// One that observes.
    pub fn start(arguments: &[&str]) -> Daemon {
        let arguments = [&["--observe"], arguments].concat();
        Daemon::spawn(&arguments, "observing")
    }

    /// One that schedules, and knows nothing of earlier ones but where it is told to.
    pub fn schedule(arguments: &[&str]) -> Daemon {
        let fresh: &[&str] = match arguments.contains(&"--procdb") {
            true => &[],
            false => &["--no-procdb"],
        };
        Daemon::spawn(&[fresh, arguments].concat(), "scheduling")
    }

    /// The value of one of its counters.
    pub fn counter(&self, name: &str) -> u64 {
        self.numbers()["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("there is no counter {name}"))
    }

    /// Waits until all of these counters are above 0. Asked together: under a load, each question takes a while.
    pub fn all_move(&self, names: &[&str]) {
        let until = Instant::now() + 8 * PATIENCE;
        loop {
            let counters = self.numbers()["counters"].take();
            let still: Vec<_> = names
                .iter()
                .filter(|name| counters[**name].as_u64().unwrap_or(0) == 0)
                .collect();
            if still.is_empty() {
                return;
            }
            assert!(
                Instant::now() < until,
                "{still:?} stay at 0 or are not there: {counters}"
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The output of `scx_morpheus status --json` about it.
    pub fn numbers(&self) -> serde_json::Value {
        let output = Command::new(program())
            .args(["status", "--json", "--socket"])
            .arg(&self.socket)
            .output()
            .unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["statistics"].take()
    }

    /// One with these arguments; it has to say `ready` in its first line on standard error.
    pub fn spawn(arguments: &[&str], ready: &str) -> Daemon {
        Daemon::spawn_at(&fresh_socket(), arguments, ready)
    }

    /// One at a socket that another one had before.
    pub fn at(socket: &Path, kind: Kind) -> Daemon {
        match kind {
            Kind::Observer => Daemon::spawn_at(socket, &["--observe"], "observing"),
            Kind::Scheduler => Daemon::spawn_at(socket, &[], "scheduling"),
        }
    }

    fn spawn_at(socket: &Path, arguments: &[&str], ready: &str) -> Daemon {
        let mut child = Command::new(program())
            .args(arguments)
            .args(["--stats", "1", "--socket"])
            .arg(socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = errors.next().and_then(Result::ok).unwrap_or_default();
        assert!(first.contains(ready), "the daemon says: {first}");
        // Read on, so that it never finds the pipe closed or full.
        let (sender, said) = channel();
        thread::spawn(move || {
            for line in errors.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Daemon {
            child,
            socket: socket.to_owned(),
            lines,
            errors: said,
        }
    }

    /// How many workers are bound, as the next line of statistics has it.
    pub fn bound(&self) -> usize {
        while self.lines.try_recv().is_ok() {}
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_default();
        line.split(", ")
            .find_map(|part| part.strip_prefix("workers "))
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("no workers in {line:?}"))
    }

    /// Waits for a line of statistics that begins so.
    pub fn wait_for_statistics(&self, beginning: &str) {
        let until = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < until {
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                last = line;
                if last.starts_with(beginning) {
                    return;
                }
            }
        }
        panic!("no statistics {beginning:?}, the last are {last:?}");
    }

    pub fn stop(mut self) -> ExitStatus {
        self.signal();
        self.child.wait().unwrap()
    }

    pub fn signal(&self) {
        let _ = self.send(Signal::TERM);
    }

    pub fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal();
        // Stopped by a test, it would not hear of it.
        let _ = self.send(Signal::CONT);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.socket.parent().unwrap());
    }
}
