//! From the command line to the output.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;
use serde::Serialize;

use super::child::{self, Job};
use super::closing;
use super::config::Options;
use super::figures::FIGURES;
use super::go;
use super::log;
use super::result::RunResult;
use super::suite;
use super::supervise;
use super::title::title;
use super::workload::Workload;
use crate::envelope::Envelope;
use crate::executor::Runtime;
use crate::executor::go::GoProgram;
use crate::interrupt;
use crate::neighbours;
use crate::progress::Progress;
use crate::rows::{Rounds, Row, rounds};
use crate::{thread, work};

/// What was asked for, as `--json` repeats it.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    pub workers: usize,
    pub duration_s: f64,
    pub rounds: usize,
    pub uid: Option<u32>,
    pub workload: Workload,
}

impl Config {
    /// Of these options.
    pub fn new(options: &Options, workload: Workload) -> Self {
        Self {
            workers: workload.workers,
            duration_s: workload.duration_s,
            rounds: options.rounds(),
            uid: options.uid,
            workload,
        }
    }
}

/// Runs the benchmark. Exit codes: 0 measured, 1 a runtime failed, 2 bad usage, 130 ended early by Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    thread::without_huge_pages();
    if options.child {
        child::main();
    }
    let workload = options.check().unwrap_or_else(|error| error.exit());
    interrupt::install();
    match options.suite {
        true => suite::main(&options, &workload),
        false => one(&options, &workload).conclude(options.json),
    }
}

/// Measures one workload.
fn one(options: &Options, workload: &Workload) -> Envelope<Config> {
    let mut found = Envelope::new("starvation", Config::new(options, workload.clone()));
    let (runtimes, rounds) = (options.runtimes(), options.rounds());
    let mut bench = Bench::new(options);
    bench.expect(supervise::expected(workload) * (runtimes.len() * rounds) as u32);
    let start = SystemTime::now();
    let case = title(workload);
    let mut measured = bench.measure(workload, &runtimes, rounds);
    bench.progress.clear();
    if let Some(path) = &options.histogram {
        found
            .failed
            .extend(log::write(path, start, &mut measured.runs).err());
    }
    found.begin(
        &case,
        "p99 and longest of what others see beside these hogs",
    );
    bench.report(&case, &measured, &mut found);
    let sentence = closing::sentence(workload, &found.rows);
    found.notes.push(sentence);
    found
}

/// Go is on few machines, and its program has not everything: that `all` then has one less is no failure.
fn is_excused(run: &RunResult, is_named: bool) -> bool {
    let is = |why: &String| why.starts_with("not measured") || why == NO_GO;
    matches!(run.runtime, Runtime::Go { .. }) && !is_named && run.failed.as_ref().is_some_and(is)
}

const NO_GO: &str = "go not found";

/// The runs of one workload.
pub struct Measured {
    runtimes: Vec<Runtime>,
    rounds: Rounds<RunResult>,
    /// All of them, in their order.
    runs: Vec<RunResult>,
}

impl Measured {
    /// The rows of those runtimes that have figures.
    fn rows(&self, case: &str) -> Vec<Row> {
        let names: Vec<String> = self.runtimes.iter().map(Runtime::to_string).collect();
        self.rounds.rows(case, &names, &FIGURES, |_, _| None)
    }
}

/// What all runs share.
pub struct Bench {
    iterations_per_us: f64,
    uid: Option<u32>,
    quiet: bool,
    histogram: bool,
    names_go: bool,
    go: Option<Result<GoProgram, String>>,
    /// How far it is.
    pub progress: Progress,
}

impl Bench {
    /// Calibrates.
    pub fn new(options: &Options) -> Self {
        Self {
            iterations_per_us: work::iterations_per_us(),
            uid: options.uid,
            quiet: options.json,
            histogram: options.histogram.is_some(),
            names_go: options.named(Runtime::GO),
            go: None,
            progress: Progress::new(Duration::ZERO, true),
        }
    }

    /// Starts a progress bar over so much time.
    pub fn expect(&mut self, total: Duration) {
        self.progress = Progress::new(total, self.quiet);
    }

    /// Measures a workload on every runtime, for `count` rounds, or until Ctrl-C.
    pub fn measure(&mut self, workload: &Workload, runtimes: &[Runtime], count: usize) -> Measured {
        let mut rounds = Rounds::in_turns(runtimes.len());
        let mut runs = Vec::new();
        for place in rounds::in_turns(runtimes.len(), count) {
            if interrupt::happened() {
                break;
            }
            let runtime = runtimes[place.contender];
            self.progress
                .say(format!("{runtime}, round {} of {count}", place.round + 1));
            let run = self.run(runtime, workload);
            runs.push(run.clone());
            rounds.add(place, run);
            self.progress.finish_run(supervise::expected(workload));
        }
        Measured {
            runtimes: runtimes.to_vec(),
            rounds,
            runs,
        }
    }

    /// Adds the rows of a case, and what one should know of its runs.
    pub fn report(&self, case: &str, measured: &Measured, found: &mut Envelope<Config>) {
        found.rows.extend(measured.rows(case));
        for run in &measured.runs {
            let runtime = run.runtime;
            let said = run.failed.as_ref().map(|why| format!("{runtime}: {why}"));
            let to = match is_excused(run, self.names_go) {
                true => &mut found.notes,
                false => &mut found.failed,
            };
            to.extend(said.filter(|said| !to.contains(said)));
        }
        let unsettled = |run: &&RunResult| run.warmup.is_some_and(|warmup| !warmup.settled);
        let count = measured.runs.iter().filter(unsettled).count();
        if count > 0 {
            let all = measured.runs.len();
            found.notes.push(format!(
                "{case}: in {count} of {all} runs the median wake had not settled when counting began."
            ));
        }
    }

    fn run(&mut self, runtime: Runtime, workload: &Workload) -> RunResult {
        let mut workload = workload.clone();
        let mut go_program = None;
        match runtime {
            Runtime::Morpheus | Runtime::MorpheusFlag => {}
            Runtime::Go { .. } => match self.go_program(&workload) {
                Ok(path) => go_program = Some(path),
                Err(why) => return RunResult::failed(runtime, why),
            },
            _ => {
                workload.off.clear();
                workload.confine = false;
            }
        }
        let job = Job {
            runtime,
            workload,
            iterations_per_us: self.iterations_per_us,
            neighbours: Vec::new(),
            histogram: self.histogram,
            go_program,
        };
        supervise::run(job, self.uid, |lasted| self.progress.tick(lasted))
    }

    fn go_program(&mut self, workload: &Workload) -> Result<std::path::PathBuf, String> {
        if let Some(why) = go::unsupported(workload) {
            return Err(format!("not measured: {why}"));
        }
        let progress = &self.progress;
        let program = self.go.get_or_insert_with(|| {
            if !GoProgram::available() {
                return Err(NO_GO.into());
            }
            progress.say("building the Go program".into());
            GoProgram::build()
        });
        program.as_ref().map(GoProgram::path).map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_that_is_not_there_is_no_failure_unless_it_was_named() {
        let run = RunResult::failed(Runtime::GO, NO_GO);
        assert!(is_excused(&run, false) && !is_excused(&run, true));
        let stands_still = RunResult::failed(Runtime::GO, "stands still");
        assert!(!is_excused(&stands_still, false));
        assert!(!is_excused(
            &RunResult::failed(Runtime::TOKIO, NO_GO),
            false
        ));
    }
}
