//! A compositor: it draws at 60 Hz, computes for a good part of each frame, and has a name that the scheduler knows.

use std::ffi::CStr;
use std::time::Duration;

use super::super::child::{Answer, Job};
use super::super::probes::Probe;
use super::super::result::Measured;
use super::wake::WARMUP;
use crate::clock::monotonic_ns;
use crate::histogram::Latencies;
use crate::jitter::sleep::Call;
use crate::{thread, work};

/// A name on the scheduler's list.
const COMPOSITOR: &CStr = c"sway";
/// Sixty frames a second.
const FRAME_NS: u64 = 16_666_667;
/// CPU time of a frame.
const DRAWING: Duration = Duration::from_millis(9);

/// Beside a hog for each CPU: how long a frame takes, from when it is due.
pub fn measure(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(job.cpus)?;
    std::thread::sleep(WARMUP);
    thread::name_current(COMPOSITOR);
    thread::set_timer_slack(1);
    let mut latencies = Latencies::default();
    let (start, mut frame) = (monotonic_ns(), 0);
    while frame * FRAME_NS < job.duration_ns {
        let due = start + frame * FRAME_NS;
        Call::Nanosleep.sleep_until(due);
        work::burn(DRAWING, |_| ());
        let took_ns = monotonic_ns() - due;
        latencies.record_ns(took_ns);
        // A frame that is late is shown when the next one is due.
        frame += 1 + took_ns.saturating_sub(1) / FRAME_NS;
    }
    let wall_ns = monotonic_ns() - start;
    Ok(Measured::latencies(&latencies, wall_ns, |summary| {
        summary.p50
    }))
}
