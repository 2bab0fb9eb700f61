//! The command line.

use std::path::PathBuf;

use clap::Parser;
use morpheus_harness::arguments::{counted, measured};
use serde::Serialize;

use crate::executor::morpheus::LinkName;

const MORE: &str = "\
Examples:
  latency --duration 30 --workers 4
      10,000 operations a second for each of four workers.
  latency --pressure --with-checkpoints
      The same with a checkpoint in each operation, beside a busy process for each CPU.
  latency --paired
      The cost of checkpoints, by pairs of the same work with and without, and a control.
  latency --ops-per-second 100000 --histogram latency.hlog
      More than most machines do: it says what was reached, and why not more.

An operation computes for 1,000 iterations (about 2 µs). A thread outside of the runtime starts each at its time, in
turn for one task of each worker; what is late, the thread too, counts in the response time, and what was not done by
the end counts with its age. Service time is that of the computing alone: it hides all waiting.

Exit codes: 0 measured, 1 no runtime or no such link, 2 bad usage, 130 after Ctrl-C (what was measured until then is
shown).";

/// Response times of operations at a fixed rate on the Morpheus runtime, and what checkpoints cost.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "latency", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Seconds to measure
    #[arg(long = "duration", value_name = "S", default_value = "10", value_parser = measured(0.1, 3_600.0))]
    pub duration_s: f64,

    /// Workers of the runtime, and tasks that operate
    #[arg(long, value_name = "N", default_value = "4", value_parser = counted(1, 1_024))]
    pub workers: usize,

    /// Operations a second, for each worker
    #[arg(long, value_name = "HZ", default_value = "10000", value_parser = measured(1.0, 1e6))]
    pub ops_per_second: f64,

    /// Beside a busy process for each CPU
    #[arg(long)]
    pub pressure: bool,

    /// Pass checkpoints while computing
    #[arg(long)]
    pub with_checkpoints: bool,

    /// Iterations from one checkpoint to the next
    #[arg(long, value_name = "N", default_value = "1000", value_parser = counted(1, 1_000))]
    pub checkpoint_every: usize,

    /// Measure what checkpoints cost, in pairs with and without, instead of response times
    #[arg(long, conflicts_with_all = ["histogram", "with_checkpoints", "ops_per_second", "duration_s"])]
    pub paired: bool,

    /// How many pairs
    #[arg(long, value_name = "N", default_value = "20", requires = "paired", value_parser = counted(1, 10_000))]
    pub pairs: usize,

    /// Where Morpheus learns of stalled workers: it samples by itself, or a daemon tells it, which must run
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    pub link: LinkName,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// Write the histograms to this file, as HdrHistogram's log (V2)
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub histogram: Option<PathBuf>,
}

impl Options {
    /// Operations a second, of all workers together.
    pub fn rate(&self) -> f64 {
        self.ops_per_second * self.workers as f64
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
            ("--workers 0", "from 1 to"),
            ("--duration 0", "a number from"),
            ("--ops-per-second 0", "a number from"),
            ("--checkpoint-every 0", "from 1 to"),
            ("--pairs 5", "--paired"),
            ("--paired --duration 3", "--duration"),
            ("--link kernel", "observer"),
        ]);
    }
}
