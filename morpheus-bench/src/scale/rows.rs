//! The rows of all runs: each case under each scheduler, beside the kernel's own, and what Morpheus's scheduler is to reach.

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Bar;
use morpheus_harness::pairs::Limit::{self, AtLeast, AtMost};
use morpheus_harness::rows::text::held;
use morpheus_harness::rows::view::distinct;
use morpheus_harness::rows::{Bound, Figure, Part, Row};
use morpheus_harness::unit::Unit;
use morpheus_harness::{report, stats};
use serde::Serialize;

use super::case::{Case, LONGEST_WAIT_NS};
use super::contender;
use super::result::{Measured, Report, Run};
use super::soak::Soak;

/// The kernel's own scheduler.
const DEFAULT: &str = "default";
const TO_DEFAULT: &str = "÷ default";
const TO_BEST: &str = "÷ the best other";
/// How many times another scheduler's figure is shown at most: of nothing, any figure is as many as one likes.
const MOST_TIMES: f64 = 1e3;

/// The limits of Morpheus's scheduler relative to the best of the others.
const BESIDE_BEST: [(Case, Limit); 5] = [
    (Case::Latency, AtMost(1.0)),
    (Case::Burst, AtMost(1.0)),
    (Case::Longrun, AtMost(1.0)),
    (Case::Mixed, AtMost(1.0)),
    (Case::Deadline, AtMost(0.5)),
];
/// Of the first ones of these, the wakes, the geometric mean is to be at most this.
const WAKES: usize = 4;
const WAKES_AT_MOST: Limit = AtMost(0.7);
/// Its limits relative to the kernel's own scheduler.
const BESIDE_DEFAULT: [(Case, Limit); 4] = [
    (Case::Ipc, AtMost(1.2)),
    (Case::Messaging, AtLeast(0.92)),
    (Case::Pipe, AtLeast(0.92)),
    (Case::Throughput, AtLeast(0.98)),
];
/// The limits of the latency of tasks of Morpheus's runtime under it, in the cases with hogs: the figure, the scheduler it is
/// relative to, and the limit.
const OF_THE_RUNTIME: [(&str, &str, Limit); 4] = [
    ("wake p99", "default/lazy", AtMost(0.2)),
    ("wake p99", "scx_bpfland", AtMost(1.2)),
    ("timer p99", "default/lazy", AtMost(2.0 / 3.0)),
    ("timer p50", "scx_bpfland", AtMost(0.2)),
];
const SERVER_AT_LEAST: Limit = AtLeast(0.9);
/// Figures that some cases have beside the one by which schedulers are compared, and how they are read.
const MORE: [Figure<Measured>; 5] = [
    Figure::time("timer p50", |found| more(found, "timer p50")),
    Figure::time("timer p99", |found| more(found, "timer p99")),
    Figure::latency("p50", Part::P50, |found| found.latency_ns.as_ref()),
    Figure::latency("longest", Part::Max, |found| found.latency_ns.as_ref()),
    Figure::time("CPU time", |found| Some(found.cpu_ns? as f64)),
];
/// The figures of soaks; the first of these is held against a limit.
const SOAKED: [Figure<Soak>; 6] = [
    Figure::time("longest wait", |soak| Some(soak.loaded.longest_ns as f64)),
    Figure::time("without load", |soak| Some(soak.quiet.longest_ns as f64)),
    Figure::time("p99", |soak| Some(soak.loaded.p99_ns? as f64)),
    Figure::count("waits", |soak| Some(soak.loaded.count as f64)),
    Figure::count("hotplugs", |soak| Some(soak.hotplugs as f64)),
    Figure::count("lines logged", |soak| Some(soak.log.len() as f64)),
];

/// How it was measured, for people.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    iterations: usize,
}

/// A figure in each iteration, where there is one.
type Series = Vec<(usize, Option<f64>)>;

/// Everything.
pub fn envelope(report: &Report) -> Envelope<Asked> {
    // How often the case that was measured most often was, under one scheduler.
    let often = |run: &Run| report.of(run.cpus, run.case, &run.scheduler).count();
    let iterations = report.runs.iter().map(often).max().unwrap_or(0);
    // A guest does not know of which commit it is.
    let mut found = Envelope::empty("scale", Asked { iterations });
    found.host = report.host.clone();
    found.notes = failures(report);
    for cpus in report.cpus() {
        let compared = Compared { report, cpus };
        for case in report.cases() {
            let name = compared.name(case);
            let rows = match case {
                Case::Soak => compared.soaked(&name),
                _ => compared.rows(case, &name),
            };
            if rows.iter().any(|row| row.n > 0) {
                found.add(&name, case.about().what, rows);
            }
        }
        found.rows.extend(compared.mean());
        found.rows.extend(compared.served());
    }
    found.rows.retain(|row| row.n > 0);
    for run in &report.runs {
        if let Some(soak) = run.measured.as_ref().and_then(|found| found.soak.as_ref()) {
            found.notes.extend(about_soak(run, soak));
        }
    }
    found
}

/// A sentence for each bar that is missed. One that is undecided is not.
pub fn missed(report: &Report) -> Vec<String> {
    let rows = envelope(report).rows;
    let missed = rows.iter().filter(|row| row.judged == Some(Bar::Missed));
    missed
        .filter_map(|row| Some(format!("{}: {}", row.case, held(row)?)))
        .collect()
}

/// The runs with this number of CPUs.
struct Compared<'a> {
    report: &'a Report,
    cpus: usize,
}

impl Compared<'_> {
    fn name(&self, case: Case) -> String {
        self.report.name(case, self.cpus)
    }

    fn series(&self, case: Case, scheduler: &str, of: impl Fn(&Measured) -> Option<f64>) -> Series {
        let runs = self.report.of(self.cpus, case, scheduler);
        runs.map(|run| (run.iteration, run.figures().and_then(&of)))
            .collect()
    }

    /// By which schedulers are compared.
    fn values(&self, case: Case, scheduler: &str) -> Series {
        self.series(case, scheduler, |found| found.value)
    }

    /// Morpheus's scheduler, as it is.
    fn own(&self) -> Option<String> {
        let mut names = self.report.schedulers().into_iter();
        names.find(|name| contender::is_own(name))
    }

    /// The least of the others in each iteration. Variants of our own are no others.
    fn best_other(&self, case: Case) -> Series {
        let is_other = |name: &String| !name.split(' ').next().is_some_and(contender::is_own);
        let others = self.report.schedulers().into_iter().filter(is_other);
        let all = others.map(|other| self.values(case, &other));
        let best = all.reduce(|best, other| {
            let both = best.into_iter().zip(other);
            both.map(|((iteration, best), (_, other))| {
                let least = best.zip(other).map(|(best, other)| best.min(other));
                (iteration, least)
            })
            .collect()
        });
        best.unwrap_or_default()
    }

    fn rows(&self, case: Case, name: &str) -> Vec<Row> {
        let (about, own) = (case.about(), self.own());
        let default = self.values(case, DEFAULT);
        let mut rows = Vec::new();
        for scheduler in self.report.schedulers() {
            let is_own = own.as_ref() == Some(&scheduler);
            let row = |figure: &str, unit, each: &Series| {
                Row::new(name, &scheduler, figure, unit, known(each))
            };
            let beside = |figure: &str, own: &Series, other: &Series, limit: Option<Limit>| {
                ratio(name, &scheduler, figure, times(own, other), limit)
            };
            let values = self.values(case, &scheduler);
            rows.push(row(about.figure, about.unit, &values));
            if scheduler != DEFAULT {
                let limit = of_case(&BESIDE_DEFAULT, case).filter(|_| is_own);
                rows.push(beside(TO_DEFAULT, &values, &default, limit));
            }
            if let Some(limit) = of_case(&BESIDE_BEST, case).filter(|_| is_own) {
                let best = self.best_other(case);
                rows.push(beside(TO_BEST, &values, &best, Some(limit)));
            }
            for figure in MORE {
                let each = self.series(case, &scheduler, |found| figure.value(found));
                rows.push(row(figure.name, figure.unit, &each));
            }
            if is_own && about.figure == "wake p99" {
                for (figure, other, limit) in OF_THE_RUNTIME {
                    let of = |scheduler| self.series(case, scheduler, |found| more(found, figure));
                    let named = format!("{figure} ÷ {other}");
                    rows.push(beside(&named, &of(&scheduler), &of(other), Some(limit)));
                }
            }
        }
        rows
    }

    /// The geometric mean of the wakes beside the best of the others.
    fn mean(&self) -> Option<Row> {
        let own = self.own()?;
        let wakes = BESIDE_BEST.iter().take(WAKES).map(|(case, _)| *case);
        let each: Vec<Vec<f64>> = wakes
            .clone()
            .map(|case| times(&self.values(case, &own), &self.best_other(case)))
            .collect();
        let rounds = each.iter().map(Vec::len).min()?;
        let mean = |round: usize| {
            let ratios: Vec<f64> = each.iter().map(|times| times[round]).collect();
            stats::geometric_mean(&ratios)
        };
        let means: Vec<f64> = (0..rounds).filter_map(mean).collect();
        let names: Vec<String> = wakes.map(|case| self.name(case)).collect();
        let limit = Some(WAKES_AT_MOST);
        Some(ratio(&names.join(" and "), &own, TO_BEST, means, limit))
    }

    /// A server of the runtime beside hogs, and without.
    fn served(&self) -> Option<Row> {
        let own = self.own()?;
        let [with, without] = [Case::RuntimeServerHogs, Case::RuntimeServer];
        let times = times(&self.values(with, &own), &self.values(without, &own));
        let (name, limit) = (self.name(with), Some(SERVER_AT_LEAST));
        let figure = "requests/s ÷ without hogs";
        Some(ratio(&name, &own, figure, times, limit))
    }

    /// Soaks of each scheduler, also those that failed.
    fn soaked(&self, name: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for scheduler in self.report.schedulers() {
            for figure in SOAKED {
                let runs = self.report.of(self.cpus, Case::Soak, &scheduler);
                let each =
                    runs.filter_map(|run| figure.value(run.measured.as_ref()?.soak.as_ref()?));
                let row = Row::new(name, &scheduler, figure.name, figure.unit, each.collect());
                let is_held = figure.name == SOAKED[0].name;
                rows.push(row.held_exactly(is_held.then_some(AtMost(LONGEST_WAIT_NS))));
            }
        }
        rows
    }
}

fn more(found: &Measured, figure: &str) -> Option<f64> {
    found.more.get(figure).copied()
}

fn of_case(limits: &[(Case, Limit)], case: Case) -> Option<Limit> {
    let own = limits.iter().find(|(limited, _)| *limited == case);
    own.map(|(_, limit)| *limit)
}

fn known(series: &Series) -> Vec<f64> {
    series.iter().filter_map(|(_, figure)| *figure).collect()
}

/// In each iteration that has both. Nothing is as good as any: a scheduler that misses no frame cannot be beaten there.
fn times(own: &Series, other: &Series) -> Vec<f64> {
    let both = own
        .iter()
        .zip(other)
        .filter(|(own, other)| own.0 == other.0);
    let times = both.filter_map(|(own, other)| match (own.1?, other.1?) {
        (0.0, _) => Some(0.0),
        (own, other) => Some((own / other).min(MOST_TIMES)),
    });
    times.collect()
}

fn ratio(case: &str, scheduler: &str, figure: &str, times: Vec<f64>, limit: Option<Limit>) -> Row {
    let known = times.iter().map(|times| match *times >= MOST_TIMES {
        true => Bound::AT_LEAST,
        false => Bound::EXACT,
    });
    let known = known.enumerate().collect();
    let row = Row::new(case, scheduler, figure, Unit::Factor, times);
    row.bounded_by(known).held(limit)
}

/// Each reason for which a run failed once, with how often.
pub fn failures(report: &Report) -> Vec<String> {
    let failed = report.runs.iter().filter_map(|run| {
        let (case, why) = (run.case.name(), run.failed.as_ref()?.trim_end_matches('.'));
        Some(format!("Failed: {case} under {}: {why}", run.scheduler))
    });
    let failed: Vec<String> = failed.collect();
    let line = |why: String| match failed.iter().filter(|other| **other == why).count() {
        1 => format!("{why}."),
        times => format!("{why} ({times} times)."),
    };
    distinct(failed.iter().cloned())
        .into_iter()
        .map(line)
        .collect()
}

/// Which tasks waited longest, the lines of the log, and what the kernel counted.
fn about_soak(run: &Run, soak: &Soak) -> Vec<String> {
    let own = format!("soak under {}, {} CPUs", run.scheduler, run.cpus);
    let mut lines = vec![format!(
        "{own}: {} waited longest, {} without load; it lasted {}.",
        soak.loaded.task,
        soak.quiet.task,
        report::time(run.measured.as_ref().map_or(0, |measured| measured.wall_ns))
    )];
    lines.extend(soak.log.iter().map(|line| format!("{own}, log: {line}")));
    let events = soak.events.iter();
    let events: Vec<String> = events
        .map(|(name, count)| format!("{name} {}", report::count(*count)))
        .collect();
    if !events.is_empty() {
        lines.push(format!("{own}: the kernel counted {}.", events.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use morpheus_harness::histogram::Summary;
    use morpheus_harness::report::WIDTH;
    use morpheus_harness::rows::view::find;

    use super::super::result::tests::run;
    use super::super::soak::Waited;
    use super::*;

    /// Three iterations of each of these.
    fn report(values: &[(Case, &str, f64)]) -> Report {
        let each = (1..=3).flat_map(|iteration| {
            let one =
                move |(case, name, value): &(Case, &str, f64)| run(*case, name, iteration, *value);
            values.iter().map(one)
        });
        Report {
            host: None,
            runs: each.collect(),
        }
    }

    /// The median of a figure, and how it is judged.
    fn found(report: &Report, case: &str, figure: &str) -> (Option<f64>, Option<Bar>) {
        let rows = envelope(report).rows;
        let row = find(&rows, case, "morpheus", figure);
        row.map_or((None, None), |row| (row.median, row.judged))
    }

    const ALL_WAKES: &str = "latency and burst and longrun and mixed";

    #[test]
    fn the_best_of_the_others_is_what_counts() {
        let mut values = Vec::new();
        for (case, _) in &BESIDE_BEST[..WAKES] {
            values.extend([
                (*case, "default", 4.0),
                (*case, "scx_bpfland", 2.0),
                (*case, "morpheus", 1.0),
            ]);
        }
        let judged = found(&report(&values), "burst", TO_BEST);
        assert_eq!(judged, (Some(0.5), Some(Bar::Met)));
        let (mean, judged) = found(&report(&values), ALL_WAKES, TO_BEST);
        assert!((mean.unwrap() - 0.5).abs() < 1e-9 && judged == Some(Bar::Met));
        values[2].2 = 3.0;
        let report = report(&values);
        let judged = found(&report, "latency", TO_BEST);
        assert_eq!(judged, (Some(1.5), Some(Bar::Missed)));
        let text = envelope(&report).text();
        assert!(text.contains("missed") && text.contains("met"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn one_iteration_decides_nothing_and_a_bar_between_iterations_is_undecided() {
        let mut report = report(&[
            (Case::Pipe, "default", 100.0),
            (Case::Pipe, "morpheus", 93.0),
        ]);
        assert_eq!(
            found(&report, "pipe", TO_DEFAULT),
            (Some(0.93), Some(Bar::Met))
        );
        report.runs[1].measured.as_mut().unwrap().value = Some(90.0);
        assert_eq!(
            found(&report, "pipe", TO_DEFAULT),
            (Some(0.93), Some(Bar::Undecided))
        );
        report.runs.truncate(2);
        assert_eq!(
            found(&report, "pipe", TO_DEFAULT),
            (Some(0.9), Some(Bar::Undecided))
        );
    }

    #[test]
    fn only_what_is_missed_for_sure_is_missed() {
        let report = |pipe: f64| {
            let mut report = report(&[
                (Case::Pipe, "default", 100.0),
                (Case::Pipe, "morpheus", pipe),
                (Case::Throughput, "default", 100.0),
                (Case::Throughput, "morpheus", 99.0),
            ]);
            let last = report.runs.last_mut().unwrap();
            // One iteration of three is below the bar.
            last.measured.as_mut().unwrap().value = Some(90.0);
            missed(&report)
        };
        assert_eq!(report(95.0), Vec::<String>::new());
        let missed = report(80.0);
        assert_eq!(missed.len(), 1, "{missed:?}");
        let expected = "pipe: morpheus, ÷ default at least 0.9200×: missed, 0.800×";
        assert!(missed[0].starts_with(expected), "{missed:?}");
    }

    #[test]
    fn the_runtime_is_compared_with_the_kernels_own_and_with_bpfland() {
        let mut report = report(&[
            (Case::RuntimeHogs6, "default/lazy", 10.0),
            (Case::RuntimeHogs6, "scx_bpfland", 1.0),
            (Case::RuntimeHogs6, "morpheus", 1.5),
            (Case::RuntimeServer, "morpheus", 400.0),
            (Case::RuntimeServerHogs, "morpheus", 380.0),
        ]);
        for run in &mut report.runs {
            let measured = run.measured.as_mut().unwrap();
            measured
                .more
                .insert("wake p99".into(), measured.value.unwrap());
        }
        let of = |figure| found(&report, "runtime-hogs6", figure);
        assert_eq!(of("wake p99 ÷ default/lazy"), (Some(0.15), Some(Bar::Met)));
        assert_eq!(of("wake p99 ÷ scx_bpfland"), (Some(1.5), Some(Bar::Missed)));
        let served = found(&report, "runtime-server-hogs", "requests/s ÷ without hogs");
        assert_eq!(served, (Some(0.95), Some(Bar::Met)));
    }

    #[test]
    fn throughput_is_compared_with_the_kernels_own() {
        let values = [
            (Case::Throughput, "default", 100.0),
            (Case::Throughput, "morpheus", 97.0),
            (Case::Throughput, "other", 200.0),
        ];
        let judged = found(&report(&values), "throughput", TO_DEFAULT);
        assert_eq!(judged, (Some(0.97), Some(Bar::Missed)));
    }

    #[test]
    fn no_misses_are_half_of_any_and_some_are_not_half_of_none() {
        let of = |ours, theirs| {
            let values = [
                (Case::Deadline, "default", theirs),
                (Case::Deadline, "morpheus", ours),
            ];
            found(&report(&values), "deadline", TO_BEST).1.unwrap()
        };
        assert_eq!([of(0.0, 0.0), of(0.0, 0.5), of(0.1, 0.2)], [Bar::Met; 3]);
        assert_eq!([of(0.1, 0.0), of(0.11, 0.2)], [Bar::Missed; 2]);
    }

    #[test]
    fn where_one_has_no_figure_nothing_is_compared() {
        let mut report = report(&[
            (Case::Latency, "default", 1.0),
            (Case::Latency, "morpheus", 0.1),
            (Case::Latency, "other", 1.0),
        ]);
        for run in report
            .runs
            .iter_mut()
            .filter(|run| run.scheduler == "other")
        {
            run.failed = Some("ejected".into());
        }
        assert_eq!(found(&report, "latency", TO_BEST), (None, None));
        assert_eq!(found(&report, "latency", TO_DEFAULT).0, Some(0.1));
    }

    #[test]
    fn variants_of_our_own_are_no_others() {
        let alone = report(&[
            (Case::Latency, "morpheus", 1.0),
            (Case::Latency, "morpheus --off kick", 1.0),
        ]);
        assert!(envelope(&alone).rows.iter().all(|row| row.judged.is_none()));
    }

    #[test]
    fn latencies_have_their_median_and_the_longest_beside_the_figure() {
        let mut report = report(&[
            (Case::Latency, "default", 4e6),
            (Case::Latency, "morpheus", 1e6),
        ]);
        for run in &mut report.runs {
            run.measured.as_mut().unwrap().latency_ns = Some(Summary {
                p50: Some(51_000),
                max: Some(7_000_000),
                ..Summary::default()
            });
        }
        let text = envelope(&report).text();
        let expected = [
            "÷ default",
            "p50",
            "longest",
            "51.0 µs",
            "7.00 ms",
            "0.250×",
            "iterations 3",
        ];
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
        assert!(!text.contains("CPU time"), "{text}");
    }

    #[test]
    fn the_number_of_cpus_stands_with_a_case_where_there_are_several() {
        let mut report = report(&[(Case::Pipe, "default", 1.0)]);
        report.runs[1].cpus = 1;
        let cases = envelope(&report).cases;
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["pipe, 2 CPUs", "pipe, 1 CPU"]);
    }

    #[test]
    fn what_failed_is_said_once_with_how_often() {
        let mut report = report(&[
            (Case::Burst, "morpheus", 1.0),
            (Case::Pipe, "morpheus", 1.0),
        ]);
        for run in report.runs.iter_mut().filter(|run| run.case == Case::Burst) {
            run.failed = Some("the scheduler was thrown out".into());
        }
        let text = envelope(&report).text();
        assert!(
            !text.contains("Linux"),
            "no machine is named in these records: {text}"
        );
        let expected = "Failed: burst under morpheus: the scheduler was thrown out (3 times).";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_soak_has_its_waits_and_what_was_wrong() {
        let mut held = run(Case::Soak, "morpheus", 1, 150e6);
        let measured = held.measured.as_mut().unwrap();
        measured.wall_ns = 605_000_000_000;
        let waited = |longest_ns, task: &str| Waited {
            longest_ns,
            task: task.into(),
            count: 12_345,
            p99_ns: Some(4_000_000),
        };
        measured.soak = Some(Soak {
            quiet: waited(3_100_000, "kworker/0:1 (12)"),
            loaded: waited(150_000_000, "scale-hog (345)"),
            hotplugs: 149,
            events: [("SCX_EV_SELECT_CPU_FALLBACK".into(), 5)].into(),
            ..Soak::default()
        });
        let mut failed = held.clone();
        failed.cpus = 8;
        failed.failed = Some("the scheduler was thrown out".into());
        failed.measured.as_mut().unwrap().soak.as_mut().unwrap().log = vec!["sched_ext: x".into()];
        let text = envelope(&Report {
            host: None,
            runs: vec![held, failed],
        })
        .text();
        for words in [
            "150 ms",
            "3.10 ms",
            "4.00 ms",
            "149",
            "morpheus, longest wait at most 1.00 s: met",
            "Failed: soak under morpheus: the scheduler was thrown out.",
            "soak under morpheus, 8 CPUs, log: sched_ext: x",
            "SCX_EV_SELECT_CPU_FALLBACK 5",
            "scale-hog (345) waited longest",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }
}
