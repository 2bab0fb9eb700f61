//! The benchmark `jitter`: how late a thread wakes that sleeps until a given time.
//!
//! `config` reads the command line, `plan` makes from it the kinds of sleep that are compared (interval, timer slack, the
//! call that sleeps, load) and runs them in turns, `sleep` is the measured thread, `result` makes rows of what comes out
//! of it, and `answer` says from a sweep whether longer sleeps wake later, and why.

mod answer;
mod config;
mod plan;
mod result;
pub(crate) mod sleep;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::{interrupt, report};

use crate::neighbours;
use config::Options;

/// Measures. Exit codes: 0 measured, 1 refused or failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse().checked();
    let options = options.unwrap_or_else(|error| error.exit());
    interrupt::install();
    let mut found = Envelope::new("jitter", options.clone());
    let measured = measure(&options, &mut found);
    found.failed.extend(measured.err());
    if !options.cyclictest {
        return found.conclude(options.json);
    }
    for why in &found.failed {
        eprintln!("jitter: {why}");
    }
    report::exit_code(interrupt::happened(), !found.failed.is_empty())
}

fn measure(options: &Options, found: &mut Envelope<Options>) -> Result<(), String> {
    let start = SystemTime::now();
    let (all, warmup) = plan::measure(options)?;
    if options.cyclictest {
        report::print(&result::cyclictest(&all));
    }
    result::report(&all, warmup, options, found);
    result::write_histograms(options.histogram.as_deref(), start, &all)
}
