//! From the command line to the output.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{CommandFactory, Parser};

use super::actions::{self, Said};
use super::config::{Action, Options, RunOptions};
use super::run::{self, Refusal};
use super::state::{self, Purpose};
use crate::report::print;
use crate::{hdr_log, interrupt, neighbours};

/// Ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs the benchmark. Exit codes as in the help.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    let Some(action) = &options.action else {
        // clap says so itself when there is no argument at all.
        let _ = Options::command().print_help();
        return ExitCode::from(2);
    };
    interrupt::install();
    interrupt::install_for_hangup();
    let code = match action {
        Action::Run(own) => return measure(own, &options),
        Action::Set(own) => match actions::set_governor(own, &options.sysfs, &options.state) {
            Ok(said) => say(said),
            Err((true, why)) => refuse(2, &why),
            Err((false, why)) => refuse(1, &why),
        },
        Action::Record(own) => {
            actions::record(own, &options.sysfs).map_or_else(|why| refuse(1, &why), say)
        }
        Action::Restore(own) => {
            actions::restore(own, &options.state).map_or_else(|why| refuse(1, &why), say)
        }
    };
    match interrupt::happened() {
        true if code == 0 => ExitCode::from(INTERRUPTED),
        _ => ExitCode::from(code),
    }
}

fn refuse(code: u8, why: &str) -> u8 {
    eprintln!("governor: {why}");
    code
}

fn say(said: Said) -> u8 {
    print(&said.text);
    said.failed.iter().fold(0, |_, why| refuse(1, why))
}

fn measure(own: &RunOptions, options: &Options) -> ExitCode {
    if let Err(why) = put_back_first(own, options) {
        return refuse(1, &why).into();
    }
    let ready = match run::prepare(own, &options.sysfs, &options.state) {
        Ok(ready) => ready,
        Err(refusal) => return refused(refusal),
    };
    for missing in ready.missing() {
        eprintln!("governor: {missing}");
    }
    if own.dry_run {
        print(&ready.plan(&own.output));
        return ExitCode::SUCCESS;
    }
    if std::io::stderr().is_terminal() && !own.json {
        eprintln!("governor: this takes {}", run::duration(ready.expected()));
    }
    let start = SystemTime::now();
    let study = match ready.measure(own, &options.state) {
        Ok(study) => study,
        Err(refusal) => return refused(refusal),
    };
    let mut found = study.found();
    if let Some(path) = &own.histogram {
        let lasted = start.elapsed().unwrap_or_default();
        let written = hdr_log::write(path, start, lasted, &study.histograms());
        found.failed.extend(written.err());
    }
    found.conclude(own.json)
}

fn refused(refusal: Refusal) -> ExitCode {
    let code = match refusal {
        Refusal::Usage(why) => refuse(2, &why),
        Refusal::Failed(why) => refuse(1, &why),
    };
    code.into()
}

/// A run that was killed could not put back what it changed: the next one does, before it looks at the machine.
fn put_back_first(own: &RunOptions, options: &Options) -> Result<(), String> {
    if own.dry_run {
        for before in state::would_restore(&options.state, Purpose::Run)? {
            eprintln!(
                "governor: a run that was killed has left {}; {} would be put back first",
                before.path.display(),
                before.value
            );
        }
        return Ok(());
    }
    let restored = state::restore(&options.state, Purpose::Run)?;
    for before in &restored.done {
        eprintln!(
            "governor: {} is {} again, as before a run that was killed",
            before.path.display(),
            before.value
        );
    }
    match restored.failed.first() {
        None => Ok(()),
        Some(why) => Err(format!(
            "a run that was killed has left a governor that cannot be put back: {why}"
        )),
    }
}
