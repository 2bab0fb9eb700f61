//! What one run measured, as the child that measured it says it.

use serde::{Deserialize, Serialize};

use crate::executor::{Escalations, Runtime};
use crate::histogram::Summary;
use crate::load::LoadSummary;

/// What hogs did and got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HogSummary {
    /// Polls that ended in the window.
    pub polls: u64,
    /// CPU time of theirs in the window.
    pub cpu_ns: u64,
    /// The same as a share of one CPU: 2.0 are two whole CPUs.
    pub cpu_share: f64,
    /// Hogs that did not come out of their poll after the run, within a generous bound.
    pub unfinished: usize,
    /// Hogs that ended no poll in the whole run.
    pub without_a_poll: usize,
}

/// What innocent busy tasks got done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BusySummary {
    /// Polls a second, of all of them.
    pub polls_per_s: f64,
}

/// What innocents that share a label with hogs saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MixSummary {
    /// Their polls a second.
    pub polls_per_s: f64,
    /// How late they were, in nanoseconds.
    pub late_ns: Summary,
}

/// What an idle runtime did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleSummary {
    /// Times that one of its threads went to sleep again, so was woken.
    pub wakeups: u64,
}

/// The time before anything counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Seconds.
    pub lasted_s: f64,
    /// Whether the wakes had settled by then.
    pub settled: bool,
}

/// One run of one runtime. Times in nanoseconds, `null` where there are too few samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Which runtime.
    pub runtime: Runtime,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// What went before, where it was looked whether it settled.
    #[serde(default)]
    pub warmup: Option<Warmup>,
    /// Seconds that were measured.
    pub elapsed_s: f64,
    /// From an outside thread's wake until the task runs; unserved wakes count with their age.
    pub wake_ns: Summary,
    /// The same from the time at which the wake was meant to be.
    pub wake_intended_ns: Summary,
    /// Wakes that were not served by the end.
    pub wake_unserved: u64,
    /// How late sleepers woke up, from the time meant; each missed period counts.
    pub timer_ns: Summary,
    /// Periods that had not ended by the end.
    #[serde(default)]
    pub timer_unserved: u64,
    /// The TCP clients.
    pub load: Option<LoadSummary>,
    /// The hogs.
    pub hog: Option<HogSummary>,
    /// The innocents that poll and yield.
    pub busy: Option<BusySummary>,
    /// The innocents that share the hogs' label.
    pub mix: Option<MixSummary>,
    /// From the wake by a hog that computes on until the woken task runs.
    pub lifo_ns: Option<Summary>,
    /// Wakeups without any work.
    pub idle: Option<IdleSummary>,
    /// CPU that the other process kept, 1.0 is one CPU.
    pub neighbours_cpu: Option<f64>,
    /// CPU of the controller thread, 1.0 is one CPU.
    pub controller_cpu_share: Option<f64>,
    /// The runtime's own interventions.
    pub escalations: Option<Escalations>,
    /// The histograms as a log, on their way from the process that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
