//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use morpheus_runtime::Mechanism;

use super::arguments::{Choice, Off};
use super::workload::{HogKind, Lifo, LinkName, Via, Workload};
use crate::arguments::{counted, measured};
use crate::code::Code;
use crate::executor::Runtime;
use crate::host;

const EXAMPLES: &str = "\
Examples:
  starvation
      Two computing hogs (one per worker) beside 32 sleeping tasks, on every runtime.
  starvation --hogs 0
      The same without hogs: what the probes alone see.
  starvation --runtime morpheus,tokio --hogs 20 --hog-kind read --rounds 3
      Twenty tasks that block in read(2); medians over three rounds, interleaved.
  starvation --runtime morpheus,tokio+128 --spares 128 --hogs 128 --hog-kind sleep
      Every spare in play: as many tasks as there are spares sleep in the kernel.
  starvation --runtime morpheus --hogs 200 --hog-via spawn --fresh
      Two hundred hogs at once, watched, each poll of theirs a new task.
  starvation --runtime morpheus-flag --hogs 20
  starvation --runtime tokio,tokio-tuned --hogs 20 --hog-code bounded
      The same load with one flag, and as an expert rewrites it for tokio: spawn_blocking behind a semaphore.
  starvation --load 16 --warmup 2
      A TCP echo server at 16,000 requests a second beside the hogs.
  starvation --hogs 0 --busy 64 --busy-us 300 --rounds 10
      What Morpheus costs where nothing is stuck.
  starvation --runtime morpheus,tokio --off reserve,canary
      What these two mechanisms are worth.
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

/// What a task that gets stuck costs the other tasks, on Morpheus, tokio, smol and Go.
#[derive(Clone, Debug, Parser)]
#[command(name = "starvation", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Options {
    /// Runtimes to measure: morpheus, tokio, tokio+32 (32 more workers), tokio+32+slice (with slices of 0.2 ms),
    /// smol, go, or all of these, smol+32 and go+32 (GOMAXPROCS); morpheus-flag and tokio-tuned (eager driver handoff, no LIFO slot, 32 more
    /// workers, slices) are built with `--cfg tokio_unstable` first
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "all"
    )]
    runtime: Vec<Choice>,

    /// Tasks that sleep for one period and measure how late they wake up
    #[arg(short = 'n', long, value_name = "N", default_value = "32", value_parser = counted(0, 100_000))]
    tasks: usize,

    /// Tasks that get stuck in every poll [default: one per worker]
    #[arg(long, value_name = "N", value_parser = counted(0, 10_000))]
    hogs: Option<usize>,

    /// How long a hog is stuck in one poll (a computing one by CPU time of its thread)
    #[arg(long, value_name = "MS", default_value = "200", value_parser = measured(0.01, 60_000.0))]
    hog_ms: f64,

    /// What a hog does: compute, sleep in the kernel, wait for a lock that is held outside, read a pipe
    #[arg(long, value_name = "KIND", default_value = "cpu")]
    hog_kind: HogKind,

    /// How hogs are spawned: spawn is morpheus_runtime::spawn (watched); tokio-spawn is what libraries call
    #[arg(long, value_name = "HOW", default_value = "tokio-spawn")]
    hog_via: Via,

    /// How the code of the hogs is written; all but the first need tokio's functions, so smol and go have them not
    #[arg(long, value_name = "CODE", default_value = "inline")]
    hog_code: Code,

    /// Each poll of a hog is a new task, started by a small parent that is not watched
    #[arg(long)]
    fresh: bool,

    /// TCP echo clients, each a thread outside, with 20 µs of work per request
    #[arg(long, value_name = "CONNECTIONS", default_value = "0", hide_default_value = true, value_parser = counted(0, 4_096))]
    load: usize,

    /// Requests a second of each client
    #[arg(long, value_name = "HZ", default_value = "1000", value_parser = measured(0.1, 100_000.0))]
    load_rate: f64,

    /// Innocent tasks that poll for a short while and yield, for ever
    #[arg(long, value_name = "TASKS", default_value = "0", hide_default_value = true, value_parser = counted(0, 100_000))]
    busy: usize,

    /// For how long each such poll computes
    #[arg(long, value_name = "US", default_value = "20", value_parser = measured(0.1, 1e6))]
    busy_us: f64,

    /// How they are spawned
    #[arg(long, value_name = "HOW", default_value = "tokio-spawn")]
    busy_via: Via,

    /// Hogs share a label with innocent tasks (9 per hog, or --busy): every tenth poll under it is a hog's
    #[arg(long, conflicts_with_all = ["lifo", "fresh"])]
    label_mix: bool,

    /// Hogs wake a task in the poll in which they get stuck; nothing is known of them, or they are watched,
    /// or they pass checkpoints
    #[arg(long, value_name = "HOG", conflicts_with = "fresh")]
    lifo: Option<Lifo>,

    /// Run nothing at all and count the wakeups of the runtime's threads
    #[arg(long, conflicts_with_all = ["hogs", "busy", "load", "label_mix", "lifo"])]
    idle: bool,

    /// Workers of the runtime [default: the CPUs that there are]
    #[arg(long, value_name = "N", value_parser = counted(1, 1_024))]
    workers: Option<usize>,

    /// Spares of Morpheus [default: as many as it has by itself]
    #[arg(long, value_name = "N", value_parser = counted(0, 4_000))]
    spares: Option<usize>,

    /// Period of the wakes and of the sleepers
    #[arg(long, value_name = "US", default_value = "1000", value_parser = counted(10, 10_000_000))]
    period_us: usize,

    /// Seconds to measure (extended up to 4 times until there are 1,000 wakes)
    #[arg(long, value_name = "S", default_value = "5", value_parser = measured(0.1, 3_600.0))]
    duration: f64,

    /// Seconds before anything counts (up to twice as long, until the median wake has settled)
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = measured(0.0, 600.0))]
    warmup: f64,

    /// Busy threads of another process
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = counted(0, 1_024))]
    neighbours: usize,

    /// Run in a cgroup that has this many CPUs (needs root)
    #[arg(long, value_name = "CPUS", value_parser = measured(0.05, 1_024.0))]
    quota: Option<f64>,

    /// Morpheus confines its threads to as many CPUs as the quota pays for, rounded down
    #[arg(long, requires = "quota")]
    confine: bool,

    /// Run the measured processes as this user (needs root)
    #[arg(long, value_name = "UID")]
    pub uid: Option<u32>,

    /// Where Morpheus learns of stuck workers: it looks by itself, or a daemon tells it (scx_morpheus
    /// --observe, or scx_morpheus, which must run)
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    link: LinkName,

    /// Mechanisms of Morpheus to switch off: takeover, canary, watch, reserve, slice, handoffs, permits,
    /// poke, stacks, or all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    off: Vec<Off>,

    /// Repeat, in the order A B B A …, and show medians [default: 1; 3 with --suite]
    #[arg(long, value_name = "N", value_parser = counted(1, 1_000))]
    rounds: Option<usize>,

    /// Measure every row of the table of bars and judge it
    #[arg(long)]
    pub suite: bool,

    /// Only these rows
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "suite")]
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

impl Options {
    /// What the options say, put on any runtime.
    ///
    /// # Errors
    /// Where options do not go together; clap's error prints itself and exits with 2.
    pub fn check(&self) -> Result<Workload, clap::Error> {
        let bad = |text: String| Self::command().error(ErrorKind::ValueValidation, text);
        if self.quota.is_some_and(|quota| quota > host::cpus() as f64) {
            let cpus = host::cpus();
            return Err(bad(format!(
                "--quota leaves more than there is: {cpus} CPUs"
            )));
        }
        let about_morpheus = !self.off.is_empty() || self.spares.is_some() || self.confine;
        let runtimes = self.runtimes();
        let is_morpheus =
            |runtime: &Runtime| matches!(runtime, Runtime::Morpheus | Runtime::MorpheusFlag);
        if about_morpheus && !runtimes.iter().any(is_morpheus) {
            return Err(bad(
                "--off, --spares and --confine are about morpheus, which is not measured".into(),
            ));
        }
        let without_tokio =
            |runtime: &Runtime| matches!(runtime, Runtime::Smol { .. } | Runtime::Go { .. });
        if self.hog_code != Code::Inline && runtimes.iter().any(without_tokio) {
            return Err(bad(
                "--hog-code needs functions of tokio, which smol and go have not: name others with --runtime".into(),
            ));
        }
        if self.hog_code != Code::Inline && (self.label_mix || self.lifo.is_some()) {
            return Err(bad(
                "--label-mix and --lifo have hogs of their own: --hog-code does not apply".into(),
            ));
        }
        let workers = self.workers.unwrap_or_else(host::cpus);
        let mut off: Vec<String> = Vec::new();
        for name in self
            .off
            .iter()
            .flat_map(|off| &off.0)
            .map(Mechanism::to_string)
        {
            if !off.contains(&name) {
                off.push(name);
            }
        }
        let workload = Workload {
            workers,
            spares: self.spares,
            tasks: self.tasks,
            period_us: self.period_us as u64,
            hogs: if self.idle {
                0
            } else {
                self.hogs.unwrap_or(workers)
            },
            hog_ms: self.hog_ms,
            hog_kind: self.hog_kind,
            hog_via: self.hog_via,
            hog_code: self.hog_code,
            fresh: self.fresh,
            load: self.load,
            load_rate: self.load_rate,
            busy: self.busy,
            busy_us: self.busy_us,
            busy_via: self.busy_via,
            label_mix: self.label_mix,
            lifo: self.lifo,
            neighbours: self.neighbours,
            quota: self.quota,
            confine: self.confine,
            link: self.link,
            off,
            idle: self.idle,
            warmup_s: self.warmup,
            duration_s: self.duration,
        };
        if (self.label_mix || self.lifo.is_some()) && workload.hogs == 0 {
            return Err(bad(
                "--label-mix and --lifo are about hogs: --hogs must not be 0".into(),
            ));
        }
        Ok(workload)
    }

    /// The runtimes to measure, each once, in the order named.
    pub fn runtimes(&self) -> Vec<Runtime> {
        let mut runtimes = Vec::new();
        for choice in &self.runtime {
            let named = match choice {
                Choice::All => Runtime::ALL.to_vec(),
                Choice::One(runtime) => vec![*runtime],
            };
            for runtime in named {
                if !runtimes.contains(&runtime) {
                    runtimes.push(runtime);
                }
            }
        }
        runtimes
    }

    /// Whether a runtime was asked for by its own name: then it is a failure if it cannot be measured.
    pub fn named(&self, runtime: Runtime) -> bool {
        self.runtime.contains(&Choice::One(runtime))
    }

    /// How often everything is measured.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.suite { 3 } else { 1 })
    }
}

#[cfg(test)]
mod tests {
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
