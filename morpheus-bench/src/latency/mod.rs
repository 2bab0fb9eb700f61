//! The benchmark `latency`: operations at a fixed rate on the runtime, and what checkpoints in them cost.
//!
//! `config` reads the command line. `open` starts operations by the clock, whether those before are over or not, and
//! counts each from the time at which it was meant to start; `cost` measures the same work with and without
//! checkpoints in pairs (`--paired`). `result` is what comes out, `table` shows it.

mod config;
mod cost;
mod open;
mod result;
mod table;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

pub use crate::report::WIDTH;
pub use result::Report;

use crate::executor::morpheus::Morpheus;
use crate::hdr_log::{self, Entry};
use crate::histogram::Counts;
use crate::host::Host;
use crate::{interrupt, neighbours, report, work};
use config::Options;

/// Measures. Exit codes: 0 measured, 1 failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    report::conclude(
        "latency",
        measure(&options),
        options.json,
        table::render,
        |result| report::Ended::of(result.interrupted, false),
    )
}

fn measure(options: &Options) -> Result<Report, String> {
    let host = Host::read();
    let morpheus = Morpheus::build_linked(options.workers, options.link, &[])?;
    let link = morpheus.link();
    if options.paired {
        let cost = cost::measure(&morpheus, options)?;
        morpheus.still_linked(options.link)?;
        return Ok(Report::new(host, options, link, None, Some(cost)));
    }
    let start = SystemTime::now();
    let measured = open::measure(&morpheus, options)?;
    morpheus.still_linked(options.link)?;
    if let Some(path) = &options.histogram {
        let entry = |tag: &str, counts: Counts, latencies| Entry {
            tag: tag.into(),
            about: counts.to_string(),
            latencies,
        };
        let entries = [
            entry("response", Counts::FromIntendedStart, &measured.response),
            entry("service", Counts::Raw, &measured.service),
            entry("clock", Counts::FromIntendedStart, &measured.clock),
        ];
        hdr_log::write(path, start, measured.lasted, &entries)?;
    }
    let open = result::Open::new(&measured, options, work::iterations_per_us());
    Ok(Report::new(host, options, link, Some(open), None))
}
