//! The parent's side of a run: a child process with its surroundings, watched and ended in time.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::child::Job;
use super::quota::Cgroup;
use super::result::RunResult;
use super::workload::Workload;
use crate::interrupt;
use crate::neighbours::Neighbours;

/// A child may take so much longer than its run for starting, draining and printing.
const GRACE: Duration = Duration::from_secs(20);

/// How long a run is expected to take, for the progress bar.
pub fn expected(workload: &Workload) -> Duration {
    workload.warmup() + workload.expected_window() + Duration::from_millis(300)
}

/// This program again. By the link in /proc, which another user may follow where the path is closed to
/// them, and which still leads here when the file was replaced by a new build.
fn own(uid: Option<u32>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("starvation").stdin(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    command
}

/// Runs one job in a child of its own, as user `uid` if given. `tick` hears how long it has lasted.
pub fn run(mut job: Job, uid: Option<u32>, tick: impl FnMut(Duration)) -> RunResult {
    let runtime = job.runtime;
    let outcome = (|| {
        let neighbours = Neighbours::start(job.workload.neighbours, || own(uid))
            .map_err(|error| format!("cannot start the neighbours: {error}"))?;
        job.neighbours = neighbours.pids();
        let cgroup = job.workload.quota.map(Cgroup::create).transpose()?;
        // Dropped in reverse: the child is gone before its cgroup is removed.
        supervised(&job, uid, cgroup.as_ref(), tick)
    })();
    outcome.unwrap_or_else(|why| RunResult::failed(runtime, why))
}

fn supervised(
    job: &Job,
    uid: Option<u32>,
    cgroup: Option<&Cgroup>,
    tick: impl FnMut(Duration),
) -> Result<RunResult, String> {
    let mut command = own(uid);
    command
        .arg("--child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // A group of its own: Ctrl-C reaches only us, and we end the child with everything it started.
    command.process_group(0);
    let child = command
        .spawn()
        .map_err(|error| format!("cannot start: {error}"))?;
    let mut child = Supervised::new(child)?;
    if let Some(cgroup) = cgroup {
        // Before it gets its job: until then it has one thread.
        cgroup.add(child.child.id())?;
    }
    child
        .send(job)
        .map_err(|error| format!("ended at once: {error}"))?;
    let workload = &job.workload;
    let bound = workload.longest_warmup() + workload.longest_window() + workload.drain() + GRACE;
    let Some(status) = child.wait(bound, tick) else {
        return Err(format!(
            "stands still: no answer within {} s, killed",
            bound.as_secs()
        ));
    };
    let output = child.output();
    serde_json::from_str(output.trim()).map_err(|_| match status.code() {
        Some(code) => format!("no result, exit code {code}"),
        None => format!("no result, {status}"),
    })
}

struct Supervised {
    child: Child,
    ended: bool,
    reader: Option<JoinHandle<String>>,
}

impl Supervised {
    fn new(mut child: Child) -> Result<Self, String> {
        let mut stdout = child.stdout.take().ok_or("no stdout")?;
        // In a thread: the parent must go on watching, and a full pipe must not hold up the child.
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        Ok(Self {
            child,
            ended: false,
            reader: Some(reader),
        })
    }

    fn send(&mut self, job: &Job) -> io::Result<()> {
        let line = serde_json::to_string(job)?;
        let stdin = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Waits for the child's end; `None` when it takes longer than `bound`. Ctrl-C closes its stdin, which
    /// ends its window early.
    fn wait(&mut self, bound: Duration, mut tick: impl FnMut(Duration)) -> Option<ExitStatus> {
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
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn output(&mut self) -> String {
        let reader = self.reader.take();
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
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
