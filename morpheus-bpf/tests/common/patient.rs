// SPDX-License-Identifier: GPL-2.0-only
//! Processes whose fault is known: the programs of `morpheus-patients`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use morpheus_doctor::model::{Doing, Frame};
use morpheus_patients::{Fault, Patient};

use super::daemon::program;
use super::{in_guest, say};

/// The exit code of a patient whose fault cannot be had here.
const ABSENT: i32 = morpheus_patients::service::ABSENT as i32;

/// The file of a program of `morpheus-patients`.
pub fn built(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("MORPHEUS_PATIENTS") {
        return Path::new(&directory).join(name);
    }
    if !in_guest() {
        return program().with_file_name(name);
    }
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    let file = files.find(|file| file.exists());
    file.unwrap_or_else(|| panic!("{name} is not in this guest"))
}

/// A process to look at, which ends when this is dropped.
pub struct Process {
    pub child: Child,
    /// Closed, it ends.
    pub stdin: Option<ChildStdin>,
    errors: BufReader<ChildStderr>,
    /// Its code: what it may execute, and from which files.
    code: Vec<String>,
}

impl Process {
    /// A program of `morpheus-patients` that serves. `None` if its fault cannot be had here, or what it needs.
    pub fn start(file: &Path, arguments: &[&str]) -> Option<Process> {
        let mut command = Command::new(file);
        command.args(arguments);
        Process::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Option<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        if line != "ready\n" {
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(ABSENT), "{line}");
            say(line.trim_end());
            return None;
        }
        let code = code(child.id());
        Some(Process {
            child,
            stdin,
            errors,
            code,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and checks that it ran as if nothing had looked at it: its code is what it was, nothing traces or stops it, and it ends
    /// with success when it is told.
    pub fn ends_unharmed(mut self) -> Result<(), String> {
        let pid = self.pid();
        let status =
            fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
        let of = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.unwrap_or_default().trim().to_owned()
        };
        if of("TracerPid:") != "0" {
            return Err(format!("process {} traces it", of("TracerPid:")));
        }
        if !of("State:").starts_with(['R', 'S', 'D']) {
            return Err(format!("its state is {}", of("State:")));
        }
        if code(pid) != self.code {
            return Err(format!(
                "its code was {:?} and is {:?}",
                self.code,
                code(pid)
            ));
        }
        // Now its signals and its runtime: told to end, it does.
        drop(self.stdin.take());
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let mut said = String::new();
        self.errors
            .read_to_string(&mut said)
            .map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("it ended with {status}: {said}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The executable mappings of a process. Probes in its code would be a mapping more (`[uprobes]`).
fn code(pid: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let executable = |line: &&str| {
        line.split(' ')
            .nth(1)
            .is_some_and(|rights| rights.contains('x'))
    };
    maps.lines().filter(executable).map(str::to_owned).collect()
}

/// The doctor's name for a fault.
pub fn doing(fault: Fault) -> Doing {
    match fault {
        Fault::Computing => Doing::Computing,
        Fault::Blocked => Doing::Blocked,
    }
}

/// Whether a frame is at the line of a patient's source that has this marker.
pub fn is_at(frame: &Frame, patient: &Patient, marker: &str) -> bool {
    let in_file = |file: &String| file.ends_with(patient.file);
    frame.file.as_ref().is_some_and(in_file) && frame.line == patient.line_with(marker)
}
