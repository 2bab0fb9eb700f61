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

use morpheus_harness::histogram::median;
use morpheus_harness::interrupt;
use morpheus_harness::report::json;
use morpheus_harness::stats::mean;
use serde::Serialize;

use super::frequency::{self, Sample};
use super::measure::{Measured, Window};
use super::placement;
use super::signal::Name;
use super::study::Asked;
use super::sysfs::TimeInState;
use crate::policy::Policy as Scheduling;

/// The condition of a column of the study.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Condition {
    /// The scheduler of ordinary threads: see [`placement::scheduler`].
    pub scheduler: String,
    /// The governor that was set; `None` where there is none.
    pub governor: Option<String>,
    /// Busy processes on the other CPUs.
    pub load: usize,
    /// The kernels run on a worker that is registered with Morpheus's scheduler.
    #[serde(skip)]
    pub on_worker: bool,
}

impl Condition {
    /// A governor, or the machine as it is, under this scheduler of ordinary threads, without load.
    pub fn alone(scheduler: &str, governor: Option<&str>) -> Self {
        Self {
            scheduler: scheduler.into(),
            governor: governor.map(str::to_owned),
            load: 0,
            on_worker: false,
        }
    }

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
        let name = self.name().replace(" + ", "+").replace(' ', "-");
        let is_odd = |c: char| !c.is_ascii_alphanumeric() && !"+-_.".contains(c);
        name.replace(is_odd, "_")
    }
}

/// A kernel, measured once in one condition. The CPU is the measured one.
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
    /// The median of what the kernel took.
    pub service_p50_ns: Option<f64>,
    /// The CPU's frequency, the mean of all readings.
    pub mean_khz: Option<f64>,
    /// Part of the time that the CPU's policy was at its lowest frequency.
    pub share_of_lowest: Option<f64>,
    /// At its highest.
    pub share_of_highest: Option<f64>,
    /// Part of the windows that ended at the highest frequency that the CPU may have now.
    pub done_at_highest: Option<f64>,
    /// Part of the time that the kernel computed.
    pub busy_share: f64,
    /// `time_in_state` of each policy that has it, by name.
    pub time_in_state: Vec<States>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Why its figures are not of this condition, if they are not; they are then left out of all tables.
    pub spoilt: Option<String>,
}

impl Run {
    /// Of what was measured in a repeat, with the readings of the CPU's frequency. Nothing has spoilt it yet.
    pub fn new(
        (condition, kernel, repeat): (&Condition, Name, usize),
        asked: &Asked,
        measured: &Measured,
        readings: &[(f64, f64)],
        time_in_state: Vec<States>,
    ) -> Self {
        let windows = &measured.windows;
        let service = windows.iter().map(|window| window.service_ns() as f64);
        let service: Vec<f64> = service.collect();
        let due = windows.len() as u64 + measured.not_begun;
        let elapsed_ns = due * asked.config.size.period().as_nanos() as u64;
        let deadline_ns = asked.config.deadline_ns();
        let late = windows.iter().filter(|window| window.misses(deadline_ns));
        let policy = asked.policy_of_cpu();
        let highest = policy.and_then(|policy| policy.limits_khz.1);
        let is_highest = |window: &Window| Some(f64::from(window.end_khz? >= highest?));
        let at_highest: Vec<f64> = windows.iter().filter_map(is_highest).collect();
        let khz: Vec<f64> = readings.iter().map(|(_, khz)| *khz).collect();
        let shares = policy.and_then(|policy| {
            let mut all = time_in_state.iter();
            let own = all.find(|states| states.policy == policy.name)?;
            own.after.shares_since(&own.before)
        });
        Self {
            condition: condition.clone(),
            kernel,
            repeat,
            policy: measured.policy,
            refused: measured.refused.clone(),
            windows: windows.len() as u64,
            not_begun: measured.not_begun,
            missed: late.count() as u64 + measured.not_begun,
            elapsed_ns,
            settled: measured.settled,
            busy_share: service.iter().sum::<f64>() / elapsed_ns.max(1) as f64,
            service_p50_ns: median(service),
            mean_khz: mean(&khz),
            share_of_lowest: shares.map(|(lowest, _)| lowest),
            share_of_highest: shares.map(|(_, highest)| highest),
            done_at_highest: mean(&at_highest),
            time_in_state,
            interrupted: interrupt::happened(),
            spoilt: None,
        }
    }

    /// Windows that were due.
    pub fn due(&self) -> u64 {
        self.windows + self.not_begun
    }
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
#[derive(Serialize)]
struct Line<'a> {
    /// The condition.
    #[serde(flatten)]
    condition: &'a Condition,
    /// The kernel.
    kernel: Name,
    /// From 0.
    repeat: usize,
    /// From 0 in each run.
    window: usize,
    /// When.
    #[serde(flatten)]
    times: Window,
    /// How long the kernel took.
    service_ns: u64,
    /// From when it was due until it was done.
    response_ns: u64,
    /// When it should have been done, after it was due.
    deadline_ns: u64,
    /// Whether it was not.
    missed: bool,
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
        let raw = self.directory.join("raw");
        let condition = raw.join(run.condition.directory());
        let kernel = condition.join(run.kernel.text());
        let write = || {
            fs::create_dir_all(&kernel)?;
            let lines = windows.iter().enumerate().map(|(number, times)| {
                json(&Line {
                    condition: &run.condition,
                    kernel: run.kernel,
                    repeat: run.repeat,
                    window: number,
                    times: *times,
                    service_ns: times.service_ns(),
                    response_ns: times.response_ns(),
                    deadline_ns,
                    missed: times.misses(deadline_ns),
                })
            });
            append(&kernel.join("telemetry.ndjson"), "", lines)?;
            if !samples.is_empty() {
                let head = format!("{},kernel,repeat\n", frequency::HEAD);
                let end = format!("{},{}\n", run.kernel.text(), run.repeat);
                let log = samples.iter().map(|sample| sample.csv() + "," + &end);
                append(&condition.join("frequency.csv"), &head, log)?;
            }
            append(&raw.join("runs.ndjson"), "", [json(run)])
        };
        write().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> String {
        format!("{} cannot be written: {error}", self.directory.display())
    }
}

/// Adds lines to a file, which begins with `head`.
fn append(path: &Path, head: &str, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
    let open = OpenOptions::new().create(true).append(true).open(path)?;
    let is_new = open.metadata()?.len() == 0;
    let mut file = BufWriter::new(open);
    if is_new {
        file.write_all(head.as_bytes())?;
    }
    for line in lines {
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(governor: Option<&str>, load: usize, scheduler: &str) -> Condition {
        Condition {
            load,
            ..Condition::alone(scheduler, governor)
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
