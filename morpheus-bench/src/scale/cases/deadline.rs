//! Frames of a game or a player, a quarter of which is computed, in pieces, and of a compositor, whose name the scheduler knows.

use std::ffi::CStr;
use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::rows::Part;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::probes::Probe;
use super::super::result::Measured;
use super::wake::WARMUP;
use crate::jitter::sleep::Call;
use crate::work;

/// Sixty frames a second.
const FRAME_NS: u64 = 16_666_667;
/// Pieces of a frame.
const PIECES: u32 = 4;
/// CPU time of a piece: a quarter of the frame together.
const PIECE: Duration = Duration::from_nanos(FRAME_NS / 4 / PIECES as u64);
/// Between two pieces: as if waiting for a device.
const PAUSE_NS: u64 = 1_000_000;

/// A name on the scheduler's list of compositors.
const COMPOSITOR: &CStr = c"sway";
/// CPU time of a compositor's frame: a good part of it.
const DRAWING: Duration = Duration::from_millis(9);

/// A game or a player beside two hogs for each CPU: the share of its frames that are late.
pub fn measure(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    let (latencies, frames, wall_ns) = show(job, c"scale-frames", || {
        for piece in 0..PIECES {
            if piece > 0 {
                Call::Nanosleep.sleep_until(monotonic_ns() + PAUSE_NS);
            }
            work::burn(PIECE, |_| ());
        }
    });
    let mut measured = Measured::latencies(&latencies, wall_ns, Part::P50);
    measured.value = frames.missed_share();
    measured.count = frames.begun;
    Ok(measured)
}

/// A compositor beside a hog for each CPU: how long a frame takes, from when it is due.
pub fn compositor(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(job.cpus)?;
    let (latencies, _, wall_ns) = show(job, COMPOSITOR, || work::burn(DRAWING, |_| ()));
    Ok(Measured::latencies(&latencies, wall_ns, Part::P50))
}

/// The frames of a task of this name, how long each took, and how long all took. As on a screen: each 16.6 ms a frame is due, and
/// where the last one is not ready yet, that is a miss; the next one begins when a frame is due again.
fn show(job: &Job, name: &CStr, draw: impl Fn()) -> (Latencies, Frames, u64) {
    std::thread::sleep(WARMUP);
    thread::name_current(name);
    thread::set_timer_slack(1);
    let mut latencies = Latencies::default();
    let (start, mut frames) = (monotonic_ns(), Frames::default());
    while frames.begun * FRAME_NS < job.duration_ns {
        let due = start + frames.begun * FRAME_NS;
        Call::Nanosleep.sleep_until(due);
        draw();
        let took_ns = monotonic_ns() - due;
        latencies.record_ns(took_ns);
        frames.end_after(took_ns);
    }
    (latencies, frames, monotonic_ns() - start)
}

/// Frames by now.
#[derive(Debug, Default, PartialEq)]
struct Frames {
    /// How often one was due.
    begun: u64,
    /// How often none was ready then.
    missed: u64,
}

impl Frames {
    /// A frame was ready `took_ns` after its start.
    fn end_after(&mut self, took_ns: u64) {
        // A frame that is ready just at the next one's start is in time.
        let over = took_ns.saturating_sub(1) / FRAME_NS;
        self.begun += 1 + over;
        self.missed += over;
    }

    fn missed_share(&self) -> Option<f64> {
        (self.begun > 0).then(|| self.missed as f64 / self.begun as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_frame_is_a_miss_for_each_time_that_one_was_due() {
        let mut frames = Frames::default();
        assert_eq!(frames.missed_share(), None);
        frames.end_after(8_000_000);
        frames.end_after(FRAME_NS);
        assert_eq!(frames.missed_share(), Some(0.0));
        frames.end_after(FRAME_NS + 2);
        assert_eq!(
            frames,
            Frames {
                begun: 4,
                missed: 1
            }
        );
        frames.end_after(3 * FRAME_NS + 9);
        assert_eq!(
            frames,
            Frames {
                begun: 8,
                missed: 4
            }
        );
    }
}
