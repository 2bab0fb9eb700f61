//! The command line, and what this program needs before it changes anything.

use std::path::{Path, PathBuf};

use clap::Parser;
use morpheus_harness::arguments::{counted, measured};

use super::case::{Case, Suite};
use super::contender::Contender;
use super::features;
use super::probes::Probe;
use super::trials;
use crate::{cpus, scx};

const MORE: &str = "\
Examples:
  scale
      The kernel's own scheduler and scx_morpheus, on all CPUs. Needs root and sched_ext.
  scale --schedulers default,morpheus,scx_bpfland --iterations 5
      Beside another one. Each of them is a command line: 'default' is the kernel's own scheduler, the program
      'morpheus' is scx_morpheus beside this program, and arguments may follow: --schedulers 'morpheus --off kick'.
  scale --only latency,burst --cpus 2,4
      Two cases with two CPUs, and again with four: the others are taken offline meanwhile.
  scale --schedulers current --only pipe
      Whatever schedules now, without root: nothing is changed.
  scale --suite contention --schedulers morpheus
      Whether anybody is forgotten: each case fails where a rule of it is broken. --list says which there are.
  scale --suite trace --schedulers morpheus --duration 60 --capture /tmp/capture
      A minute of stress; who ran and who woke last is in that directory when the scheduler is thrown out.
  scale --ablation=tiers,deficit --iterations 10
      The gain of these features of scx_morpheus: it is measured as it is, with each switched the other way, and as
      it is again, each under the loads that it was made for; --elsewhere adds two others, --only has others in their place.
  scale --suite runtime --schedulers default/lazy,default/full,scx_bpfland,morpheus
      The delays of tasks of Morpheus's runtime beside hogs, under each; it calls starvation.
  scale --suite soak --schedulers morpheus --duration 600
      Ten minutes of everything at once: who waited for long, and what the kernel said of it.
  scale --strict --iterations 5
      Fails where the scheduler misses a bar. One that the iterations leave undecided is no failure.
  scale --json > rounds.jsonl; scale --from rounds.jsonl
      A record a line, as soon as it is there; and the table of the records of one or more files.

In each iteration every scheduler is started, runs all cases and is stopped; who is first changes from iteration to
iteration. Before, during and after each measurement the kernel is asked who schedules: one that was thrown out, has
ended or has been loaded again has failed. Wakes count from their intended time, so nothing is omitted. Round trips
count from the question, which waits for the answer before it: a pair that stands still asks less often. A 99th
percentile needs 1,000 samples, a --duration of 5.

It changes the scheduler of the whole machine while it runs, and puts things back, also after Ctrl-C. Meant for a
guest. This boots one for each round, and makes one table of all:
  cargo xtask scale

Exit codes: 0 measured, 1 something could not be measured or broke a rule (with --strict: a bar was missed), 2 bad usage,
130 after Ctrl-C (what was measured until then is shown).";

/// The effect of schedulers on a whole machine, its batch work and its interactive tasks.
#[derive(Debug, Parser)]
#[command(name = "scale", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Which cases: --list shows them
    #[arg(long, value_enum, default_value = "scale")]
    pub suite: Suite,

    /// Only these cases of the suite
    #[arg(
        long,
        value_name = "CASE,…",
        value_delimiter = ',',
        value_enum,
        hide_possible_values = true
    )]
    pub only: Vec<Case>,

    /// With this many CPUs, one number after the other; all of them if not given
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = counted(1, 4_096))]
    pub cpus: Vec<usize>,

    /// Under these: 'default' (with a mode of preemption: 'default/lazy', 'default/full'), 'morpheus', a command line, or
    /// 'current' alone
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "default,morpheus"
    )]
    pub schedulers: Vec<Contender>,

    /// The effect of features of Morpheus's scheduler: these, or all that there are loads for
    #[arg(
        long,
        value_name = "FEATURE,…",
        value_delimiter = ',',
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["schedulers", "suite"]
    )]
    pub ablation: Option<Vec<String>>,

    /// With --ablation: also under loads that a feature was not made for, to see what it costs
    #[arg(long, requires = "ablation")]
    pub elsewhere: bool,

    /// With --ablation: print the guests that it needs as JSON, and measure nothing: how `cargo xtask ablation` asks.
    #[arg(long, hide = true, requires = "ablation")]
    pub guests: bool,

    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "3", value_parser = counted(1, 1_000))]
    pub iterations: usize,

    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value = "6", value_parser = measured(0.05, 3_600.0))]
    pub duration: f64,

    /// A missed bar is a failure (exit code 1); three iterations decide, fewer only what is the same in each
    #[arg(long, conflicts_with = "ablation")]
    pub strict: bool,

    /// The number of the first iteration, when others were measured elsewhere
    #[arg(long, value_name = "N", default_value = "1", value_parser = counted(1, 100_000))]
    pub first_iteration: usize,

    /// Print one JSON object a measurement as soon as it is there, and nothing else
    #[arg(long)]
    pub json: bool,

    /// Write the figures to this file as Prometheus reads them
    #[arg(long, value_name = "FILE")]
    pub prom: Option<PathBuf>,

    /// Where the suite trace saves what it captured, when a measurement fails
    #[arg(long, value_name = "DIRECTORY", default_value = "scale-capture")]
    pub capture: PathBuf,

    /// Say what there is to measure, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Measure nothing; show what --json printed into these files
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["duration", "iterations", "first_iteration", "schedulers", "ablation", "cpus", "only", "list"])]
    pub from: Vec<PathBuf>,

    /// One measurement, of a job on stdin: how this program calls itself.
    #[arg(long, hide = true)]
    pub child: bool,

    /// A process of a measurement: likewise.
    #[arg(long, hide = true, value_enum)]
    pub probe: Option<Probe>,

    /// Brings CPUs back when the program that took them has ended: likewise.
    #[arg(long, hide = true)]
    pub restorer: bool,
}

impl Options {
    /// The features that `--ablation` names: all that there are loads for where it names none. `None` without it.
    pub fn features(&self) -> Option<Vec<&str>> {
        let named = self.ablation.as_ref()?.iter().map(String::as_str);
        let named: Vec<&str> = named.filter(|name| !name.is_empty()).collect();
        Some(match named[..] {
            [] => trials::features().collect(),
            _ => named,
        })
    }

    /// The cases to measure under a scheduler, of those that are chosen: with `--ablation` those of its feature, unless `--only`
    /// says which.
    pub fn cases_under(&self, scheduler: &Contender, chosen: &[Case]) -> Vec<Case> {
        match self.features() {
            Some(features) if self.only.is_empty() => {
                trials::cases(&scheduler.to_string(), &features, self.elsewhere)
            }
            _ => chosen.to_vec(),
        }
    }

    /// The cases to measure, in their order. With `--ablation` the schedulers to measure are there when this returns.
    ///
    /// # Errors
    /// For a combination that makes no sense, and when the scheduler cannot be asked for its features, or does not have one of
    /// those named; the text says what is right.
    pub fn cases(&mut self) -> Result<Vec<Case>, String> {
        if let Some(features) = self.features() {
            let schedulers = features::contenders(&features)?;
            let mut cases = self.cases_under(&schedulers[0], &self.only);
            cases.sort_unstable();
            cases.dedup();
            self.schedulers = schedulers;
            return Ok(cases);
        }
        let of_suite = self.suite.cases();
        if let Some(other) = self.only.iter().find(|case| !of_suite.contains(case)) {
            return Err(format!(
                "--only {}: that is no case of this suite (--list shows them all)",
                other.name()
            ));
        }
        if self.schedulers.contains(&Contender::Current) && self.schedulers.len() > 1 {
            return Err(
                "--schedulers current: that is whatever schedules now, so no other can be beside it".into(),
            );
        }
        let chosen = |case: &Case| self.only.is_empty() || self.only.contains(case);
        Ok(of_suite.into_iter().filter(chosen).collect())
    }

    /// Whether only what is there is measured, and nothing changed.
    pub fn changes_nothing(&self) -> bool {
        self.schedulers == [Contender::Current] && self.cpus.is_empty()
    }
}

/// Whether this machine and this user can do what is asked for. `directory` is [`scx::DIRECTORY`].
///
/// # Errors
/// The missing condition, and how to meet it.
pub fn may_run(options: &Options, directory: &Path) -> Result<(), String> {
    if options.changes_nothing() {
        return Ok(());
    }
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err("changing the machine's scheduler or CPUs needs root; --schedulers current measures what is there".into());
    }
    for program in options.schedulers.iter().filter_map(Contender::program) {
        let program = program?;
        if !directory.is_dir() {
            return Err(format!(
                "{} is for sched_ext, which this kernel does not have ({} is not there): boot one that has it, with \
                 cargo xtask scale",
                program.display(),
                directory.display()
            ));
        }
    }
    let wants_own = !options.schedulers.contains(&Contender::Current);
    if let Some(loaded) = scx::loaded(directory).filter(|_| wants_own) {
        return Err(format!(
            "a sched_ext scheduler ({}) runs already: stop it first, or measure it with --schedulers current",
            loaded.ops
        ));
    }
    let present = cpus::allowed().len();
    if let Some(many) = options.cpus.iter().find(|count| **count > present) {
        return Err(format!("--cpus {many}: this machine has {present}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use morpheus_harness::arguments::refuses;

    use super::*;

    fn options(words: &[&str]) -> Options {
        Options::parse_from(std::iter::once("scale").chain(words.iter().copied()))
    }

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn bad_input_says_what_is_right() {
        refuses::<Options>(&[
            ("--iterations 0", "from 1 to 1000"),
            ("--duration 0", "from 0.05 to 3600"),
            ("--cpus 2,none", "from 1 to 4096"),
            ("--only speed", "latency"),
            ("--suite other", "contention"),
            ("--schedulers ,", "a scheduler is needed"),
            ("--from x --duration 1", "cannot be used with"),
            ("--ablation --schedulers default", "cannot be used with"),
            ("--ablation --strict", "cannot be used with"),
            ("--ablation --suite soak", "cannot be used with"),
            ("--elsewhere", "--ablation"),
        ]);
    }

    #[test]
    fn cases_come_in_their_own_order_and_once() {
        let cases = options(&["--only", "pipe,latency,pipe"]).cases();
        assert_eq!(cases.unwrap(), [Case::Latency, Case::Pipe]);
        assert_eq!(options(&[]).cases().unwrap(), Suite::Scale.cases());
    }

    #[test]
    fn an_ablation_names_features_or_means_all() {
        let of = |words: &[&str]| {
            let options = options(words);
            options.features().map(|all| all.join(","))
        };
        assert_eq!(of(&[]), None);
        let all: Vec<&str> = trials::features().collect();
        assert_eq!(of(&["--ablation"]), Some(all.join(",")));
        let two = Some("tiers,deficit".to_owned());
        assert_eq!(of(&["--ablation=tiers,deficit"]), two);
    }

    #[test]
    fn each_feature_has_its_own_loads_unless_others_are_named() {
        let without: Contender = "morpheus --without rescue".parse().unwrap();
        let under = |words: &[&str]| options(words).cases_under(&without, &[Case::Pipe]);
        assert_eq!(under(&["--ablation=rescue"]), [Case::Light]);
        assert_eq!(
            under(&["--ablation=rescue", "--only", "pipe"]),
            [Case::Pipe]
        );
        assert_eq!(under(&[]), [Case::Pipe]);
    }

    #[test]
    fn current_is_alone_and_changes_nothing() {
        assert!(options(&["--schedulers", "current"]).changes_nothing());
        assert!(!options(&["--schedulers", "current", "--cpus", "1"]).changes_nothing());
        let error = options(&["--schedulers", "current,default"]).cases();
        assert!(error.unwrap_err().contains("whatever schedules now"));
    }
}
