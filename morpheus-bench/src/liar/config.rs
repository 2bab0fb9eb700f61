//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use morpheus_harness::arguments::{counted, measured};
use serde::Serialize;

use crate::executor::morpheus::LinkName;

const MORE: &str = "\
Examples:
  liar
      Sections of 100 ms, and a task that is critical for ever.
  liar --critical-duration-ms 500 --iterations 10
      Longer ones.
  liar --without-critical
      No sections at all: what the comparison shows then is its noise.
  sudo scx_morpheus --observe & liar --link observer
      With a daemon that only watches; `scx_morpheus` and `--link scheduler` for the one that schedules.

An honest section computes a fixed amount of work. Each iteration does it three times, in turns: without a section,
within one, and without again, which is the control. Escalations are counted while sections run: demotions and
throttling must not happen; requests to yield and takeovers of what waits may, and hurt nobody.

The liar computes in one poll for ever, within a section, and passes no checkpoint. Beside it are as many busy
processes as it takes for everybody's fair share to be half a CPU. The same task without a section, and nobody, are
there to compare, in turns.

Exit codes: 0 measured, 1 no runtime or no such link, 2 bad usage, 130 after Ctrl-C (what was measured until then is
shown).";

/// The cost of honest critical sections, and the gain of a task that claims to be critical for ever.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "liar", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// How long an honest section computes
    #[arg(long, value_name = "MS", default_value = "100", value_parser = measured(0.1, 60_000.0))]
    pub critical_duration_ms: f64,

    /// How many there are; a verdict needs ten
    #[arg(long, value_name = "N", default_value = "10", value_parser = counted(1, 100_000))]
    pub iterations: usize,

    /// Enter no critical section anywhere, and no liar
    #[arg(long)]
    pub without_critical: bool,

    /// No liar
    #[arg(long)]
    pub honest_only: bool,

    /// Seconds of each measurement: a round measures the liar, the honest hog, and neither
    #[arg(long = "duration", value_name = "S", default_value = "2", value_parser = measured(0.1, 3_600.0))]
    pub duration_s: f64,

    /// Rounds of these, in turns
    #[arg(long, value_name = "N", default_value = "3", value_parser = counted(1, 1_000))]
    pub rounds: usize,

    /// Workers of the runtime
    #[arg(long, value_name = "N", default_value = "2", value_parser = counted(1, 1_024))]
    pub workers: usize,

    /// Where Morpheus learns of stalled workers: it samples by itself, or a daemon tells it, which must run
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    pub link: LinkName,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// Write the histograms of the others' wakes to this file, as HdrHistogram's log (V2)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["without_critical", "honest_only"])]
    #[serde(skip)]
    pub histogram: Option<PathBuf>,
}

impl Options {
    /// How long a section computes.
    pub fn section(&self) -> Duration {
        Duration::from_secs_f64(self.critical_duration_ms / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use morpheus_harness::arguments::refuses;

    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--critical-duration-ms 0", "a number from"),
            ("--critical-duration-ms -1", "-1"),
            ("--iterations 0", "from 1 to"),
            ("--workers 0", "from 1 to"),
            ("--duration 0", "a number from"),
            ("--link kernel", "observer"),
            ("--without-critical --histogram x", "--histogram"),
        ]);
    }
}
