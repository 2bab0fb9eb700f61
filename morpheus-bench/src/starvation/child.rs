//! The child process: one job on stdin, one result on stdout.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use morpheus_harness::supervised;
use serde::{Deserialize, Serialize};

use super::result::RunResult;
use super::workload::Workload;
use super::{go, run};
use crate::executor::Runtime;
use crate::executor::{morpheus::Morpheus, smol::Smol, tokio::Tokio};
use crate::flagged;

/// The measurement that a child is to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// On what.
    pub runtime: Runtime,
    /// The workload.
    pub workload: Workload,
    /// Calibration of [`crate::work::compute`], the same for all runs.
    pub iterations_per_us: f64,
    /// Process ids of busy neighbours.
    pub neighbours: Vec<u32>,
    /// Whether the histograms themselves are wanted.
    pub histogram: bool,
    /// The Go program, where it is needed.
    pub go_program: Option<PathBuf>,
}

impl Job {
    /// Iterations of [`crate::work::compute`] that take `us` microseconds.
    pub fn iterations(&self, us: f64) -> u64 {
        (us * self.iterations_per_us).round() as u64
    }
}

/// Runs the job and ends the process, whatever state the runtime is in by then.
pub fn main() -> ! {
    supervised::answer("starvation", |job: &Job| {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        // That ends the window early.
        supervised::when_abandoned(move || told.store(true, Relaxed));
        measure(job, &stop)
    })
}

fn measure(job: &Job, stop: &AtomicBool) -> Result<RunResult, String> {
    let workload = &job.workload;
    let said = |error: io::Error| error.to_string();
    if job.runtime.needs_flag() {
        flagged::require()?;
    }
    match job.runtime {
        Runtime::Morpheus | Runtime::MorpheusFlag => {
            let off = workload.off.iter().map(|name| name.parse());
            let off: Vec<_> = off
                .collect::<Result<_, _>>()
                .map_err(|_| "unknown mechanism")?;
            let morpheus = Morpheus::build_with(
                |builder| {
                    builder.worker_threads(workload.workers);
                    builder.confine_to_quota(workload.confine);
                    if let Some(spares) = workload.spares {
                        builder.max_spares(spares);
                    }
                },
                workload.link,
                &off,
            )?;
            run::measure(&morpheus, job, stop).map_err(said)
        }
        Runtime::Tokio { .. } | Runtime::TokioTuned => {
            let (tokio, runtime) = Tokio::build(job.runtime, workload.workers).map_err(said)?;
            let result = run::measure(&tokio, job, stop).map_err(said);
            // Dropping a tokio runtime waits for polls to end: leave it to the end of the process.
            std::mem::forget(runtime);
            result
        }
        Runtime::Smol { extra } => {
            let smol = Smol::build(workload.workers + extra).map_err(said)?;
            run::measure(&smol, job, stop).map_err(said)
        }
        Runtime::Go { extra } => go::measure(job, extra, stop),
    }
}
