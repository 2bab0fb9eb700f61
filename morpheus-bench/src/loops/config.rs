//! The command line.

use clap::Parser;
use morpheus_harness::arguments::{asked, counted, measured, one_of};
use serde::Serialize;

use super::cases;
use super::form::Case;

const MORE: &str = "\
Examples:
  loops
      All loops in all forms: a minute or less.
  loops --case sum_u32,fnv --pairs 60
      Two loops, with narrower intervals.
  loops --case fnv --spares 4
      The cost of a yield where another worker is idle: see 'checkpoint'.
  loops --list
      The loops, and what each does.

The forms:
  plain        without checkpoints; what the others are compared with
  checkpoint   checkpoint().await after each block of about 20 µs, inside which the loop is the plain one
  strips       strips(0..n): the same with blocks that find their length themselves
  .strip()     in the chain of iterators, which passes checkpoint_sync(): for code that is not async
  strip!       around the for loop
  every turn   checkpoint().await in each turn: a control, which shows what there is to lose

A ratio is CPU time against plain: 1.05 is 5 % more. A/A is what plain differs from itself: inside it nothing is claimed.

Bars: with checkpoints 99.5 % of the throughput; with strip-mining at most 5 % more CPU time in any loop, and 1 % in the
mean of all. For loops through slices and indices, as these are, the documentation advises strips.

Exit codes: 0 measured, 1 some loop could not be, 2 bad usage, 130 after Ctrl-C (what was measured until then is shown).";

/// The cost of checkpoints and strip-mining in loops, the vectorised ones among them.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "loops", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Only this loop; again for more of them [default: all]
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',', value_parser = known)]
    pub cases: Vec<String>,

    /// Pairs of each form; a verdict needs ten
    #[arg(long, value_name = "N", default_value = "20", value_parser = counted(1, 10_000))]
    pub pairs: usize,

    /// Milliseconds that a measurement takes, about
    #[arg(long, value_name = "MS", default_value = "6", value_parser = measured(0.1, 10_000.0))]
    pub window_ms: f64,

    /// Spares of the runtime. Where there are some, each yield wakes an idle worker, which is most of its cost
    #[arg(long, value_name = "N", default_value = "0", value_parser = counted(0, 64))]
    pub spares: usize,

    /// Show the loops, and measure nothing
    #[arg(long)]
    #[serde(skip)]
    pub list: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

fn known(name: &str) -> Result<String, String> {
    one_of(name, "loop", super::names())
}

impl Options {
    /// The loops that were asked for, in the order of the table.
    pub fn cases(&self) -> Vec<&'static Case> {
        cases::all()
            .filter(|case| asked(&self.cases, case.name))
            .collect()
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
            ("--case nonsense", "sum_u32, "),
            ("--pairs 0", "from 1 to"),
            ("--window-ms 0", "a number from"),
        ]);
    }
}
