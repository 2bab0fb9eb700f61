//! The tables of the documents are what the files in `figures/` say, and those are not too old.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use morpheus_harness::figures::{filled, read};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .collect();
    files.sort();
    files
}

fn documents() -> Vec<PathBuf> {
    let mut documents = files(&root().join("docs/src"), "md");
    documents.push(root().join("README.md"));
    documents
}

#[test]
fn every_table_is_what_its_file_says() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let filled = filled(&text, &root().join("figures"));
        let filled = filled.unwrap_or_else(|why| panic!("{}: {why}", document.display()));
        assert!(
            filled == text,
            "{}: a table is not what its file in figures/ says: cargo xtask figures --fill",
            document.display()
        );
    }
}

#[test]
fn every_file_is_shown_somewhere() {
    let texts = documents()
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap());
    let texts: Vec<String> = texts.collect();
    for file in files(&root().join("figures"), "json") {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let markers = [" -->", ": "].map(|after| format!("<!-- figures: {name}{after}"));
        let is_shown = |text: &String| markers.iter().any(|marker| text.contains(marker));
        assert!(texts.iter().any(is_shown), "{name}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.current_dir(root()).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Measured at a commit of this history, after the last release, with nothing changed beside it. Where the history is not there, that
/// cannot be asked.
#[test]
fn no_file_is_older_than_the_last_release() {
    let commit_of = |file: &PathBuf| {
        let commit = read(file).unwrap().commit;
        commit.unwrap_or_else(|| panic!("{}: of no commit", file.display()))
    };
    let files = files(&root().join("figures"), "json");
    let commits: BTreeSet<String> = files.iter().map(commit_of).collect();
    let is_whole = git(&["rev-parse", "--is-shallow-repository"]).as_deref() == Some("false");
    let release = git(&["describe", "--tags", "--match", "v*", "--abbrev=0"]);
    for commit in commits {
        assert!(
            !commit.ends_with("-dirty"),
            "measured beside a commit: {commit}"
        );
        if is_whole {
            let is_there = git(&["merge-base", "--is-ancestor", &commit, "HEAD"]);
            assert!(is_there.is_some(), "{commit} is no commit of this history");
        }
        if let Some(release) = &release {
            let is_after = git(&["merge-base", "--is-ancestor", release, &commit]);
            assert!(is_after.is_some(), "{commit} is before {release}");
        }
    }
}
