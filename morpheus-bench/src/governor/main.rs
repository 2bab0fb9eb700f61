//! From the command line to the output.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{CommandFactory, Parser};

use super::actions::{self, Said};
use super::config::{Action, AnalyseOptions, Options, RunOptions};
use super::run::{self, Refusal};
use super::state::{self, Purpose};
use super::{analyse, table};
use crate::report::{json, print};
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
        Action::Run(own) => measure(own, &options),
        Action::Set(own) => match actions::set_governor(own, &options.sysfs, &options.state) {
            Ok(said) => say(said),
            Err((true, why)) => refuse(2, &why),
            Err((false, why)) => refuse(1, &why),
        },
        Action::Record(own) => {
            actions::record(own, &options.sysfs).map_or_else(|why| refuse(1, &why), say)
        }
        Action::Analyse(own) => show(own),
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

fn measure(own: &RunOptions, options: &Options) -> u8 {
    match put_back_first(own, options) {
        Ok(()) => {}
        Err(why) => return refuse(1, &why),
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
        return 0;
    }
    if std::io::stderr().is_terminal() && !own.json {
        eprintln!("governor: this takes {}", run::duration(ready.expected()));
    }
    let start = SystemTime::now();
    match ready.measure(own, &options.state) {
        Ok(mut outcome) => {
            if let Some(path) = &own.histogram {
                let entries = analyse::histograms(&outcome.analysis.conditions);
                let lasted = start.elapsed().unwrap_or_default();
                let written = hdr_log::write(path, start, lasted, &entries);
                outcome.failed.extend(written.err());
            }
            if own.json {
                print(&json(&outcome.analysis));
            } else {
                print(&table::render(&outcome.analysis));
            }
            let code = u8::from(outcome.incomplete);
            outcome.failed.iter().fold(code, |_, why| refuse(1, why))
        }
        Err(Refusal::Failed(why)) if interrupt::happened() => refuse(0, &why),
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Usage(why) => refuse(2, &why),
        Refusal::Failed(why) => refuse(1, &why),
    }
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

fn show(own: &AnalyseOptions) -> u8 {
    let analysis = match analyse::analyse(&own.directory) {
        Ok(analysis) => analysis,
        Err(why) => return refuse(1, &why),
    };
    let other = match own.compare.as_deref().map(analyse::analyse).transpose() {
        Ok(other) => other,
        Err(why) => return refuse(1, &why),
    };
    if own.json {
        print(&match &other {
            None => json(&analysis),
            Some(other) => json(&serde_json::json!({ "this": analysis, "other": other })),
        });
        return 0;
    }
    print(&table::render(&analysis));
    if let Some(other) = &other {
        print(&format!("\n{}", table::compare(&analysis, other)));
    }
    0
}
