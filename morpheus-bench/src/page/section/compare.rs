//! `compare --json`: Morpheus beside tokio, case by case.

use serde_json::Value;

use super::{Figure, Row, Section, Table, median as interval_of, rows, with_interval};
use crate::histogram::median;
use crate::page::claims::{at, count, list, number, numbers, text};
use crate::page::plot::Plot;
use crate::page::plot::rows::Axis;
use crate::page::plot::unit::Unit;
use crate::pairs::{Pairs, Verdict};
use crate::stats::Median;

/// Greater ratios, and those below one over this, would leave the others no room on the axis.
const BEYOND: f64 = 3.0;

/// A figure of a case, and how to call it.
struct Kind {
    /// In the file.
    name: &'static str,
    /// Of the plot.
    title: &'static str,
    /// Which way is good.
    caption: &'static str,
    /// What it is on the runtime that is compared with.
    there: &'static str,
    unit: Unit,
    /// The place in the palette.
    slot: usize,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "rate",
        title: "operations a second",
        caption: "More is better.",
        there: "rate_per_s",
        unit: Unit::Count,
        slot: 0,
    },
    Kind {
        name: "cpu",
        title: "CPU time of an operation",
        caption: "Less is better. Of all threads of the runtime; beside busy tasks it is mostly theirs.",
        there: "cpu_ns",
        unit: Unit::Time,
        slot: 1,
    },
    Kind {
        name: "p99",
        title: "p99 of a round trip",
        caption: "Less is better. The next round trip of a connection begins when the one before has ended.",
        there: "p99_ns",
        unit: Unit::Time,
        slot: 2,
    },
];

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(super::counted(object, "workers", "worker"));
    about.extend(super::counted(object, "pairs", "pair"));
    about.extend(number(object, "window_ms").map(|ms| format!("{ms} ms a measurement")));
    let mut section = Section {
        title: "compare".into(),
        about: about.join(", "),
        ..Section::default()
    };
    let cases = list(object, "cases");
    for (runtime, against) in compared(cases) {
        for kind in &KINDS {
            let own = of(cases, &runtime, &against);
            section
                .figures
                .extend(figure(kind, &runtime, &against, &own));
        }
    }
    section
        .notes
        .extend(list(object, "means").iter().filter_map(mean));
    let failed = |case: &Value| {
        let (case, why) = (text(case, "case")?, text(case, "failed")?);
        Some(format!("{case} was not measured to its end: {why}"))
    };
    section.notes.extend(cases.iter().filter_map(failed));
    section
}

/// What is compared with what, in the order of the file.
fn compared(cases: &[Value]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for case in cases {
        for one in list(case, "compared") {
            let both = text(one, "runtime").zip(text(case, "against"));
            all.extend(both.filter(|both| !all.contains(both)));
        }
    }
    all
}

/// The cases of one runtime beside another, and what they say of it.
fn of<'a>(cases: &'a [Value], runtime: &str, against: &str) -> Vec<(&'a Value, &'a Value)> {
    let is = |value: &Value, path: &str, name: &str| text(value, path).as_deref() == Some(name);
    cases
        .iter()
        .filter(|case| is(case, "against", against))
        .filter_map(|case| {
            let mut all = list(case, "compared").iter();
            Some((case, all.find(|one| is(one, "runtime", runtime))?))
        })
        .collect()
}

fn figure(kind: &Kind, runtime: &str, against: &str, cases: &[(&Value, &Value)]) -> Option<Figure> {
    let mut table = Table::new(&["case", "operation"]);
    table.heads.push(against.to_owned());
    table
        .heads
        .extend(["ratio", "95 % interval", "A/A", "says"].map(str::to_owned));
    let mut bars = Vec::new();
    for (case, one) in cases {
        let Some(name) = text(case, "case") else {
            continue;
        };
        let pairs = Pairs {
            differences: numbers(one, &format!("{}.pairs.differences", kind.name)),
            control: numbers(one, &format!("{}.pairs.control", kind.name)),
        };
        let Some(difference) = median(pairs.differences.clone()) else {
            continue;
        };
        let ratio = 1.0 + difference;
        let interval = Median::of(&pairs.differences).map(|m| (1.0 + m.low, 1.0 + m.high));
        let or = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let (noise, says) = match pairs.verdict() {
            Verdict::TooFew { .. } => ("–".into(), "n too small"),
            Verdict::InsideNoise { noise, .. } => (plus_minus(noise), "no difference"),
            Verdict::Differs { difference, noise } if difference.median > 0.0 => {
                (plus_minus(noise), "more")
            }
            Verdict::Differs { noise, .. } => (plus_minus(noise), "less"),
        };
        table.rows.push(vec![
            name.clone(),
            or(text(case, "operation")),
            or(number(case, kind.there).map(|there| kind.unit.show(there))),
            Unit::Factor.show(ratio),
            interval.map_or("n too small".into(), |(low, high)| {
                format!("{} to {}", Unit::Factor.show(low), Unit::Factor.show(high))
            }),
            noise,
            says.into(),
        ]);
        let fits = |ratio: f64| (1.0 / BEYOND..=BEYOND).contains(&ratio);
        let shown = interval.filter(|(low, high)| fits(*low) && fits(*high));
        bars.push(Row {
            label: name,
            slot: kind.slot,
            value: fits(ratio).then_some(ratio),
            interval: shown,
            instead: Unit::Factor.show(ratio),
            ..Row::default()
        });
    }
    if table.rows.is_empty() {
        return None;
    }
    let mut plot = rows(Unit::Factor, vec![(String::new(), bars)]);
    if let Some(Plot::Rows(rows)) = &mut plot {
        rows.axis = Axis::Around;
        rows.reference = Some((1.0, against.to_owned()));
    }
    Some(Figure {
        title: format!("{runtime} against {against}: {}", kind.title),
        caption: format!(
            "{} Medians of pairs with 95 % intervals; a ratio beyond {BEYOND} or below a third stands as a number alone.",
            kind.caption
        ),
        plot,
        table,
    })
}

fn plus_minus(noise: f64) -> String {
    format!("± {}", Unit::Share.show(noise))
}

/// A geometric mean, in a sentence.
fn mean(mean: &Value) -> Option<String> {
    let (runtime, against) = (text(mean, "runtime")?, text(mean, "against")?);
    let shown = |path| Some(with_interval(Unit::Factor, interval_of(at(mean, path)?)?));
    let met = text(mean, "judged")?;
    Some(format!(
        "{runtime} against {against}, geometric mean of {} cases without those beside busy tasks: operations a second {}, CPU \
         time {}. Bar of the rate, {}: {met}.",
        count(mean, "cases")?,
        shown("rate")?,
        shown("cpu").unwrap_or_else(|| "–".into()),
        number(mean, "bar")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(rate: f64) -> Value {
        let pairs = |of: f64| json!({ "pairs": { "differences": vec![of - 1.0; 12], "control": vec![0.01; 12] } });
        let case = |name: &str, rate: f64| {
            json!({
                "case": name, "operation": "task", "against": "tokio", "rate_per_s": 5e5, "cpu_ns": 800.0,
                "compared": [{ "runtime": "morpheus", "rate": pairs(rate), "cpu": pairs(0.98), "p99": null }],
            })
        };
        let median = json!({ "median": 1.002, "low": 0.99, "high": 1.01 });
        json!({
            "bench": "compare", "workers": 2, "pairs": 12,
            "cases": [case("spawn", rate), case("yield_many", 1.1)],
            "means": [{ "runtime": "morpheus", "against": "tokio", "cases": 2, "rate": median, "cpu": median, "bar": 0.99, "judged": "met" }],
        })
    }

    #[test]
    fn each_ratio_has_a_row_and_a_plot_has_those_that_fit() {
        let section = section(&object(400.0));
        assert_eq!(section.figures.len(), 2, "there is no p99");
        let rate = &section.figures[0];
        assert_eq!(rate.table.rows.len(), 2);
        assert_eq!(rate.table.rows[0][3], "400×");
        let Some(Plot::Rows(plot)) = &rate.plot else {
            panic!("{rate:?}");
        };
        let values: Vec<_> = plot.groups[0].1.iter().map(|row| row.value).collect();
        assert_eq!(values[0], None);
        assert!((values[1].unwrap() - 1.1).abs() < 1e-9);
        assert!(section.notes[0].contains("1.0020×"), "{:?}", section.notes);
        assert_eq!(rate.table.rows[1][5..], [plus_minus(0.01), "more".into()]);
    }
}
