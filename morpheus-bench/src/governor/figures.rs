//! The figures of a study: rows for each condition and kernel, made of its runs.
//!
//! The latency of a condition is the geometric mean of its kernels' medians, as in the study: each kernel counts alike, however
//! long it takes. A repeat is a round.

use morpheus_harness::envelope::Envelope;
use morpheus_harness::histogram::{Latencies, Summary};
use morpheus_harness::pairs::Limit;
use morpheus_harness::rows::{Figure, Part, Rounds, Row};
use morpheus_harness::stats::{geometric_mean, mean};
use morpheus_harness::unit::Unit;

use super::placement::KERNELS_OWN;
use super::record::{Condition, Run};
use super::signal::Name;
use super::study::{Asked, Study};

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
const CPU: [Figure<Run>; 5] = [
    Figure::new("frequency", Unit::Frequency, |run| run.mean_khz),
    Figure::share("done at highest", |run| run.done_at_highest),
    Figure::share("at highest", |run| run.share_of_highest),
    Figure::share("at lowest", |run| run.share_of_lowest),
    Figure::share("busy", |run| Some(run.busy_share)),
];

/// How long a kernel took, how late it began, and both together, over all repeats; and how many windows were due, and how many of
/// them were not done in time.
struct Together {
    service: Summary,
    response: Summary,
    late: Summary,
    due: u64,
    missed: u64,
}

/// In the order in which they are shown, as far as a terminal is wide.
const TOGETHER: [Figure<Together>; 15] = [
    Figure::latency("service p50", Part::P50, |all| Some(&all.service)),
    Figure::latency("service p99", Part::P99, |all| Some(&all.service)),
    Figure::latency("response p50", Part::P50, |all| Some(&all.response)),
    Figure::latency("response p99", Part::P99, |all| Some(&all.response)),
    Figure::count("missed", |all| Some(all.missed as f64)),
    Figure::count("windows", |all| Some(all.due as f64)),
    Figure::latency("late p50", Part::P50, |all| Some(&all.late)),
    Figure::latency("late p99", Part::P99, |all| Some(&all.late)),
    Figure::latency("service max", Part::Max, |all| Some(&all.service)),
    Figure::latency("service p99.9", Part::P999, |all| Some(&all.service)),
    Figure::latency("response max", Part::Max, |all| Some(&all.response)),
    Figure::latency("response p99.9", Part::P999, |all| Some(&all.response)),
    Figure::latency("late max", Part::Max, |all| Some(&all.late)),
    Figure::latency("late p99.9", Part::P999, |all| Some(&all.late)),
    Figure::count("begun", |all| Some(all.service.n as f64)),
];

impl Study {
    /// The figures until now.
    pub fn found(&self) -> Envelope<Asked> {
        let mut found = self.about.clone();
        let mut add = |case: &str, about: &str, rows: Vec<Row>| {
            if !rows.is_empty() {
                found.add(case, about, rows);
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
                &kernel.text(),
                "a window of all repeats together: how long it took (service), how late it began, and from when it was due until it \
                 was done (response)",
                self.of_all_repeats(kernel),
            );
        }
        found.notes.extend(self.notes(&found.rows));
        found.courses = self.courses();
        found
    }

    /// The median of what a kernel took in a repeat; of all kernels the geometric mean, where there are all.
    fn latency(&self, condition: &Condition, kernel: Option<Name>, repeat: usize) -> Option<f64> {
        let p50 = |kernel: Name| {
            let mut own = self.valid(condition);
            let run = own.find(|run| run.kernel == kernel && run.repeat == repeat)?;
            run.service_p50_ns
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
                let figure = kernel.map_or(ALL.into(), Name::text);
                rows.extend(self.row(case, condition, &figure, unit, of));
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
        let own = || self.valid(condition);
        let figure = |figure: Figure<Run>| {
            let of = |repeat| {
                let own = own().filter(|run| run.repeat == repeat);
                let each = own.filter_map(|run| figure.value(run));
                mean(&each.collect::<Vec<_>>())
            };
            self.row(MEASURED_CPU, condition, figure.name, figure.unit, of)
        };
        let mut rows: Vec<Row> = CPU.into_iter().filter_map(figure).collect();
        let name = condition.name();
        let sum = |figure, of: fn(&Run) -> u64| {
            let sum = own().map(of).sum::<u64>() as f64;
            Row::new(MEASURED_CPU, &name, figure, Unit::Count, vec![sum])
        };
        if own().next().is_some() {
            rows.push(sum("windows", Run::due));
            rows.push(sum("missed", |run| run.missed));
        }
        rows
    }

    fn of_all_repeats(&self, kernel: Name) -> Vec<Row> {
        let together = |condition: &Condition| {
            let times = self.times(condition, kernel)?.each_ref();
            let [service, response, late] = times.map(Latencies::summary);
            let own = || self.valid(condition).filter(|run| run.kernel == kernel);
            let together = Together {
                service,
                response,
                late,
                due: own().map(Run::due).sum(),
                missed: own().map(|run| run.missed).sum(),
            };
            Some((condition.name(), together))
        };
        let all = self.conditions.iter().filter_map(together);
        let (names, all): (Vec<_>, Vec<_>) = all.unzip();
        Rounds::once(all).rows(&kernel.text(), &names, &TOGETHER, |_, _| None)
    }
}

/// A governor on an idle machine that has the kernel's own scheduler.
fn alone(governor: &str) -> Condition {
    Condition::alone(KERNELS_OWN, Some(governor))
}

/// Holds a governor that follows the load to its limit, where nothing else is on the machine.
fn held(row: Row) -> Row {
    let follows = FOLLOW_THE_LOAD.contains(&row.contender.as_str());
    let is_held = follows && row.case == AGAINST_PERFORMANCE && row.figure == ALL;
    row.held(is_held.then_some(TRAP))
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Bar;

    use super::super::config::tests::config;
    use super::super::daemon;
    use super::super::measure::{Measured, Window};
    use super::*;
    use crate::policy::Policy as Scheduling;

    fn beside_morpheus() -> Condition {
        Condition {
            scheduler: daemon::NAME.into(),
            on_worker: true,
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
                    let of = (condition, kernel, repeat);
                    let run = run(&study.about.config, of, vec![window]);
                    study.add(run, &[window], &[]);
                }
            }
        }
        study
    }

    /// A run with these windows, and one that was not begun.
    fn run(asked: &Asked, of: (&Condition, Name, usize), windows: Vec<Window>) -> Run {
        let measured = Measured {
            windows,
            settled: None,
            not_begun: 1,
            policy: Scheduling::Other,
            refused: None,
        };
        Run::new(of, asked, &measured, &[], Vec::new())
    }

    #[track_caller]
    fn row<'a>(found: &'a Envelope<Asked>, case: &str, contender: &str, figure: &str) -> &'a Row {
        let row = morpheus_harness::rows::view::find(&found.rows, case, contender, figure);
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
            run.done_at_highest = Some(f64::from(run.condition.on_worker));
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
            let run = run(&study.about.config, (&condition, Name::Car, 0), vec![]);
            study.add(run, &[], &readings);
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
