//! The result of a measurement, and of all of them.

use std::collections::BTreeMap;

use morpheus_harness::histogram::{Latencies, Summary};
use morpheus_harness::host::Host;
use morpheus_harness::rows::Part;
use morpheus_harness::rows::view::distinct;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::soak::Soak;

/// Everything that was measured, or read from files.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Facts about the machine.
    pub host: Option<Host>,
    /// One after the other.
    pub runs: Vec<Run>,
}

/// A case under a scheduler, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `scale`.
    pub bench: String,
    /// The case.
    pub case: Case,
    /// As on the command line.
    pub scheduler: String,
    /// As the kernel calls it; `None` is its own.
    pub ops: Option<String>,
    /// CPUs that were online.
    pub cpus: usize,
    /// From 1.
    pub iteration: usize,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// The figures that were measured.
    pub measured: Option<Measured>,
}

/// The figures of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The figure that schedulers are compared by, in the unit of the case: nanoseconds, bytes or events a second, or a share
    /// of 1. `None` where there were too few samples.
    pub value: Option<f64>,
    /// The latencies that it is a percentile of.
    pub latency_ns: Option<Summary>,
    /// The number of events: wakes, frames, round trips, launches, messages, blocks.
    pub count: u64,
    /// How long it took, in nanoseconds.
    pub wall_ns: u64,
    /// The CPU time that the work took, in nanoseconds, where that is known.
    pub cpu_ns: Option<u64>,
    /// Of the suite `soak`: what was seen from outside.
    pub soak: Option<Soak>,
    /// Of the suite `runtime`: figures beside the one that is compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
}

impl Run {
    /// The outcome, unless it failed.
    pub fn figures(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.failed.is_none())
    }
}

impl Measured {
    /// Latencies, compared by `value` of them.
    pub fn latencies(latencies: &Latencies, wall_ns: u64, value: Part) -> Self {
        let mut summary = latencies.summary();
        // These are not plotted, and a guest's serial line is slow.
        summary.curve = Vec::new();
        Self {
            value: value.of(&summary),
            count: summary.n,
            latency_ns: Some(summary),
            wall_ns,
            ..Self::default()
        }
    }

    fn new(value: f64, count: u64, wall_ns: u64) -> Self {
        Self {
            value: Some(value),
            count,
            wall_ns,
            ..Self::default()
        }
    }

    /// A part of the CPU time that there was.
    pub fn part(value: f64, cpu_ns: u64, wall_ns: u64) -> Self {
        Self {
            cpu_ns: Some(cpu_ns),
            ..Self::new(value, 1, wall_ns)
        }
    }

    /// The longest of some waits.
    pub fn longest(longest_ns: u64, count: u64, wall_ns: u64) -> Self {
        Self::new(longest_ns as f64, count, wall_ns)
    }

    /// The rate of `count` events in `wall_ns`.
    pub fn rate(count: u64, wall_ns: u64) -> Self {
        Self::new(count as f64 * 1e9 / wall_ns.max(1) as f64, count, wall_ns)
    }
}

impl Report {
    /// The numbers of CPUs that were online, in the order in which they came first.
    pub fn cpus(&self) -> Vec<usize> {
        distinct(self.runs.iter().map(|run| run.cpus))
    }

    /// The schedulers, likewise.
    pub fn schedulers(&self) -> Vec<String> {
        distinct(self.runs.iter().map(|run| run.scheduler.clone()))
    }

    /// The cases, in their own order.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = distinct(self.runs.iter().map(|run| run.case));
        cases.sort_unstable();
        cases
    }

    /// The name of a case, with the number of CPUs where there are several.
    pub fn name(&self, case: Case, cpus: usize) -> String {
        match (self.cpus().len(), cpus) {
            (1, _) => case.name(),
            (_, 1) => format!("{}, 1 CPU", case.name()),
            (_, cpus) => format!("{}, {cpus} CPUs", case.name()),
        }
    }

    /// Its runs, failed ones too.
    pub fn of(&self, cpus: usize, case: Case, scheduler: &str) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.cpus == cpus && run.case == case && run.scheduler == scheduler)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run with this figure.
    pub fn run(case: Case, scheduler: &str, iteration: usize, value: f64) -> Run {
        Run {
            bench: "scale".into(),
            case,
            scheduler: scheduler.into(),
            ops: None,
            cpus: 2,
            iteration,
            failed: None,
            measured: Some(Measured {
                value: Some(value),
                count: 1,
                wall_ns: 1,
                ..Measured::default()
            }),
        }
    }

    #[test]
    fn failed_runs_and_those_without_a_figure_have_no_value() {
        let mut failed = run(Case::Latency, "default", 2, 9.0);
        failed.failed = Some("ejected".into());
        let mut few = run(Case::Latency, "default", 3, 0.0);
        few.measured.as_mut().unwrap().value = None;
        let report = Report {
            host: None,
            runs: vec![run(Case::Latency, "default", 1, 5.0), failed, few],
        };
        let of = |cpus| report.of(cpus, Case::Latency, "default");
        let values: Vec<f64> = of(2).filter_map(|run| run.figures()?.value).collect();
        assert_eq!((values, of(2).count()), (vec![5.0], 3));
        assert_eq!(of(4).count(), 0);
    }

    #[test]
    fn names_come_in_the_order_of_the_runs_and_cases_in_their_own() {
        let runs = [(Case::Pipe, "b"), (Case::Latency, "a"), (Case::Pipe, "a")];
        let runs = runs.map(|(case, scheduler)| run(case, scheduler, 1, 1.0));
        let report = Report {
            host: None,
            runs: runs.to_vec(),
        };
        assert_eq!(report.schedulers(), ["b", "a"]);
        assert_eq!(report.cases(), [Case::Latency, Case::Pipe]);
        assert_eq!(report.cpus(), [2]);
    }

    #[test]
    fn latencies_are_compared_by_what_they_are_told() {
        let mut latencies = Latencies::default();
        (1..=2_000).for_each(|us| latencies.record_ns(us * 1_000));
        let measured = Measured::latencies(&latencies, 5, Part::P99);
        assert!((measured.value.unwrap() / 1_980_000.0 - 1.0).abs() < 0.01);
        assert_eq!((measured.count, measured.wall_ns), (2_000, 5));
        assert_eq!(Measured::rate(10, 2_000_000_000).value, Some(5.0));
    }
}
