//! The benchmark `overhead`: what a preemption, a migration and the cold cache after one cost.
//!
//! `config` reads the command line; `preemption`, `migration` and `cache` are the three measurements, each of which takes
//! turns by `experiment` in a thread that `conditions` has prepared (pinned, real-time and in locked memory where that is
//! permitted, and if not a note says so). `costs` makes rows of what was read.
//!
//! Every cost is a difference: the thing itself minus the same without it (the switch minus the yield that finds no other
//! thread, the migration minus the call that changes nothing, the walk over another core's lines minus that over own ones).
//! Both are measured in every experiment in the order A B B A, so that a machine that becomes slower favours neither, and
//! beside each difference stands A/A, that of two measurements of the same.

mod cache;
mod conditions;
mod config;
mod costs;
mod cpu;
mod experiment;
mod migration;
mod preemption;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::hdr_log::{self, Entry};
use morpheus_harness::histogram::RAW;
use morpheus_harness::{interrupt, report};

use crate::cpus;
use conditions::{Config, Found};
use config::{Cost, Options, choose};
use experiment::Steps;

/// Measures. Exit codes: 0 measured, 1 it could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let mut options = Options::parse();
    interrupt::install();
    match choose(&options.cost, &options.cpus, &cpus::allowed()) {
        Ok(cpus) => options.cpus = cpus,
        Err(why) => return report::failed("overhead", &why),
    }
    let json = options.json;
    let mut found = Envelope::new("overhead", Config::from(options));
    let measured = measure(&mut found);
    found.failed.extend(measured.err());
    found.conclude(json)
}

fn measure(found: &mut Found) -> Result<(), String> {
    let options = found.config.options.clone();
    let start = SystemTime::now();
    let mut steps = Steps::new(options.experiments, options.json);
    let measured = conditions::under(found, |found| match &options.cost {
        Cost::Preemption { yields } => preemption::measure(found, *yields, &mut steps),
        Cost::Migration => migration::measure(found, &mut steps),
        Cost::Cache { sizes, seed } => cache::measure(found, sizes, *seed, &mut steps),
    });
    steps.progress.clear();
    measured?;
    found.notes.push(costs::NOISE.into());
    let about = format!("{RAW}, means of a measurement each");
    let histograms = steps.histograms.iter();
    let entries = histograms.map(|(tag, latencies)| Entry::new(tag, &about, latencies));
    let (path, lasted) = (options.histogram.as_deref(), start.elapsed());
    hdr_log::write(path, start, lasted.unwrap_or_default(), entries)
}
