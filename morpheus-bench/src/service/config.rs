//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use super::variant::Variant;
use crate::arguments::{counted, measured};

const MORE: &str = "\
What is compared, each in every round and in a process of its own:
  tokio            the example http_service with #[tokio::main]
  tokio+32         the same with 32 more workers: just give tokio more threads
  tokio-tuned      32 more workers, short slices, and two of tokio's unstable switches
  tokio-in-place   the handlers rewritten with block_in_place around SQLite and argon2
  tokio-rewritten  with spawn_blocking: what an expert would write
  tokio-bounded    and a semaphore that lets as many hashes run as there are CPUs
  morpheus         as it is, with #[morpheus_runtime::main]
  morpheus+layer   and a tower layer that has each handler watched under its route
  morpheus+flag    as it is, built with --cfg tokio_unstable

tokio-tuned and morpheus+flag are built on demand, in a target directory of their own: some minutes the first time.

What is measured, while the clients of --scene are never content:
  /ping, /db       asked by a timetable, one request in four to /db a write. From when a request was due until its
                   answer; what has no answer at the end counts with its age.
  from sending     from when it was sent: all that a closed loop sees
  /hash, /report   answers a second to the clients that keep the service busy

Examples:
  cargo xtask service
      Builds everything and measures: six minutes.
  cargo xtask service --clients 40
      More hogs than Morpheus has spares. The layer knows the handlers that are.
  cargo xtask service --scene blocking
      64 clients of a query that blocks for 5 ms: how many answers?
  cargo xtask service --seconds 2 --rounds 1 --only tokio,morpheus
      A quick look.
  taskset -c 0,1 cargo xtask service
      On two CPUs of a larger machine. Services have a worker for each CPU.

The load is made by wrk (Debian's and Ubuntu's package wrk), which must be in the path.

Exit codes: 0 measured, 1 something could not be, 2 bad usage or no wrk, 130 after Ctrl-C (what was measured until
then is shown).";

/// Who keeps the service busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scene {
    /// Clients of /hash, which computes
    Hash,
    /// Clients of /report, a query in SQLite that blocks for 5 ms
    Blocking,
}

impl Scene {
    /// What they ask for.
    pub fn path(self) -> &'static str {
        match self {
            Scene::Hash => "/hash",
            Scene::Blocking => "/report",
        }
    }

    fn clients(self) -> usize {
        match self {
            Scene::Hash => 4,
            Scene::Blocking => 64,
        }
    }
}

/// A real service under load: the example http_service on Morpheus, beside tokio.
#[derive(Clone, Debug, Parser)]
#[command(name = "service", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Who keeps the service busy
    #[arg(long, value_name = "NAME", default_value = "hash")]
    pub scene: Scene,

    /// How many clients do [default: 4 of /hash, 64 of /report]
    #[arg(long, value_name = "N", value_parser = counted(1, 1_000))]
    clients: Option<usize>,

    /// Only these
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Variant::ALL)]
    pub only: Vec<Variant>,

    /// Seconds to measure, of each variant in each round; wrk knows only whole ones
    #[arg(long, value_name = "S", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,

    /// Seconds under load before that
    #[arg(long, value_name = "S", default_value = "2", value_parser = clap::value_parser!(u32).range(0..=600))]
    pub warmup: u32,

    /// Measure everything so often, in the order A B B A …, and show medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = counted(1, 1_000))]
    pub rounds: usize,

    /// CPU time of a hash in milliseconds; found by trying how many passes of argon2 it needs
    #[arg(long, value_name = "MS", default_value = "50", value_parser = measured(0.0, 10_000.0))]
    pub hash_ms: f64,

    /// Where the programs http_service and http_service_tokio are, built without the flag [default: examples/ beside this program]
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// How many keep the service busy.
    pub fn clients(&self) -> usize {
        self.clients.unwrap_or(self.scene.clients())
    }
}

#[cfg(test)]
pub mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::refuses;

    pub fn parse(line: &str) -> Options {
        Options::parse_from(std::iter::once("service").chain(line.split_whitespace()))
    }

    #[test]
    fn each_scene_has_its_clients() {
        Options::command().debug_assert();
        assert_eq!(parse("").clients(), 4);
        assert_eq!(parse("--scene blocking").clients(), 64);
        assert_eq!(parse("--scene blocking --clients 7").clients(), 7);
        assert_eq!(parse("").only, Variant::ALL);
        assert_eq!(parse("--only morpheus,tokio+32").only.len(), 2);
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--clients 0", "from 1 to"),
            ("--seconds 0.5", "invalid digit"),
            ("--seconds 0", "is not in"),
            ("--rounds 0", "from 1 to"),
            ("--only go", "tokio-bounded"),
            ("--scene idle", "blocking"),
        ]);
    }
}
