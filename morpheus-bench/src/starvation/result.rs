//! What one run measured, and the JSON object of a whole benchmark.

use serde::{Deserialize, Serialize};

use super::workload::Workload;
use crate::executor::{Escalations, Runtime};
use crate::histogram::{Summary, median};
use crate::host::Host;
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
    /// The round, from 0; `null` for medians over rounds.
    pub round: Option<usize>,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// What went before, where somebody looked whether it settled; of medians the longest, and whether all settled.
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

    /// The median of every figure over the rounds of one runtime. Failed rounds are left out unless all
    /// failed; counts that must not hide (unfinished, unserved, peaks) are the worst round's.
    ///
    /// # Panics
    /// When there are no rounds.
    pub fn median(rounds: &[Self]) -> Self {
        let good: Vec<&Self> = rounds.iter().filter(|run| run.failed.is_none()).collect();
        let Some(first) = good.first() else {
            return Self {
                round: None,
                ..rounds[0].clone()
            };
        };
        let number = |figure: &dyn Fn(&Self) -> Option<f64>| {
            median(good.iter().filter_map(|run| figure(run)).collect())
        };
        let summary =
            |figure: fn(&Self) -> &Summary| Summary::median(good.iter().map(|run| figure(run)));
        Self {
            runtime: first.runtime,
            round: None,
            failed: None,
            warmup: longest_warmup(&good),
            elapsed_s: number(&|run| Some(run.elapsed_s)).unwrap_or_default(),
            wake_ns: summary(|run| &run.wake_ns),
            wake_intended_ns: summary(|run| &run.wake_intended_ns),
            wake_unserved: good.iter().map(|run| run.wake_unserved).max().unwrap_or(0),
            timer_ns: summary(|run| &run.timer_ns),
            load: first.load.as_ref().map(|load| LoadSummary {
                requests_per_s: number(&|run| Some(run.load.as_ref()?.requests_per_s))
                    .unwrap_or_default(),
                wanted_per_s: load.wanted_per_s,
                latency_ns: Summary::median(
                    good.iter()
                        .filter_map(|run| Some(&run.load.as_ref()?.latency_ns)),
                ),
            }),
            hog: median_hog(&good),
            busy: number(&|run| Some(run.busy.as_ref()?.polls_per_s))
                .map(|polls_per_s| BusySummary { polls_per_s }),
            mix: number(&|run| Some(run.mix.as_ref()?.polls_per_s)).map(|polls_per_s| MixSummary {
                polls_per_s,
                late_ns: Summary::median(
                    good.iter()
                        .filter_map(|run| Some(&run.mix.as_ref()?.late_ns)),
                ),
            }),
            lifo_ns: first
                .lifo_ns
                .as_ref()
                .map(|_| Summary::median(good.iter().filter_map(|run| run.lifo_ns.as_ref()))),
            idle: number(&|run| Some(run.idle.as_ref()?.wakeups as f64)).map(|wakeups| {
                IdleSummary {
                    wakeups: wakeups as u64,
                }
            }),
            neighbours_cpu: number(&|run| run.neighbours_cpu),
            controller_cpu_share: number(&|run| run.controller_cpu_share),
            escalations: median_escalations(&good),
            log: None,
        }
    }
}

fn longest_warmup(rounds: &[&RunResult]) -> Option<Warmup> {
    rounds
        .iter()
        .filter_map(|run| run.warmup)
        .reduce(|a, b| Warmup {
            lasted_s: a.lasted_s.max(b.lasted_s),
            settled: a.settled && b.settled,
        })
}

fn median_hog(rounds: &[&RunResult]) -> Option<HogSummary> {
    let hogs: Vec<&HogSummary> = rounds.iter().filter_map(|run| run.hog.as_ref()).collect();
    let of = |figure: fn(&HogSummary) -> f64| median(hogs.iter().map(|hog| figure(hog)).collect());
    Some(HogSummary {
        polls: of(|hog| hog.polls as f64)? as u64,
        cpu_ns: of(|hog| hog.cpu_ns as f64)? as u64,
        cpu_share: of(|hog| hog.cpu_share)?,
        unfinished: hogs.iter().map(|hog| hog.unfinished).max()?,
        without_a_poll: hogs.iter().map(|hog| hog.without_a_poll).max()?,
    })
}

fn median_escalations(rounds: &[&RunResult]) -> Option<Escalations> {
    let all: Vec<&Escalations> = rounds
        .iter()
        .filter_map(|run| run.escalations.as_ref())
        .collect();
    let of = |figure: fn(&Escalations) -> u64| {
        median(all.iter().map(|e| figure(e) as f64).collect()).map(|value| value as u64)
    };
    Some(Escalations {
        requests: of(|e| e.requests)?,
        takeovers: of(|e| e.takeovers)?,
        demotions: of(|e| e.demotions)?,
        throttles: of(|e| e.throttles)?,
        convictions: of(|e| e.convictions)?,
        spares_peak: all.iter().map(|e| e.spares_peak).max()?,
        in_place_peak: all.iter().map(|e| e.in_place_peak).max()?,
        in_place_polls: of(|e| e.in_place_polls)?,
        controller_cpu_ns: of(|e| e.controller_cpu_ns)?,
        link: all.first()?.link.clone(),
        link_events: of(|e| e.link_events)?,
        detection_p50_ns: of(|e| e.detection_p50_ns)?,
        detection_p99_ns: of(|e| e.detection_p99_ns)?,
        takeover_p50_ns: of(|e| e.takeover_p50_ns)?,
        takeover_p99_ns: of(|e| e.takeover_p99_ns)?,
    })
}

/// The object that `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `starvation`.
    pub bench: String,
    /// The machine.
    pub host: Host,
    /// What was put on the runtimes.
    pub config: Workload,
    /// Every run, in the order they were done.
    pub runs: Vec<RunResult>,
    /// Per runtime the medians over its rounds.
    pub medians: Vec<RunResult>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    fn run(p99: u64, unserved: u64) -> RunResult {
        RunResult {
            wake_ns: Summary {
                n: 1_000,
                p50: Some(1),
                p99: Some(p99),
                p999: None,
                max: Some(p99),
                ..Summary::default()
            },
            wake_unserved: unserved,
            hog: Some(HogSummary::default()),
            escalations: Some(Escalations::default()),
            ..RunResult::empty(Runtime::TOKIO_32_SLICE)
        }
    }

    #[test]
    fn medians_leave_failed_rounds_out_and_show_the_worst_count() {
        let rounds = [
            run(10, 0),
            RunResult::failed(Runtime::TOKIO_32_SLICE, "stands still"),
            run(30, 7),
            run(20, 1),
        ];
        let median = RunResult::median(&rounds);
        assert_eq!((median.wake_ns.p99, median.wake_unserved), (Some(20), 7));
        assert_eq!((median.failed, median.round), (None, None));
        let failed = RunResult::median(&rounds[1..2]);
        assert_eq!(failed.failed.as_deref(), Some("stands still"));
    }

    #[test]
    fn the_json_has_the_agreed_fields() {
        let report = Report {
            bench: "starvation".into(),
            host: Host::read(),
            config: workload(),
            runs: vec![run(10, 0)],
            medians: Vec::new(),
            interrupted: false,
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["bench"], "starvation");
        let run = &json["runs"][0];
        assert_eq!(run["runtime"], "tokio+32+slice");
        assert_eq!(run["wake_ns"]["p99"], 10);
        assert!(run["wake_ns"]["p999"].is_null() && run["load"].is_null());
        for field in ["n", "p50", "p99", "p999", "max"] {
            assert!(run["timer_ns"].get(field).is_some(), "{field}");
        }
        for field in ["polls", "cpu_ns", "cpu_share"] {
            assert!(run["hog"].get(field).is_some(), "{field}");
        }
        let counts = [
            "requests",
            "takeovers",
            "demotions",
            "throttles",
            "convictions",
            "spares_peak",
        ];
        for field in counts {
            assert!(run["escalations"].get(field).is_some(), "{field}");
        }
        assert!(serde_json::from_value::<Report>(json).is_ok());
    }

    #[test]
    fn load_has_its_percentiles_beside_its_rate() {
        let load = LoadSummary {
            requests_per_s: 2.0,
            wanted_per_s: 2.0,
            latency_ns: Summary::default(),
        };
        let json = serde_json::to_value(&load).unwrap();
        for field in ["requests_per_s", "p50", "p99"] {
            assert!(json.get(field).is_some(), "{field}");
        }
    }
}
