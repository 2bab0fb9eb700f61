//! The child process: one measurement, from a job on stdin to an answer on stdout.

use std::process;
use std::time::Duration;

use morpheus_harness::{supervised, thread};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::result::Measured;
use crate::executor::morpheus::LinkName;

/// The measurement that a child is to make.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The case.
    pub case: Case,
    /// CPUs that are online.
    pub cpus: usize,
    /// For how long.
    pub duration_ns: u64,
    /// How a runtime learns of stalled workers under the scheduler in force.
    pub link: LinkName,
    /// Blocks of text that a CPU compresses in a second: the same for all, so that all have the same work to do.
    pub blocks_per_s: f64,
}

impl Job {
    /// For how long.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns)
    }
}

/// The answer of a child.
pub type Answer = Result<Measured, String>;

/// Does the job and ends the process.
pub fn main() -> ! {
    thread::die_with_parent();
    supervised::answer("scale", |job: &Job| {
        // Half a measurement is none. A process that was started ends with the thread that started it.
        supervised::when_abandoned(|| process::exit(1));
        (job.case.about().measure)(job)
    })
}
