//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use morpheus_harness::arguments::counted;
use serde::Serialize;

use crate::cpus;
use crate::policy::Policy;

const MORE: &str = "\
Examples:
  jitter
      A hundred sleeps of 10 ms, with both timer slacks.
  jitter 0.01s 100 --load 30
      The same beside thirty busy processes and without, in turns: does load make wakes later, or earlier?
  jitter 1 10000 --policy fifo --cyclictest
      Ten thousand sleeps of 1 ms in a real-time thread, in the line that cyclictest prints.
  jitter 10 100 --sweep
      Intervals from 1 to 100 ms: do longer sleeps wake later, and is it slack or an idle state?
  jitter 1 20000 --histogram jitter.hlog
      A log that HdrHistogram's plotters read.

Lateness counts from the time at which the thread was meant to wake: times that it missed count, too, each with its
own lateness. With --relative a sleep begins when the one before is over; that hides what a delay holds up, so the
corrected percentiles stand beside the raw ones.

A thread with timer slack lets the kernel delay its timers to let several end together: 50 µs unless it asks for less.

Exit codes: 0 measured, 1 the kernel refuses the policy or the CPU, 2 bad usage, 130 after Ctrl-C (what was measured
until then is shown).";

/// How late a sleeping thread wakes.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "jitter", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// How long each sleep is: milliseconds, or with a unit (us, ms, s)
    #[arg(value_name = "INTERVAL_MS", default_value = "10", value_parser = interval)]
    pub interval_ms: f64,

    /// How many sleeps, of each kind that is compared
    #[arg(value_name = "LOOPS", default_value = "100", value_parser = counted(1, 10_000_000))]
    pub loops: usize,

    /// Compare with the same beside this many busy processes
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = counted(0, 1_024))]
    pub load: usize,

    /// A tenth of the interval to ten times it, by clock_nanosleep and by select, on one CPU: do longer sleeps wake
    /// later?
    #[arg(long, conflicts_with_all = ["load", "relative"])]
    pub sweep: bool,

    /// Scheduling policy of the thread that sleeps
    #[arg(long, value_name = "POLICY", default_value = "other")]
    pub policy: Policy,

    /// Its priority, for fifo and rr
    #[arg(long, value_name = "1-99", default_value = "80", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: u8,

    /// Let it run on this CPU alone [default: any; with --sweep the last]
    #[arg(long, value_name = "CPU", value_parser = counted(0, 1_023))]
    pub cpu: Option<usize>,

    /// Each sleep begins when the one before is over, instead of at its time
    #[arg(long)]
    pub relative: bool,

    /// Print cyclictest's line for each kind, in microseconds, and nothing else
    #[arg(long, conflicts_with = "json")]
    #[serde(skip)]
    pub cyclictest: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// Write the histograms to this file, as HdrHistogram's log (V2)
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub histogram: Option<PathBuf>,
}

const LEAST_MS: f64 = 0.01;
const MOST_MS: f64 = 60_000.0;

/// Milliseconds, or a number with a unit.
fn interval(text: &str) -> Result<f64, String> {
    let (number, unit_ms) = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)]
        .into_iter()
        .find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, ms)))
        .unwrap_or((text, 1.0));
    let number: Option<f64> = number.trim().parse().ok();
    let ms = number.map(|number| number * unit_ms);
    ms.filter(|ms| (LEAST_MS..=MOST_MS).contains(ms))
        .ok_or_else(|| {
            "an interval from 10us to 60s is needed: milliseconds, or a number with us, ms or s"
                .into()
        })
}

impl Options {
    /// The same with what is in force: the CPU that a sweep keeps to, and no priority where the policy has none.
    ///
    /// # Errors
    /// Where options do not go together; clap's error prints itself and exits with 2.
    pub fn checked(mut self) -> Result<Self, clap::Error> {
        let bad = |text: &str| Err(Self::command().error(ErrorKind::ValueValidation, text));
        if self.policy == Policy::Deadline && self.cpu.is_some() {
            return bad(
                "--policy deadline: the kernel takes no thread that is kept on one CPU; leave --cpu out",
            );
        }
        if self.sweep && (self.interval_ms * 10.0 > MOST_MS || self.interval_ms / 10.0 < LEAST_MS) {
            return bad(
                "--sweep goes from a tenth of INTERVAL_MS to ten times it, which must lie from 10us to 60s",
            );
        }
        if self.sweep && self.policy != Policy::Deadline {
            self.cpu = self.cpu.or_else(|| cpus::allowed().last().copied());
        }
        if matches!(self.policy, Policy::Other | Policy::Deadline) {
            self.priority = 0;
        }
        Ok(self)
    }

    /// The intervals that are measured.
    pub fn intervals(&self) -> Vec<Duration> {
        let interval = Duration::from_secs_f64(self.interval_ms / 1e3);
        if self.sweep {
            [0.1, 0.3, 1.0, 3.0, 10.0]
                .map(|factor| interval.mul_f64(factor))
                .to_vec()
        } else {
            vec![interval]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("jitter").chain(line.split_whitespace());
        Options::try_parse_from(words)?.checked()
    }

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn intervals_have_units() {
        for (line, us) in [
            ("", 10_000),
            ("1", 1_000),
            ("0.01s 5", 10_000),
            ("250us", 250),
            ("1.5ms", 1_500),
        ] {
            assert_eq!(
                parse(line).unwrap().intervals(),
                [Duration::from_micros(us)],
                "{line}"
            );
        }
        let sweep: Vec<u128> = parse("10 --sweep")
            .unwrap()
            .intervals()
            .iter()
            .map(Duration::as_micros)
            .collect();
        assert_eq!(sweep, [1_000, 3_000, 10_000, 30_000, 100_000]);
    }

    #[test]
    fn bad_input_says_what_is_right_and_exits_with_2() {
        let cases = [
            ("0", "from 10us to 60s"),
            ("0.001", "from 10us"),
            ("-- -5", "from 10us"),
            ("nan", "from 10us"),
            ("10min", "from 10us"),
            ("10 0", "from 1 to"),
            ("10 1e3", "a whole number"),
            ("--policy idle", "deadline"),
            ("--policy fifo --priority 100", "1..=99"),
            ("--policy deadline --cpu 0", "leave --cpu out"),
            ("--load 99999", "1024"),
            ("10s --sweep", "ten times"),
            ("--sweep --load 2", "--load"),
            ("--cyclictest --json", "--json"),
        ];
        for (line, expected) in cases {
            let error = parse(line).unwrap_err();
            assert!(error.to_string().contains(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
