//! Of any benchmark that prints rows: each contender against another, figure by figure, with all its cases; and where nothing
//! is compared in pairs, the figures themselves.

use serde_json::Value;

use super::{Figure, PERCENTILES, Section, Table, coloured, lines, rows as plot_of, thinned};
use crate::envelope::Course;
use crate::page::claims::{list, plain_number, text, texts};
use crate::page::plot::lines::Across;
use crate::page::plot::rows::Row as Mark;
use crate::rows::text::{held, limits};
use crate::rows::view::{self, find};
use crate::rows::{Bound, P50, Ratio, Row};
use crate::unit::Unit;
use crate::{envelope, histogram};

/// Greater ratios, and those below one over this, would leave the others no room on the axis.
const BEYOND: f64 = 3.0;

pub fn section(object: &Value, bench: &str) -> Section {
    let mut about = envelope::settings(&object["config"]);
    if let Some(commit) = text(object, "commit") {
        about += &format!(", commit {commit}");
    }
    let mut section = Section {
        title: bench.into(),
        about,
        ..Section::default()
    };
    // Values that are no rows are passed over: the file may be of another version.
    let typed = |row: &Value| serde_json::from_value::<Row>(row.clone()).ok();
    let rows: Vec<Row> = list(object, "rows").iter().filter_map(typed).collect();
    let with_ratio: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let figures = view::figures(&with_ratio);
    // The contender, the one that it is compared with, and the figure.
    let kinds = view::grouped(with_ratio, |row| {
        Some([row.contender.as_str(), view::to(row)?, row.figure.as_str()])
    });
    for (of, own) in kinds {
        let slot = figures.iter().position(|figure| *figure == of[2]);
        section
            .figures
            .push(figure(of, slot.unwrap_or(0), &own, &rows, object));
        section.notes.extend(limits(&own));
    }
    section.figures.extend(curves(&rows));
    for (case, own) in view::without_ratio(&rows) {
        let about = what_happens(object, case).unwrap_or_default();
        let figure = in_turns(case, about, &view::measured(&own));
        section.figures.push(figure);
        section.notes.extend(own.iter().filter_map(|row| held(row)));
    }
    section.figures.extend(courses(object));
    section.notes.extend(texts(object, "notes"));
    let failed = texts(object, "failed").into_iter();
    section
        .notes
        .extend(failed.map(|why| format!("Not measured to its end: {why}")));
    section
}

/// The percentile curves of all contenders of a case, for each latency.
fn curves(rows: &[Row]) -> Vec<Figure> {
    let with_curve = rows.iter().filter(|row| row.curve.len() > 1);
    let latencies = view::grouped(with_curve, |row| {
        Some((&row.case, row.figure.strip_suffix(P50)?))
    });
    let figure = |((case, latency), own): ((&String, &str), Vec<&Row>)| {
        let own = own.iter();
        let curves = own.map(|row| (row.contender.clone(), points(&row.curve)));
        Figure {
            title: format!("{case}: {latency}"),
            caption: format!("Percentiles. {PERCENTILES}"),
            plot: lines(Across::Percentiles, Unit::Time, curves.collect()),
            table: Table::default(),
        }
    };
    latencies.into_iter().map(figure).collect()
}

/// Points of a percentile curve that may have been measured.
pub(super) fn points(curve: &[histogram::Point]) -> Vec<(f64, f64)> {
    let is_share = |share: f64| (0.0..1.0).contains(&share);
    let sane = curve.iter().filter(|point| is_share(point.0));
    sane.map(|point| (point.0, (point.1 as f64).max(1.0)))
        .collect()
}

/// How figures went over time, a line for each contender.
fn courses(object: &Value) -> Vec<Figure> {
    let typed = |course: &Value| serde_json::from_value::<Course>(course.clone()).ok();
    let all: Vec<Course> = list(object, "courses").iter().filter_map(typed).collect();
    let line = |course: &&Course| {
        let points = course.points.iter().copied();
        let sane = points.filter(|(at, y)| is_sane(*at) && is_sane(*y));
        (course.contender.clone(), thinned(sane.collect()))
    };
    let figure = |(title, own): (&String, Vec<&Course>)| {
        let plot = lines(Across::Time, own[0].unit, own.iter().map(line).collect())?;
        Some(Figure {
            title: title.into(),
            caption: "All runs of each, one after another.".into(),
            plot: Some(plot),
            table: Table::default(),
        })
    };
    let titles = view::grouped(&all, |course| Some(&course.title));
    titles.into_iter().filter_map(figure).collect()
}

/// The description of a case.
fn what_happens(object: &Value, case: &str) -> Option<String> {
    let mut cases = list(object, "cases").iter();
    let case = cases.find(|one| text(one, "name").as_deref() == Some(case))?;
    text(case, "about")
}

/// Contenders that were measured in turns: the first figure as a plot, all of them as a table, and of
/// one figure alone how its rounds lie.
fn in_turns(case: &str, about: String, own: &[&Row]) -> Figure {
    let figures = view::figures(own);
    let mut table = Table::new(&["contender"]);
    let with_spread = view::has_room(own);
    let spread_heads = view::SPREAD.into_iter().filter(|_| with_spread);
    let heads = figures.iter().copied().chain(spread_heads);
    table.heads.extend(heads.map(str::to_owned));
    let find = |contender: &str, figure: &str| sane(own.iter().copied(), case, contender, figure);
    let mut marks = Vec::new();
    for contender in view::contenders(own) {
        let shown = figures.iter().map(|figure| median(find(contender, figure)));
        let first = figures.first().and_then(|figure| find(contender, figure));
        let spread = first.filter(|_| with_spread).map(view::spread);
        let cells = shown.chain(spread.into_iter().flatten());
        table.rows.push(view::line(contender, cells));
        marks.push(Mark {
            label: contender.into(),
            value: first.and_then(|row| row.median),
            bound: first.map_or(Bound::EXACT, |row| row.bound),
            interval: first.and_then(|row| row.low.zip(row.high)),
            ..Mark::default()
        });
    }
    let unit = own.first().map_or(Unit::Count, |row| row.unit);
    let figure = figures.first().copied().unwrap_or_default();
    Figure {
        title: format!("{case}: {figure}"),
        caption: format!(
            "Medians with 95 % intervals, from six rounds on{}{about}.",
            if about.is_empty() { "" } else { "; " }
        ),
        plot: plot_of(unit, None, vec![(String::new(), coloured(marks))]),
        table,
    }
}

fn figure(
    [contender, other, name]: [&str; 3],
    slot: usize,
    own: &[&Row],
    rows: &[Row],
    object: &Value,
) -> Figure {
    let heads = [
        "case",
        "what happens",
        other,
        "ratio",
        "95 % interval",
        "A/A",
        "says",
        "limit",
    ];
    let mut table = Table::new(&heads);
    let mut marks = Vec::new();
    for row in own {
        let Some(ratio) = &row.ratio else {
            continue;
        };
        let Some(times) = ratio.median.filter(|times| is_sane(*times)) else {
            continue;
        };
        let interval = ratio.low.zip(ratio.high);
        let interval = interval.filter(|(low, high)| is_sane(*low) && is_sane(*high));
        table.rows.push(vec![
            row.case.clone(),
            what_happens(object, &row.case).unwrap_or_else(|| "–".into()),
            median(sane(rows, &row.case, other, name)),
            Unit::Factor.show(times),
            interval.map_or("n too small".into(), |ends| Unit::Factor.range(ends)),
            row.noise().map_or("–".into(), |noise| {
                format!("± {}", Unit::Share.show(noise))
            }),
            ratio.says().into(),
            limit(ratio),
        ]);
        let fits = |ratio: f64| (1.0 / BEYOND..=BEYOND).contains(&ratio);
        marks.push(Mark {
            label: row.case.clone(),
            slot,
            value: fits(times).then_some(times),
            interval: interval.filter(|(low, high)| fits(*low) && fits(*high)),
            noise: row.noise().filter(|noise| is_sane(*noise)).map(|noise| {
                let lowest = (1.0 - noise).max(1.0 / BEYOND);
                (lowest, (1.0 + noise).min(BEYOND))
            }),
            instead: Unit::Factor.show(times),
            ..Mark::default()
        });
    }
    let reference = Some((1.0, other.to_owned()));
    let band = match marks.iter().any(|mark| mark.noise.is_some()) {
        true => {
            format!(" The grey band is {other} against itself: a ratio within it says nothing.")
        }
        false => String::new(),
    };
    Figure {
        title: format!("{contender} against {other}: {name}"),
        caption: format!(
            "Medians of pairs with 95 % intervals.{band} A ratio beyond {BEYOND} or below a third stands as a number alone."
        ),
        plot: plot_of(Unit::Factor, reference, vec![(String::new(), marks)]),
        table,
    }
}

/// Whether it may have been measured.
fn is_sane(number: f64) -> bool {
    plain_number(&number.into()).is_some()
}

/// The row of a case, a contender and a figure, if its median may have been measured.
fn sane<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    case: &str,
    contender: &str,
    figure: &str,
) -> Option<&'a Row> {
    find(rows, case, contender, figure).filter(|row| row.median.is_some_and(is_sane))
}

fn median(row: Option<&Row>) -> String {
    row.map_or("–".into(), |row| view::median(Some(row)))
}

fn limit(ratio: &Ratio) -> String {
    match (ratio.limit, ratio.judged) {
        (Some(limit), Some(judged)) => format!("{limit}: {judged}"),
        _ => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::plot::Plot;
    use crate::pairs::Limit;
    use crate::rows::tests::rows;
    use serde_json::json;

    #[test]
    fn each_ratio_has_a_row_and_a_plot_has_those_that_fit() {
        let limit = Some(Limit::AtLeast(0.97));
        let mut all = rows("spawn", 12, 400.0, limit);
        all.extend(rows("yield_many", 12, 1.1, limit));
        let mut object = json!({
            "bench": "compare", "config": { "workers": 2 }, "rows": all,
            "cases": [{ "name": "spawn", "about": "task" }], "failed": ["sleep: stands still"],
        });
        object["rows"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "case": 3 }));
        let section = section(&object, "compare");
        let [rate] = &section.figures[..] else {
            panic!("{section:?}");
        };
        assert_eq!(rate.title, "morpheus against tokio: rate");
        assert_eq!(
            rate.table.rows[0][..4],
            ["spawn", "task", "1,001", "400×"].map(str::to_owned)
        );
        let Some(Plot::Rows(plot)) = &rate.plot else {
            panic!("{rate:?}");
        };
        let values: Vec<_> = plot.groups[0].1.iter().map(|row| row.value).collect();
        assert_eq!(values[0], None);
        assert!((values[1].unwrap() - 1.1).abs() < 0.01);
        let (low, high) = plot.groups[0].1[1].noise.unwrap();
        assert!(low < 1.0 && high > 1.0 && high < 1.1, "{low} to {high}");
        assert_eq!(
            rate.table.rows[1][6..],
            ["more", "at least 0.970: met"].map(str::to_owned)
        );
        assert_eq!(section.notes.len(), 2, "{:?}", section.notes);
        assert_eq!(section.about, "workers 2");
    }

    #[test]
    fn courses_with_one_title_are_lines_of_one_picture_and_absurd_points_are_left_out() {
        let course = |contender: &str, points: &[(f64, f64)]| json!({ "title": "frequency", "contender": contender, "unit": "frequency", "points": points });
        let all = [
            course("performance", &[(0.0, 3e6), (1e9, 3e6)]),
            course(
                "schedutil",
                &[(0.0, 6e5), (1e300, 6e5), (1e9, -1e300), (2e9, 8e5)],
            ),
            course("powersave", &[(0.0, 1e300), (0.0, 6e5)]),
            json!({ "title": 3 }),
        ];
        let section = section(&json!({ "courses": all }), "governor");
        let [
            Figure {
                title,
                plot: Some(Plot::Lines(plot)),
                ..
            },
        ] = &section.figures[..]
        else {
            panic!("{section:?}");
        };
        let lines = plot.lines.iter();
        let lines: Vec<_> = lines
            .map(|line| (&*line.label, line.points.len()))
            .collect();
        assert_eq!(
            (&**title, &lines[..]),
            ("frequency", &[("performance", 2), ("schedutil", 2)][..])
        );
    }

    #[test]
    fn what_was_measured_in_turns_has_its_first_figure_drawn() {
        let row = |contender: &str, figure: &str, bytes: f64| {
            Row::new("idle", contender, figure, Unit::Bytes, vec![bytes; 6])
        };
        let mut least = row("tokio+32", "resident", 2_048.0);
        least.bound = Bound::AT_LEAST;
        let rows = [
            row("tokio", "resident", 2_048.0),
            row("tokio", "heap", 1_024.0),
            row("morpheus", "resident", 1e300).held(Limit::AtMost(4_096.0)),
            least,
        ];
        let section = section(&json!({ "bench": "footprint", "rows": rows }), "footprint");
        let [idle] = &section.figures[..] else {
            panic!("{section:?}");
        };
        assert_eq!(idle.title, "idle: resident");
        let expected = [
            ["tokio", "2.00 KiB", "1.00 KiB"],
            ["morpheus", "–", "–"],
            ["tokio+32", "≥ 2.00 KiB", "–"],
        ];
        assert_eq!(
            idle.table.rows,
            expected.map(|row| row.map(str::to_owned).to_vec())
        );
        assert!(
            section.notes[0].contains("at most 4.00 KiB: missed"),
            "{:?}",
            section.notes
        );
        let drawn = idle.plot.as_ref().unwrap().draw();
        assert!(format!("{drawn:?}").contains("\"≥ 2.00 KiB\""), "{drawn:?}");
    }

    #[test]
    fn one_figure_alone_has_its_spread_beside_it() {
        let row = Row::new("a switch", "alone", "time", Unit::Time, vec![20.0; 6]);
        let section = section(&json!({ "rows": [row] }), "overhead");
        let table = &section.figures[0].table;
        assert_eq!(table.heads.len(), 7);
        assert_eq!(table.rows[0][1..3], ["20.0 ns", "20.0 ns to 20.0 ns"]);
    }
}
