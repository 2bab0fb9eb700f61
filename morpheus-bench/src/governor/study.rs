//! The runs of a study until now, and what is kept of their windows.

use std::collections::HashMap;

use morpheus_harness::envelope::{Course, Envelope};
use morpheus_harness::hdr_log::Entry;
use morpheus_harness::histogram::{FROM_INTENDED_START, Latencies, RAW};
use morpheus_harness::unit::Unit;
use serde::Serialize;

use super::config::Config;
use super::measure::Window;
use super::record::{Condition, Run};
use super::signal::Name;
use super::sysfs::Policy;

/// The question, and the machine's frequencies.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The command line.
    #[serde(flatten)]
    pub config: Config,
    /// The frequency policies as they were found; none where there is no cpufreq.
    pub policies: Vec<Policy>,
}

impl Asked {
    /// The policy that the measured CPU belongs to.
    pub fn policy_of_cpu(&self) -> Option<&Policy> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.cpus.contains(&self.config.cpu))
    }
}

/// A time that each window has: its name, and from when it counts.
type Time = (&'static str, &'static str, fn(&Window) -> u64);

/// How long a kernel took, both together, and how late it began.
const TIMES: [Time; 3] = [
    ("service", RAW, Window::service_ns),
    ("response", FROM_INTENDED_START, Window::response_ns),
    ("late", FROM_INTENDED_START, Window::late_ns),
];

/// More points of a course than a plot can show are thinned out; the files have all of them.
const MOST_POINTS: usize = 600;

/// The runs of a study until now.
pub struct Study {
    /// All but the runs: the machine, the question, and what failed.
    pub about: Envelope<Asked>,
    /// The conditions that are compared, in the order in which they are shown.
    pub conditions: Vec<Condition>,
    /// In the order in which they were measured.
    pub runs: Vec<Run>,
    times: HashMap<(Condition, Name), [Latencies; TIMES.len()]>,
    courses: HashMap<Condition, Vec<(f64, f64)>>,
}

impl Study {
    /// Without runs yet.
    pub fn new(about: Envelope<Asked>, conditions: Vec<Condition>) -> Self {
        Self {
            about,
            conditions,
            runs: Vec::new(),
            times: HashMap::new(),
            courses: HashMap::new(),
        }
    }

    /// Adds a run, with the readings of the measured CPU's frequency.
    pub fn add(&mut self, run: Run, windows: &[Window], readings: &[(f64, f64)]) {
        // The readings of each run begin at 0 again.
        let course = self.courses.entry(run.condition.clone()).or_default();
        let begun = course.last().map_or(0.0, |(at, _)| *at);
        course.extend(readings.iter().map(|(at, khz)| (begun + at, *khz)));
        if run.spoilt.is_none() {
            let of = (run.condition.clone(), run.kernel);
            let times = self.times.entry(of).or_default();
            for (latencies, (_, _, of)) in times.iter_mut().zip(TIMES) {
                for window in windows {
                    latencies.record_ns(of(window));
                }
            }
        }
        self.runs.push(run);
    }

    /// The kernels that are measured.
    pub fn kernels(&self) -> Vec<Name> {
        self.about.config.config.kernels()
    }

    /// The runs of a condition whose figures are its own.
    pub fn valid(&self, condition: &Condition) -> impl Iterator<Item = &Run> {
        let own = |run: &&Run| run.condition == *condition && run.spoilt.is_none();
        self.runs.iter().filter(own)
    }

    /// The times of all windows of a kernel: service, response, and how late it began.
    pub fn times(&self, condition: &Condition, kernel: Name) -> Option<&[Latencies; TIMES.len()]> {
        self.times.get(&(condition.clone(), kernel))
    }

    /// The measured CPU's frequency in each condition, its runs one after another.
    pub fn courses(&self) -> Vec<Course> {
        let course = |condition: &Condition| {
            let points = self.courses.get(condition).filter(|all| all.len() > 1)?;
            let every = points.len().div_ceil(MOST_POINTS);
            let out = if condition.load > 0 { "" } else { "out" };
            Some(Course {
                title: format!("frequency over time, with{out} load"),
                contender: condition.name(),
                unit: Unit::Frequency,
                points: points.iter().copied().step_by(every).collect(),
            })
        };
        self.conditions.iter().filter_map(course).collect()
    }

    /// The histograms behind the percentiles, for a log: of each condition and kernel.
    pub fn histograms(&self) -> Vec<Entry<'_>> {
        let mut entries = Vec::new();
        for condition in &self.conditions {
            for kernel in self.kernels() {
                let all = self.times(condition, kernel).into_iter().flatten();
                let of = format!("{}-{}", condition.directory(), kernel.text());
                entries.extend(all.zip(TIMES).map(|(latencies, (time, counts, _))| {
                    Entry::new(format!("{of}-{time}"), counts, latencies)
                }));
            }
        }
        entries
    }
}
