//! The figures of a study: rows for each condition and kernel, made of its runs.
//!
//! The latency of a condition is the geometric mean of its kernels' medians, as in the study: each kernel counts alike, however
//! long it takes. A repeat is a round.

use std::collections::HashMap;

use serde::Serialize;

use super::config::Config;
use super::daemon;
use super::measure::Window;
use super::placement::KERNELS_OWN;
use super::record::{Condition, Run};
use super::signal::Name;
use super::sysfs::{Policy, TimeInState};
use crate::envelope::{Course, Envelope};
use crate::hdr_log::Entry;
use crate::histogram::{Counts, Latencies, Summary, median};
use crate::latency_figures;
use crate::pairs::Limit;
use crate::rows::view::distinct;
use crate::rows::{Figure, Rounds, Row};
use crate::stats::{geometric_mean, mean};
use crate::unit::Unit;

/// Governors that choose a frequency by what the CPU does.
const FOLLOW_THE_LOAD: [&str; 3] = ["schedutil", "ondemand", "conservative"];
/// One of them may take at most this many times the time under `performance`; beyond, it is a trap.
const TRAP: Limit = Limit::AtMost(1.1);

const LATENCY: &str = "latency";
const AGAINST_PERFORMANCE: &str = "latency against performance";
type Other = fn(&Condition) -> Condition;
/// Cases in which a condition's latency is over that of another one, what they say, and which other one.
const AGAINST: [(&str, &str, Other); 3] = [
    (AGAINST_PERFORMANCE, "of performance without load", |_| {
        alone("performance")
    }),
    (
        "latency against powersave",
        "of the lowest frequency all the time, without load",
        |_| alone("powersave"),
    ),
    (
        "latency with load against without",
        "what busy processes on the other CPUs change",
        |own| Condition {
            load: 0,
            ..own.clone()
        },
    ),
];
const MEASURED_CPU: &str = "the measured CPU";
/// The figure beside those of single kernels.
const ALL: &str = "all kernels";

/// Figures of the measured CPU, for each run.
const CPU: [Figure<Seen>; 5] = [
    Figure::new("frequency", Unit::Frequency, |seen| seen.mean_khz),
    Figure::new("done at highest", Unit::Share, |seen| seen.done_at_highest),
    Figure::new("at highest", Unit::Share, |seen| seen.share_of_highest),
    Figure::new("at lowest", Unit::Share, |seen| seen.share_of_lowest),
    Figure::new("busy", Unit::Share, |seen| Some(seen.busy_share)),
];

/// More points of a course than a plot can show are thinned out; the files have all of them.
const MOST_POINTS: usize = 600;

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

/// Figures of a run. The CPU is the measured one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Seen {
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
}

impl Seen {
    /// Of a run that lasted `elapsed_ns`, with the readings of the CPU's frequency, its policy, and its time in each state.
    pub fn new(
        windows: &[Window],
        elapsed_ns: u64,
        readings: &[(f64, f64)],
        policy: Option<&Policy>,
        times: Option<&TimeInState>,
    ) -> Self {
        let service = windows.iter().map(|window| window.service_ns() as f64);
        let service: Vec<f64> = service.collect();
        let khz: Vec<f64> = readings.iter().map(|(_, khz)| *khz).collect();
        let highest = policy.and_then(|policy| policy.limits_khz.1);
        let is_highest = |window: &Window| Some(f64::from(window.end_khz? >= highest?));
        let at_highest: Vec<f64> = windows.iter().filter_map(is_highest).collect();
        Self {
            busy_share: service.iter().sum::<f64>() / elapsed_ns.max(1) as f64,
            service_p50_ns: median(service),
            mean_khz: mean(&khz),
            share_of_lowest: times.and_then(TimeInState::share_of_lowest),
            share_of_highest: times.and_then(TimeInState::share_of_highest),
            done_at_highest: mean(&at_highest),
        }
    }
}

/// How long a kernel took, how late it began, and both together, over all repeats; and how many windows were due, and how many of
/// them were not done in time.
#[derive(Debug, Default)]
struct Times {
    service: Latencies,
    response: Latencies,
    late: Latencies,
    due: u64,
    missed: u64,
}

/// The same as percentiles.
struct Together {
    service: Summary,
    response: Summary,
    late: Summary,
    due: u64,
    missed: u64,
}

/// In the order in which they are shown, as far as a terminal is wide.
fn together() -> [Figure<Together>; 15] {
    let [p50, p99, p999, max] = latency_figures!("service", |all: &Together| Some(&all.service));
    let [response_p50, response_p99, response_p999, response_max] =
        latency_figures!("response", |all: &Together| Some(&all.response));
    let [late_p50, late_p99, late_p999, late_max] =
        latency_figures!("late", |all: &Together| Some(&all.late));
    type Count = fn(&Together) -> Option<f64>;
    let count = |name, of: Count| Figure::new(name, Unit::Count, of);
    let missed = count("missed", |all| Some(all.missed as f64));
    let due = count("windows", |all| Some(all.due as f64));
    let begun = count("begun", |all| Some(all.service.n as f64));
    [
        p50,
        p99,
        response_p50,
        response_p99,
        missed,
        due,
        late_p50,
        late_p99,
        max,
        p999,
        response_max,
        response_p999,
        late_max,
        late_p999,
        begun,
    ]
}

/// The runs of a study until now.
pub struct Study {
    /// All but the runs: the machine, the question, and what failed.
    pub about: Envelope<Asked>,
    conditions: Vec<Condition>,
    runs: Vec<Run>,
    times: HashMap<(Condition, Name), Times>,
    courses: HashMap<Condition, Vec<(f64, f64)>>,
}

impl Study {
    /// Without runs yet. The conditions are shown in this order.
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
            for window in windows {
                times.service.record_ns(window.service_ns());
                times.response.record_ns(window.response_ns());
                times.late.record_ns(window.late_ns());
            }
            times.due += run.windows + run.not_begun;
            times.missed += run.missed;
        }
        self.runs.push(run);
    }

    /// The figures until now.
    pub fn found(&self) -> Envelope<Asked> {
        let mut found = self.about.clone();
        let mut add = |case: &str, about: &str, rows: Vec<Row>| {
            if !rows.is_empty() {
                found.begin(case, about);
                found.rows.extend(rows);
            }
        };
        let latency = |own: &_, kernel, repeat| self.latency(own, kernel, repeat);
        add(
            LATENCY,
            "the median of what each kernel takes to work on a window, and of all kernels the geometric mean of these",
            self.latencies(LATENCY, Unit::Time, latency),
        );
        for (case, about, other) in AGAINST {
            let times = |own: &_, kernel, repeat| {
                let other = other(own);
                let times = latency(own, kernel, repeat)? / latency(&other, kernel, repeat)?;
                (*own != other).then_some(times)
            };
            let rows = self.latencies(case, Unit::Factor, times).into_iter();
            add(case, about, rows.map(held).collect());
        }
        let cpu = format!(
            "CPU {}: its frequency; the part of the windows that ended at the highest one, the parts of all time at the highest and \
             the lowest, and of that in which a kernel computed; and windows not done by the deadline",
            self.about.config.config.cpu
        );
        let conditions = self.conditions.iter();
        let of_the_cpu = conditions.flat_map(|condition| self.of_the_cpu(condition));
        add(MEASURED_CPU, &cpu, of_the_cpu.collect());
        for kernel in self.kernels() {
            add(
                kernel.text(),
                "a window of all repeats together: how long it took (service), how late it began, and from when it was due until it \
                 was done (response)",
                self.of_all_repeats(kernel),
            );
        }
        found.notes.extend(self.notes(&found.rows));
        found.courses = self.courses();
        found
    }

    fn kernels(&self) -> Vec<Name> {
        self.about.config.config.kernels()
    }

    fn times(&self, condition: &Condition, kernel: Name) -> Option<&Times> {
        self.times.get(&(condition.clone(), kernel))
    }

    fn valid(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.spoilt.is_none())
    }

    /// The median of what a kernel took in a repeat; of all kernels the geometric mean, where there are all.
    fn latency(&self, condition: &Condition, kernel: Option<Name>, repeat: usize) -> Option<f64> {
        let p50 = |kernel: Name| {
            let is = |run: &&Run| {
                run.condition == *condition && run.kernel == kernel && run.repeat == repeat
            };
            self.valid().find(is)?.seen.service_p50_ns
        };
        match kernel {
            Some(kernel) => p50(kernel),
            None => {
                let all: Option<Vec<f64>> = self.kernels().into_iter().map(p50).collect();
                geometric_mean(&all?)
            }
        }
    }

    /// A figure for all kernels and for each, of every repeat that has it.
    fn latencies(
        &self,
        case: &str,
        unit: Unit,
        of: impl Fn(&Condition, Option<Name>, usize) -> Option<f64>,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for condition in &self.conditions {
            for kernel in std::iter::once(None).chain(self.kernels().into_iter().map(Some)) {
                let of = |repeat| of(condition, kernel, repeat);
                rows.extend(self.row(case, condition, kernel.map_or(ALL, Name::text), unit, of));
            }
        }
        rows
    }

    fn row(
        &self,
        case: &str,
        condition: &Condition,
        figure: &str,
        unit: Unit,
        of: impl Fn(usize) -> Option<f64>,
    ) -> Option<Row> {
        let repeats = 0..usize::from(self.about.config.config.repeats);
        let each: Vec<f64> = repeats.filter_map(of).collect();
        (!each.is_empty()).then(|| Row::new(case, &condition.name(), figure, unit, each))
    }

    fn of_the_cpu(&self, condition: &Condition) -> Vec<Row> {
        let own = || self.valid().filter(|run| run.condition == *condition);
        let figure = |figure: Figure<Seen>| {
            let of = |repeat| {
                let own = own().filter(|run| run.repeat == repeat);
                let each = own.filter_map(|run| figure.value(&run.seen));
                mean(&each.collect::<Vec<_>>())
            };
            self.row(MEASURED_CPU, condition, figure.name, figure.unit, of)
        };
        let mut rows: Vec<Row> = CPU.into_iter().filter_map(figure).collect();
        let kernels = self.kernels().into_iter();
        let times: Vec<&Times> = kernels
            .filter_map(|kernel| self.times(condition, kernel))
            .collect();
        let sum = |of: fn(&Times) -> u64| times.iter().map(|times| of(times)).sum::<u64>() as f64;
        let counts = [
            ("windows", sum(|times| times.due)),
            ("missed", sum(|times| times.missed)),
        ];
        let name = condition.name();
        let row = |(figure, sum)| Row::new(MEASURED_CPU, &name, figure, Unit::Count, vec![sum]);
        rows.extend(counts.into_iter().filter(|_| !times.is_empty()).map(row));
        rows
    }

    fn of_all_repeats(&self, kernel: Name) -> Vec<Row> {
        let (mut names, mut all) = (Vec::new(), Vec::new());
        for condition in &self.conditions {
            let Some(times) = self.times(condition, kernel) else {
                continue;
            };
            names.push(condition.name());
            all.push(Together {
                service: times.service.summary(),
                response: times.response.summary(),
                late: times.late.summary(),
                due: times.due,
                missed: times.missed,
            });
        }
        Rounds::once(all).rows(kernel.text(), &names, &together(), |_, _| None)
    }

    fn notes(&self, rows: &[Row]) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let load = self.runs.iter().map(|run| run.condition.load).max();
        if let Some(load) = load.filter(|load| *load > 0) {
            notes.push(format!(
                "With load: busy processes on the other CPUs, {load} of them."
            ));
        }
        if self.runs.iter().any(|run| run.condition.is_morpheus()) {
            notes.push(
                "Beside the scheduler morpheus, the kernels ran on a worker that is registered with it: as SCHED_OTHER, whatever \
                 policy the others had."
                    .into(),
            );
        }
        for run in &self.runs {
            if let Some(why) = &run.refused {
                notes.push(format!("{why}; measured as {}.", run.policy.kernel_name()));
            }
            if let Some(why) = &run.spoilt {
                let (name, kernel) = (run.condition.name(), run.kernel.text());
                notes.push(format!(
                    "{name}, {kernel}, repeat {} is left out: {why}.",
                    run.repeat + 1
                ));
            }
        }
        let not_settled = self
            .valid()
            .filter(|run| run.settled == Some(false))
            .count();
        if not_settled > 0 {
            notes.push(format!(
                "In {not_settled} of {} runs the median had not settled after the warm-up, nor in as long again.",
                self.runs.len()
            ));
        }
        if rows.iter().any(|row| row.judged.is_some()) {
            notes.push(
                "A governor that misses its limit is a trap: the CPU is all but idle, and each window is worked on slowly. schedutil asks \
                 for 1.25 times the utilisation that it sees, of which half is forgotten after 32 ms; for a real-time thread it asks for \
                 the highest frequency when that begins to run, and forgets it when that sleeps."
                    .into(),
            );
        } else if !self.about.config.policies.is_empty() {
            notes.push(
                "Whether a governor is a trap cannot be told: that takes performance and one that follows the load (schedutil, ondemand, \
                 conservative), both without load."
                    .into(),
            );
        }
        distinct(notes)
    }

    fn courses(&self) -> Vec<Course> {
        let course = |condition: &Condition| {
            let points = self
                .courses
                .get(condition)
                .filter(|points| points.len() > 1)?;
            let every = points.len().div_ceil(MOST_POINTS);
            let load = if condition.load > 0 {
                "with load"
            } else {
                "without load"
            };
            Some(Course {
                title: format!("frequency over time, {load}"),
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
                let Some(times) = self.times(condition, kernel) else {
                    continue;
                };
                let name = format!("{}-{}", condition.directory(), kernel.text());
                let kinds = [
                    ("service", Counts::Raw, &times.service),
                    ("response", Counts::FromIntendedStart, &times.response),
                    ("late", Counts::FromIntendedStart, &times.late),
                ];
                entries.extend(kinds.map(|(kind, counts, latencies)| Entry {
                    tag: format!("{name}-{kind}"),
                    about: counts.to_string(),
                    latencies,
                }));
            }
        }
        entries
    }
}

/// A governor on an idle machine that has the kernel's own scheduler.
fn alone(governor: &str) -> Condition {
    Condition {
        scheduler: KERNELS_OWN.into(),
        governor: Some(governor.into()),
        load: 0,
    }
}

/// Holds a governor that follows the load to its limit, where nothing else is on the machine.
fn held(row: Row) -> Row {
    let follows = FOLLOW_THE_LOAD.contains(&row.contender.as_str());
    match follows && row.case == AGAINST_PERFORMANCE && row.figure == ALL {
        true => row.held(TRAP),
        false => row,
    }
}

impl Condition {
    /// Whether it is schedutil beside Morpheus's scheduler.
    fn is_morpheus(&self) -> bool {
        self.scheduler == daemon::NAME && self.governor.as_deref() == Some(daemon::GOVERNOR)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;
    use crate::pairs::Bar;
    use crate::policy::Policy as Scheduling;

    fn beside_morpheus() -> Condition {
        Condition {
            scheduler: daemon::NAME.into(),
            ..alone("schedutil")
        }
    }

    /// A study of these kernels. Each repeat of a condition is a run with one window of the given microseconds.
    fn study(line: &str, all: &[(Condition, &[&[f64]])]) -> Study {
        let asked = Asked {
            config: config(line),
            policies: Vec::new(),
        };
        let conditions = all.iter().map(|(condition, _)| condition.clone());
        let about = Envelope::new("governor", asked);
        let mut study = Study::new(about, conditions.collect());
        for (condition, kernels) in all {
            for (kernel, repeats) in study.kernels().into_iter().zip(*kernels) {
                for (repeat, us) in repeats.iter().enumerate() {
                    let window = Window {
                        release_ns: 0,
                        start_ns: 5_000,
                        end_ns: 5_000 + (us * 1e3) as u64,
                        end_khz: Some(900_000),
                    };
                    study.add(run(condition, kernel, repeat, &[window]), &[window], &[]);
                }
            }
        }
        study
    }

    fn run(condition: &Condition, kernel: Name, repeat: usize, windows: &[Window]) -> Run {
        Run {
            condition: condition.clone(),
            kernel,
            repeat,
            policy: Scheduling::Other,
            refused: None,
            windows: windows.len() as u64,
            not_begun: 0,
            missed: 1,
            elapsed_ns: 500_000_000,
            settled: None,
            seen: Seen::new(windows, 500_000_000, &[], None, None),
            time_in_state: Vec::new(),
            interrupted: false,
            spoilt: None,
        }
    }

    #[track_caller]
    fn row<'a>(found: &'a Envelope<Asked>, case: &str, contender: &str, figure: &str) -> &'a Row {
        let row = crate::rows::view::find(&found.rows, case, contender, figure);
        row.unwrap_or_else(|| panic!("{case}, {contender}, {figure}: {found:?}"))
    }

    /// The study's kernels, in µs, and the latencies that it gives.
    #[test]
    fn the_studys_latencies_and_its_trap_are_seen() {
        let performance: [&[f64]; 4] = [&[14.12; 5], &[37.96; 5], &[496.27; 5], &[2_968.44; 5]];
        let schedutil: [&[f64]; 4] = [&[96.95; 5], &[199.12; 5], &[1_709.25; 5], &[10_262.70; 5]];
        let powersave: [&[f64]; 4] = [&[537.7; 5]; 4];
        let found = study(
            "",
            &[
                (alone("performance"), &performance),
                (alone("powersave"), &powersave),
                (alone("schedutil"), &schedutil),
            ],
        )
        .found();
        for (case, contender, figure, expected) in [
            (LATENCY, "performance", ALL, 167.6e3),
            (LATENCY, "schedutil", ALL, 762.8e3),
            (AGAINST_PERFORMANCE, "schedutil", ALL, 4.55),
            (AGAINST_PERFORMANCE, "powersave", ALL, 3.21),
            (AGAINST_PERFORMANCE, "schedutil", "car", 6.87),
            ("latency against powersave", "schedutil", ALL, 1.42),
        ] {
            let median = row(&found, case, contender, figure).median.unwrap();
            assert!((median / expected - 1.0).abs() < 0.002, "{case}: {median}");
        }
        let judged = |contender| row(&found, AGAINST_PERFORMANCE, contender, ALL).judged;
        assert_eq!(
            (judged("schedutil"), judged("powersave")),
            (Some(Bar::Missed), None)
        );
        assert!(found.notes[0].contains("is a trap"), "{:?}", found.notes);
    }

    #[test]
    fn noise_is_no_trap_and_few_repeats_are_no_noise() {
        let judged = |governor: &str, own: &[f64], base: &[f64]| {
            let all: [(Condition, &[&[f64]]); 2] =
                [(alone("performance"), &[base]), (alone(governor), &[own])];
            let found = study("--kernels car", &all).found();
            row(&found, AGAINST_PERFORMANCE, governor, ALL).judged
        };
        let base = [100.0; 5];
        assert_eq!(
            judged("schedutil", &[130.0, 100.0, 160.0, 120.0, 140.0], &base),
            Some(Bar::Undecided)
        );
        assert_eq!(
            judged("schedutil", &[104.0, 105.0, 106.0, 105.0, 104.0], &base),
            Some(Bar::Met)
        );
        assert_eq!(
            judged("schedutil", &[300.0], &[100.0]),
            Some(Bar::Undecided)
        );
        assert_eq!(
            judged("ondemand", &[300.0, 290.0, 310.0], &[100.0; 3]),
            Some(Bar::Missed)
        );
        assert_eq!(
            judged("powersave", &[300.0, 290.0, 310.0], &[100.0; 3]),
            None
        );
        let alone = study("--kernels car", &[(alone("schedutil"), &[&[1.0; 5]])]).found();
        assert!(alone.rows.iter().all(|row| row.judged.is_none()));
    }

    #[test]
    fn the_scheduler_stands_beside_the_governor_alone_and_load_beside_none() {
        let loaded = Condition {
            load: 3,
            ..alone("schedutil")
        };
        let all: [(Condition, &[&[f64]]); 4] = [
            (alone("performance"), &[&[100.0; 3]]),
            (alone("schedutil"), &[&[200.0; 3]]),
            (loaded, &[&[220.0; 3]]),
            (beside_morpheus(), &[&[110.0; 3]]),
        ];
        let mut study = study("--kernels car", &all);
        for run in &mut study.runs {
            run.seen.done_at_highest = Some(f64::from(run.condition.is_morpheus()));
        }
        let found = study.found();
        let median = |case, contender, figure| row(&found, case, contender, figure).median;
        assert_eq!(
            median(MEASURED_CPU, "schedutil", "done at highest"),
            Some(0.0)
        );
        assert_eq!(
            median(MEASURED_CPU, "schedutil + morpheus", "done at highest"),
            Some(1.0)
        );
        assert_eq!(
            median(MEASURED_CPU, "schedutil", "missed"),
            Some(3.0),
            "a sum"
        );
        let with_load = median("latency with load against without", "schedutil + load", ALL);
        assert!((with_load.unwrap() - 1.1).abs() < 1e-9);
        // The other one is the follower that is judged.
        let judged = |name| row(&found, AGAINST_PERFORMANCE, name, ALL).judged;
        assert_eq!(judged("schedutil"), Some(Bar::Missed));
        assert_eq!(
            (judged("schedutil + morpheus"), judged("schedutil + load")),
            (None, None)
        );
        assert!(found.notes[0].contains("other CPUs, 3 of them"));
        assert!(found.notes[1].contains("as SCHED_OTHER, whatever policy"));
    }

    #[test]
    fn a_latency_is_of_repeats_that_have_every_kernel_and_a_spoilt_run_is_left_out() {
        let kernels: [&[f64]; 2] = [&[100.0, 400.0, 900.0], &[100.0, 100.0]];
        let mut study = study("--kernels car,notch_iir", &[(alone("schedutil"), &kernels)]);
        let latencies = |study: &Study| {
            row(&study.found(), LATENCY, "schedutil", ALL)
                .rounds
                .clone()
        };
        let found = latencies(&study);
        assert!(
            found.len() == 2 && (found[0] / 100e3 - 1.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!((found[1] / 200e3 - 1.0).abs() < 1e-9, "{found:?}");
        study.runs[0].spoilt = Some("another governor".into());
        assert_eq!(latencies(&study).len(), 1);
        let notes = study.found().notes;
        assert_eq!(
            notes[0],
            "schedutil, car, repeat 1 is left out: another governor."
        );
    }

    #[test]
    fn runs_are_laid_one_after_another() {
        let mut study = study("--kernels car", &[]);
        let condition = alone("schedutil");
        study.conditions.push(condition.clone());
        for readings in [[(1.0, 6e5), (4.0, 7e5)], [(1.0, 8e5), (3.0, 6e5)]] {
            study.add(run(&condition, Name::Car, 0, &[]), &[], &readings);
        }
        let [course] = &study.found().courses[..] else {
            panic!("one condition");
        };
        assert_eq!(course.title, "frequency over time, without load");
        assert_eq!(
            course.points,
            [(1.0, 6e5), (4.0, 7e5), (5.0, 8e5), (7.0, 6e5)]
        );
    }
}
