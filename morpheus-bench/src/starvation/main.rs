//! From the command line to the output.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;

use super::WIDTH;
use super::child::{self, Job};
use super::closing;
use super::config::Options;
use super::go;
use super::log;
use super::result::{Report, RunResult};
use super::suite;
use super::supervise;
use super::table;
use super::workload::Workload;
use crate::executor::Runtime;
use crate::executor::go::GoProgram;
use crate::host::Host;
use crate::interrupt;
use crate::neighbours;
use crate::order::interleaved;
use crate::progress::Progress;
use crate::{report, thread, work};

/// Runs the benchmark. Exit codes: 0 measured, 1 a runtime failed, 2 bad usage, 130 ended early by Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    thread::without_huge_pages();
    if options.child {
        child::main();
    }
    let workload = options.check().unwrap_or_else(|error| error.exit());
    if options.suite {
        return suite::main(&options, &workload);
    }
    let host = Host::read();
    interrupt::install();
    let (runtimes, rounds) = (options.runtimes(), options.rounds());
    let mut bench = Bench::new(&options);
    bench.expect(&workload, &runtimes, rounds);
    let start = SystemTime::now();
    let mut runs = bench.measure(&workload, &runtimes, rounds);
    bench.progress.clear();

    let mut failed = runs
        .iter()
        .any(|run| run.failed.is_some() && !excused(run, &options));
    if let Some(path) = &options.histogram
        && let Err(error) = log::write(path, start, &mut runs)
    {
        eprintln!("starvation: {error}");
        failed = true;
    }
    let medians = medians(&runs, &runtimes);
    if options.json {
        let report = Report {
            bench: "starvation".into(),
            host,
            config: workload,
            runs,
            medians,
            interrupted: interrupt::happened(),
        };
        report::print(&report::json(&report));
    } else {
        let title = report::wrap(&table::title(&workload, rounds), WIDTH);
        let sentence = report::wrap(&closing::sentence(&workload, &medians), WIDTH);
        let table = table::render(&medians);
        let mut text = format!("{}\n{title}\n\n{table}\n", host.line(WIDTH));
        report::note_early_end(&mut text, interrupt::happened());
        report::print(&format!("{text}{sentence}\n"));
    }
    if interrupt::happened() {
        return ExitCode::from(130);
    }
    ExitCode::from(u8::from(failed))
}

/// Not every machine has Go, and not everything is in the Go program: that `all` then has one less is no
/// failure.
fn excused(run: &RunResult, options: &Options) -> bool {
    run.runtime == Runtime::Go
        && !options.named(Runtime::Go)
        && run
            .failed
            .as_deref()
            .is_some_and(|why| why.starts_with("not measured") || why == NO_GO)
}

const NO_GO: &str = "go not found";

/// The medians of each runtime that has a run, in the order of `runtimes`.
pub fn medians(runs: &[RunResult], runtimes: &[Runtime]) -> Vec<RunResult> {
    let of = |runtime: &Runtime| {
        let own: Vec<RunResult> = runs
            .iter()
            .filter(|run| run.runtime == *runtime)
            .cloned()
            .collect();
        (!own.is_empty()).then(|| RunResult::median(&own))
    };
    runtimes.iter().filter_map(of).collect()
}

/// What all runs share.
pub struct Bench {
    iterations_per_us: f64,
    uid: Option<u32>,
    quiet: bool,
    histogram: bool,
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
            go: None,
            progress: Progress::new(Duration::ZERO, true),
        }
    }

    /// Starts a progress bar over so many runs.
    pub fn expect(&mut self, workload: &Workload, runtimes: &[Runtime], rounds: usize) {
        let runs = (runtimes.len() * rounds) as u32;
        self.expect_time(supervise::expected(workload) * runs);
    }

    /// Starts a progress bar over so much time.
    pub fn expect_time(&mut self, total: Duration) {
        self.progress = Progress::new(total, self.quiet);
    }

    /// Measures a workload on every runtime, for so many rounds, or until Ctrl-C.
    pub fn measure(
        &mut self,
        workload: &Workload,
        runtimes: &[Runtime],
        rounds: usize,
    ) -> Vec<RunResult> {
        let mut runs = Vec::new();
        for (round, runtime) in interleaved(runtimes, rounds) {
            if interrupt::happened() {
                break;
            }
            self.progress
                .say(format!("{runtime}, round {} of {rounds}", round + 1));
            let mut run = self.run(runtime, workload);
            run.round = Some(round);
            runs.push(run);
            self.progress.finish_run(supervise::expected(workload));
        }
        runs
    }

    fn run(&mut self, runtime: Runtime, workload: &Workload) -> RunResult {
        let mut workload = workload.clone();
        let mut go_program = None;
        match runtime {
            Runtime::Morpheus | Runtime::MorpheusFlag => {}
            Runtime::Go => match self.go_program(&workload) {
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
