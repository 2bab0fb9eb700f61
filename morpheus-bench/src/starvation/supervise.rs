//! The parent's side of a run: a child process with its surroundings, watched and ended in time.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::child::Job;
use super::quota::Cgroup;
use super::result::RunResult;
use super::workload::Workload;
use crate::flagged;
use crate::neighbours::Neighbours;
use crate::supervised;

/// A child may take so much longer than its run for starting, draining and printing.
const GRACE: Duration = Duration::from_secs(20);

/// How long a run is expected to take, for the progress bar.
pub fn expected(workload: &Workload) -> Duration {
    workload.warmup() + workload.expected_window() + Duration::from_millis(300)
}

/// This program again, as that user.
fn own(uid: Option<u32>) -> Command {
    as_user(supervised::own("starvation"), uid)
}

fn as_user(mut command: Command, uid: Option<u32>) -> Command {
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
    let program = match job.runtime.needs_flag() {
        true => as_user(flagged::command("starvation")?, uid),
        false => own(uid),
    };
    let workload = &job.workload;
    let bound = workload.longest_warmup() + workload.longest_window() + workload.drain() + GRACE;
    let place = |child| cgroup.map_or(Ok(()), |cgroup| cgroup.add(child));
    supervised::ask_in(place, program, job, bound, tick)
}
