//! The results of one run, as its child reports them.

use morpheus_harness::histogram::Summary;
use serde::{Deserialize, Serialize};

use crate::executor::{Escalations, Runtime};
use crate::load::LoadSummary;

/// The polls and the CPU time of the hogs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HogSummary {
    /// Polls that ended in the window.
    pub polls: u64,
    /// CPU time of theirs in the window, as a share of one CPU: 2.0 are two whole CPUs.
    pub cpu_share: f64,
    /// Hogs that did not come out of their poll after the run, within a generous bound.
    pub unfinished: usize,
    /// Hogs that ended no poll in the whole run.
    pub without_a_poll: usize,
}

/// One run of one runtime. Times in nanoseconds, `null` where there are too few samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Which runtime.
    pub runtime: Runtime,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// Whether the wakes had settled when counting began, where this was looked at.
    pub settled: Option<bool>,
    /// Seconds that were measured.
    pub elapsed_s: f64,
    /// From an outside thread's wake until the task runs; wakes that were not served by the end are pending.
    pub wake_ns: Summary,
    /// The same from the time at which the wake was meant to be.
    pub wake_intended_ns: Summary,
    /// How late sleepers woke up, from the time meant; each missed period counts, and is pending if it had not ended by the end.
    pub timer_ns: Summary,
    /// The TCP clients.
    pub load: Option<LoadSummary>,
    /// The hogs.
    pub hog: Option<HogSummary>,
    /// Polls a second of all innocents that poll and yield.
    pub busy_polls_per_s: Option<f64>,
    /// Polls a second of the innocents that share the hogs' label.
    pub mix_polls_per_s: Option<f64>,
    /// How late those were.
    pub mix_late_ns: Option<Summary>,
    /// From the wake by a hog that computes on until the woken task runs.
    pub lifo_ns: Option<Summary>,
    /// Without any work, times that a thread of the runtime went to sleep again, so was woken.
    pub wakeups: Option<u64>,
    /// CPU that the other process kept, 1.0 is one CPU.
    pub neighbours_cpu: Option<f64>,
    /// CPU of the controller thread, 1.0 is one CPU.
    pub controller_cpu_share: Option<f64>,
    /// The runtime's own interventions.
    pub escalations: Option<Escalations>,
    /// The histograms as a log, on their way from the process that measured.
    pub log: Option<String>,
}

impl RunResult {
    /// A run with no figures (yet).
    pub fn empty(runtime: Runtime) -> Self {
        Self {
            runtime,
            ..Self::default()
        }
    }

    /// A run that gave no figures.
    pub fn failed(runtime: Runtime, why: impl Into<String>) -> Self {
        Self {
            failed: Some(why.into()),
            ..Self::empty(runtime)
        }
    }
}
