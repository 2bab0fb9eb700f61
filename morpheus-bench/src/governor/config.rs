//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use morpheus_harness::arguments::measured;
use morpheus_harness::rows::view::distinct;
use serde::Serialize;

use super::signal::{Name, Size};
use crate::policy::Policy;

const MORE: &str = "\
Examples:
  sudo governor run
      The whole study, as published: hours. It says how long before it begins.
  sudo governor run --governors performance,schedutil --duration 10 --warmup 2 --repeats 3 --load 0
      Two governors, without load, in five minutes.
  sudo governor run --governors performance,powersave,schedutil,schedutil+morpheus --policy other
      The same kernels also on a worker of Morpheus, for which scx_morpheus (started and ended here) asks schedutil for
      full speed.
  governor run --dry-run
      Says what it would change and measure here, and how long that takes. Changes nothing.
  report governor-study
      The page of a study, also of one that was killed: figures, and the frequencies over time. Studies of several
      machines side by side: `report DIR`, with their directories in DIR.
  sudo governor set powersave; sudo governor restore
      A governor for every CPU, and what was there before.

Whatever `run` changes (also the scheduler) it puts back: when it ends, after Ctrl-C, SIGTERM or the end of the terminal, and, if it was
killed, when it is started again or by `governor restore`.

Exit codes: 0 done (also where the CPUs have no governors), 1 something could not be measured, changed or put back,
2 bad usage, 130 ended by Ctrl-C, after it printed what was measured.";

/// The effect of the CPU's frequency governor on periodic real-time work.
///
/// Four kernels of a brain-computer interface run on one CPU, a window each half second: a load so light that a
/// governor which follows the load may never raise the frequency for it. Each governor is measured with and without
/// load on the other CPUs.
#[derive(Debug, Parser)]
#[command(name = "governor", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    #[command(subcommand)]
    pub action: Action,

    /// The directory that stands for /sys.
    #[arg(
        long,
        hide = true,
        global = true,
        value_name = "DIR",
        default_value = "/sys"
    )]
    pub sysfs: PathBuf,

    /// Where to write down what was changed.
    #[arg(
        long,
        hide = true,
        global = true,
        value_name = "DIR",
        default_value = "/run/morpheus-governor"
    )]
    pub state: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Measure the kernels under each governor, with and without load on the other CPUs
    Run(RunOptions),
    /// Set the governor of every CPU until `restore`; without one, show what there is
    Set(SetOptions),
    /// Log the frequencies of all CPUs as CSV
    Record(RecordOptions),
    /// Put back what a run that was killed, or `set`, has changed
    Restore(RestoreOptions),
}

#[derive(Debug, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub config: Config,

    /// Where to write telemetry, frequencies and runs
    #[arg(long, value_name = "DIR", default_value = "governor-study")]
    pub output: PathBuf,

    /// The program scx_morpheus, if it is neither beside this one nor in the path
    #[arg(long, value_name = "FILE")]
    pub scx_morpheus: Option<PathBuf>,

    /// Say what would be changed and measured, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,

    /// Write the histograms to this file, as HdrHistogram's log (V2)
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
}

/// The governors, kernels and conditions of a run.
#[derive(Clone, Debug, PartialEq, Args, Serialize)]
pub struct Config {
    /// Governors, in this order (performance,powersave,schedutil, as far as there are these); schedutil+morpheus is
    /// schedutil beside the scheduler scx_morpheus, with the kernels on one of its workers
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub governors: Vec<String>,

    /// Busy processes on the other CPUs, measured beside none; 0: only none (as many as there are other CPUs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub load: Option<u16>,

    /// Seconds to measure each kernel, in each condition and repeat
    #[arg(long = "duration", value_name = "S", default_value = "120", value_parser = measured(0.1, DAY_S))]
    pub duration_s: f64,

    /// Repeat everything, in the order A B B A …
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repeats: u16,

    /// Seconds to run each kernel before it is measured; on, if its median has not settled, for as long again
    #[arg(long = "warmup", value_name = "S", default_value = "10", value_parser = measured(0.0, DAY_S))]
    pub warmup_s: f64,

    /// Scheduling policy of the kernel's thread; if it is refused: other
    #[arg(long, value_name = "POLICY", default_value = "fifo")]
    pub policy: Policy,

    /// Its real-time priority
    #[arg(long, value_name = "N", default_value = "90", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: u8,

    /// The CPU that the kernels run on
    #[arg(long, value_name = "N", default_value = "0")]
    pub cpu: usize,

    /// A window must be done within this time after it is due
    #[arg(long, value_name = "MS", default_value = "500", value_parser = clap::value_parser!(u32).range(1..))]
    pub deadline_ms: u32,

    /// Kernels to run (car,notch_iir,goertzel,bandpass_fir)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub kernels: Vec<Name>,

    #[command(flatten)]
    #[serde(flatten)]
    pub size: Size,

    /// Seed of the signal that is worked on
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Milliseconds between two readings of the frequencies
    #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub interval_ms: u32,
}

#[derive(Debug, Args)]
pub struct SetOptions {
    /// The governor
    pub governor: Option<String>,

    /// Say what would be changed, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args, Serialize)]
pub struct RecordOptions {
    /// Seconds
    #[arg(long = "duration", value_name = "S", default_value = "10", value_parser = measured(0.1, DAY_S))]
    pub duration_s: f64,

    /// Milliseconds between two readings
    #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub interval_ms: u32,

    /// Write the log here, and print a table (else print the log)
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub output: Option<PathBuf>,

    /// Print one JSON object: what each policy's frequencies were
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RestoreOptions {
    /// Say what would be put back, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

impl Config {
    /// The kernels that were asked for, each once.
    pub fn kernels(&self) -> Vec<Name> {
        if self.kernels.is_empty() {
            return Name::STUDY.to_vec();
        }
        distinct(self.kernels.iter().copied())
    }

    /// Checks that these numbers go together.
    ///
    /// # Errors
    /// A sentence that says which flag must change.
    pub fn check(&self) -> Result<(), String> {
        self.size.check()?;
        let windows = (self.duration_s + self.warmup_s) / self.size.period().as_secs_f64();
        if windows > MOST_WINDOWS {
            return Err(format!(
                "a run would have {windows:.0} windows, more than {MOST_WINDOWS:.0}: shorten --duration or lengthen --hop"
            ));
        }
        Ok(())
    }

    /// The deadline of a window, in nanoseconds.
    pub fn deadline_ns(&self) -> u64 {
        u64::from(self.deadline_ms) * 1_000_000
    }

    /// The time that a run of one kernel takes.
    pub fn run_time(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s + self.warmup_s) + self.size.period()
    }
}

/// Of a run; they are kept in memory while it lasts.
const MOST_WINDOWS: f64 = 10e6;
/// The longest that anything may take.
const DAY_S: f64 = 86_400.0;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The configuration of `governor run` with these arguments.
    pub fn config(line: &str) -> Config {
        let words = ["governor", "run"]
            .into_iter()
            .chain(line.split_whitespace());
        match Options::try_parse_from(words).unwrap().action {
            Action::Run(run) => run.config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_study() {
        let config = config("");
        assert_eq!(
            (config.duration_s, config.warmup_s, config.repeats),
            (120.0, 10.0, 5)
        );
        assert_eq!(
            (config.policy, config.priority, config.cpu),
            (Policy::Fifo, 90, 0)
        );
        assert_eq!(
            (config.deadline_ms, config.kernels()),
            (500, Name::STUDY.to_vec())
        );
        assert_eq!((config.size.channels, config.size.rate), (64, 160));
        assert_eq!(config.run_time(), Duration::from_millis(130_500));
    }

    #[test]
    fn a_run_is_not_endless() {
        assert_eq!(config("").check(), Ok(()));
        assert!(
            config("--duration 86400 --rate 100000 --hop 1")
                .check()
                .is_err()
        );
        assert!(config("--hop 200").check().is_err());
    }

    #[test]
    fn kernels_are_named_once() {
        let config = config("--kernels car,noop,car");
        assert_eq!(config.kernels(), [Name::Car, Name::Noop]);
    }

    #[test]
    fn numbers_without_sense_are_refused() {
        for line in [
            "--duration 0",
            "--duration NaN",
            "--warmup -1",
            "--repeats 0",
            "--priority 0",
            "--priority 100",
            "--interval-ms 0",
            "--deadline-ms 0",
            "--kernels fft",
            "--policy idle",
            "--channels 0",
            "--taps 2",
        ] {
            let words = ["governor", "run"]
                .into_iter()
                .chain(line.split_whitespace());
            assert!(Options::try_parse_from(words).is_err(), "{line}");
        }
    }
}
