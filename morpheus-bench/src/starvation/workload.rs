//! What is put on a runtime in one run, as the child process gets it and as `--json` repeats it.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::code::Code;
pub use crate::executor::morpheus::LinkName;
use crate::histogram::SAMPLES_FOR_P99;

/// What a hog does in its poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HogKind {
    /// Computes, for so much CPU time of its thread.
    Cpu,
    /// Sleeps in the kernel (`std::thread::sleep`).
    Sleep,
    /// Locks a `std::sync::Mutex` that a thread outside holds for so long.
    Mutex,
    /// Reads from a pipe that is written to after so long.
    Read,
}

/// How tasks are handed to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// `morpheus_runtime::spawn`: watched. On other runtimes their plain spawn.
    Spawn,
    /// `tokio::spawn`, as libraries do: nothing of Morpheus in the task.
    TokioSpawn,
}

/// A hog that wakes a task and computes on in the same poll: what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Lifo {
    /// Nothing: spawned as a library would.
    Unknown,
    /// Watched, and an offender from its first poll on.
    Known,
    /// Watched, never an offender, but it passes checkpoints while it computes.
    Checkpoint,
}

/// Everything that one run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Workers of the runtime.
    pub workers: usize,
    /// Morpheus's spares; without a number, its default.
    pub spares: Option<usize>,
    /// Sleeping tasks whose lateness is measured.
    pub tasks: usize,
    /// Their period, and that of the outside wakes.
    pub period_us: u64,
    /// Tasks that get stuck in every poll.
    pub hogs: usize,
    /// For how long.
    pub hog_ms: f64,
    /// On what.
    pub hog_kind: HogKind,
    /// Spawned how.
    pub hog_via: Via,
    /// How their code is written.
    pub hog_code: Code,
    /// Whether each of their polls is a new task.
    pub fresh: bool,
    /// TCP connections.
    pub load: usize,
    /// Requests a second on each.
    pub load_rate: f64,
    /// Innocent tasks that poll and yield for ever.
    pub busy: usize,
    /// For how long each poll.
    pub busy_us: f64,
    /// Spawned how.
    pub busy_via: Via,
    /// Whether hogs and innocents share a label, every tenth poll of which is a hog's.
    pub label_mix: bool,
    /// Whether the hogs wake a task in the poll in which they get stuck.
    pub lifo: Option<Lifo>,
    /// Busy threads of another process.
    pub neighbours: usize,
    /// CPUs that a cgroup leaves to the benchmark.
    pub quota: Option<f64>,
    /// Whether Morpheus confines its threads to as many CPUs as the quota pays for.
    pub confine: bool,
    /// Morpheus's link.
    pub link: LinkName,
    /// Mechanisms of Morpheus that are switched off.
    pub off: Vec<String>,
    /// Nothing at all is run: the wakeups of the runtime's threads are counted.
    pub idle: bool,
    /// Seconds before anything counts; up to twice as long where the wakes have not settled.
    pub warmup_s: f64,
    /// Seconds that count, before any extension.
    pub duration_s: f64,
}

/// A run is extended to at most this many times its duration.
pub const LONGEST: u32 = 4;

impl Workload {
    /// The period of the probes.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Time before anything counts.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_s)
    }

    /// The same where the wakes do not settle by then.
    pub fn longest_warmup(&self) -> Duration {
        self.warmup() * 2
    }

    /// How long a hog is stuck in one poll.
    pub fn hog_time(&self) -> Duration {
        Duration::from_secs_f64(self.hog_ms / 1e3)
    }

    /// How long is measured, but for an extension.
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// How long is measured at most: a window goes on until the wake probe has the samples for a p99.
    pub fn longest_window(&self) -> Duration {
        self.window() * LONGEST
    }

    /// How long is likely to be measured: wakes come by the clock.
    pub fn expected_window(&self) -> Duration {
        if self.idle {
            return self.window();
        }
        let needed = self.period() * SAMPLES_FOR_P99 as u32;
        self.window().max(needed.min(self.longest_window()))
    }

    /// How long hogs may take to end the polls that they are in: all of them, one after another on half
    /// of the workers' CPUs, and some more. Generous: it is only waited for what has not ended.
    pub fn drain(&self) -> Duration {
        let polls = self.hogs.div_ceil(self.workers.max(1)) as u32;
        self.hog_time() * polls * 2 + Duration::from_secs(10)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::starvation) fn workload() -> Workload {
        Workload {
            workers: 2,
            spares: None,
            tasks: 32,
            period_us: 1_000,
            hogs: 2,
            hog_ms: 200.0,
            hog_kind: HogKind::Cpu,
            hog_via: Via::TokioSpawn,
            hog_code: Code::Inline,
            fresh: false,
            load: 0,
            load_rate: 1_000.0,
            busy: 0,
            busy_us: 20.0,
            busy_via: Via::TokioSpawn,
            label_mix: false,
            lifo: None,
            neighbours: 0,
            quota: None,
            confine: false,
            link: LinkName::Watchdog,
            off: Vec::new(),
            idle: false,
            warmup_s: 0.5,
            duration_s: 5.0,
        }
    }

    #[test]
    fn a_run_is_extended_for_its_samples_up_to_a_limit() {
        let mut workload = workload();
        assert_eq!(workload.expected_window(), Duration::from_secs(5));
        workload.period_us = 10_000;
        assert_eq!(workload.expected_window(), Duration::from_secs(10));
        workload.period_us = 100_000;
        assert_eq!(workload.expected_window(), Duration::from_secs(20));
    }
}
