//! What each feature of Morpheus's scheduler buys: the ratio of every figure without it to that with it, beside what the same
//! scheduler, measured twice, differs by.

use super::case::Case;
use super::contender::OWN;
use super::features::Feature;
use super::result::Report;
use super::rows;
use crate::histogram::median;
use crate::report::{self, Table, WIDTH};
use crate::rows::view::distinct;
use crate::unit::Unit;
use Verdict::{Buys, Costs, Nothing, Unknown};

const NOTE: &str = "\
Ratios of figures without a feature to those with it (one of both is the mean of the same scheduler measured twice), medians over \
rounds. +: worse without it, -: better without it, by more than the same scheduler differs from itself in any round (first row).";

/// The verdicts of one figure.
struct Column {
    case: Case,
    /// The widest ratio between the same scheduler and itself, of any round: from 1 up. `None` where it was not measured twice.
    spread: Option<f64>,
    /// Of each feature the median ratio over rounds, where there is one.
    features: Vec<(Option<f64>, Verdict)>,
}

/// The verdict of a figure on a feature, as the mark behind its ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Verdict {
    /// Without the feature it is worse, by more than chance.
    Buys = b'+',
    /// It is better.
    Costs = b'-',
    /// The difference may be chance.
    Nothing = b' ',
    /// Too little was measured.
    Unknown = b'?',
}

/// Whether these are records of an ablation: the scheduler twice, the scheduler without features, and no other scheduler.
pub fn is_one(report: &Report) -> bool {
    let names = report.schedulers();
    let twice = OWN.iter().all(|own| names.iter().any(|name| name == own));
    let known = |name: &String| OWN.contains(&name.as_str()) || Feature::of(name).is_some();
    twice && names.iter().all(known)
}

/// For people: a table for each number of CPUs, what it comes to, and what failed.
pub fn text(report: &Report) -> String {
    let host = report.host.as_ref().map(|host| host.line(WIDTH) + "\n");
    let mut text = host.unwrap_or_default();
    for cpus in report.cpus() {
        text += &format!("\nCPUs: {cpus}; what each feature buys\n\n");
        text += &render(report, cpus);
    }
    for line in rows::failures(report) {
        text += &(report::wrap(&line, WIDTH) + "\n");
    }
    text
}

/// The table for this number of CPUs, and what it comes to.
fn render(report: &Report, cpus: usize) -> String {
    let features = features(report);
    let measured = |case: &Case| {
        let mut runs = report.runs.iter();
        runs.any(|run| run.cpus == cpus && run.case == *case)
    };
    let columns: Vec<Column> = report
        .cases()
        .into_iter()
        .filter(measured)
        .map(|case| column(report, cpus, case, &features))
        .collect();
    let mut table = Table::default();
    let mut names = vec!["twice the same".to_owned()];
    names.extend(features.iter().map(label));
    table.column("without", 0, names);
    for column in &columns {
        table.column(&column.case.name(), 0, column.cells());
    }
    let mut text = table.render(WIDTH);
    for line in [vec![NOTE.to_owned()], conclusions(&columns, &features)].concat() {
        text += &(report::wrap(&line, WIDTH) + "\n");
    }
    text
}

fn features(report: &Report) -> Vec<Feature> {
    let names = report.schedulers();
    names.iter().filter_map(|name| Feature::of(name)).collect()
}

fn label(feature: &Feature) -> String {
    let off = if feature.is_on { "" } else { " (off)" };
    format!("{}{off}", feature.name)
}

fn column(report: &Report, cpus: usize, case: Case, features: &[Feature]) -> Column {
    let value = |name: &str, iteration: usize| {
        let mut runs = report.of(cpus, case, name);
        // Also of a run that broke its case's rule, which may be what the feature is for.
        let run = runs.find(|run| run.iteration == iteration)?;
        run.measured.as_ref()?.value
    };
    // Of each round in which both were measured.
    let rounds = distinct(report.runs.iter().map(|run| run.iteration));
    let same: Vec<(usize, f64, f64)> = rounds
        .into_iter()
        .filter_map(|round| Some((round, value(OWN[0], round)?, value(OWN[1], round)?)))
        .collect();
    let spreads = same.iter().map(|(_, a, b)| ratio(a.max(*b), a.min(*b)));
    let spread = spreads.reduce(f64::max);
    let of = |feature: &Feature| {
        let name = feature.scheduler();
        let ratios = same.iter().filter_map(|(round, a, b)| {
            let (differing, as_it_is) = (value(&name, *round)?, (a * b).sqrt());
            Some(match feature.is_on {
                true => ratio(differing, as_it_is),
                false => ratio(as_it_is, differing),
            })
        });
        let ratio = median(ratios.collect());
        (ratio, verdict(case, ratio.zip(spread)))
    };
    Column {
        case,
        spread,
        features: features.iter().map(of).collect(),
    }
}

/// Nothing beside nothing is the same.
fn ratio(without: f64, with: f64) -> f64 {
    if without == with { 1.0 } else { without / with }
}

/// Of a median ratio and of what the same scheduler differs by.
fn verdict(case: Case, measured: Option<(f64, f64)>) -> Verdict {
    let Some((ratio, spread)) = measured else {
        return Unknown;
    };
    // Of times and shares less is better, of rates more.
    let is_rate = !matches!(case.about().unit, Unit::Time | Unit::Share);
    let (more, less) = (ratio > spread, ratio * spread < 1.0);
    match (more, less) {
        (false, false) => Nothing,
        _ if more == is_rate => Costs,
        _ => Buys,
    }
}

impl Column {
    fn cells(&self) -> Vec<String> {
        let spread = self.spread.map(|ratio| format!("{} ", show(ratio)));
        let mut cells = vec![spread.unwrap_or("–".into())];
        cells.extend(self.features.iter().map(|(ratio, verdict)| match ratio {
            Some(ratio) => format!("{}{}", show(*ratio), char::from(*verdict as u8)),
            None => "– ".into(),
        }));
        cells
    }
}

fn show(ratio: f64) -> String {
    if ratio.is_infinite() {
        "∞".into()
    } else if ratio >= 99.95 {
        report::count(ratio.round() as u64)
    } else {
        format!("{ratio:.2}")
    }
}

/// Which features buy nothing, which cost something, and of which too little was measured.
fn conclusions(columns: &[Column], features: &[Feature]) -> Vec<String> {
    let any = |place: usize, verdict: Verdict| {
        let mut all = columns.iter().map(|column| column.features[place].1);
        all.any(|one| one == verdict)
    };
    // A feature that buys something anywhere does so, and what is not known anywhere may.
    let overall = |place: usize| {
        let mut verdicts = [Buys, Unknown, Costs].into_iter();
        verdicts
            .find(|verdict| any(place, *verdict))
            .unwrap_or(Nothing)
    };
    let names = |those: &[Verdict]| {
        let named = features.iter().enumerate();
        let named = named.filter(|(place, _)| those.contains(&overall(*place)));
        let names: Vec<&str> = named.map(|(_, feature)| feature.name.as_str()).collect();
        names.join(", ")
    };
    let (nothing, unknown) = (names(&[Nothing, Costs]), names(&[Unknown]));
    let mut lines = vec![match (&nothing[..], &unknown[..]) {
        ("", "") => "Each buys something on a figure.".into(),
        ("", _) => "None is known to buy nothing on any figure.".into(),
        (names, _) => format!("These buy nothing on any figure: {names}."),
    }];
    let more = [
        ("Of these, some cost something", names(&[Costs])),
        ("Too little was measured of", unknown),
    ];
    let more = more.iter().filter(|(_, names)| !names.is_empty());
    lines.extend(more.map(|(what, names)| format!("{what}: {names}.")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::run;
    use super::*;

    /// Figures of the same scheduler twice, and of the same without two features.
    fn report(case: Case, rounds: &[[f64; 4]]) -> Report {
        let names = [
            "morpheus",
            "scx_morpheus",
            "morpheus --without tiers",
            "morpheus --without steal",
        ];
        let runs = rounds.iter().enumerate().flat_map(|(round, values)| {
            let of = move |(name, value): (&&str, &f64)| run(case, name, round + 1, *value);
            names.iter().zip(values).map(of).collect::<Vec<_>>()
        });
        Report {
            host: None,
            runs: runs.collect(),
        }
    }

    fn verdicts(case: Case, rounds: &[[f64; 4]]) -> [Verdict; 2] {
        let report = report(case, rounds);
        let column = column(&report, 2, case, &features(&report));
        [0, 1].map(|place| column.features[place].1)
    }

    #[test]
    fn what_is_within_the_spread_of_the_same_is_nothing() {
        let rounds = [
            [4.0, 4.0, 8.0, 4.1],
            [4.0, 5.0, 9.0, 4.1],
            [5.0, 4.0, 7.0, 5.4],
        ];
        let report = report(Case::Latency, &rounds);
        assert!(is_one(&report));
        let column = column(&report, 2, Case::Latency, &features(&report));
        assert_eq!(column.spread, Some(1.25));
        assert_eq!(column.features[0], (Some(2.0), Buys));
        assert_eq!(column.features[1].1, Nothing);
        let text = render(&report, 2);
        for words in ["2.00+", "1.25", "buy nothing on any figure: steal."] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn of_rates_more_is_better() {
        let rounds = [[100.0, 102.0, 90.0, 110.0]];
        let expected = [Buys, Costs];
        assert_eq!(verdicts(Case::Messaging, &rounds), expected);
        let [a, b] = expected;
        assert_eq!(verdicts(Case::Ipc, &rounds), [b, a]);
        let text = render(&report(Case::Messaging, &rounds), 2);
        assert!(text.contains("some cost something: steal."), "{text}");
    }

    #[test]
    fn frames_that_are_never_missed_are_as_many_as_none() {
        let none = [[0.0, 0.0, 0.1, 0.0]];
        let expected = [Buys, Nothing];
        assert_eq!(verdicts(Case::Deadline, &none), expected);
        // Where the same scheduler misses some and none, nothing can be said.
        let both = [[0.0, 0.1, 0.2, 0.0]];
        assert_eq!(verdicts(Case::Deadline, &both), [Nothing; 2]);
        assert!(render(&report(Case::Deadline, &both), 2).contains('∞'));
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_buy_nothing() {
        let mut report = report(Case::Latency, &[[4.0, 4.1, 8.0, 4.1]]);
        report.runs[3].failed = Some("thrown out".into());
        report.runs[3].measured = None;
        let text = render(&report, 2);
        assert!(
            text.contains("Too little was measured of: steal."),
            "{text}"
        );
        assert!(!text.contains("buy nothing on any figure: "), "{text}");
    }

    #[test]
    fn what_is_off_by_default_is_measured_the_other_way_round() {
        let mut report = report(Case::Ipc, &[[8.0, 8.0, 4.0, 8.0]]);
        report.runs[2].scheduler = "morpheus --with deficit".into();
        let features = features(&report);
        let column = column(&report, 2, Case::Ipc, &features);
        assert_eq!(column.features[0], (Some(2.0), Buys));
        assert!(render(&report, 2).contains("deficit (off)"));
    }

    #[test]
    fn beside_others_it_is_no_ablation() {
        let mut report = report(Case::Latency, &[[4.0; 4]]);
        report.runs.push(run(Case::Latency, "default", 1, 4.0));
        assert!(!is_one(&report));
        report
            .runs
            .retain(|run| run.scheduler != "default" && run.scheduler != OWN[1]);
        assert!(!is_one(&report));
    }
}
