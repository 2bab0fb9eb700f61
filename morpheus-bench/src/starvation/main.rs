//! From the command line to the output.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;
use morpheus_harness::envelope::Envelope;
use morpheus_harness::order::interleaved;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Rounds, rounds};
use morpheus_harness::{interrupt, thread};
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
use crate::executor::Runtime;
use crate::executor::go::GoProgram;
use crate::{neighbours, work};

/// The options of the run, as `--json` repeats them.
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
    let total = supervise::expected(workload) * (runtimes.len() * rounds) as u32;
    let mut bench = Bench::new(options, total);
    let start = SystemTime::now();
    let case = title(workload);
    let cases = [Measured {
        name: &case,
        about: "p99 and longest of what others see beside these hogs".into(),
        workload,
        runtimes,
        rounds,
    }];
    let mut runs = bench.measure(&cases, &mut found).concat();
    bench.progress.clear();
    if let Some(path) = &options.histogram {
        let written = log::write(path, start, &mut runs);
        found.failed.extend(written.err());
    }
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

/// A case to measure.
pub struct Measured<'a> {
    /// Of the case.
    pub name: &'a str,
    /// What it is, in a sentence.
    pub about: String,
    /// What the children run.
    pub workload: &'a Workload,
    /// What they run it on.
    pub runtimes: Vec<Runtime>,
    /// How often.
    pub rounds: usize,
}

/// The state that all runs share.
pub struct Bench<'a> {
    options: &'a Options,
    iterations_per_us: f64,
    go: Option<Result<GoProgram, String>>,
    /// How far it is.
    pub progress: Progress,
}

impl<'a> Bench<'a> {
    /// Calibrates, and starts a progress bar over `total`.
    pub fn new(options: &'a Options, total: Duration) -> Self {
        Self {
            options,
            iterations_per_us: work::iterations_per_us(),
            go: None,
            progress: Progress::new(total, options.json),
        }
    }

    /// Measures cases in turns, so that figures of one can be divided by those of another: in each round every case on each of its
    /// runtimes, and every other round backwards. Ends early with Ctrl-C. Adds the rows to what is `found`, and what one should know of
    /// the runs, which it returns by case in their order.
    pub fn measure(
        &mut self,
        cases: &[Measured<'_>],
        found: &mut Envelope<Config>,
    ) -> Vec<Vec<RunResult>> {
        let most = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
        let numbers: Vec<usize> = (0..cases.len()).collect();
        let mut rounds: Vec<_> = cases
            .iter()
            .map(|case| Rounds::in_turns(case.runtimes.len()))
            .collect();
        let mut runs = vec![Vec::new(); cases.len()];
        for (round, number) in interrupt::until(interleaved(&numbers, most)) {
            let case = &cases[number];
            let places = rounds::in_turns(case.runtimes.len(), case.rounds);
            for place in interrupt::until(places.filter(|place| place.round == round)) {
                let runtime = case.runtimes[place.contender];
                let (name, all) = (case.name, case.rounds);
                self.progress
                    .say(format!("{name}, {runtime}, round {} of {all}", round + 1));
                let run = self.run(runtime, case.workload);
                runs[number].push(run.clone());
                rounds[number].add(place, run);
                self.progress.finish_run(supervise::expected(case.workload));
            }
        }
        for ((case, rounds), runs) in cases.iter().zip(&rounds).zip(&runs) {
            if !runs.is_empty() {
                self.conclude(case, rounds, runs, found);
            }
        }
        runs
    }

    /// Adds the rows of a case.
    fn conclude(
        &self,
        case: &Measured<'_>,
        rounds: &Rounds<RunResult>,
        runs: &[RunResult],
        found: &mut Envelope<Config>,
    ) {
        found.begin(case.name, &case.about);
        let names: Vec<String> = case.runtimes.iter().map(Runtime::to_string).collect();
        let rows = rounds.rows(case.name, &names, &FIGURES, |_, _| None);
        found.rows.extend(rows);
        for run in runs {
            let said = run.failed.as_ref();
            let said = said.map(|why| format!("{}: {why}", run.runtime));
            let to = match is_excused(run, self.options.named(run.runtime)) {
                true => &mut found.notes,
                false => &mut found.failed,
            };
            to.extend(said.filter(|said| !to.contains(said)));
        }
        let unsettled = runs.iter().filter(|run| run.settled == Some(false));
        let (count, all) = (unsettled.count(), runs.len());
        let note = format!(
            "{}: in {count} of {all} runs the median wake had not settled when counting began.",
            case.name
        );
        found.notes.extend((count > 0).then_some(note));
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
            histogram: self.options.histogram.is_some(),
            go_program,
        };
        supervise::run(job, self.options.uid, |lasted| self.progress.tick(lasted))
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
