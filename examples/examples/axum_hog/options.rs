//! The command line.

use std::time::Duration;

use clap::Parser;
use morpheus_bench::host;

use crate::app::Work;
use crate::variant::Variant;

const MORE: &str = "\
What is compared:
  tokio                  the app as it is, on tokio
  tokio+32+slice         the same with 32 more workers, each with a time slice of 0.2 ms: what a sceptic
                         would try first
  tokio-tuned            the same with tokio's unstable switches (eager driver handoff, no LIFO slot)
  tokio-in-place         the handler does its work in tokio::task::block_in_place
  tokio-rewritten        the handler moves its work to tokio's blocking pool (spawn_blocking)
  tokio+slice-rewritten  the same with short slices on all threads
  tokio-bounded          spawn_blocking behind a semaphore with a permit for each worker
  morpheus               the app as it is; one line differs, the one that builds the runtime
  morpheus+layer         and one more: a layer that has the handlers watched, each under its route
  morpheus+flag          the app as morpheus has it, built with RUSTFLAGS=\"--cfg tokio_unstable\"

What is measured:
  /ping p50, p99         from the time at which a ping was meant to be sent until its answer was read.
                         A ping that was never answered counts with its age at the end.
  answered               the share of the pings due that had an answer by the end
  /hash per s            answers to the clients that ask for /hash (/compute, /read) again and again

Examples:
  cargo run --release --example axum_hog
      Under three minutes after the builds: ten variants, three rounds, medians.
  cargo run --release --example axum_hog -- --rounds 1 --duration 2
      A quick run.
  cargo run --release --example axum_hog -- --clients 0
      The cost of the variants if no handler computes.
  cargo run --release --example axum_hog -- --clients 40
      More hogs than Morpheus has spares. Without the flag axum's tasks are not watched, so only the
      rewritten handlers and the layer hold out.
  cargo run --release --example axum_hog -- --work compute --clients 40
      The same without the memory of the hashes, which on some machines is all that a rate shows.
  cargo run --release --example axum_hog -- --work read --clients 64
      Handlers that block.";

/// An axum server whose handlers compute for 50 ms, or block: how late are its answers to /ping?
///
/// Serves one small axum 0.8 app over TCP, on several runtimes one after the other, each in a process of its
/// own. Some clients request /hash or /read without a pause; others send /ping 1,000 times a second. All are
/// threads outside of the runtime.
#[derive(Clone, Debug, Parser)]
#[command(name = "axum_hog", after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// The requests of the other clients: /hash computes in 19 MiB of memory, /compute as long in registers alone, /read
    /// blocks for 5 ms, all in the handler itself
    #[arg(long, value_name = "WORK", default_value = "hash")]
    pub work: Work,

    /// Clients that request it, each without a pause between answer and next request
    #[arg(long, visible_alias = "hash-clients", value_name = "N", default_value = "4", value_parser = counted(0, 1_000))]
    pub clients: usize,

    /// CPU time of a hash (the program finds the passes of Argon2 that take it) or of /compute
    #[arg(long, value_name = "MS", default_value = "50", value_parser = number(0.0, 10_000.0))]
    pub hash_ms: f64,

    /// Seconds to measure, of each variant in each round
    #[arg(long, value_name = "S", default_value = "4", value_parser = number(0.1, 3_600.0))]
    pub duration: f64,

    /// Seconds of warm-up before the measurement
    #[arg(long, value_name = "S", default_value = "1", value_parser = number(0.0, 600.0))]
    pub warmup: f64,

    /// Rounds to measure, in the order A B B A …; the figures are medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = counted(1, 1_000))]
    pub rounds: usize,

    /// Only these variants; those with a flag build this program once more, in a directory of its own [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    variants: Vec<Variant>,

    /// Workers of each runtime [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = counted(1, 1_024))]
    workers: Option<usize>,

    /// Spares of Morpheus's runtimes [default: the runtime's own]
    #[arg(long, value_name = "N", value_parser = counted(0, 1_024))]
    pub spares: Option<usize>,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,

    /// Passes of Argon2 in the hash of a child.
    #[arg(long, hide = true, default_value = "1")]
    pub passes: u32,

    /// Measure this variant and print the figures: for the program's own children.
    #[arg(long, hide = true)]
    pub child: Option<Variant>,
}

impl Options {
    pub fn workers(&self) -> usize {
        self.workers.unwrap_or_else(host::cpus)
    }

    /// The variants to measure, in the order of the table.
    pub fn variants(&self) -> Vec<Variant> {
        let is_asked =
            |variant: &Variant| self.variants.is_empty() || self.variants.contains(variant);
        Variant::ALL.into_iter().filter(is_asked).collect()
    }

    /// CPU time of `/compute`.
    pub fn computes(&self) -> Duration {
        Duration::from_secs_f64(self.hash_ms / 1e3)
    }

    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup)
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration)
    }

    /// The command line of a child that measures one variant.
    pub fn for_child(&self, variant: Variant, passes: u32) -> Vec<String> {
        let mut arguments = vec![
            format!("--child={}", variant.name()),
            format!("--passes={passes}"),
            format!("--hash-ms={}", self.hash_ms),
            format!("--work={}", self.work.path().trim_start_matches('/')),
            format!("--clients={}", self.clients),
            format!("--duration={}", self.duration),
            format!("--warmup={}", self.warmup),
            format!("--workers={}", self.workers()),
        ];
        arguments.extend(self.spares.map(|spares| format!("--spares={spares}")));
        arguments
    }
}

fn counted(
    least: usize,
    most: usize,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("a whole number from {least} to {most} is needed")),
    }
}

fn number(
    least: f64,
    most: f64,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(s) if (least..=most).contains(&s) => Ok(s),
        _ => Err(format!("a number from {least} to {most} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("axum_hog").chain(line.split_whitespace()))
    }

    #[test]
    fn a_child_hears_what_its_parent_heard() {
        Options::command().debug_assert();
        let options =
            parse("--clients 7 --work read --duration 0.5 --warmup 0 --workers 3").unwrap();
        let child = parse(&options.for_child(Variant::RewrittenSlice, 9).join(" ")).unwrap();
        assert_eq!(child.child, Some(Variant::RewrittenSlice));
        assert_eq!((child.clients, child.workers(), child.passes), (7, 3, 9));
        assert_eq!((child.duration, child.warmup), (0.5, 0.0));
        assert_eq!(child.work, Work::Read);
    }

    #[test]
    fn bad_input_says_what_is_right() {
        for line in [
            "--rounds 0",
            "--duration nan",
            "--workers 0",
            "--clients -1",
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(
                error.contains("is needed") || error.contains("unexpected"),
                "{error}"
            );
        }
    }
}
