//! How long it takes to start a program and see its end.

use std::time::Duration;

use super::super::child::{Answer, Job};
use super::super::probes::{Probe, burst};
use super::super::result::Measured;
use super::wake::{LONG, WARMUP};
use crate::clock::monotonic_ns;
use crate::histogram::Latencies;
use crate::thread;

/// Between two launches, as a person or a shell script pauses.
const PAUSE: Duration = Duration::from_millis(2);

/// Processes of a build step, for each CPU.
const STEP: usize = 4;

/// One after the other, beside two hogs for each CPU.
pub fn measure(job: &Job) -> Answer {
    launches(job, WARMUP, 1)
}

/// The same beside hogs that have been running for long.
pub fn longrun(job: &Job) -> Answer {
    launches(job, LONG, 1)
}

/// Several at a time, of which the last one's end counts.
pub fn storm(job: &Job) -> Answer {
    launches(job, WARMUP, STEP * job.cpus)
}

/// `count` processes, and again when all have ended: half of the times that this takes.
fn launches(job: &Job, warmup: Duration, count: usize) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    thread::name_current(c"scale-launch");
    std::thread::sleep(warmup);
    let mut latencies = Latencies::default();
    let start = monotonic_ns();
    while monotonic_ns() - start < job.duration_ns {
        let begun = monotonic_ns();
        burst(count).map_err(|error| format!("cannot start a process: {error}"))?;
        latencies.record_ns(monotonic_ns() - begun);
        std::thread::sleep(PAUSE);
    }
    let wall_ns = monotonic_ns() - start;
    Ok(Measured::latencies(&latencies, wall_ns, |summary| {
        summary.p50
    }))
}
