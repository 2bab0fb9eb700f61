//! The parent's side of a run: a child process with its surroundings, watched and ended in time.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use morpheus_harness::supervised;

use super::child::Job;
use super::quota::Cgroup;
use super::result::RunResult;
use super::workload::Workload;
use crate::flagged;
use crate::neighbours::Neighbours;

/// A child may take this much longer than its run for starting, draining and printing.
const GRACE: Duration = Duration::from_secs(20);

/// How long a run is expected to take, for the progress bar.
pub fn expected(workload: &Workload) -> Duration {
    workload.warmup() + workload.expected_window() + Duration::from_millis(300)
}

fn as_user(mut command: Command, uid: Option<u32>) -> Command {
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    command
}

/// Runs one job in a child of its own, as user `uid` if given. `tick` hears how long it has lasted.
pub fn run(job: Job, uid: Option<u32>, tick: impl FnMut(Duration)) -> RunResult {
    let runtime = job.runtime;
    supervised(job, uid, tick).unwrap_or_else(|why| RunResult::failed(runtime, why))
}

fn supervised(
    mut job: Job,
    uid: Option<u32>,
    tick: impl FnMut(Duration),
) -> Result<RunResult, String> {
    let own = || as_user(supervised::own("starvation"), uid);
    let neighbours = Neighbours::start(job.workload.neighbours, own)
        .map_err(|error| format!("cannot start the neighbours: {error}"))?;
    job.neighbours = neighbours.pids();
    // Dropped in reverse: the child is gone before its cgroup is removed.
    let cgroup = job.workload.quota.map(Cgroup::create).transpose()?;
    let program = match job.runtime.needs_flag() {
        true => as_user(flagged::command("starvation")?, uid),
        false => own(),
    };
    let workload = &job.workload;
    let bound = workload.longest_warmup() + workload.longest_window() + workload.drain() + GRACE;
    let place = |child| cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.add(child));
    supervised::ask_in(place, program, &job, bound, tick)
}
