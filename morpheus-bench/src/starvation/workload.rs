//! The load of a runtime in one run: by the command line, as the child process gets it, and as `--json` repeats it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use morpheus_harness::arguments::{counted, measured};
use morpheus_harness::histogram::SAMPLES_FOR_P99;
use morpheus_harness::host;
use morpheus_runtime::Mechanism;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::executor::morpheus::LinkName;

/// The way in which a hog occupies its poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HogKind {
    /// Computes, for --hog-ms of CPU time of its thread.
    Cpu,
    /// Sleeps in the kernel (`std::thread::sleep`).
    Sleep,
    /// Locks a `std::sync::Mutex` that a thread outside holds for --hog-ms.
    Mutex,
    /// Reads from a pipe that is written to after --hog-ms.
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
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Tasks that sleep for one period and measure how late they wake up
    #[arg(short = 'n', long, value_name = "N", default_value = "32", value_parser = counted(0, 100_000))]
    pub tasks: usize,

    /// Tasks that stall in every poll: what [`Options::check`](super::config::Options::check) makes of the option.
    #[arg(skip)]
    pub hogs: usize,

    /// How long a hog stalls in one poll (a computing one by CPU time of its thread)
    #[arg(long, value_name = "MS", default_value = "200", value_parser = measured(0.01, 60_000.0))]
    pub hog_ms: f64,

    /// The work of a hog: compute, sleep in the kernel, wait for a lock that is held outside, read a pipe
    #[arg(long, value_name = "KIND", default_value = "cpu")]
    pub hog_kind: HogKind,

    /// How hogs are spawned: spawn is morpheus_runtime::spawn (watched); tokio-spawn is what libraries call
    #[arg(long, value_name = "HOW", default_value = "tokio-spawn")]
    pub hog_via: Via,

    /// How the code of the hogs is written; all but the first need tokio's functions, so smol and go have them not
    #[arg(long, value_name = "CODE", default_value = "inline")]
    pub hog_code: Code,

    /// Each poll of a hog is a new task, started by a small parent that is not watched
    #[arg(long)]
    pub fresh: bool,

    /// TCP echo clients, each a thread outside, with 20 µs of work per request
    #[arg(long, value_name = "CONNECTIONS", default_value = "0", hide_default_value = true, value_parser = counted(0, 4_096))]
    pub load: usize,

    /// Requests a second of each client
    #[arg(long, value_name = "HZ", default_value = "1000", value_parser = measured(0.1, 100_000.0))]
    pub load_rate: f64,

    /// Innocent tasks that poll for a short while and yield, for ever
    #[arg(long, value_name = "TASKS", default_value = "0", hide_default_value = true, value_parser = counted(0, 100_000))]
    pub busy: usize,

    /// For how long each such poll computes
    #[arg(long, value_name = "US", default_value = "20", value_parser = measured(0.1, 1e6))]
    pub busy_us: f64,

    /// How they are spawned
    #[arg(long, value_name = "HOW", default_value = "tokio-spawn")]
    pub busy_via: Via,

    /// Hogs share a label with innocent tasks (9 per hog, or --busy): every tenth poll under it is a hog's
    #[arg(long, conflicts_with_all = ["lifo", "fresh"])]
    pub label_mix: bool,

    /// Hogs wake a task in the poll in which they stall; nothing is known of them, or they are watched,
    /// or they pass checkpoints
    #[arg(long, value_name = "HOG", conflicts_with = "fresh")]
    pub lifo: Option<Lifo>,

    /// Run nothing at all and count the wakeups of the runtime's threads
    #[arg(long, conflicts_with_all = ["hogs", "busy", "load", "label_mix", "lifo"])]
    pub idle: bool,

    /// Workers of the runtime [default: the CPUs that there are]
    #[arg(long, value_name = "N", default_value_t = host::cpus().min(1_024), hide_default_value = true, value_parser = counted(1, 1_024))]
    pub workers: usize,

    /// Spares of Morpheus [default: as many as it has by itself]
    #[arg(long, value_name = "N", value_parser = counted(0, 4_000))]
    pub spares: Option<usize>,

    /// Period of the wakes and of the sleepers
    #[arg(long, value_name = "US", default_value = "1000", value_parser = counted(10, 10_000_000))]
    pub period_us: usize,

    /// Seconds to measure (extended up to 4 times until there are 1,000 wakes)
    #[arg(long = "duration", value_name = "S", default_value = "5", value_parser = measured(0.1, 3_600.0))]
    pub duration_s: f64,

    /// Seconds before anything counts (up to twice as long, until the median wake has settled)
    #[arg(long = "warmup", value_name = "S", default_value = "0.5", value_parser = measured(0.0, 600.0))]
    pub warmup_s: f64,

    /// Busy threads of another process
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = counted(0, 1_024))]
    pub neighbours: usize,

    /// Run in a cgroup that has this many CPUs (needs root)
    #[arg(long, value_name = "CPUS", value_parser = measured(0.05, 1_024.0))]
    pub quota: Option<f64>,

    /// Morpheus confines its threads to as many CPUs as the quota pays for, rounded down
    #[arg(long, requires = "quota")]
    pub confine: bool,

    /// Where Morpheus learns of stalled workers: it samples by itself, or a daemon tells it (scx_morpheus
    /// --observe, or scx_morpheus, which must run)
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    pub link: LinkName,

    /// Mechanisms of Morpheus to switch off: takeover, canary, watch, reserve, slice, confine, handoffs, permits,
    /// poke, stacks, or all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = mechanism)]
    pub off: Vec<String>,
}

/// One name in `--off`.
fn mechanism(name: &str) -> Result<String, String> {
    match name.parse::<Mechanism>() {
        Err(error) if name != "all" => Err(format!("{error}, all")),
        _ => Ok(name.to_owned()),
    }
}

/// A run is extended to at most this many times its duration.
pub const LONGEST: u32 = 4;

impl Workload {
    /// The period of the probes.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us as u64)
    }

    /// Time before anything counts.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_s)
    }

    /// The same where the wakes do not settle by then.
    pub fn longest_warmup(&self) -> Duration {
        self.warmup() * 2
    }

    /// How long a hog stalls in one poll.
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
