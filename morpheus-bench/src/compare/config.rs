//! The command line.

use clap::Parser;
use morpheus_harness::arguments::{asked, counted, measured, one_of};
use serde::Serialize;

use super::cases::{self, Case};
use super::contender::Contender;

const MORE: &str = "\
Examples:
  compare
      All cases, Morpheus with every task watched and with none, beside tokio: some minutes.
  compare --case ping_pong --case tcp_echo_16 --pairs 40
      Two cases, with narrower intervals.
  compare --runtime morpheus-watched --against morpheus
      The cost of watching alone.
  compare --against tokio,tokio+32 --runtime morpheus
      Also beside tokio with 32 more workers; tokio+slice has workers with short slices.
  compare --runtime morpheus+8,morpheus+32,morpheus+128,morpheus+512 --case spawn_many_remote_idle,yield_many
      By the number of spares: each is a worker that tokio's search for work looks at.
  compare --runtime morpheus-flag-no-lifo --against morpheus-flag
      The cost of doing without tokio's LIFO slot. Contenders with the flag are built on demand.
  compare --workers 16
      Beside more workers than there are CPUs, which shows that it works and not what it costs.
  compare --list
      The cases, and what one operation of each is.

Each case is measured in pairs, in the order A B A' A' B A: A and A' are what Morpheus is compared with, B is
Morpheus. Each measurement is a process of its own. The difference of A and A' is noise: inside it a case says 'no
difference'. The rate is operations a second, and above 1 is better; CPU is CPU time of an operation, of all of the
runtime's threads, and below 1 is better. CPU times repeat on a machine that others use, rates do not. No process gives
its heap back to the kernel (GLIBC_TUNABLES): with glibc's default it is chance whether one does so after each batch of
tasks, which halves the rate of spawn_many_remote_idle.

Bars: the rate is at least 0.97, CPU time at most 1.03, or 1.05 where every task is watched; the geometric mean of the
rates, without the cases beside busy tasks, is at least 0.99. A bar is met where the whole interval keeps to it, missed
where the whole interval is beyond it, and else undecided.

Morpheus runs in its default settings, without a daemon.

Exit codes: 0 measured, 1 some case could not be, 2 bad usage, 130 after Ctrl-C (what was measured until then is shown).";

/// The cost of Morpheus where no poll stalls: tokio's own benchmark cases, compared with tokio.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "compare", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Only this case; again for more of them [default: all]
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',', value_parser = known)]
    pub cases: Vec<String>,

    /// The baselines that it is compared with
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "tokio"
    )]
    pub against: Vec<Contender>,

    /// The contenders that are compared with them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "morpheus,morpheus-watched"
    )]
    pub runtime: Vec<Contender>,

    /// Pairs of each case; a verdict needs ten
    #[arg(long, value_name = "N", default_value = "10", value_parser = counted(1, 10_000))]
    pub pairs: usize,

    /// Workers of each runtime
    #[arg(long, value_name = "N", default_value = "2", value_parser = counted(1, 1_024))]
    pub workers: usize,

    /// Milliseconds that a measurement takes, about
    #[arg(long, value_name = "MS", default_value = "60", value_parser = measured(0.1, 60_000.0))]
    pub window_ms: f64,

    /// Show the cases, and measure nothing
    #[arg(long)]
    #[serde(skip)]
    pub list: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// One measurement, of a job on stdin: how this program calls itself.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub child: bool,
}

fn known(name: &str) -> Result<String, String> {
    one_of(name, "case", cases::CASES.iter().map(|case| case.name))
}

impl Options {
    /// The cases that were asked for, in the order of the table.
    pub fn cases(&self) -> Vec<&'static Case> {
        let chosen = |case: &&Case| asked(&self.cases, case.name);
        cases::CASES.iter().filter(chosen).collect()
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
            ("--case nonsense", "spawn_many_local, "),
            ("--case spawn,nonsense", "no such case"),
            ("--pairs 0", "from 1 to"),
            ("--workers 0", "from 1 to"),
            ("--window-ms 0", "a number from"),
            ("--against go", "has none of tokio's"),
            ("--runtime tokio-watched", "nobody can be watched"),
        ]);
    }

    #[test]
    fn cases_are_chosen_by_name_and_all_by_default() {
        let chosen = |line: &str| {
            let words = std::iter::once("compare").chain(line.split_whitespace());
            let options = Options::parse_from(words);
            options
                .cases()
                .iter()
                .map(|case| case.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen("").len(), cases::CASES.len());
        assert_eq!(
            chosen("--case spawn10 --case yield_many"),
            ["yield_many", "spawn10"]
        );
        assert_eq!(chosen("--case watch,sleep"), ["sleep", "watch"]);
    }
}
