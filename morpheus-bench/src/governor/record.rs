//! The files of a study.
//!
//! ```text
//! DIR/study.json                                what `--json` prints, of the runs until now
//! DIR/raw/runs.ndjson                           a line a run: a kernel, once, in one condition
//! DIR/raw/CONDITION/frequency.csv               the frequencies during all runs of a condition
//! DIR/raw/CONDITION/KERNEL/telemetry.ndjson     a line a window
//! ```
//!
//! Every line says under which scheduler it was measured: more conditions, such as another scheduler beside a
//! governor, need no other format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::figures::Seen;
use super::frequency::{self, Sample};
use super::measure::Window;
use super::placement;
use super::signal::Name;
use super::sysfs::TimeInState;
use crate::policy::Policy as Scheduling;
use crate::report::json;

/// What differs between the columns of the study.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Condition {
    /// The scheduler of ordinary threads: see [`placement::scheduler`].
    pub scheduler: String,
    /// The governor that was set; `None` where there is none.
    pub governor: Option<String>,
    /// Busy processes on the other CPUs.
    pub load: usize,
}

impl Condition {
    /// As people read it: `schedutil + load`.
    pub fn name(&self) -> String {
        let mut name = self.governor.clone().unwrap_or_else(|| "as it is".into());
        if self.load > 0 {
            name += " + load";
        }
        if self.scheduler != placement::KERNELS_OWN {
            name += &format!(" + {}", self.scheduler);
        }
        name
    }

    /// [`Condition::name`] as the name of a directory.
    pub fn directory(&self) -> String {
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() || "+-_.".contains(c) => c,
            _ => '_',
        };
        let name = self.name().replace(" + ", "+").replace(' ', "-");
        name.chars().map(plain).collect()
    }
}

/// A kernel, measured once in one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The condition.
    #[serde(flatten)]
    pub condition: Condition,
    /// The kernel.
    pub kernel: Name,
    /// From 0.
    pub repeat: usize,
    /// The policy of the kernel's thread that was in force.
    pub policy: Scheduling,
    /// Why that is not the one that was asked for.
    pub refused: Option<String>,
    /// Windows that are in the telemetry.
    pub windows: u64,
    /// Windows that were due but not begun.
    pub not_begun: u64,
    /// Windows that were not done in time, with those not begun.
    pub missed: u64,
    /// How long it measured, without the warm-up.
    pub elapsed_ns: u64,
    /// Whether the median of what a window takes had settled after the warm-up; `None` without one.
    pub settled: Option<bool>,
    /// Its figures.
    #[serde(flatten)]
    pub seen: Seen,
    /// `time_in_state` of each policy that has it, by name.
    pub time_in_state: Vec<States>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Why its figures are not of this condition, if they are not; they are then left out of all tables.
    pub spoilt: Option<String>,
}

/// A policy's `time_in_state` around a run, the warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct States {
    /// The policy's name.
    pub policy: String,
    /// When the run began.
    pub before: TimeInState,
    /// When it was over.
    pub after: TimeInState,
}

/// A line of the telemetry.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The condition.
    #[serde(flatten)]
    pub condition: Condition,
    /// The kernel.
    pub kernel: Name,
    /// From 0.
    pub repeat: usize,
    /// From 0 in each run.
    pub window: usize,
    /// When.
    #[serde(flatten)]
    pub times: Window,
    /// What the kernel took.
    pub service_ns: u64,
    /// From when it was due until it was done.
    pub response_ns: u64,
    /// When it should have been done, after it was due.
    pub deadline_ns: u64,
    /// Whether it was not.
    pub missed: bool,
}

/// A study's directory, to write to.
pub struct Writer {
    directory: PathBuf,
}

impl Writer {
    /// Makes the directory.
    ///
    /// # Errors
    /// When it has a study already, or cannot be written.
    pub fn new(directory: &Path) -> Result<Self, String> {
        let file = directory.join("study.json");
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "{} has a study already: remove it, or choose another directory with --output",
                directory.display()
            ),
            _ => format!("{} cannot be written: {error}", file.display()),
        };
        fs::create_dir_all(directory).map_err(failed)?;
        File::create_new(&file).map_err(failed)?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Writes the figures until now. A program that is killed meanwhile leaves what was there before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, found: &impl Serialize) -> Result<(), String> {
        let draft = self.directory.join("draft");
        let written = fs::write(&draft, json(found));
        written
            .and_then(|()| fs::rename(&draft, self.directory.join("study.json")))
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> String {
        format!("{} cannot be written: {error}", self.directory.display())
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn add(
        &self,
        run: &Run,
        windows: &[Window],
        deadline_ns: u64,
        samples: &[Sample],
    ) -> Result<(), String> {
        let result = self.write(run, windows, deadline_ns, samples);
        result.map_err(|error| self.failed(error))
    }

    fn write(
        &self,
        run: &Run,
        windows: &[Window],
        deadline_ns: u64,
        samples: &[Sample],
    ) -> io::Result<()> {
        let raw = self.directory.join("raw");
        let condition = raw.join(run.condition.directory());
        let kernel = condition.join(run.kernel.text());
        fs::create_dir_all(&kernel)?;
        let mut telemetry = append(&kernel.join("telemetry.ndjson"))?;
        for (number, times) in windows.iter().enumerate() {
            let line = Line {
                condition: run.condition.clone(),
                kernel: run.kernel,
                repeat: run.repeat,
                window: number,
                times: *times,
                service_ns: times.service_ns(),
                response_ns: times.response_ns(),
                deadline_ns,
                missed: times.response_ns() > deadline_ns,
            };
            serde_json::to_writer(&mut telemetry, &line)?;
            telemetry.write_all(b"\n")?;
        }
        telemetry.flush()?;
        if !samples.is_empty() {
            let file = condition.join("frequency.csv");
            let is_new = !file.exists();
            let mut log = append(&file)?;
            if is_new {
                writeln!(log, "{},kernel,repeat", frequency::HEAD)?;
            }
            for sample in samples {
                writeln!(log, "{},{},{}", sample.csv(), run.kernel.text(), run.repeat)?;
            }
            log.flush()?;
        }
        let mut runs = append(&raw.join("runs.ndjson"))?;
        serde_json::to_writer(&mut runs, run)?;
        runs.write_all(b"\n")?;
        runs.flush()
    }
}

fn append(path: &Path) -> io::Result<BufWriter<File>> {
    let open = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(BufWriter::new(open))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(governor: Option<&str>, load: usize, scheduler: &str) -> Condition {
        Condition {
            scheduler: scheduler.into(),
            governor: governor.map(str::to_owned),
            load,
        }
    }

    #[test]
    fn conditions_have_names_for_people_and_for_directories() {
        let own = placement::KERNELS_OWN;
        for (condition, name, directory) in [
            (condition(None, 0, own), "as it is", "as-it-is"),
            (
                condition(Some("schedutil"), 0, own),
                "schedutil",
                "schedutil",
            ),
            (
                condition(Some("schedutil"), 3, own),
                "schedutil + load",
                "schedutil+load",
            ),
            (condition(Some("../x"), 0, "a/b"), "../x + a/b", ".._x+a_b"),
        ] {
            assert_eq!(
                (condition.name(), condition.directory()),
                (name.into(), directory.into())
            );
        }
    }
}
