//! The tables of documents, made from what benchmarks printed: `report DIR --fill FILE,…`.
//!
//! A document has `<!-- figures: NAME -->` where the tables of `NAME.json` belong, and `<!-- end of figures -->` behind them. The
//! text between the two marks is replaced. `<!-- figures: NAME: FIGURE, FIGURE -->` has these figures alone, in one table of all
//! cases. So no table holds a figure that no benchmark printed, and one that was changed by hand is found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::envelope::{Envelope, settings};
use crate::report;
use crate::rows::markdown;

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end of figures -->";

/// Fills the tables of these documents from the files in `directory`, or says with `check` which are not what the files say.
/// Exit codes: 0 all is as it should be, 1 a file is missing or a document differs.
pub fn fill(directory: &Path, documents: &[PathBuf], check: bool) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for document in documents {
        match one(directory, document, check) {
            Ok(true) => report::print(&format!("{}\n", document.display())),
            Ok(false) => {}
            Err(why) => {
                eprintln!("report: {}: {why}", document.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Whether it was changed.
fn one(directory: &Path, document: &Path, check: bool) -> Result<bool, String> {
    let text = fs::read_to_string(document).map_err(|error| error.to_string())?;
    let filled = filled(&text, directory)?;
    if filled == text {
        return Ok(false);
    }
    if check {
        return Err("a table is not what the file says: fill it again, without --check".into());
    }
    fs::write(document, filled).map_err(|error| error.to_string())?;
    Ok(true)
}

/// A document with its tables as the files in `directory` have them.
///
/// # Errors
/// A file is missing or has no rows, or a marker has no end; the text is for people.
pub fn filled(document: &str, directory: &Path) -> Result<String, String> {
    let mut parts = document.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->\n").ok_or("a marker has no end")?;
        let (_, rest) = rest
            .split_once(END)
            .ok_or_else(|| format!("behind the figures of {name} there is no `{END}`"))?;
        text += &format!("{BEGIN}{name} -->\n{}{END}{rest}", tables(name, directory)?);
    }
    Ok(text)
}

/// The tables that a marker names.
fn tables(marker: &str, directory: &Path) -> Result<String, String> {
    let (name, figures) = marker.split_once(": ").unzip();
    let name = name.unwrap_or(marker);
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name {
        return Err(format!("{name:?} is not a name"));
    }
    let path = directory.join(format!("{name}.json"));
    let found = read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let commit = found.commit.as_deref().unwrap_or("unknown");
    let host = found
        .host
        .as_ref()
        .ok_or_else(|| format!("{}: it does not say on which machine", path.display()))?;
    let tables = match figures {
        None => markdown::tables(&found.rows),
        Some(figures) => markdown::chosen(&found.rows, &figures.split(", ").collect::<Vec<_>>())?,
    };
    Ok(format!(
        "{tables}\n`{}`, commit {commit}, Linux {}, {} CPUs: {}.\n",
        found.bench,
        host.kernel,
        host.cpus,
        settings(&found.config)
    ))
}

/// The results that a benchmark printed to a file.
///
/// # Errors
/// It cannot be read, is not the output of a benchmark that prints rows, or was not measured to its end.
pub fn read(path: &Path) -> Result<Envelope<Value>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let found: Envelope<Value> =
        report::from_json(&text).map_err(|error| format!("no benchmark's output: {error}"))?;
    if found.interrupted || !found.failed.is_empty() {
        return Err("it was not measured to its end".into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::rows;

    /// A directory with one file of figures, removed with the value.
    fn directory(interrupted: bool) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut found = Envelope::new("compare", serde_json::json!({ "pairs": 12 }));
        found.rows = rows("spawn", 12, 0.5, None);
        found.interrupted = interrupted;
        fs::write(directory.path().join("compare.json"), report::json(&found)).unwrap();
        directory
    }

    #[test]
    fn what_stands_between_the_markers_is_replaced_and_nothing_else() {
        let directory = directory(false);
        let document = format!("# Title\n\n{BEGIN}compare -->\nby hand\n{END}\nThe rest.\n");
        let text = filled(&document, directory.path()).unwrap();
        assert!(
            text.starts_with("# Title\n\n<!-- figures: compare -->\n| case |"),
            "{text}"
        );
        assert!(
            text.contains("2 CPUs: pairs 12.") || text.contains("CPUs: pairs 12."),
            "{text}"
        );
        assert!(text.ends_with(&format!("{END}\nThe rest.\n")) && !text.contains("by hand"));
        assert_eq!(
            filled(&text, directory.path()).unwrap(),
            text,
            "a second time"
        );
        assert_eq!(filled("no marker", directory.path()).unwrap(), "no marker");
        let chosen = format!("{BEGIN}compare: rate -->\n{END}");
        let text = filled(&chosen, directory.path()).unwrap();
        assert!(text.contains("rate -->\n|  | spawn: rate |\n"), "{text}");
    }

    #[test]
    fn what_cannot_be_filled_is_said() {
        let whole = directory(false);
        let error = |document: &str, directory: &Path| filled(document, directory).unwrap_err();
        let no_end = format!("{BEGIN}compare -->\nby hand\n");
        assert!(error(&no_end, whole.path()).contains("there is no"));
        let other = format!("{BEGIN}other -->\n{END}");
        assert!(error(&other, whole.path()).contains("other.json: "));
        let figure = format!("{BEGIN}compare: p99 -->\n{END}");
        assert!(error(&figure, whole.path()).contains("no row has the figure"));
        let path = format!("{BEGIN}../compare -->\n{END}");
        assert!(error(&path, whole.path()).contains("is not a name"));
        let interrupted = directory(true);
        let document = format!("{BEGIN}compare -->\n{END}");
        assert!(error(&document, interrupted.path()).contains("not measured to its end"));
    }
}
