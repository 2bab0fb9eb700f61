//! The files of a directory, and what there is to show of each.

use std::fs;
use std::path::{Path, PathBuf};

use super::claims;
use super::section::{self, Section};

/// More files than any suite writes: a wrong directory is refused soon.
const MOST_FILES: usize = 1_000;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Sections, with the names of their files.
    pub sections: Vec<(String, Section)>,
    /// Files that cannot be shown, and why.
    pub problems: Vec<(String, String)>,
}

/// What a file is, by its name.
enum Kind {
    Objects,
    Log,
}

/// The file in a directory of `governor run` that has the figures.
const STUDY: &str = "study.json";

fn kind(path: &Path) -> Option<Kind> {
    if path.is_dir() {
        return path.join(STUDY).exists().then_some(Kind::Objects);
    }
    match path.extension()?.to_str()? {
        "json" | "jsonl" | "ndjson" => Some(Kind::Objects),
        "hlog" => Some(Kind::Log),
        _ => None,
    }
}

/// Reads everything that can be shown, in the order of the names.
///
/// # Errors
/// When the directory cannot be read, or nothing in it has a name that is looked for.
pub fn read(directory: &Path) -> Result<Found, String> {
    let failed = |error| format!("{} cannot be read: {error}", directory.display());
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    let files: Vec<(Kind, PathBuf)> = paths
        .into_iter()
        .filter_map(|path| Some((kind(&path)?, path)))
        .collect();
    if files.is_empty() {
        return Err(format!(
            "{} has no results: no *.json, *.jsonl, *.hlog, no directory of `governor run`; write what --json prints to \
             it, as in `latency --json > {0}/latency.json`",
            directory.display()
        ));
    }
    if files.len() > MOST_FILES {
        return Err(format!(
            "{} has {} files of results, and at most {MOST_FILES} fit on a page: is it the right directory?",
            directory.display(),
            files.len()
        ));
    }
    let mut found = Found::default();
    for (kind, path) in files {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        match one(&kind, &path) {
            Ok(sections) => {
                let named = sections.into_iter().map(|section| (name.clone(), section));
                found.sections.extend(named);
            }
            Err(why) => found.problems.push((name, why)),
        }
    }
    Ok(found)
}

fn one(kind: &Kind, path: &Path) -> Result<Vec<Section>, String> {
    match kind {
        Kind::Objects if path.is_dir() => one(kind, &path.join(STUDY)),
        Kind::Objects => section::of(&claims::objects(&claims::bytes(path)?)?),
        Kind::Log => Ok(vec![section::log::section(&claims::bytes(path)?)?]),
    }
}
