//! How long it takes to start a program and see its end.

use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::rows::Part;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::probes::{Probe, burst};
use super::super::result::Measured;

/// Between two launches, as a person or a shell script pauses.
const PAUSE: Duration = Duration::from_millis(2);

/// Beside two hogs for each CPU that have been running for `warmup`: `count` processes at a time, of which the last one's end
/// counts, and again when all have ended. Half of the times that this takes.
pub fn measure(job: &Job, warmup: Duration, count: usize) -> Answer {
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
    Ok(Measured::latencies(&latencies, wall_ns, Part::P50))
}
