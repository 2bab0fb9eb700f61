//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use morpheus_harness::arguments::{counted, measured};
use morpheus_harness::rows::view::distinct;
use serde::Serialize;

use super::connections::Connections;
use super::variant::Variant;

const MORE: &str = "\
These are compared, each in every round and in a process of its own:
  tokio            the example http_service with #[tokio::main]
  tokio+32         the same with 32 more workers: just give tokio more threads
  tokio-tuned      32 more workers, short slices, and two of tokio's unstable switches
  tokio-in-place   the handlers rewritten with block_in_place around what blocks or computes
  tokio-rewritten  with spawn_blocking
  tokio-bounded    and a semaphore that lets as many requests compute as there are CPUs: what an expert writes
  tokio-tuned-bounded  the same, with short slices for workers and the two switches
  tokio-tuned-pool  in place of the semaphore, a pool of their own with a thread for each CPU at nice 10
  morpheus         as it is, with #[morpheus_runtime::main]
  morpheus+layer   and a tower layer that has each handler watched under its route
  morpheus+flag    as it is, built with --cfg tokio_unstable

tokio-tuned, tokio-tuned-bounded, tokio-tuned-pool and morpheus+flag are built on demand, in a target directory of their own: some minutes the first
time.

These are measured, while the clients of --scene are never content:
  /ping, /db       1,000 and 250 (--db) requests a second by a timetable, one in four to /db a write. From when a request was due
                   until its answer; what has no answer at the end counts with its age, and is shown with ≥.
  at first         the same of the requests to /ping that were due during --warmup, which begins when all clients connect at once
  answers/s        to the clients that keep the service busy, each of which asks again at once. A request counts with the part of
                   its time that lies in the window, so that a wave of answers at its edge is no more and no less than it is
  ÷                against another variant, round by round: below 1 is less

Examples:
  cargo xtask service
      Builds everything and measures: six minutes.
  cargo xtask service --clients 4,40,200
      Also more hogs than Morpheus has spares. The layer and the flag know which handlers these are.
  cargo xtask service --clients 40 --connections shared
      Each connection carries requests of both kinds, as behind a proxy. Nothing tells which comes next.
  cargo xtask service --scene hash
      The same with argon2, of which the memory is a part of the rate.
  cargo xtask service --scene blocking
      64 clients of a query that blocks for 5 ms: how many answers?
  cargo xtask service --seconds 2 --rounds 1 --only tokio,morpheus
      A quick look.
  taskset -c 0,1 cargo xtask service
      On two CPUs of a larger machine. Services have a worker for each CPU.

Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C (what was measured until then is shown).";

/// The load that keeps the service busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scene {
    /// Clients of /compute, which computes in registers alone
    Compute,
    /// Clients of /hash, which computes as long in 19 MiB of memory
    Hash,
    /// Clients of /report, a query in SQLite that blocks for 5 ms
    Blocking,
}

impl Scene {
    /// The path that the clients request.
    pub fn path(self) -> &'static str {
        match self {
            Scene::Compute => "/compute",
            Scene::Hash => "/hash",
            Scene::Blocking => "/report",
        }
    }

    fn clients(self) -> usize {
        match self {
            Scene::Compute | Scene::Hash => 4,
            Scene::Blocking => 64,
        }
    }
}

/// A real service under load: the example http_service on Morpheus, beside tokio.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "service", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// The load that keeps the service busy
    #[arg(long, value_name = "NAME", default_value = "compute")]
    pub scene: Scene,

    /// How requests come to connections
    #[arg(long, value_name = "HOW", default_value = "own")]
    pub connections: Connections,

    /// How many clients do, one number after the other [default: 4, or 64 of /report]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = counted(0, 1_000))]
    clients: Vec<usize>,

    /// Only these
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Variant::ALL)]
    only: Vec<Variant>,

    /// Requests a second to /db, a query or a write in SQLite; 0: none
    #[arg(long = "db", value_name = "PER_S", default_value = "250", value_parser = measured(0.0, 10_000.0))]
    pub db_rate: f64,

    /// Seconds to measure, of each variant in each round
    #[arg(long = "seconds", value_name = "S", default_value = "8", value_parser = measured(0.1, 3_600.0))]
    pub window_s: f64,

    /// Seconds under load before that, which have a figure of their own
    #[arg(long = "warmup", value_name = "S", default_value = "4", value_parser = measured(0.0, 600.0))]
    pub warmup_s: f64,

    /// Measure everything N times, in the order A B B A …, and show medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = counted(1, 1_000))]
    pub rounds: usize,

    /// CPU time of a request to /compute or /hash in milliseconds; of /hash, how many passes of argon2 that takes is tried
    #[arg(long, value_name = "MS", default_value = "25", value_parser = measured(0.0, 10_000.0))]
    pub work_ms: f64,

    /// Where the programs http_service and http_service_tokio are, built without the flag [default: examples/ beside this program]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub programs: Option<PathBuf>,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

impl Options {
    /// How many keep the service busy, in one case after the other.
    pub fn clients(&self) -> Vec<usize> {
        match self.clients.is_empty() {
            true => vec![self.scene.clients()],
            false => distinct(self.clients.iter().copied()),
        }
    }

    /// The variants to compare, each once.
    pub fn only(&self) -> Vec<Variant> {
        distinct(self.only.iter().copied())
    }

    /// The time that counts.
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.window_s)
    }

    /// The time before it.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_s)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use morpheus_harness::arguments::refuses;

    use super::*;

    fn parse(line: &str) -> Options {
        Options::parse_from(std::iter::once("service").chain(line.split_whitespace()))
    }

    #[test]
    fn each_scene_has_its_clients() {
        Options::command().debug_assert();
        assert_eq!(parse("").clients(), [4]);
        assert_eq!(parse("--scene blocking").clients(), [64]);
        assert_eq!(parse("--scene blocking --clients 7,9").clients(), [7, 9]);
        assert_eq!(parse("").only, Variant::ALL);
        assert_eq!(parse("--only morpheus,tokio+32").only.len(), 2);
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--clients -1", "unexpected"),
            ("--clients 4,many", "from 0 to"),
            ("--seconds 0", "from 0.1 to"),
            ("--rounds 0", "from 1 to"),
            ("--db=-1", "from 0 to"),
            ("--only go", "tokio-bounded"),
            ("--scene idle", "blocking"),
        ]);
    }
}
