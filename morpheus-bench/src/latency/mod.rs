//! The benchmark `latency`: operations at a fixed rate on the runtime, and what checkpoints in them cost.
//!
//! `config` reads the command line. `open` starts operations by the clock, whether those before are over or not, and
//! counts each from the time at which it was meant to start; `rate` makes rows of that, and says why a rate was not reached. `cost`
//! measures the same work with and without checkpoints in pairs (`--paired`).

mod config;
mod cost;
mod open;
mod rate;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::hdr_log::{self, Entry};
use morpheus_harness::histogram::{FROM_INTENDED_START, RAW};
use morpheus_harness::interrupt;

use crate::executor::morpheus::Morpheus;
use crate::{neighbours, work};
use config::Options;

/// Measures. Exit codes: 0 measured, 1 failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    let mut found = Envelope::new("latency", options.clone());
    let measured = measure(&options, &mut found);
    found.failed.extend(measured.err());
    found.conclude(options.json)
}

fn measure(options: &Options, found: &mut Envelope<Options>) -> Result<(), String> {
    let morpheus = Morpheus::build_linked(options.workers, options.link)?;
    if options.paired {
        cost::measure(&morpheus, options, found)?;
        return morpheus.still_linked(options.link);
    }
    let start = SystemTime::now();
    let measured = open::measure(&morpheus, options)?;
    morpheus.still_linked(options.link)?;
    rate::report(&measured, options, work::iterations_per_us(), found);
    let entries = [
        Entry::new("response", FROM_INTENDED_START, &measured.response),
        Entry::new("service", RAW, &measured.service),
        Entry::new("clock", FROM_INTENDED_START, &measured.clock),
    ];
    let path = options.histogram.as_deref();
    hdr_log::write(path, start, measured.lasted, entries)
}
