//! The benchmark `jitter`: how late a thread wakes that sleeps until a given time.
//!
//! `config` reads the command line, `plan` makes from it the conditions that are compared (interval, timer slack, the
//! call that sleeps, load) and runs them in turns, `sleep` is the measured thread, `result` what comes out of it,
//! `table` shows it, and `answer` says from a sweep whether longer sleeps wake later, and why.

mod answer;
mod config;
mod plan;
mod result;
pub(crate) mod sleep;
mod table;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

pub use crate::report::WIDTH;
pub use result::Report;

use crate::hdr_log;
use crate::host::Host;
use crate::{interrupt, neighbours, report};
use config::Options;

/// Measures. Exit codes: 0 measured, 1 refused or failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    if let Err(error) = options.check() {
        error.exit();
    }
    interrupt::install();
    let host = Host::read();
    let start = SystemTime::now();
    match plan::measure(&options) {
        Ok(measured) => {
            let result = Report::new(host, &options, &measured);
            let text = if options.json {
                report::json(&result)
            } else if options.cyclictest {
                table::cyclictest(&measured, options.priority_in_force())
            } else {
                table::render(&result)
            };
            report::print(&text);
            if let Err(error) = write_histogram(&options, start, &measured) {
                eprintln!("jitter: {error}");
                return ExitCode::FAILURE;
            }
            ExitCode::from(if result.interrupted { 130 } else { 0 })
        }
        Err(error) => {
            eprintln!("jitter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_histogram(
    options: &Options,
    start: SystemTime,
    measured: &plan::Measured,
) -> Result<(), String> {
    let Some(path) = &options.histogram else {
        return Ok(());
    };
    let corrected: Vec<_> = measured.series.iter().map(|s| s.corrected()).collect();
    let mut entries = Vec::new();
    for (series, corrected) in measured.series.iter().zip(&corrected) {
        entries.push(hdr_log::Entry {
            tag: series.condition.tag(),
            about: series.counts().to_string(),
            latencies: &series.lateness,
        });
        if let Some(corrected) = corrected {
            entries.push(hdr_log::Entry {
                tag: series.condition.tag() + "-corrected",
                about: "corrected for coordinated omission".into(),
                latencies: &corrected.latencies,
            });
        }
    }
    let lasted = start.elapsed().unwrap_or_default();
    hdr_log::write(path, start, lasted, &entries)
}
