//! The files of a directory, and what there is to show of each.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::section::{self, Section};
use super::{RowsOf, claims};

/// More files than any suite writes: a wrong directory is refused soon.
const MOST_FILES: usize = 1_000;

/// The sections that were read, and the problems.
#[derive(Debug, Default)]
pub struct Found {
    /// Sections, with the names of their files.
    pub sections: Vec<(String, Section)>,
    /// Files that cannot be shown, and why.
    pub problems: Vec<(String, String)>,
}

/// The file in a directory of `governor run` that has the figures.
const STUDY: &str = "study.json";

/// Whether there are results, by the name.
fn is_known(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    match path.is_dir() {
        true => path.join(STUDY).exists(),
        false => matches!(extension, Some("json" | "jsonl" | "ndjson" | "hlog")),
    }
}

/// Reads everything that can be shown, in the order of the names.
///
/// # Errors
/// When the directory cannot be read, or nothing in it has a name that is looked for.
pub fn read(directory: &Path, rows_of: RowsOf) -> Result<Found, String> {
    let failed = |error| format!("{} cannot be read: {error}", directory.display());
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_known(path))
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(format!(
            "{} has no results: no *.json, *.jsonl, *.hlog, no directory of `governor run`; write what --json prints to \
             it, as in `latency --json > {0}/latency.json`",
            directory.display()
        ));
    }
    if paths.len() > MOST_FILES {
        return Err(format!(
            "{} has {} files of results, and at most {MOST_FILES} fit on a page: is it the right directory?",
            directory.display(),
            paths.len()
        ));
    }
    let mut found = Found::default();
    for path in paths {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        match one(&path, rows_of) {
            Ok(sections) => {
                let named = sections.into_iter().map(|section| (name.clone(), section));
                found.sections.extend(named);
            }
            Err(why) => found.problems.push((name, why)),
        }
    }
    Ok(found)
}

fn one(path: &Path, rows_of: RowsOf) -> Result<Vec<Section>, String> {
    if path.is_dir() {
        return one(&path.join(STUDY), rows_of);
    }
    let bytes = claims::bytes(path)?;
    match path.extension().is_some_and(|name| name == "hlog") {
        true => Ok(vec![section::log::section(&bytes)?]),
        false => section::of(&claims::objects(&bytes)?, rows_of),
    }
}
