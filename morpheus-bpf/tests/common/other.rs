// SPDX-License-Identifier: GPL-2.0-only
//! Another sched_ext scheduler, to compare with: a program that is in the guest's path.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::guest::{state, wait_until};

/// Another scheduler, for as long as this lives.
pub struct Other(Child);

impl Other {
    /// Starts it with a command line, in words.
    pub fn start(line: &str) -> Other {
        let mut words = line.split_whitespace();
        let program = words.next().expect("a program is named");
        let child = Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        wait_until("another scheduler is in force", || state() == "enabled");
        Other(child)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).unwrap();
        self.0.wait().unwrap();
        wait_until("it is gone", || state() == "disabled");
    }
}
