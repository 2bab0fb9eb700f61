//! What `--json` prints. Times in nanoseconds.

use serde::{Deserialize, Serialize};

use super::config::Options;
use super::cost::Cost as MeasuredCost;
use super::open::{ITERATIONS, Measured};
use crate::histogram::{Counts, Summary};
use crate::host::Host;
use crate::interrupt;
use crate::pairs::{Bar, Pairs, Verdict};

/// At most so much of the work may checkpoints cost.
pub const BAR: f64 = 0.005;
/// From this share of the asked rate on it is reached: the rest is the edge of the window.
const REACHED: f64 = 0.99;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `latency`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// Workers of the runtime.
    pub workers: usize,
    /// The link in force.
    pub link: String,
    /// Whether a busy process ran for each CPU.
    pub pressure: bool,
    /// Whether operations passed checkpoints.
    pub with_checkpoints: bool,
    /// Iterations from one to the next.
    pub checkpoint_every: usize,
    /// Operations at a rate.
    pub open: Option<Open>,
    /// With `--paired`.
    pub cost: Option<Cost>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// Operations at a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// Seconds that were measured.
    pub duration_s: f64,
    /// Seconds before.
    pub warmup_s: f64,
    /// Whether the median had settled by then.
    pub settled: bool,
    /// Operations done.
    pub operations: u64,
    /// Of those that were meant to be.
    pub asked: u64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// That were asked for, of all workers together.
    pub asked_per_s: f64,
    /// Why it is less, where it is.
    pub why_not: Option<String>,
    /// What the response time counts.
    pub response_counts: Counts,
    /// From the intended start to the end.
    pub response_ns: Summary,
    /// What the service time counts.
    pub service_counts: Counts,
    /// From the start to the end.
    pub service_ns: Summary,
    /// How late the thread was that starts them.
    pub clock_late_ns: Summary,
}

/// What checkpoints cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// All pairs.
    pub pairs: Pairs,
    /// What they show.
    pub verdict: Verdict,
    /// The bar, as a share.
    pub bar: f64,
    /// Against it.
    pub judged: Bar,
    /// CPU time of an operation without checkpoints.
    pub operation_ns: f64,
    /// What one checkpoint takes, by the medians.
    pub checkpoint_ns: f64,
    /// In an operation.
    pub checkpoints: usize,
    /// Tasks that computed.
    pub tasks: usize,
}

impl Open {
    /// Of what was measured.
    pub fn new(measured: &Measured, options: &Options, iterations_per_us: f64) -> Self {
        let seconds = measured.lasted.as_secs_f64().max(1e-9);
        let mut open = Self {
            duration_s: seconds,
            warmup_s: measured.warmup.as_secs_f64(),
            settled: measured.settled,
            operations: measured.done,
            asked: measured.asked,
            ops_per_s: measured.done as f64 / seconds,
            asked_per_s: options.ops_per_second * options.workers as f64,
            why_not: None,
            response_counts: Counts::FromIntendedStart,
            response_ns: measured.response.summary(),
            service_counts: Counts::Raw,
            service_ns: measured.service.summary(),
            clock_late_ns: measured.clock.summary(),
        };
        let work_ns = ITERATIONS as f64 / iterations_per_us * 1e3;
        open.why_not = open.why_not(work_ns);
        open
    }

    /// In the order of what rules the rest out.
    fn why_not(&self, work_ns: f64) -> Option<String> {
        if self.ops_per_s >= REACHED * self.asked_per_s {
            return None;
        }
        let cpus = crate::host::cpus();
        let needed = self.asked_per_s * work_ns / 1e9;
        let late = self.clock_late_ns.p50.unwrap_or(0);
        let missing = self.asked - self.operations.min(self.asked);
        Some(if needed > 0.9 * cpus as f64 {
            format!("the computing alone needs {needed:.1} of {cpus} CPUs")
        } else if late > 100_000_000 {
            format!(
                "the thread that starts operations is late itself, by {} in the median: waking tasks at this rate \
                 takes more CPU than there is beside the computing ({needed:.1} of {cpus} CPUs)",
                crate::report::time(late)
            )
        } else {
            format!(
                "{} operations were started and not done by the end: the computing needs {needed:.1} of {cpus} CPUs, \
                 the rest goes to waking tasks and to others on this machine",
                crate::report::count(missing)
            )
        })
    }
}

impl Cost {
    fn new(cost: MeasuredCost) -> Self {
        let verdict = cost.pairs.verdict();
        Self {
            verdict,
            bar: BAR,
            judged: verdict.judge(BAR),
            operation_ns: cost.operation_ns,
            checkpoint_ns: cost.more_ns / cost.checkpoints as f64,
            checkpoints: cost.checkpoints,
            tasks: cost.tasks,
            pairs: cost.pairs,
        }
    }
}

impl Report {
    /// Of what was measured.
    pub fn new(
        host: Host,
        options: &Options,
        link: String,
        open: Option<Open>,
        cost: Option<MeasuredCost>,
    ) -> Self {
        Self {
            bench: "latency".into(),
            host,
            workers: options.workers,
            link,
            pressure: options.pressure,
            with_checkpoints: options.with_checkpoints,
            checkpoint_every: options.checkpoint_every,
            open,
            cost: cost.map(Cost::new),
            interrupted: interrupt::happened(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// So many operations a second of 40,000.
    pub fn open(ops_per_s: f64, late_ns: u64) -> Open {
        let summary = |ns| Summary {
            n: 10_000,
            p50: Some(ns),
            p99: Some(9 * ns),
            p999: None,
            max: Some(99 * ns),
            ..Summary::default()
        };
        Open {
            duration_s: 1.0,
            warmup_s: 0.3,
            settled: true,
            operations: ops_per_s as u64,
            asked: 40_000,
            ops_per_s,
            asked_per_s: 40_000.0,
            why_not: None,
            response_counts: Counts::FromIntendedStart,
            response_ns: summary(50_000),
            service_counts: Counts::Raw,
            service_ns: summary(2_000),
            clock_late_ns: summary(late_ns),
        }
    }

    #[test]
    fn a_missed_rate_has_a_reason() {
        assert_eq!(open(39_700.0, 50_000).why_not(2_000.0), None);
        let cpus = crate::host::cpus() as f64;
        let full = open(20_000.0, 50_000)
            .why_not(cpus * 1e9 / 40_000.0)
            .unwrap();
        assert!(full.contains("the computing alone needs"), "{full}");
        let late = open(20_000.0, 300_000_000).why_not(2_000.0).unwrap();
        assert!(late.contains("late itself, by 300 ms"), "{late}");
        let other = open(20_000.0, 50_000).why_not(2_000.0).unwrap();
        assert!(
            other.contains("20,000 operations were started and not done"),
            "{other}"
        );
    }
}
