//! The benchmark `scale`: what schedulers make of a whole machine, its batch work and its interactive tasks.
//!
//! [`config`] reads the command line, [`case`] says what there is to measure and by which figure. A measurement is a child
//! process (`child`), which runs one of the `cases` beside `probes`, processes of the same program, or a `crowd` of threads that notice how long they wait. `contender` starts and
//! stops schedulers and sees to it that none takes the place of another, `online` takes CPUs away and brings them back, `capture` keeps what happened last, [`soak`] watches who waits for long. `run`
//! goes through everything in turns; [`result`] is what comes out, [`rows`] and `prometheus` show it; `ablation` what features of the scheduler are good for, which `features` gets from its program, under the loads that `trials` has for each.

mod ablation;
mod capture;
pub mod case;
mod cases;
mod child;
pub mod config;
mod contender;
mod corpus;
mod crowd;
mod features;
mod online;
pub mod page;
mod probes;
mod prometheus;
pub mod result;
pub mod rows;
mod run;
pub mod soak;
mod tracing;
mod trials;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use morpheus_harness::record::Record;
use morpheus_harness::refusal::Refusal;
use morpheus_harness::{interrupt, record, report, thread};

use crate::scx;
use case::Case;
use config::Options;
use result::Report;

/// Measures. Exit codes as in the help.
pub fn main() -> ExitCode {
    // Before the command line is read, which would be most of its life.
    if probes::is_nothing() {
        return ExitCode::SUCCESS;
    }
    let mut options = Options::parse();
    if let Some(probe) = options.probe {
        return probes::main(probe);
    }
    if options.restorer {
        return online::restore();
    }
    // Children inherit it.
    thread::without_huge_pages();
    if options.child {
        child::main();
    }
    if options.list {
        report::print(&case::list());
        return ExitCode::SUCCESS;
    }
    run(&mut options).unwrap_or_else(|refusal| refusal.conclude("scale"))
}

fn run(options: &mut Options) -> Result<ExitCode, Refusal> {
    if options.guests {
        let guests = trials::guests(&options.features().unwrap_or_default());
        report::print(&report::json(&guests.map_err(Refusal::Usage)?));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = options.cases().map_err(Refusal::Usage)?;
    let report = measured(options, &chosen)?;
    report::print(&text(&report, options));
    let mut failed = report.runs.is_empty() || report.runs.iter().any(|run| run.failed.is_some());
    if options.strict {
        let missed = rows::missed(&report);
        for bar in &missed {
            eprintln!("scale: {bar}");
        }
        failed |= !missed.is_empty();
    }
    Ok(report::exit_code(interrupt::happened(), failed))
}

/// Measures, or reads what was measured earlier, and writes the figures for Prometheus.
fn measured(options: &Options, chosen: &[Case]) -> Result<Report, String> {
    let report = if options.from.is_empty() {
        config::may_run(options, Path::new(scx::DIRECTORY))?;
        interrupt::install();
        interrupt::install_for_hangup();
        run::measure(options, chosen)?
    } else {
        let (host, runs) = record::read("scale", &options.from)?;
        Report { host, runs }
    };
    if let Some(path) = &options.prom {
        prometheus::write(path, &report)?;
    }
    Ok(report)
}

/// For people a table. Records were printed as they came, but for those that were read again.
fn text(report: &Report, options: &Options) -> String {
    let mut text = match (options.json, ablation::is_one(report)) {
        (true, _) if options.from.is_empty() => return String::new(),
        (true, true) => return report::json(&ablation::envelope(report)),
        (true, false) => {
            let host = report.host.iter().cloned().map(Record::Host);
            let all = host.chain(report.runs.iter().cloned().map(Record::Run));
            return all.map(|record| report::json(&record)).collect();
        }
        (false, true) => ablation::envelope(report).text(),
        (false, false) => rows::envelope(report).text(),
    };
    report::note_early_end(&mut text, interrupt::happened());
    text
}
