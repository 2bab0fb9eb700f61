//! The files of a study, and how they are read again.
//!
//! ```text
//! DIR/study.json                            the machine, and what was asked for
//! DIR/runs.ndjson                           a line a run: a kernel, once, in one condition
//! DIR/CONDITION/frequency.csv               the frequencies during all runs of a condition
//! DIR/CONDITION/KERNEL/telemetry.ndjson     a line a window
//! ```
//!
//! Every line says under which scheduler it was measured: more conditions, such as another scheduler beside a
//! governor, need no other format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::frequency::{self, Sample};
use super::measure::Window;
use super::placement;
use super::signal::Name;
use super::sysfs::{Policy, TimeInState};
use crate::host::Host;
use crate::policy::Policy as Scheduling;

/// The name of the benchmark in its files.
pub const BENCH: &str = "governor";

/// What is known before the first run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Study {
    /// [`BENCH`].
    pub bench: String,
    /// The machine.
    pub host: Host,
    /// What was asked for.
    pub config: Config,
    /// The frequency policies as they were found; none where there is no cpufreq.
    pub policies: Vec<Policy>,
    /// What this machine cannot do, in sentences.
    pub missing: Vec<String>,
}

/// What differs between the columns of the study.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition {
    /// Who schedules ordinary threads: see [`placement::scheduler`].
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    #[serde(default)]
    pub settled: Option<bool>,
    /// `time_in_state` of each policy that has it, by name.
    pub time_in_state: Vec<States>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Why its figures are not of this condition, if they are not; they are then left out of all tables.
    pub spoilt: Option<String>,
}

/// A policy's `time_in_state` around a run, the warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct States {
    /// The policy's name.
    pub policy: String,
    /// When the run began.
    pub before: TimeInState,
    /// When it was over.
    pub after: TimeInState,
}

/// A line of the telemetry.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    pub fn new(directory: &Path, study: &Study) -> Result<Self, String> {
        let file = directory.join("study.json");
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "{} has a study already: remove it, or choose another directory with --output",
                directory.display()
            ),
            _ => format!("{} cannot be written: {error}", file.display()),
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let mut open = File::create_new(&file).map_err(failed)?;
        let text = serde_json::to_string_pretty(study).map_err(|error| failed(error.into()))?;
        writeln!(open, "{text}").map_err(failed)?;
        Ok(Self {
            directory: directory.to_owned(),
        })
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
        result.map_err(|error| format!("{} cannot be written: {error}", self.directory.display()))
    }

    fn write(
        &self,
        run: &Run,
        windows: &[Window],
        deadline_ns: u64,
        samples: &[Sample],
    ) -> io::Result<()> {
        let condition = self.directory.join(run.condition.directory());
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
        let mut runs = append(&self.directory.join("runs.ndjson"))?;
        serde_json::to_writer(&mut runs, run)?;
        runs.write_all(b"\n")?;
        runs.flush()
    }
}

fn append(path: &Path) -> io::Result<BufWriter<File>> {
    let open = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(BufWriter::new(open))
}

/// What a study's directory says.
pub struct Reader {
    directory: PathBuf,
    /// The machine, and what was asked for.
    pub study: Study,
    /// All runs, as they were made.
    pub runs: Vec<Run>,
}

impl Reader {
    /// Reads all but the telemetry.
    ///
    /// # Errors
    /// When there is no study, or no run.
    pub fn new(directory: &Path) -> Result<Self, String> {
        let file = directory.join("study.json");
        let text = fs::read_to_string(&file).map_err(|error| {
            format!(
                "{} cannot be read: {error}; `governor run` makes one",
                file.display()
            )
        })?;
        let study: Study = serde_json::from_str(&text)
            .map_err(|error| format!("{} is no study: {error}", file.display()))?;
        if study.bench != BENCH {
            return Err(format!(
                "{} is of {:?}, not of this benchmark",
                file.display(),
                study.bench
            ));
        }
        let runs: Vec<Run> = lines(&directory.join("runs.ndjson"))?;
        if runs.is_empty() {
            return Err(format!(
                "{} has no run that was finished",
                directory.display()
            ));
        }
        Ok(Self {
            directory: directory.to_owned(),
            study,
            runs,
        })
    }

    /// Every window of a kernel in a condition.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn telemetry(&self, condition: &Condition, kernel: Name) -> Result<Vec<Line>, String> {
        let directory = self.directory.join(condition.directory());
        lines(&directory.join(kernel.text()).join("telemetry.ndjson"))
    }

    /// The frequencies of a condition; none where none were logged.
    pub fn frequencies(&self, condition: &Condition) -> Vec<Sample> {
        let file = self
            .directory
            .join(condition.directory())
            .join("frequency.csv");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().skip(1).filter_map(Sample::parse).collect()
    }
}

/// Reads a line each. The last one may be cut off: who wrote it was killed.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{} cannot be read: {why}", path.display());
    let open = File::open(path).map_err(|error| failed(&error))?;
    let mut lines = BufReader::new(open).lines().enumerate().peekable();
    let mut values = Vec::new();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(|error| failed(&error))?;
        match serde_json::from_str(&line) {
            Ok(value) => values.push(value),
            Err(_) if lines.peek().is_none() => break,
            Err(error) => return Err(failed(&format!("line {}: {error}", number + 1))),
        }
    }
    Ok(values)
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

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_nonsense_is_said() {
        let path = std::env::temp_dir().join(format!("governor-lines-{}", std::process::id()));
        fs::write(&path, "1\n2\n{\"a").unwrap();
        assert_eq!(lines::<u32>(&path), Ok(vec![1, 2]));
        fs::write(&path, "1\nx\n3\n").unwrap();
        assert!(lines::<u32>(&path).unwrap_err().contains("line 2"));
        fs::remove_file(&path).unwrap();
    }
}
