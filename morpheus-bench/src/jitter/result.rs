//! What `--json` prints. Times in nanoseconds.

use serde::{Deserialize, Serialize};

use super::answer;
use super::config::Options;
use super::plan::{Measured, Series, Warmup};
use super::sleep::Call;
use crate::histogram::{Counts, Summary};
use crate::host::Host;
use crate::idle::Residency;
use crate::interrupt;
use crate::policy::Policy;
use crate::stats::{self, Median};

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `jitter`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// How the thread was scheduled.
    pub policy: Policy,
    /// With which priority; 0 where the policy has none.
    pub priority: u8,
    /// The CPU that it was kept on.
    pub cpu: Option<usize>,
    /// Before anything counted.
    pub warmup: Warmup,
    /// One for each kind of sleep.
    pub rows: Vec<Row>,
    /// With `--sweep`: whether longer sleeps wake later, and why.
    pub answer: Option<String>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// Figures of one kind of sleep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// How long each sleep was.
    pub interval_ns: u64,
    /// What it was made by.
    pub call: Call,
    /// The timer slack that was asked for.
    pub slack_ns: u64,
    /// The timer slack that the thread had.
    pub slack_in_force_ns: u64,
    /// Busy processes beside it.
    pub load: usize,
    /// What the lateness counts.
    pub counts: Counts,
    /// Mean lateness.
    pub mean_ns: Option<f64>,
    /// Its standard deviation.
    pub deviation_ns: Option<f64>,
    /// The median with its interval.
    pub median_ns: Option<Median>,
    /// Percentiles of the lateness.
    pub lateness_ns: Summary,
    /// The same corrected, where they are raw.
    pub corrected_ns: Option<Summary>,
    /// What the CPU did meanwhile.
    pub idle: Vec<Residency>,
}

impl Report {
    /// Of what was measured.
    pub fn new(host: Host, options: &Options, measured: &Measured) -> Self {
        let rows: Vec<Row> = measured.series.iter().map(Row::new).collect();
        Self {
            bench: "jitter".into(),
            policy: options.policy,
            priority: options.priority_in_force(),
            cpu: options.pinned_to(),
            warmup: measured.warmup,
            answer: options
                .sweep
                .then(|| answer::answer(&rows, &host, options.policy)),
            host,
            rows,
            interrupted: interrupt::happened(),
        }
    }
}

impl Row {
    fn new(series: &Series) -> Self {
        let condition = series.condition;
        Self {
            interval_ns: condition.interval.as_nanos() as u64,
            call: condition.call,
            slack_ns: condition.slack_ns,
            slack_in_force_ns: series.slack_ns,
            load: condition.load,
            counts: series.counts(),
            mean_ns: stats::mean(&series.values),
            deviation_ns: stats::deviation(&series.values),
            median_ns: Median::of(&series.values),
            lateness_ns: series.lateness.summary(),
            corrected_ns: series.corrected().map(|c| c.latencies.summary()),
            idle: series.idle.clone(),
        }
    }
}
