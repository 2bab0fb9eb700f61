//! The command line.

use clap::Parser;
use serde::Serialize;

use crate::executor::morpheus::LinkName;

const MORE: &str = "\
These are measured:
  request    One watched task computes, with a checkpoint every 10 µs, until a checkpoint says that it was asked to yield.
             Its budget is 1 ms of CPU time, and counted is the CPU time that the poll had used by then; the elapsed time
             stands beside it.
  takeover   A chain of tasks on a runtime with one worker and no reserve: each spawns the next, which waits behind it, and
             blocks in the kernel until the chain is over. From the call that blocks until the next task runs on a spare.
  cold       One such task at a time, each after a rest in which the runtime was idle: its controller sleeps and every spare
             is held. From the beginning of the poll.

Examples:
  escalation
      By the watchdog, which looks every millisecond: about 40 seconds.
  sudo scx_morpheus --observe & escalation --link observer --neighbours 2
      With the kernel's help, beside two busy threads of other processes.
  escalation --only cold --rest-ms 400 --stalls 1000
      A thousand stalls, each after 0.4 s in which the runtime was idle.

Exit codes: 0 measured, 1 something could not be or the link is not there, 2 bad usage, 130 after Ctrl-C (what was
measured until then is shown).";

/// How soon Morpheus asks a poll that computes to yield, and replaces a worker that blocks in one.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "escalation", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Only these
    #[arg(
        long,
        value_name = "PART,…",
        value_delimiter = ',',
        default_value = "request,takeover,cold"
    )]
    pub only: Vec<Part>,

    /// Where Morpheus learns of it: it looks by itself, or the daemon that runs tells it
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    pub link: LinkName,

    /// Polls that compute, one after the other
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub polls: u32,

    /// Chains of tasks that block, each on a runtime of its own
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub chains: u16,

    /// Tasks of a chain, each of which blocks a worker
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub chain: u16,

    /// Stalls of a runtime that was idle
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub stalls: u16,

    /// How long it is idle before each
    #[arg(long, value_name = "MS", default_value = "250", value_parser = clap::value_parser!(u16).range(100..=60_000))]
    pub rest_ms: u16,

    /// Busy threads, each in a process of its own
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub neighbours: u16,

    /// Start the tasks that block with tokio::spawn, so that they are not watched
    #[arg(long)]
    pub unwatched: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A poll that computes is asked to yield
    Request,
    /// A worker that blocks is replaced
    Takeover,
    /// The same where the runtime was idle
    Cold,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use morpheus_harness::arguments::refuses;

    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
        assert_eq!(Options::parse_from(["escalation"]).only.len(), 3);
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--polls 0", "0 is not in"),
            ("--chains 0", "0 is not in"),
            ("--chain 0", "0 is not in"),
            ("--rest-ms 1", "1 is not in"),
            ("--only speed", "cold"),
            ("--link kernel", "observer"),
        ]);
    }
}
