//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use morpheus_harness::arguments::counted;
use serde::Serialize;

use super::cache;

const MORE: &str = "\
Examples:
  overhead preemption
      The cost of a CPU's switch from one thread to another.
  overhead migration --cpus 2,3
      The cost of a thread's move from CPU 2 to CPU 3.
  overhead cache --experiments 200 --json --histogram cache.hlog
      The cost of getting the contents of a cache to the other CPU, from L1 to past L2.

Each cost is a difference, measured in the order A B B A. Beside its median stands what the source shows: minimum,
maximum, average of the experiments. Judge it by the median and its interval, in which the true median is with 95 %, and
which is to lie above that of A/A, the difference of two measurements of the same thing, which is 0 but for the noise.

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

/// The costs of a preemption, a migration and the cold cache after one.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "overhead", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    #[command(subcommand)]
    #[serde(flatten)]
    pub cost: Cost,

    /// Experiments, each of which measures everything twice; those before the median has settled (15 to 50) do not count
    #[arg(long, global = true, value_name = "N", default_value = "100", value_parser = counted(1, 100_000))]
    pub experiments: usize,

    /// CPUs to use: one for a preemption; source and destination for the others [default: of those allowed, the first,
    /// and the next that does not share its caches]
    #[arg(long, global = true, value_name = "A,B", value_delimiter = ',')]
    pub cpus: Vec<usize>,

    /// Print one JSON object and nothing else
    #[arg(long, global = true)]
    #[serde(skip)]
    pub json: bool,

    /// Write the readings to this file, as HdrHistogram's log (V2)
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip)]
    pub histogram: Option<PathBuf>,
}

/// Of what.
#[derive(Clone, Debug, Subcommand, Serialize)]
#[serde(tag = "cost", rename_all = "lowercase")]
pub enum Cost {
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
        #[arg(long, value_name = "KIB,…", value_delimiter = ',', value_parser = counted(1, 262_144))]
        sizes: Vec<usize>,

        /// Of the random cycles
        #[arg(long, value_name = "N", default_value = "1")]
        seed: u64,
    },
}

/// The CPUs to use, of those that are allowed.
///
/// # Errors
/// There are too few, or others were asked for; the text is for people.
pub fn choose(cost: &Cost, asked: &[usize], allowed: &[usize]) -> Result<Vec<usize>, String> {
    let (name, needed) = match cost {
        Cost::Preemption { .. } => ("preemption", 1),
        Cost::Migration => ("migration", 2),
        Cost::Cache { .. } => ("cache", 2),
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
        (2, [], _) => cache::pair(allowed).ok_or_else(|| format!("{name} needs two CPUs")),
        (1, [_], _) => Ok(asked.to_vec()),
        (2, [from, to], _) if from != to => Ok(asked.to_vec()),
        (1, ..) => Err(format!("{name} takes one CPU, like --cpus 1")),
        _ => Err(format!("{name} takes two different CPUs, like --cpus 0,1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn cpus_are_chosen_or_refused() {
        let preemption = Cost::Preemption { yields: 1 };
        let allowed = [100_000, 100_001, 100_002];
        assert_eq!(choose(&preemption, &[], &allowed), Ok(vec![100_002]));
        assert_eq!(choose(&preemption, &[100_001], &allowed), Ok(vec![100_001]));
        assert_eq!(
            choose(&Cost::Migration, &[], &allowed),
            Ok(vec![100_000, 100_001])
        );
        assert_eq!(
            choose(&Cost::Migration, &[100_002, 100_000], &allowed),
            Ok(vec![100_002, 100_000])
        );
        let refused = |cost: &Cost, asked: &[usize], allowed: &[usize]| {
            choose(cost, asked, allowed).unwrap_err()
        };
        assert!(refused(&preemption, &[100_000, 100_001], &allowed).contains("takes one CPU"));
        assert!(refused(&Cost::Migration, &[100_000; 2], &allowed).contains("two different CPUs"));
        assert!(refused(&Cost::Migration, &[100_000], &allowed).contains("two different CPUs"));
        assert!(refused(&Cost::Migration, &[], &[5]).contains("may use 1"));
        assert!(refused(&preemption, &[7], &allowed).contains("CPU 7 is not among"));
        assert!(refused(&preemption, &[], &[]).contains("may use 0"));
    }

    #[test]
    fn the_command_line_makes_sense() {
        Options::command().debug_assert();
    }
}
