//! From the command line to the output.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use super::cache::{self, Cache};
use super::conditions::Conditions;
use super::experiment::Steps;
use super::migration::{self, Migration};
use super::preemption::{self, Preemption};
use super::table;
use crate::hdr_log::{self, Entry};
use crate::histogram::Counts;
use crate::host::Host;
use crate::{cpus, interrupt, report};

const MORE: &str = "\
Examples:
  overhead preemption
      What it costs that a CPU goes from one thread to another.
  overhead migration --cpus 2,3
      What it costs that a thread goes from CPU 2 to CPU 3.
  overhead cache --experiments 200 --json --histogram cache.hlog
      What it costs to get the contents of a cache to the other CPU, from L1 to past L2.

Each cost is a difference, measured in the order A B B A, and shown as the source does: minimum, maximum, average of
the experiments. Judge it by the median and its interval, in which the true median is with 95 %; beside it is A/A,
the difference of two measurements of the same thing, which is 0 but for the noise.

With real-time priority (root, CAP_SYS_NICE or ulimit -r) and locked memory it measures more exactly. Without, it says so.

Exit codes: 0 measured, 1 it could not be measured, 2 bad usage, 130 ended early by Ctrl-C (what was measured is shown).";

const PREEMPTION: &str = "\
Two threads on one CPU yield to each other. The time is divided by the context switches that the kernel counted.

Example:
  overhead preemption --cpus 1 --yields 1000";

const MIGRATION: &str = "\
A thread calls sched_setaffinity for another CPU, and reads the clock there. The same call for the CPU on which it is,
is subtracted. Once the destination is idle, once a thread of a lower priority keeps it awake.

Example:
  overhead migration --cpus 0,1 --experiments 1000";

const CACHE: &str = "\
A thread writes to a buffer on the first CPU and follows a random cycle through its lines on the second; the same with
lines that it wrote on the second is subtracted. Beside it: read in order, and lines that were only read, which is how
the cost is missed; and a second method, in which no thread migrates.

Examples:
  overhead cache
  overhead cache --cpus 0,2 --sizes 64,512,4096 --seed 7";

/// What a preemption, a migration and the cold cache after one cost.
#[derive(Debug, Parser)]
#[command(name = "overhead", version, after_help = MORE, max_term_width = 110)]
struct Options {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Experiments, each of which measures everything twice; those before the median has settled (15 to 50) do not count
    #[arg(long, global = true, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    experiments: u32,

    /// CPUs to use: one for a preemption; source and destination for the others [default: of those allowed, the first,
    /// and the next that does not share its caches]
    #[arg(long, global = true, value_name = "A,B", value_delimiter = ',')]
    cpus: Vec<usize>,

    /// Print one JSON object and nothing else
    #[arg(long, global = true)]
    json: bool,

    /// Write the readings to this file, as HdrHistogram's log (V2)
    #[arg(long, global = true, value_name = "FILE")]
    histogram: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// A CPU goes from one thread to another
    #[command(after_help = PREEMPTION)]
    Preemption {
        /// Yields of one thread in each measurement
        #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        yields: u32,
    },
    /// A thread goes from one CPU to another
    #[command(after_help = MIGRATION)]
    Migration,
    /// The contents of a cache go from one CPU to another
    #[command(after_help = CACHE)]
    Cache {
        /// Sizes in KiB [default: from half of L1, doubled, to twice L2]
        #[arg(long, value_name = "KIB,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=262_144))]
        sizes: Vec<u32>,

        /// Of the random cycles
        #[arg(long, value_name = "N", default_value = "1")]
        seed: u64,
    },
}

impl What {
    fn name(&self) -> &'static str {
        match self {
            What::Preemption { .. } => "preemption",
            What::Migration => "migration",
            What::Cache { .. } => "cache",
        }
    }
}

/// What came out. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// A CPU went from one thread to another.
    Preemption(Preemption),
    /// A thread went from one CPU to another.
    Migration(Box<Migration>),
    /// The contents of a cache did.
    Cache(Cache),
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Report {
    bench: &'static str,
    host: Host,
    conditions: Conditions,
    /// Experiments that were asked for.
    experiments: u32,
    /// Ended early by Ctrl-C.
    interrupted: bool,
    /// By its name, what was measured.
    #[serde(flatten)]
    measured: Measured,
}

/// Runs the benchmark. Exit codes as in the help.
pub fn main() -> ExitCode {
    let options = Options::parse();
    interrupt::install();
    let table = |report: &Report| {
        table::render(
            &report.host,
            &report.conditions,
            &report.measured,
            report.interrupted,
        )
    };
    report::conclude(
        "overhead",
        measure(&options),
        options.common.json,
        table,
        |report| report::Ended::of(report.interrupted, false),
    )
}

fn measure(options: &Options) -> Result<Report, String> {
    let common = &options.common;
    let experiments = common.experiments as usize;
    let (host, start) = (Host::read(), SystemTime::now());
    let cpus = choose(&options.what, &common.cpus, &cpus::allowed())?;
    let mut steps = Steps::new(experiments, common.json);
    let (conditions, measured) = Conditions::measure(&cpus, |conditions| {
        let measured = match &options.what {
            What::Preemption { yields } => {
                preemption::measure(conditions, experiments, *yields, &mut steps)
                    .map(Measured::Preemption)
            }
            What::Migration => migration::measure(conditions, experiments, &mut steps)
                .map(|migration| Measured::Migration(Box::new(migration))),
            What::Cache { sizes, seed } => {
                let sizes: Vec<usize> = sizes.iter().map(|kib| *kib as usize * 1024).collect();
                cache::measure(conditions, experiments, &sizes, *seed, &mut steps)
                    .map(Measured::Cache)
            }
        };
        steps.clear();
        measured
    })?;
    if let Some(path) = &common.histogram {
        let histograms = steps.histograms();
        let entries: Vec<Entry> = histograms
            .iter()
            .map(|(name, latencies)| Entry {
                tag: (*name).into(),
                about: format!("{}, means of a measurement each", Counts::Raw),
                latencies,
            })
            .collect();
        let lasted = start.elapsed().unwrap_or_default();
        hdr_log::write(path, start, lasted, &entries)?;
    }
    Ok(Report {
        bench: "overhead",
        host,
        conditions,
        experiments: common.experiments,
        interrupted: interrupt::happened(),
        measured,
    })
}

/// The CPUs to use, of those that are allowed.
fn choose(what: &What, asked: &[usize], allowed: &[usize]) -> Result<Vec<usize>, String> {
    let name = what.name();
    let needed = if matches!(what, What::Preemption { .. }) {
        1
    } else {
        2
    };
    if allowed.len() < needed {
        return Err(format!(
            "{name} needs {needed} CPUs, and this process may use {}: give it more (taskset, cpuset, the container's CPUs)",
            allowed.len()
        ));
    }
    if let Some(cpu) = asked.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(format!(
            "CPU {cpu} is not among those that this process may use: {allowed:?}"
        ));
    }
    match (needed, asked, allowed) {
        (1, [], [.., last]) => Ok(vec![*last]),
        (1, [cpu], _) => Ok(vec![*cpu]),
        (2, [], _) => {
            let pair = cache::pair(allowed).map(|(from, to)| vec![from, to]);
            pair.ok_or_else(|| format!("{name} needs two CPUs"))
        }
        (2, [from, to], _) if from != to => Ok(vec![*from, *to]),
        (1, ..) => Err(format!("{name} takes one CPU, like --cpus 1")),
        _ => Err(format!("{name} takes two different CPUs, like --cpus 0,1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_chosen_or_refused() {
        let preemption = What::Preemption { yields: 1 };
        let allowed = [100_000, 100_001, 100_002];
        assert_eq!(choose(&preemption, &[], &allowed), Ok(vec![100_002]));
        assert_eq!(choose(&preemption, &[100_001], &allowed), Ok(vec![100_001]));
        assert_eq!(
            choose(&What::Migration, &[], &allowed),
            Ok(vec![100_000, 100_001])
        );
        assert_eq!(
            choose(&What::Migration, &[100_002, 100_000], &allowed),
            Ok(vec![100_002, 100_000])
        );
        let refused = |what: &What, asked: &[usize], allowed: &[usize]| {
            choose(what, asked, allowed).unwrap_err()
        };
        assert!(refused(&preemption, &[100_000, 100_001], &allowed).contains("takes one CPU"));
        assert!(refused(&What::Migration, &[100_000; 2], &allowed).contains("two different CPUs"));
        assert!(refused(&What::Migration, &[100_000], &allowed).contains("two different CPUs"));
        assert!(refused(&What::Migration, &[], &[5]).contains("may use 1"));
        assert!(refused(&preemption, &[7], &allowed).contains("CPU 7 is not among"));
        assert!(refused(&preemption, &[], &[]).contains("may use 0"));
    }

    #[test]
    fn the_command_line_makes_sense() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }
}
