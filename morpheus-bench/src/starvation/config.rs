//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use morpheus_harness::arguments::counted;
use morpheus_harness::host;
use morpheus_harness::rows::view::distinct;
use morpheus_runtime::Mechanism;

use super::bars;
use super::workload::Workload;
use crate::code::Code;
use crate::executor::Runtime;

const EXAMPLES: &str = "\
Examples:
  starvation
      Two computing hogs (one per worker) beside 32 sleeping tasks, on every runtime.
  starvation --hogs 0
      The same without hogs: what the probes alone see.
  starvation --runtime morpheus,tokio --hogs 20 --hog-kind read --rounds 3
      Twenty tasks that block in read(2); medians over three rounds, interleaved.
  starvation --runtime morpheus,tokio+128 --spares 128 --hogs 128 --hog-kind sleep
      Every spare active: as many tasks as there are spares sleep in the kernel.
  starvation --runtime morpheus --hogs 200 --hog-via spawn --fresh
      Two hundred hogs at once, watched, each poll of theirs a new task.
  starvation --runtime morpheus-flag --hogs 20
  starvation --runtime tokio,tokio-tuned --hogs 20 --hog-code bounded
      The same load with one flag, and as an expert rewrites it for tokio: spawn_blocking behind a semaphore.
  starvation --load 16 --warmup 2
      A TCP echo server at 16,000 requests a second beside the hogs.
  starvation --hogs 0 --busy 64 --busy-us 300 --rounds 10
      The cost of Morpheus where nothing stalls.
  starvation --runtime morpheus,tokio --off reserve,canary
      The worth of these two mechanisms.
  sudo scx_morpheus --observe & starvation --runtime morpheus --link observer --hog-kind read
      With the kernel's help: the notes say how soon a blocked worker was seen and replaced.
  sudo starvation --runtime morpheus,tokio --workers 1 --quota 1.9 --hogs 4 --confine
      Under a CPU quota, with the option that keeps Morpheus to the CPUs that it pays for.
  starvation --suite --suite-only hogs-2,lifo
      Rows of the table of bars, with a verdict on each.

Wake is the latency from an outside thread's wake until the task runs. Timer is how late sleepers wake up.
Both count what is missed: a runtime that stands still does not get away with few samples.

Exit codes: 0 measured, 1 a runtime failed (with --strict: a bar was missed), 2 bad usage, 130 ended early by Ctrl-C
(what was measured is shown).";

/// The cost of a stalled task to the other tasks, on Morpheus, tokio, smol and Go.
#[derive(Clone, Debug, Parser)]
#[command(name = "starvation", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Options {
    /// Runtimes to measure: morpheus, tokio, tokio+32 (32 more workers), tokio+32+slice (with slices of 0.2 ms),
    /// smol, go, or all of these, smol+32 and go+32 (GOMAXPROCS); morpheus-flag and tokio-tuned (eager driver handoff, no LIFO slot, 32 more
    /// workers, slices) are built with `--cfg tokio_unstable` first
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "all", value_parser = choice)]
    runtime: Vec<Option<Runtime>>,

    /// Tasks that stall in every poll [default: one per worker]
    #[arg(long, value_name = "N", value_parser = counted(0, 10_000))]
    hogs: Option<usize>,

    #[command(flatten)]
    workload: Workload,

    /// Run the measured processes as this user (needs root)
    #[arg(long, value_name = "UID")]
    pub uid: Option<u32>,

    /// Repeat, in the order A B B A …, and show medians [default: 1; 3 with --suite]
    #[arg(long, value_name = "N", value_parser = counted(1, 1_000))]
    rounds: Option<usize>,

    /// Measure every row of the table of bars and judge it
    #[arg(long)]
    pub suite: bool,

    /// Only these rows
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "suite", value_parser = bars::group_name)]
    pub suite_only: Vec<String>,

    /// A missed bar is a failure (exit code 1)
    #[arg(long, requires = "suite")]
    pub strict: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,

    /// Write the histograms of wakes and timers to this file, as HdrHistogram's log (V2), the rounds of a runtime together
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suite", "idle"])]
    pub histogram: Option<PathBuf>,

    /// Measure one job from stdin: how this program calls itself.
    #[arg(long, hide = true)]
    pub child: bool,
}

/// One name in `--runtime`; `None` is all.
fn choice(name: &str) -> Result<Option<Runtime>, String> {
    match name {
        "all" => Ok(None),
        name => name.parse().map(Some),
    }
}

impl Options {
    /// The workload that the options describe, valid on any runtime.
    ///
    /// # Errors
    /// Where options do not go together; clap's error prints itself and exits with 2.
    pub fn check(&self) -> Result<Workload, clap::Error> {
        let mut workload = self.workload.clone();
        workload.hogs = match workload.idle {
            true => 0,
            false => self.hogs.unwrap_or(workload.workers),
        };
        let (cpus, runtimes) = (host::cpus(), self.runtimes());
        let about_morpheus =
            !workload.off.is_empty() || workload.spares.is_some() || workload.confine;
        let is_morpheus =
            |runtime: &Runtime| matches!(runtime, Runtime::Morpheus | Runtime::MorpheusFlag);
        let without_tokio =
            |runtime: &Runtime| matches!(runtime, Runtime::Smol { .. } | Runtime::Go { .. });
        let is_rewritten = workload.hog_code != Code::Inline;
        let has_own_hogs = workload.label_mix || workload.lifo.is_some();
        let too_much = format!("--quota leaves more than there is: {cpus} CPUs");
        let refusals = [
            (
                workload.quota.is_some_and(|quota| quota > cpus as f64),
                &*too_much,
            ),
            (
                about_morpheus && !runtimes.iter().any(is_morpheus),
                "--off, --spares and --confine are about morpheus, which is not measured",
            ),
            (
                is_rewritten && runtimes.iter().any(without_tokio),
                "--hog-code needs functions of tokio, which smol and go have not: name others with --runtime",
            ),
            (
                is_rewritten && has_own_hogs,
                "--label-mix and --lifo have hogs of their own: --hog-code does not apply",
            ),
            (
                has_own_hogs && workload.hogs == 0,
                "--label-mix and --lifo are about hogs: --hogs must not be 0",
            ),
        ];
        if let Some((_, why)) = refusals.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Self::command().error(ErrorKind::ValueValidation, why));
        }
        workload.off = match workload.off.iter().any(|name| name == "all") {
            true => Mechanism::ALL.iter().map(Mechanism::to_string).collect(),
            false => distinct(workload.off),
        };
        Ok(workload)
    }

    /// The runtimes to measure, each once, in the order named.
    pub fn runtimes(&self) -> Vec<Runtime> {
        let named = |choice: &Option<Runtime>| match choice {
            Some(runtime) => vec![*runtime],
            None => Runtime::ALL.to_vec(),
        };
        distinct(self.runtime.iter().flat_map(named))
    }

    /// Whether a runtime was asked for by its own name: then it is a failure if it cannot be measured.
    pub fn named(&self, runtime: Runtime) -> bool {
        self.runtime.contains(&Some(runtime))
    }

    /// How often everything is measured.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.suite { 3 } else { 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Via;
    use super::*;

    fn parse(line: &str) -> Result<(Options, Workload), clap::Error> {
        let words = std::iter::once("starvation").chain(line.split_whitespace());
        let options = Options::try_parse_from(words)?;
        let workload = options.check()?;
        Ok((options, workload))
    }

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn defaults_are_one_hog_per_worker_on_every_runtime() {
        let (options, workload) = parse("--workers 3").unwrap();
        assert_eq!(options.runtimes(), Runtime::ALL);
        assert_eq!(
            (workload.hogs, workload.tasks, options.rounds()),
            (3, 32, 1)
        );
        assert_eq!(workload.hog_via, Via::TokioSpawn);
    }

    #[test]
    fn lists_are_joined_and_repeated() {
        let (options, workload) =
            parse("--runtime tokio,morpheus --runtime tokio --off canary,poke --off poke").unwrap();
        assert_eq!(options.runtimes(), [Runtime::TOKIO, Runtime::Morpheus]);
        assert_eq!(workload.off, ["canary", "poke"]);
        assert_eq!(
            parse("--off all").unwrap().1.off.len(),
            Mechanism::ALL.len()
        );
    }

    #[test]
    fn bad_input_says_what_is_right_and_exits_with_2() {
        let cases = [
            ("--workers 0", "from 1 to"),
            ("--period-us 0", "from 10 to"),
            ("--hogs 99999999", "10000"),
            ("--duration nan", "a number from"),
            ("--runtime tokyo", "tokio+32+slice"),
            ("--off everything", "canary"),
            ("--runtime tokio --off canary", "not measured"),
            ("--runtime tokio --spares 8", "not measured"),
            ("--hog-code bounded", "smol and go"),
            (
                "--runtime tokio --hog-code in-place --label-mix",
                "not apply",
            ),
            ("--spares 9999", "from 0 to 4000"),
            ("--quota 1000", "more than there is"),
            ("--confine", "--quota"),
            ("--strict", "--suite"),
            ("--lifo known --hogs 0", "must not be 0"),
            ("--hog-kind wait", "mutex"),
        ];
        for (line, expected) in cases {
            let error = parse(line).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected), "{line}: {text}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
