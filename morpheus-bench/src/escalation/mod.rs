//! The benchmark `escalation`: how soon a poll that computes is asked to yield, and how soon a spare runs what waits behind a
//! worker that blocks, in a runtime that is busy and in one that was idle.
//!
//! `config` reads the command line. `request` measures the first step of the ladder, `takeover` the second.

mod config;
mod request;
mod takeover;

use std::process::ExitCode;

use clap::Parser;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::interrupt;

use crate::neighbours::{self, Neighbours};
use config::{Options, Part};

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    measure(&options).conclude(options.json)
}

fn measure(options: &Options) -> Envelope<Options> {
    let mut found = Envelope::new("escalation", options.clone());
    let neighbours = Neighbours::own(options.neighbours.into());
    for part in interrupt::until(&options.only) {
        let measured = match (&neighbours, part) {
            (Err(why), _) => Err(why.clone()),
            (_, Part::Request) => request::measure(options, &mut found),
            (_, Part::Takeover) => takeover::measure(options, &mut found),
            (_, Part::Cold) => takeover::measure_cold(options, &mut found),
        };
        found.failed.extend(measured.err());
    }
    found
}
