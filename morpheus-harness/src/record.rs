//! Results a line at a time, so that what a guest measured before it was lost is kept, and several boots make one table.

use std::fs;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::report;

/// A line of `--json` of a benchmark that prints each run as soon as it is there.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and the lint cannot know how large a run is"
)]
pub enum Record<R> {
    /// Where the runs that follow were made.
    Host(Host),
    /// A run.
    Run(R),
}

impl<R: Serialize> Record<R> {
    /// Prints it at once: a guest may not live until the end. Where that fails, the run goes on to its end, which puts the machine back.
    pub fn print(&self) {
        report::is_written(&report::json(self));
    }
}

/// The value that a line begins with. A guest's kernel may have said something before the line ended.
pub fn first_in<T: DeserializeOwned>(line: &str) -> Option<T> {
    let mut values = serde_json::Deserializer::from_str(line).into_iter();
    serde_json::from_value(values.next()?.ok()?).ok()
}

/// The records of earlier runs of the benchmark `name`. Lines that are no records (a guest says other things, too) are
/// passed over. The host is the first that is named.
///
/// # Errors
/// A file that cannot be read, or no run at all.
pub fn read<R: DeserializeOwned>(
    name: &str,
    files: &[PathBuf],
) -> Result<(Option<Host>, Vec<R>), String> {
    let (mut host, mut runs) = (None, Vec::new());
    for file in files {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        for record in text.lines().filter_map(first_in) {
            match record {
                Record::Host(first) => host = host.or(Some(first)),
                Record::Run(run) => runs.push(run),
            }
        }
    }
    if runs.is_empty() {
        return Err(format!(
            "no run in these files: they are to be the output of {name} --json"
        ));
    }
    Ok((host, runs))
}
