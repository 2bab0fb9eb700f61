//! Runs one child: collects its output, and ends it with all that it started when this program is asked to end.

use std::io::{self, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
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
    /// The exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output and standard error, in the order they came.
    pub(crate) output: String,
    /// This program was asked to end meanwhile, so it ended the child.
    pub(crate) interrupted: bool,
}

/// Where a child printed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// This program was asked to end meanwhile, so it ended the child.
    pub(crate) interrupted: bool,
    /// The child took too long, so it was ended.
    pub(crate) timed_out: bool,
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
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = spawn(command)?;
    let (sender, chunks) = mpsc::channel();
    read(reader, Stream::Stdout, sender);

    let mut output = Output::default();
    let ending = follow(child, &chunks, None, &mut |_, chunk| {
        output.add(chunk, on_line);
    })?;
    output.end(on_line);
    Ok(Finished {
        success: ending.status.success() && !ending.interrupted,
        code: ending.status.code(),
        output: String::from_utf8_lossy(&output.all).into_owned(),
        interrupted: ending.interrupted,
    })
}

/// Runs `command` to its end, for `limit` at most, and calls `on_chunk` with what it prints, as it comes.
///
/// `on_start` is told its process number. Otherwise as [`run`].
///
/// # Errors
///
/// It cannot be started or waited for.
pub(crate) fn stream(
    command: &mut Command,
    limit: Duration,
    on_start: &mut dyn FnMut(u32),
    on_chunk: &mut dyn FnMut(Stream, &[u8]),
) -> io::Result<Ending> {
    let (stdout, stdout_writer) = io::pipe()?;
    let (stderr, stderr_writer) = io::pipe()?;
    command.stdout(stdout_writer).stderr(stderr_writer);
    let child = spawn(command)?;
    on_start(child.id());
    let (sender, chunks) = mpsc::channel();
    read(stdout, Stream::Stdout, sender.clone());
    read(stderr, Stream::Stderr, sender);
    follow(child, &chunks, Some(Instant::now() + limit), on_chunk)
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    // The command holds the writing ends of the pipes: while it does, reading finds no end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(child)
}

fn read(mut reader: PipeReader, stream: Stream, sender: Sender<(Stream, Vec<u8>)>) {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count) = reader.read(&mut buffer) {
            if count == 0 || sender.send((stream, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
}

/// Passes chunks on until the child has ended and its pipes are empty.
fn follow(
    mut child: Child,
    chunks: &Receiver<(Stream, Vec<u8>)>,
    deadline: Option<Instant>,
    on_chunk: &mut dyn FnMut(Stream, &[u8]),
) -> io::Result<Ending> {
    let mut asked_at: Option<Instant> = None;
    let mut interrupted = false;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut closed = false;
    loop {
        if closed {
            thread::sleep(TICK / 10);
        } else {
            match chunks.recv_timeout(TICK) {
                Ok((stream, chunk)) => on_chunk(stream, &chunk),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => closed = true,
            }
        }
        if ended.is_none() {
            // The group is signalled only before its leader is reaped: until then its number cannot mean another group.
            match asked_at {
                None if interrupt::came() => {
                    asked_at = Some(Instant::now());
                    interrupted = true;
                    interrupt::take();
                    signal_group(&child, libc::SIGTERM);
                }
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    asked_at = Some(Instant::now());
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
            return Ok(Ending {
                status,
                interrupted,
                timed_out: asked_at.is_some() && !interrupted,
            });
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
#[derive(Debug, Default)]
pub(crate) struct Output {
    all: Vec<u8>,
    passed_on: usize,
}

impl Output {
    pub(crate) fn add(&mut self, chunk: &[u8], on_line: &mut dyn FnMut(&str)) {
        self.all.extend_from_slice(chunk);
        while let Some(length) = self.all[self.passed_on..].iter().position(|&b| b == b'\n') {
            self.pass_on(length, on_line);
            self.passed_on += 1;
        }
    }

    /// A last line without an end is a line too.
    pub(crate) fn end(&mut self, on_line: &mut dyn FnMut(&str)) {
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
        assert_eq!(finished.code, Some(3));
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

    #[test]
    fn streams_are_told_apart() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 4"]);
        let (mut out, mut err, mut pid) = (Vec::new(), Vec::new(), 0);
        let ending = stream(
            &mut command,
            Duration::from_secs(60),
            &mut |number| pid = number,
            &mut |stream, chunk| match stream {
                Stream::Stdout => out.extend_from_slice(chunk),
                Stream::Stderr => err.extend_from_slice(chunk),
            },
        )
        .unwrap();
        assert_eq!(
            (out.as_slice(), err.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
        assert_eq!(ending.status.code(), Some(4));
        assert!(pid > 0 && !ending.timed_out && !ending.interrupted);
    }

    #[test]
    fn who_takes_too_long_is_ended() {
        let before = Instant::now();
        let ending = stream(
            Command::new("sleep").arg("60"),
            Duration::from_millis(200),
            &mut |_| {},
            &mut |_, _| {},
        )
        .unwrap();
        assert!(ending.timed_out && !ending.interrupted);
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}
