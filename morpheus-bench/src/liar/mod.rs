//! The benchmark `liar`: what honest critical sections cost, and what a task gets out of one that never ends.
//!
//! `config` reads the command line. `honest` computes the same work within sections and without, in pairs with a
//! control, and counts escalations meanwhile; `attack` puts a task on the runtime that is critical for ever, beside
//! more busy threads than there are CPUs. `result` is what comes out, `table` shows it.

mod attack;
mod config;
mod honest;
mod result;
mod table;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

pub use crate::report::WIDTH;
pub use result::Report;

use crate::hdr_log::{self, Entry};
use crate::histogram::Counts;
use crate::host::Host;
use crate::{interrupt, neighbours, report};
use config::Options;

/// Measures. Exit codes: 0 measured, 1 failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    report::conclude(
        "liar",
        measure(&options),
        options.json,
        table::render,
        |result| report::Ended::of(result.interrupted, false),
    )
}

fn measure(options: &Options) -> Result<Report, String> {
    let (host, start) = (Host::read(), SystemTime::now());
    let honest = honest::measure(options)?;
    let attacks = if options.without_critical || options.honest_only {
        Vec::new()
    } else {
        attack::measure(options)?
    };
    if let Some(path) = &options.histogram {
        let entries: Vec<Entry> = attacks
            .iter()
            .map(|attack| Entry {
                tag: attack.who.to_string(),
                about: format!("wakes, {}", Counts::FromIntendedStart),
                latencies: &attack.wakes,
            })
            .collect();
        let lasted = start.elapsed().unwrap_or_default();
        hdr_log::write(path, start, lasted, &entries)?;
    }
    Ok(Report::new(host, options, honest, &attacks))
}
