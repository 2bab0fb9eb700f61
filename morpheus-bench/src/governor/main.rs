//! From the command line to the output.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;
use morpheus_harness::refusal::Refusal;
use morpheus_harness::report::{self, print};
use morpheus_harness::{hdr_log, interrupt};

use super::actions;
use super::config::{Action, Options, RunOptions};
use super::prepare::{self, duration};
use super::state::{self, Before, Purpose};
use crate::neighbours;

/// Runs the benchmark. Exit codes as in the help.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    interrupt::install_for_hangup();
    let Options { sysfs, state, .. } = &options;
    let ended = match &options.action {
        Action::Run(own) => measure(own, &options),
        Action::Set(own) => actions::set_governor(own, sysfs, state).map(conclude),
        Action::Record(own) => actions::record(own, sysfs).map(conclude),
        Action::Restore(own) => actions::restore(own, state).map(conclude),
    };
    ended.unwrap_or_else(|refusal| refusal.conclude("governor"))
}

/// Says what went wrong. Ctrl-C matters only where nothing did.
fn conclude(failed: Vec<String>) -> ExitCode {
    for why in &failed {
        eprintln!("governor: {why}");
    }
    let interrupted = interrupt::happened() && failed.is_empty();
    report::exit_code(interrupted, !failed.is_empty())
}

fn measure(own: &RunOptions, options: &Options) -> Result<ExitCode, Refusal> {
    put_back_first(own, options)?;
    let ready = prepare::prepare(own, &options.sysfs, &options.state)?;
    for missing in ready.missing() {
        eprintln!("governor: {missing}");
    }
    if own.dry_run {
        print(&ready.text(&own.output));
        return Ok(ExitCode::SUCCESS);
    }
    if std::io::stderr().is_terminal() && !own.json {
        eprintln!("governor: this takes {}", duration(ready.expected()));
    }
    let start = SystemTime::now();
    let study = ready.measure(own, &options.state)?;
    let mut found = study.found();
    let (path, lasted) = (own.histogram.as_deref(), start.elapsed());
    let written = hdr_log::write(path, start, lasted.unwrap_or_default(), study.histograms());
    found.failed.extend(written.err());
    Ok(found.conclude(own.json))
}

/// A run that was killed could not put back what it changed: the next one does, before it looks at the machine.
fn put_back_first(own: &RunOptions, options: &Options) -> Result<(), String> {
    let restored = state::restore(&options.state, Purpose::Run, own.dry_run)?;
    for Before { path, value } in &restored.done {
        let path = path.display();
        let said = if own.dry_run {
            format!("a run that was killed has left {path}; {value} would be put back first")
        } else {
            format!("{path} is {value} again, as before a run that was killed")
        };
        eprintln!("governor: {said}");
    }
    match restored.failed.first() {
        None => Ok(()),
        Some(why) => Err(format!(
            "a run that was killed has left a governor that cannot be put back: {why}"
        )),
    }
}
