//! `cargo xtask soak`: everything at once for long, in a guest for each number of CPUs.
//!
//! The load and its criteria are the suite `soak` of the benchmark `scale`. In the host's time a task also waits while the host runs
//! something else; in virtual time it waits only for the guest's own tasks.

use std::process::ExitCode;

use clap::Args;

use crate::context::Context;
use crate::rounds::{self, Clock, Plan};

/// A guest boots, and its scheduler starts, within this; on top of five times what it measures, as the emulator may be slow.
const AROUND_S: f64 = 600.0;

/// How to soak.
#[derive(Clone, Debug, Args)]
pub(crate) struct SoakArgs {
    /// A guest with each of these numbers of CPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4,8", value_parser = clap::value_parser!(u16).range(1..=64))]
    cpus: Vec<u16>,
    /// Minutes of load in each
    #[arg(long, value_name = "M", default_value = "10", value_parser = minutes)]
    minutes: f64,
    /// The kernel: a series or a file, as of `cargo xtask vm`
    #[arg(long, value_name = "SERIES|PATH", default_value = "6.18")]
    kernel: String,
    /// Under this: 'morpheus' with or without arguments, or 'default' to compare
    #[arg(long, value_name = "COMMAND", default_value = "morpheus")]
    scheduler: String,
    /// Run the virtual CPUs at the same time, in the host's time, and not in turn in their own, 8 ns an instruction
    #[arg(long)]
    parallel: bool,
    /// Print the records as JSON, one a line, in place of the table
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.1..=60.0).contains(&minutes) => Ok(minutes),
        _ => Err("a number from 0.1 to 60 is needed".into()),
    }
}

/// Soaks; ends with 0, with 1 when anything was wrong, with 130 after Ctrl-C.
pub(crate) fn run(context: &Context, args: &SoakArgs) -> ExitCode {
    rounds::run(context, &plan(args))
}

fn plan(args: &SoakArgs) -> Plan {
    let duration_s = args.minutes * 60.0;
    let (cpus, scheduler) = (args.cpus.clone(), args.scheduler.clone());
    Plan {
        bench: "scale",
        name: "soak",
        rounds: u16::try_from(args.cpus.len()).unwrap_or(u16::MAX),
        kernel: args.kernel.clone(),
        cpus: Box::new(move |round| cpus[usize::from(round) - 1]),
        caches: Box::new(|_| 1),
        seed: Box::new(|_| 0),
        clock: if args.parallel {
            Clock::Host
        } else {
            Clock::VIRTUAL
        },
        complaints_count: true,
        limit_s: (5.0 * duration_s + AROUND_S) as u64,
        peers: Vec::new(),
        arguments: Box::new(move |_| {
            let duration = duration_s.to_string();
            let words = [
                "--suite",
                "soak",
                "--iterations",
                "1",
                "--schedulers",
                &scheduler,
                "--duration",
                &duration,
            ];
            words.map(Into::into).to_vec()
        }),
        table: Vec::from_iter(args.json.then(|| "--json".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SoakArgs,
    }

    fn parse(line: &str) -> Result<SoakArgs, clap::Error> {
        let words = std::iter::once("soak").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn a_guest_for_each_number_of_cpus() {
        let plan = plan(&parse("--cpus 4,1 --minutes 0.5 --json").unwrap());
        assert_eq!((plan.rounds, plan.name, plan.limit_s), (2, "soak", 750));
        assert_eq!([1, 2].map(|round| (plan.cpus)(round)), [4, 1]);
        let expected = "--suite soak --iterations 1 --schedulers morpheus --duration 30";
        assert!((plan.arguments)(1).iter().eq(expected.split(' ')));
        assert_eq!(plan.table, ["--json"]);
        assert_eq!(plan.clock, Clock::VIRTUAL);
    }

    #[test]
    fn ten_minutes_on_two_four_and_eight_if_nothing_is_said() {
        let plan = plan(&parse("").unwrap());
        assert_eq!([1, 2, 3].map(|round| (plan.cpus)(round)), [2, 4, 8]);
        assert!((plan.arguments)(3).contains(&"600".into()));
        assert!(plan.table.is_empty() && plan.complaints_count);
        assert_eq!(self::plan(&parse("--parallel").unwrap()).clock, Clock::Host);
    }

    #[test]
    fn bad_minutes_say_what_is_right() {
        for line in ["--minutes 0", "--minutes 61", "--minutes x"] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains("from 0.1 to 60"), "{line}: {error}");
        }
        assert!(parse("--cpus 0").is_err());
    }
}
