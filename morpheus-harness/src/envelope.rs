//! The one object that benchmarks print with `--json`: how it was measured, and the rows that came out.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::Host;
use crate::interrupt;
use crate::report::{self, WIDTH, wrap};
use crate::rows::{Row, text};
use crate::unit::Unit;

/// The results of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope<C> {
    /// The benchmark.
    pub bench: String,
    /// The commit of the checkout that it was built in, `-dirty` behind it if that had changes, or has changed since; `None` where there
    /// is none.
    pub commit: Option<String>,
    /// Facts about the machine; `None` where records that were read again do not say.
    pub host: Option<Host>,
    /// The options of the run.
    pub config: C,
    /// The cases that were measured.
    pub cases: Vec<Case>,
    /// The figures.
    pub rows: Vec<Row>,
    /// How figures went over time, for pictures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    /// Remarks on the results, in sentences.
    pub notes: Vec<String>,
    /// The measurements that did not complete, and why.
    pub failed: Vec<String>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// A case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// A description of the case.
    pub about: String,
}

/// How a figure of a contender went over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Course {
    /// The figure, and the case: those with the same title stand in one picture.
    pub title: String,
    /// The contender.
    pub contender: String,
    /// The figure's unit.
    pub unit: Unit,
    /// Nanoseconds since it began, and the figure then.
    pub points: Vec<(f64, f64)>,
}

impl<C: Serialize> Envelope<C> {
    /// Without rows yet.
    pub fn new(bench: &str, config: C) -> Self {
        Self {
            commit: commit(Path::new(env!("CARGO_MANIFEST_DIR"))).map(|commit| {
                let is_old = std::env::current_exe().is_ok_and(|program| is_older(&program));
                marked(commit, is_old)
            }),
            host: Some(Host::read()),
            ..Self::empty(bench, config)
        }
    }

    /// Notes that another program was measured, which may be older than what it was built from.
    pub fn measures(&mut self, program: &Path) {
        let is_old = is_older(program);
        self.commit = self.commit.take().map(|commit| marked(commit, is_old));
    }

    /// Likewise, where neither the commit nor the machine is known.
    pub fn empty(bench: &str, config: C) -> Self {
        Self {
            bench: bench.into(),
            commit: None,
            host: None,
            config,
            cases: Vec::new(),
            rows: Vec::new(),
            courses: Vec::new(),
            notes: Vec::new(),
            failed: Vec::new(),
            interrupted: false,
        }
    }

    /// Adds a case that is about to be measured.
    pub fn begin(&mut self, name: &str, about: &str) {
        if self.cases.iter().all(|case| case.name != name) {
            self.cases.push(Case {
                name: name.into(),
                about: about.into(),
            });
        }
    }

    /// Adds rows of a case.
    pub fn add(&mut self, case: &str, about: &str, rows: impl IntoIterator<Item = Row>) {
        self.begin(case, about);
        self.rows.extend(rows);
    }

    /// Everything, as text.
    pub fn text(&self) -> String {
        let host = self.host.as_ref().map(|host| host.line(WIDTH) + "\n");
        let mut text = host.unwrap_or_default();
        let settings = serde_json::to_value(&self.config).unwrap_or_default();
        let settings = self::settings(&settings);
        if !settings.is_empty() {
            text += &(wrap(&settings, WIDTH) + "\n");
        }
        text += &text::tables(&self.rows);
        let failed = self.failed.iter();
        let failed = failed.map(|why| format!("not measured to its end: {why}"));
        for line in self.notes.iter().cloned().chain(failed) {
            text += &(wrap(&line, WIDTH) + "\n");
        }
        report::note_early_end(&mut text, self.interrupted);
        text
    }

    /// Prints it, as JSON or for people. Exit codes: 0 measured, 1 something could not be, 130 after Ctrl-C.
    pub fn conclude(mut self, json: bool) -> ExitCode {
        self.interrupted = interrupt::happened();
        self.print(json);
        report::exit_code(self.interrupted, !self.failed.is_empty())
    }

    /// Prints it, as JSON or for people.
    pub fn print(&self, json: bool) {
        let text = if json {
            report::json(self)
        } else {
            self.text()
        };
        report::print(&text);
    }
}

/// Settings as people read them: `workers 2, pairs 10`. Lists are left out, for the tables show them.
pub fn settings(config: &Value) -> String {
    let fields = config.as_object().into_iter().flatten();
    let shown = fields.filter_map(|(name, value)| {
        let unit = ["ms", "s"].into_iter().find_map(|unit| {
            let stem = name.strip_suffix(unit)?.strip_suffix('_')?;
            Some((stem, unit))
        });
        let words = unit.map_or(&**name, |(stem, _)| stem).replace('_', " ");
        let shown = match value {
            Value::Number(number) => format!("{words} {number}"),
            Value::String(text) => format!("{words} {text}"),
            Value::Bool(true) => words,
            _ => return None,
        };
        Some(match unit {
            Some((_, unit)) => format!("{shown} {unit}"),
            None => shown,
        })
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Behind the commit of a checkout with changes, as git has it.
const DIRTY: &str = "-dirty";

/// The commit as that of a checkout with changes, if a program is older than what it was built from.
fn marked(commit: String, is_old: bool) -> String {
    match is_old && !commit.ends_with(DIRTY) {
        true => commit + DIRTY,
        false => commit,
    }
}

/// Whether a program is older than a file that it was built from. Cargo puts the list of these beside it.
fn is_older(program: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let list = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    // Spaces within a name have a backslash before them.
    let list = list.replace("\\ ", "\0");
    let names = list.split_whitespace().skip(1);
    let mut files = names.map(|name| modified(Path::new(&name.replace('\0', " "))));
    modified(program)
        .is_ok_and(|built| files.any(|changed| changed.is_ok_and(|changed| changed > built)))
}

fn commit(checkout: &Path) -> Option<String> {
    let describe = "describe --always --dirty --abbrev=12 --exclude=*";
    let mut git = Command::new("git");
    git.arg("-C").arg(checkout).args(describe.split(' '));
    let output = git.output().ok();
    let output = output.filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_a_line() {
        let config = json!({ "workers": 2, "window_ms": 0.5, "case": ["a"], "quiet": true, "other": false, "link": "observer" });
        assert_eq!(
            settings(&config),
            "link observer, quiet, window 0.5 ms, workers 2"
        );
    }

    #[test]
    fn a_program_is_older_than_what_was_changed_after_it_was_built() {
        let directory = tempfile::tempdir().unwrap();
        let [source, program] = ["with space.rs", "bench"].map(|name| directory.path().join(name));
        let list = format!("{}: /gone.rs {}\n", program.display(), source.display());
        let list = list.replace("with space", "with\\ space");
        fs::write(program.with_extension("d"), list).unwrap();
        let now = std::time::SystemTime::now();
        for (age_s, is_older_by_it) in [(5, false), (0, true)] {
            for (file, age_s) in [(&source, age_s), (&program, 3)] {
                let changed = now - std::time::Duration::from_secs(age_s);
                fs::File::create(file)
                    .unwrap()
                    .set_modified(changed)
                    .unwrap();
            }
            assert_eq!(is_older(&program), is_older_by_it);
        }
        assert!(!is_older(Path::new("/no/such/program")));
    }

    #[test]
    fn what_is_no_checkout_has_no_commit() {
        assert_eq!(commit(Path::new("/")), None);
    }

    #[test]
    fn notes_and_failures_are_said() {
        let mut found = Envelope::new("compare", json!({ "pairs": 2 }));
        found.begin("spawn", "a task");
        found.begin("spawn", "a task");
        found.notes.push("It is only a check.".into());
        found.failed.push("spawn: tokio: stands still".into());
        let text = found.text();
        assert!(text.contains("pairs 2\nIt is only a check.\nnot measured to its end: spawn: tokio: stands still\n"), "{text}");
        assert_eq!(found.cases.len(), 1);
    }
}
