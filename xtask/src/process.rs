//! Runs one child: collects its output, and ends it with all that it started when this program is asked to end.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::interrupt;

/// How often the child is looked at while it says nothing.
const TICK: Duration = Duration::from_millis(100);
/// How long the child may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long output is awaited from a child that has ended: something it left running may keep the pipe open.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// A child that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    /// Standard output and standard error, in the order they came.
    pub(crate) output: String,
    /// This program was asked to end meanwhile, so it ended the child.
    pub(crate) interrupted: bool,
}

/// Runs `command` to its end, and calls `on_line` with each line it prints.
///
/// It reads nothing, and runs in a process group of its own: a Ctrl-C reaches it through this program alone, which then
/// ends the whole group.
///
/// # Errors
///
/// It cannot be started or waited for.
pub(crate) fn run(command: &mut Command, on_line: &mut dyn FnMut(&str)) -> io::Result<Finished> {
    let (mut reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let child = command.spawn()?;
    // The command holds the writing ends: while it does, reading finds no end.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let (sender, chunks) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count) = reader.read(&mut buffer) {
            if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });

    let mut output = Output::default();
    let (status, interrupted) = follow(child, &chunks, &mut |chunk| output.add(chunk, on_line))?;
    output.end(on_line);
    Ok(Finished {
        success: status.success() && !interrupted,
        output: String::from_utf8_lossy(&output.all).into_owned(),
        interrupted,
    })
}

/// Passes chunks on until the child has ended and its pipe is empty; says how it ended, and whether it was made to.
fn follow(
    mut child: Child,
    chunks: &Receiver<Vec<u8>>,
    on_chunk: &mut dyn FnMut(&[u8]),
) -> io::Result<(ExitStatus, bool)> {
    let mut asked_at: Option<Instant> = None;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut closed = false;
    loop {
        if closed {
            thread::sleep(TICK / 10);
        } else {
            match chunks.recv_timeout(TICK) {
                Ok(chunk) => on_chunk(&chunk),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => closed = true,
            }
        }
        if ended.is_none() {
            // The group is signalled only before its leader is reaped: until then its number cannot mean another group.
            match asked_at {
                None if interrupt::came() => {
                    asked_at = Some(Instant::now());
                    interrupt::take();
                    signal_group(&child, libc::SIGTERM);
                }
                // Out of patience, or asked a second time.
                Some(at) if at.elapsed() > PATIENCE || interrupt::came() => {
                    signal_group(&child, libc::SIGKILL);
                }
                _ => {}
            }
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        if let Some((status, at)) = ended
            && (closed || at.elapsed() > STRAGGLERS)
        {
            return Ok((status, asked_at.is_some()));
        }
    }
}

fn signal_group(child: &Child, signal: libc::c_int) {
    let Ok(group) = libc::pid_t::try_from(child.id()) else {
        return;
    };
    // SAFETY: `kill` takes no pointers. The child leads a group of its own number and has not been reaped, so the number
    // is still its own.
    unsafe { libc::kill(-group, signal) };
}

/// Everything that was printed, and how much of it has been passed on as lines.
#[derive(Default)]
struct Output {
    all: Vec<u8>,
    passed_on: usize,
}

impl Output {
    fn add(&mut self, chunk: &[u8], on_line: &mut dyn FnMut(&str)) {
        self.all.extend_from_slice(chunk);
        while let Some(length) = self.all[self.passed_on..].iter().position(|&b| b == b'\n') {
            self.pass_on(length, on_line);
            self.passed_on += 1;
        }
    }

    /// A last line without an end is a line too.
    fn end(&mut self, on_line: &mut dyn FnMut(&str)) {
        let length = self.all.len() - self.passed_on;
        if length > 0 {
            self.pass_on(length, on_line);
        }
    }

    fn pass_on(&mut self, length: usize, on_line: &mut dyn FnMut(&str)) {
        let line = &self.all[self.passed_on..self.passed_on + length];
        on_line(&String::from_utf8_lossy(line));
        self.passed_on += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Finished, Vec<String>) {
        let mut lines = Vec::new();
        let finished = run(Command::new("sh").args(["-c", script]), &mut |line| {
            lines.push(line.to_string());
        })
        .unwrap();
        (finished, lines)
    }

    #[test]
    fn both_streams_are_collected_in_order() {
        let (finished, lines) = shell("echo one; echo two >&2; printf three");
        assert!(finished.success);
        assert_eq!(finished.output, "one\ntwo\nthree");
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn failure_is_seen() {
        let (finished, lines) = shell("exit 3");
        assert!(!finished.success);
        assert!(!finished.interrupted);
        assert!(lines.is_empty());
    }

    #[test]
    fn a_child_reads_nothing() {
        let (finished, _) = shell("cat");
        assert!(finished.success);
    }

    #[test]
    fn what_a_child_leaves_running_does_not_hold_it_up() {
        let before = Instant::now();
        let (finished, _) = shell("sleep 20 & echo $!");
        let sleeper = finished.output.trim().to_string();
        assert!(before.elapsed() < Duration::from_secs(15));
        let ended = Command::new("kill").arg(sleeper).status().unwrap();
        assert!(ended.success());
    }
}
