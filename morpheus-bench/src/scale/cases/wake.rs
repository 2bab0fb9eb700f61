//! How late a task wakes that sleeps, beside batch work of several kinds.

use std::time::Duration;

use super::super::child::{Answer, Job};
use super::super::probes::{EDITOR_WORK, Probe};
use super::super::result::Measured;
use crate::clock::monotonic_ns;
use crate::histogram::Latencies;
use crate::jitter::sleep::Call;
use crate::pace::Pace;
use crate::{thread, work};

/// Between two wakes. No multiple of a tick, so that they fall on every part of one.
pub const PERIOD_NS: u64 = 4_900_000;
/// Hogs have by then started.
pub const WARMUP: Duration = Duration::from_millis(700);
/// Batch work has by then been running for long.
pub const LONG: Duration = Duration::from_millis(2_500);

/// Beside two hogs for each CPU.
pub fn latency(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    wakes(job, WARMUP, Duration::ZERO)
}

/// The same while processes are started in bursts.
pub fn burst(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    wakes(job, WARMUP, Duration::ZERO)
}

/// Beside two compressors for each CPU that have been running for long.
pub fn longrun(job: &Job) -> Answer {
    let _compressors = Probe::Grind.start(2 * job.cpus)?;
    wakes(job, LONG, Duration::ZERO)
}

/// Beside a compressor for each CPU, other tasks that work a little, and bursts.
pub fn mixed(job: &Job) -> Answer {
    let _compressors = Probe::Grind.start(job.cpus)?;
    let _others = Probe::Editor.start(job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    wakes(job, WARMUP, EDITOR_WORK)
}

/// The probe's thread: its latencies, once everything else has started.
fn wakes(job: &Job, warmup: Duration, work: Duration) -> Answer {
    std::thread::sleep(warmup);
    let start = monotonic_ns();
    let latencies = probe(job.duration_ns, work);
    let wall_ns = monotonic_ns() - start;
    Ok(Measured::latencies(&latencies, wall_ns, |summary| {
        summary.p99
    }))
}

/// Wakes at a fixed rate for `duration_ns`, and computes for the CPU time `work` each time. Latencies count from the
/// intended wake: one that is so late that the next is due counts for both.
pub fn probe(duration_ns: u64, work: Duration) -> Latencies {
    thread::name_current(c"scale-probe");
    // Slack would be added to what the scheduler does. The slice is left as it is: that is the scheduler's.
    thread::set_timer_slack(1);
    let mut latencies = Latencies::default();
    let start = monotonic_ns();
    let end = start + duration_ns;
    let mut pace = Pace::every(start, PERIOD_NS);
    while pace.due() < end {
        Call::Nanosleep.sleep_until(pace.due());
        let now = monotonic_ns();
        while let Some(due) = pace.take_due(now) {
            latencies.record_ns(now - due);
        }
        if !work.is_zero() {
            work::burn(work, |_| ());
        }
    }
    latencies
}
