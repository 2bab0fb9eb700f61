//! The effect of each feature of Morpheus's scheduler: its figure without it (with it, where it is off by default) beside the
//! scheduler as it is, measured in one boot, and beside what the scheduler, measured twice there, differs by.

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Pairs;
use morpheus_harness::rows::view::distinct;
use morpheus_harness::rows::{Figure, Finding, Part, Ratio, Row};
use serde::Serialize;

use super::case::Case;
use super::contender::OWN;
use super::features::Feature;
use super::result::{Measured, Report, Run};
use super::rows;
use super::trials;

/// The name of the scheduler with all of its features as they are by default.
const AS_IT_IS: &str = "as it is";

const NOTE: &str = "\
Figures of the scheduler as it is, and times as much with a feature switched the other way: medians over boots, the 95 % interval of \
the median, and how far from 1 the scheduler as it is may lie from itself. A feature wins where it is better with it by more than that.";

/// How it was measured, for people.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    boots: usize,
}

/// Whether these are records of an ablation: the scheduler twice, the scheduler without features, and no other scheduler.
pub fn is_one(report: &Report) -> bool {
    let names = report.schedulers();
    let twice = OWN.iter().all(|own| names.iter().any(|name| name == own));
    let known = |name: &String| OWN.contains(&name.as_str()) || Feature::of(name).is_some();
    twice && names.iter().all(known)
}

/// Everything: the rows of each feature under each of its loads, those that it was made for first.
pub fn envelope(report: &Report) -> Envelope<Asked> {
    let boots = distinct(report.runs.iter().map(|run| run.iteration)).len();
    let mut found = Envelope::new("scale", Asked { boots });
    found.host = report.host.clone();
    let mut compared = Vec::new();
    for cpus in report.cpus() {
        let loads = report.cases().into_iter();
        for case in loads.filter(|case| report.of(cpus, *case, OWN[0]).next().is_some()) {
            let name = report.name(case, cpus);
            found.begin(&name, case.about().what);
            for figure in figures(case) {
                let there = values(report, cpus, case, OWN[0], &figure);
                let there = there.into_iter().map(|(_, value)| value).collect();
                found
                    .rows
                    .push(Row::new(&name, AS_IT_IS, figure.name, figure.unit, there));
            }
            for feature in features(report) {
                let of = |figure| compare(report, cpus, case, &feature, &figure);
                compared.extend(figures(case).into_iter().filter_map(of));
            }
        }
    }
    // By their features, and of one in the order of its loads.
    let features = features(report);
    let place = |(feature, case, _): &(Feature, Case, Row)| {
        let own = trials::made_for(&feature.name);
        let load = own.iter().position(|own| own == case);
        let feature = features.iter().position(|other| other == feature);
        (feature, load.unwrap_or(own.len()), *case)
    };
    compared.sort_by_key(place);
    found.notes = vec![NOTE.to_owned()];
    found.notes.extend(conclusions(&compared));
    found.notes.extend(rows::failures(report));
    found.rows.extend(compared.into_iter().map(|(.., row)| row));
    found
}

fn features(report: &Report) -> Vec<Feature> {
    let names = report.schedulers();
    names.iter().filter_map(|name| Feature::of(name)).collect()
}

/// The figures of a case: that by which schedulers are compared, and the median of wakes and of round trips.
fn figures(case: Case) -> Vec<Figure<Measured>> {
    let about = case.about();
    let mut figures = vec![Figure::new(about.figure, about.unit, |found: &Measured| {
        found.value
    })];
    let half = match about.figure {
        "wake p99" => Some("wake p50"),
        "round trip p99" => Some("round trip p50"),
        _ => None,
    };
    figures.extend(half.map(|name| {
        Figure::latency(name, Part::P50, |found: &Measured| {
            found.latency_ns.as_ref()
        })
    }));
    figures
}

/// A figure in each boot that has it, also of a run that broke its case's rule, which may be what the feature is for.
fn values(
    report: &Report,
    cpus: usize,
    case: Case,
    scheduler: &str,
    figure: &Figure<Measured>,
) -> Vec<(usize, f64)> {
    let runs = report.of(cpus, case, scheduler);
    let value = |run: &Run| Some((run.iteration, figure.value(run.measured.as_ref()?)?));
    runs.filter_map(value).collect()
}

/// The row of a figure of a feature under a load; `None` where it was not measured there.
fn compare(
    report: &Report,
    cpus: usize,
    case: Case,
    feature: &Feature,
    figure: &Figure<Measured>,
) -> Option<(Feature, Case, Row)> {
    let [there, again, switched] = [OWN[0], OWN[1], &feature.scheduler()]
        .map(|scheduler| values(report, cpus, case, scheduler, figure));
    if switched.is_empty() {
        return None;
    }
    let of = |all: &[(usize, f64)], boot: usize| {
        let found = all.iter().find(|(own, _)| *own == boot);
        found.map(|(_, value)| *value)
    };
    let mut pairs = Pairs::default();
    for (boot, value) in &switched {
        if let Some((there, again)) = of(&there, *boot).zip(of(&again, *boot)) {
            pairs.push(there, *value, again);
        }
    }
    let option = if feature.is_on { "without" } else { "with" };
    let contender = format!("{option} {}", feature.name);
    let each = switched.into_iter().map(|(_, value)| value).collect();
    let name = report.name(case, cpus);
    let mut row = Row::new(&name, &contender, figure.name, figure.unit, each);
    let ratio = Ratio::new(AS_IT_IS, pairs, None);
    // More of it, switched the other way, is better with the feature as it is, or worse.
    let more_is_win = case.more_is_better() != feature.is_on;
    row.finding = Some(Finding::of(&ratio.verdict, more_is_win));
    row.ratio = Some(ratio);
    Some((feature.clone(), case, row))
}

/// Which features win, which do not under any load, and which cost something.
fn conclusions(compared: &[(Feature, Case, Row)]) -> Vec<String> {
    let features = distinct(compared.iter().map(|(feature, ..)| feature.name.as_str()));
    let under = |name: &str, finding: Finding| -> Vec<&str> {
        let own = compared.iter().filter(|(feature, ..)| feature.name == name);
        own.filter(|(.., row)| row.finding == Some(finding))
            .map(|(.., row)| row.case.as_str())
            .collect()
    };
    let wins = |name: &&str| !under(name, Finding::Wins).is_empty();
    let (wins, others): (Vec<&str>, Vec<&str>) = features.iter().copied().partition(wins);
    let mut lines = vec![format!(
        "{} of {} features win under a load: {}.",
        wins.len(),
        features.len(),
        list(&wins)
    )];
    if !others.is_empty() {
        lines.push(format!("Under no load here: {}.", list(&others)));
    }
    for name in features {
        let costs = under(name, Finding::Costs);
        if !costs.is_empty() {
            lines.push(format!("{name} costs under {}.", list(&costs)));
        }
    }
    lines
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "none".into(),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::run;
    use super::*;

    /// Figures in ten boots of the scheduler twice, and of the same without `steal` and with `adapt`.
    fn report(case: Case, factors: [f64; 3]) -> Report {
        let names = [
            "morpheus",
            "scx_morpheus",
            "morpheus --without steal",
            "morpheus --with adapt",
        ];
        let runs = (1..=10).flat_map(|boot| {
            let base = 100.0 + boot as f64;
            let of = move |(place, name): (usize, &&str)| {
                let factor = if place == 0 { 1.0 } else { factors[place - 1] };
                run(case, name, boot, base * factor)
            };
            names.iter().enumerate().map(of).collect::<Vec<_>>()
        });
        Report {
            host: None,
            runs: runs.collect(),
        }
    }

    fn findings(case: Case, factors: [f64; 3]) -> Vec<Option<Finding>> {
        let found = envelope(&report(case, factors));
        let rows = found.rows.into_iter().filter(|row| row.ratio.is_some());
        rows.map(|row| row.finding).collect()
    }

    #[test]
    fn without_it_worse_is_a_win_and_with_it_worse_is_a_cost() {
        let of = |one, other| vec![Some(one), Some(other)];
        let time = [1.02, 1.5, 1.5];
        assert_eq!(
            findings(Case::Latency, time),
            of(Finding::Wins, Finding::Costs)
        );
        let rate = [1.02, 0.5, 1.5];
        assert_eq!(
            findings(Case::Messaging, rate),
            of(Finding::Wins, Finding::Wins)
        );
        assert_eq!(
            findings(Case::Messaging, time),
            of(Finding::Costs, Finding::Wins)
        );
    }

    #[test]
    fn within_what_the_same_differs_by_is_no_difference() {
        let found = findings(Case::Latency, [1.3, 1.2, 0.8]);
        assert_eq!(found, vec![Some(Finding::NoDifference); 2]);
    }

    #[test]
    fn the_table_says_what_wins_and_few_boots_say_nothing() {
        let text = envelope(&report(Case::Messaging, [1.01, 0.5, 1.0])).text();
        for words in [
            "without steal",
            "0.500",
            "wins",
            "1 of 2 features win under a load: steal.",
            "no load here: adapt.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let mut few = report(Case::Messaging, [1.01, 0.5, 1.0]);
        few.runs.retain(|run| run.iteration < 8);
        let text = envelope(&few).text();
        assert!(
            text.contains("n too small") && text.contains("0 of 2"),
            "{text}"
        );
    }

    #[test]
    fn a_boot_without_the_scheduler_as_it_is_makes_no_pair() {
        let mut report = report(Case::Messaging, [1.0, 0.5, 1.0]);
        let is_lost = |run: &Run| run.iteration == 3 && run.scheduler == OWN[1];
        report.runs.retain(|run| !is_lost(run));
        let row = compare(
            &report,
            2,
            Case::Messaging,
            &features(&report)[0],
            &figures(Case::Messaging)[0],
        );
        let row = row.unwrap().2;
        assert_eq!((row.n, row.ratio.unwrap().pairs.differences.len()), (10, 9));
    }

    #[test]
    fn beside_others_it_is_no_ablation() {
        let mut report = report(Case::Latency, [1.0; 3]);
        assert!(is_one(&report));
        report.runs.push(run(Case::Latency, "default", 1, 4.0));
        assert!(!is_one(&report));
        report
            .runs
            .retain(|run| run.scheduler != "default" && run.scheduler != OWN[1]);
        assert!(!is_one(&report));
    }
}
