//! This program again, as a child process with one job on stdin and its answer on stdout: watched, and ended in time.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{interrupt, report};

/// How often a child that says nothing is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Likewise one that has closed its stdout, and so is about to end.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Reads the child's job, which its parent writes to the first line of its stdin. Without one it prints an error and exits
/// with 2.
pub fn job<J: DeserializeOwned>(name: &str) -> J {
    let mut line = String::new();
    let job = io::stdin()
        .read_line(&mut line)
        .map_err(|error| error.to_string())
        .and_then(|_| report::from_json(&line).map_err(|error| error.to_string()));
    job.unwrap_or_else(|error| {
        eprintln!("{name}: no job on stdin ({error}): this is how it calls itself, not for people");
        process::exit(2);
    })
}

/// Does this when the parent closes stdin of a child that has read its job: after Ctrl-C, and when it is killed.
pub fn when_abandoned(act: impl FnOnce() + Send + 'static) {
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        act();
    });
}

/// This program again, under the name it goes by. By the link in /proc, which another user may follow where the path is
/// closed to them, and which still leads here when the file was replaced by a new build.
pub fn own(name: &str) -> Command {
    build_of(name, Path::new("/proc/self/exe"))
}

/// Another build of this program, at `path`, under the name it goes by.
pub fn build_of(name: &str, path: &Path) -> Command {
    let mut command = Command::new(path);
    command.arg0(name).stdin(Stdio::null());
    command
}

/// The child's side of [`ask`]: does the job and ends the process, whatever state a runtime is in by then.
pub fn answer<J: DeserializeOwned, A: Serialize>(
    name: &str,
    measure: impl FnOnce(&J) -> Result<A, String>,
) -> ! {
    let answer = measure(&job(name));
    report::print(&report::json(&answer));
    // Not by returning: tasks may go on for ever, and a runtime waits for its tasks.
    process::exit(0);
}

/// Has `program`, a build of this one ([`own`]), do a job as `--child`, within `bound`. `tick` hears how long it has lasted.
///
/// # Errors
/// The child's own error, or the reason why it gave no answer; the text is for people.
pub fn ask<A: DeserializeOwned>(
    program: Command,
    job: &impl Serialize,
    bound: Duration,
    tick: impl FnMut(Duration),
) -> Result<A, String> {
    ask_in(|_| Ok(()), program, job, bound, tick)
}

/// The same, where the child has to be put somewhere before it gets its job: `place` hears its process id while it has one thread.
///
/// # Errors
/// Those of [`ask`], and that of `place`.
pub fn ask_in<A: DeserializeOwned>(
    place: impl FnOnce(u32) -> Result<(), String>,
    mut program: Command,
    job: &impl Serialize,
    bound: Duration,
    tick: impl FnMut(Duration),
) -> Result<A, String> {
    let mut child = Supervised::start(program.arg("--child"))?;
    place(child.id())?;
    child
        .send(job)
        .map_err(|error| format!("ended at once: {error}"))?;
    let Some(status) = child.wait(bound, tick) else {
        return Err(format!(
            "stands still: no answer within {} s, killed",
            bound.as_secs()
        ));
    };
    report::from_json::<Result<A, String>>(&child.output())
        .map_err(|_| match status.code() {
            Some(code) => format!("no result, exit code {code}"),
            None => format!("no result, {status}"),
        })
        .flatten()
}

/// A child that does not outlive this value.
pub struct Supervised {
    child: Child,
    ended: bool,
    reader: Receiver<String>,
    said: Option<String>,
}

impl Supervised {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started; the text is for people.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: Ctrl-C reaches only us, and we end the child with everything it started.
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start: {error}"))?;
        let mut stdout = child.stdout.take().ok_or("no stdout")?;
        let (sender, reader) = channel();
        // In a thread: the parent must go on watching, and a full pipe must not hold up the child.
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        Ok(Self {
            child,
            ended: false,
            reader,
            said: None,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a job, as a line of JSON.
    ///
    /// # Errors
    /// When it does not read: it has ended.
    pub fn send(&mut self, job: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(job)?;
        let stdin = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Waits for the child's end; `None` when it takes longer than `bound`. Ctrl-C closes its stdin, which
    /// is to end its window early. `tick` hears how long it has lasted.
    pub fn wait(&mut self, bound: Duration, mut tick: impl FnMut(Duration)) -> Option<ExitStatus> {
        let start = Instant::now();
        let mut deadline = start + bound;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.ended = true;
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            if interrupt::happened() && self.child.stdin.take().is_some() {
                deadline = deadline.min(Instant::now() + Duration::from_secs(10));
            }
            tick(start.elapsed());
            if self.said.is_some() {
                std::thread::sleep(LAST_LOOK);
            } else {
                self.said = self.reader.recv_timeout(LOOK).ok();
            }
        }
    }

    /// All that it printed.
    pub fn output(&mut self) -> String {
        let said = self.said.take().or_else(|| self.reader.recv().ok());
        said.unwrap_or_default()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // SAFETY: kill touches no memory. The group is the child's own (process_group(0)), and its id
        // cannot have been given to another as long as the child is not waited for.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Supervised {
        Supervised::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_job_goes_in_and_an_answer_comes_out() {
        let mut child = shell("read line; echo \"got $line\"");
        child.send(&[1, 2]).unwrap();
        let status = child.wait(Duration::from_secs(60), |_| ()).unwrap();
        assert!(status.success());
        assert_eq!(child.output(), "got [1,2]\n");
    }

    #[test]
    fn who_stands_still_is_ended() {
        let mut child = shell("exec sleep 1000");
        let id = child.id();
        let mut ticks = 0;
        assert!(
            child
                .wait(Duration::from_millis(120), |_| ticks += 1)
                .is_none()
        );
        assert!(ticks > 0);
        drop(child);
        assert!(crate::clock::cpu_of_process(id).is_err(), "it is gone");
    }
}
