//! Rows for people: tables that fit a terminal, and what met its limit and what did not.
//!
//! Cases in which contenders are compared show their ratios, the others the figures themselves.

use super::view::{self, find, noise};
use super::{Ratio, Row};
use crate::pairs::{Bar, Limit};
use crate::report::{Table, WIDTH, wrap};

/// The ratios in these rows, as tables: a contender at a time with all its figures, or all contenders side by side where
/// there is but one figure. Beneath each table stands which limits are kept.
///
/// The findings on features: a line for each of them under each load.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let found = view::findings(rows);
    if !found.is_empty() {
        return format!("\n{}", findings(&found));
    }
    for (case, own) in view::without_ratio(rows) {
        text += &format!("\n{case}, medians\n");
        text += &in_turns(case, &view::measured(&own));
        text += &lines(own.iter().filter_map(|row| held(row)));
    }
    for (to, own) in view::with_ratio(rows) {
        let contenders = view::by_contender(&own);
        if let ([figure], 2..) = (&view::figures(&own)[..], contenders.len()) {
            text += &format!("\n{figure} against {to}\n");
            text += &side_by_side(rows, &own, to, figure);
            text += &lines(limits(&own));
            continue;
        }
        for (contender, own) in contenders {
            text +=
                &format!("\n{contender} against {to}, whose own figures stand before the ratios\n");
            for (cases, figures) in view::tables(&own) {
                text += &of_one(rows, &own, to, &cases, &figures);
            }
            text += &lines(limits(&own));
        }
    }
    text
}

fn lines(sentences: impl IntoIterator<Item = String>) -> String {
    let wrapped = sentences.into_iter().map(|line| wrap(&line, WIDTH) + "\n");
    wrapped.collect()
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Where the interval of the first figure stands among the others when some have to go.
const INTERVAL: u8 = 6;

/// The figures of contenders that were measured in turns, and the interval of the first; of one figure alone how its rounds lie.
/// Where the table is too wide, the last columns go.
fn in_turns(case: &str, own: &[&Row]) -> String {
    let contenders = view::contenders(own);
    let mut table = Table::default();
    table.column("", 0, named(&contenders));
    let figures = view::figures(own);
    let cells = |figure: &str, cell: fn(Option<&Row>) -> String| -> Vec<String> {
        let row = |contender: &&str| find(own.iter().copied(), case, contender, figure);
        contenders
            .iter()
            .map(|contender| cell(row(contender)))
            .collect()
    };
    for (figure, place) in figures.iter().zip(0..) {
        table.column(figure, place, cells(figure, view::median));
    }
    if view::has_room(own) {
        let spreads: Vec<[String; 5]> = own.iter().map(|row| view::spread(row)).collect();
        for (column, head) in view::SPREAD.into_iter().enumerate() {
            let cells = spreads.iter().map(|spread| spread[column].clone());
            table.column(head, 1, cells.collect());
        }
    } else if own.iter().any(|row| row.low.is_some()) {
        let head = format!("95 % of {}", figures[0]);
        table.column(&head, INTERVAL, cells(figures[0], view::interval));
    }
    table.render(WIDTH)
}

/// Whether a figure keeps to its limit, in a sentence.
pub fn held(row: &Row) -> Option<String> {
    let (limit, judged) = (row.limit?.show(row.unit), row.judged?);
    let mut figure = match row.median {
        Some(_) => view::median(Some(row)),
        None => "not measured".into(),
    };
    let interval = view::interval(Some(row));
    if !interval.is_empty() {
        figure += &format!(" ({interval})");
    }
    Some(format!(
        "{}, {} {limit}: {judged}, {figure}.",
        row.contender, row.figure
    ))
}

/// These lines of [`view::findings`].
fn findings(found: &[[String; 6]]) -> String {
    let mut table = Table::default();
    for (place, head) in view::FINDINGS.into_iter().enumerate() {
        let cells = found.iter().map(|line| line[place].clone());
        // The figure itself is the first that a narrow page does without.
        table.column(head, u8::from(place == 2), cells.collect());
    }
    table.render(WIDTH)
}

/// A column with a cell for each case in which a contender has this figure.
fn column(
    own: &[&Row],
    cases: &[&str],
    contender: &str,
    figure: &str,
    cell: impl Fn(&Row, &Ratio) -> String,
) -> Vec<String> {
    let cell = |case: &&str| {
        let row = find(own.iter().copied(), case, contender, figure)?;
        Some(cell(row, row.ratio.as_ref()?))
    };
    let cells = cases.iter().map(|case| cell(case).unwrap_or_default());
    cells.collect()
}

/// The same figure of the contender that others are compared with.
fn column_there(rows: &[Row], cases: &[&str], to: &str, figure: &str) -> Vec<String> {
    let cells = cases.iter().map(|case| view::there(rows, case, to, figure));
    cells.collect()
}

/// Some figures of one contender, whose rows are `own`.
fn of_one(rows: &[Row], own: &[&Row], to: &str, cases: &[&str], figures: &[&str]) -> String {
    let mut table = Table::default();
    table.column("case", 0, named(cases));
    for figure in figures {
        let column = |cell: &dyn Fn(&Row, &Ratio) -> String| {
            column(own, cases, &own[0].contender, figure, cell)
        };
        table.column(figure, 1, column_there(rows, cases, to, figure));
        table.column("ratio", 0, column(&|_, ratio| shown(ratio)));
        table.column("", 0, column(&|_, ratio| ratio.says().into()));
        table.column("A/A", 2, column(&|row, _| noise(row)));
    }
    table.render(WIDTH)
}

/// One figure of all contenders.
fn side_by_side(rows: &[Row], own: &[&Row], to: &str, figure: &str) -> String {
    let (cases, contenders) = (view::cases(own), view::contenders(own));
    let mut table = Table::default();
    table.column("case", 0, named(&cases));
    table.column(to, 1, column_there(rows, &cases, to, figure));
    for contender in &contenders {
        let ratios = column(own, &cases, contender, figure, |_, ratio| median(ratio));
        table.column(contender, 0, ratios);
    }
    let noise = column(own, &cases, contenders[0], figure, |row, _| noise(row));
    table.column("A/A", 0, noise);
    table.render(WIDTH)
}

fn median(ratio: &Ratio) -> String {
    view::ratio(ratio).unwrap_or_else(|| "–".into())
}

/// A ratio with its interval, to as many digits as that is narrow.
fn shown(ratio: &Ratio) -> String {
    match (ratio.median, ratio.low.zip(ratio.high)) {
        (Some(median), Some((low, high))) => {
            let digits = if high - low < 0.05 { 3 } else { 2 };
            format!("{median:.digits$} {low:.digits$}–{high:.digits$}")
        }
        _ => median(ratio),
    }
}

/// How many rows keep to each limit, and which do not, in a sentence for each.
pub fn limits<'a>(rows: &[&'a Row]) -> Vec<String> {
    let group = |row: &'a Row| -> Option<(&'a str, &'a str, Limit)> {
        let limit = row.ratio.as_ref()?.limit?;
        Some((&row.contender, &row.figure, limit))
    };
    let line = |((contender, figure, limit), own): ((&str, &str, Limit), Vec<&Row>)| {
        let with = |judged: Bar| -> Vec<&str> {
            let is = |row: &&&Row| {
                let ratio = row.ratio.as_ref();
                ratio.is_some_and(|ratio| ratio.judged == Some(judged))
            };
            own.iter().filter(is).map(|row| row.case.as_str()).collect()
        };
        let (met, all) = (with(Bar::Met).len(), own.len());
        let mut line =
            format!("{contender}, {figure} {limit} times as much: met by {met} of {all}");
        for judged in [Bar::Missed, Bar::Undecided] {
            let names = with(judged);
            if !names.is_empty() {
                line += &format!("; {judged}: {}", names.join(", "));
            }
        }
        line + "."
    };
    let groups = view::grouped(rows.iter().copied(), group);
    groups.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::means;
    use super::super::tests::rows;
    use super::*;
    use crate::unit::Unit;

    fn assert_has(text: &str, expected: &[&str]) {
        for words in expected {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn one_contender_has_a_table_and_its_limits() {
        let limit = Some(Limit::AtLeast(0.97));
        let mut all = rows("spawn_many_remote_busy1", 12, 1.0, limit);
        all.extend(rows("spawn", 12, 0.8, limit));
        let means = means(&all, |_| true, |_| Some(Limit::AtLeast(0.99)));
        all.extend(means);
        let expected = [
            "morpheus against tokio",
            "no difference",
            "0.801 0.798–0.801",
            "morpheus, rate at least 0.970 times as much: met by 1 of 2; missed: spawn.",
            "morpheus, rate at least 0.990 times as much: met by 0 of 1; missed: mean of 2.",
        ];
        assert_has(&tables(&all), &expected);
    }

    #[test]
    fn each_of_two_baselines_has_its_own_ratios() {
        let mut all = rows("spawn", 12, 0.5, Some(Limit::AtLeast(0.97)));
        let mut more = rows("spawn", 12, 0.9, Some(Limit::AtLeast(0.97)));
        more[0].contender = "tokio+32".into();
        more[0].median = Some(777.0);
        more[1].ratio.as_mut().unwrap().to = "tokio+32".into();
        all.extend(more);
        let text = tables(&all);
        let (first, second) = text.split_once("against tokio+32").unwrap();
        assert_has(first, &["1,001  0.500", "missed: spawn"]);
        assert_has(second, &["777  0.901", "missed: spawn"]);
        let documents = super::super::markdown::tables(&all);
        let (first, second) = documents.split_once("| case | tokio+32: rate").unwrap();
        assert_has(first, &["| spawn | 1,001 | **0.500**"]);
        assert_has(second, &["| spawn | 777 | **0.901**"]);
    }

    #[test]
    fn a_figure_that_few_cases_have_has_a_table_of_its_own() {
        let mut all = rows("a", 12, 1.0, None);
        for case in ["b", "c"] {
            all.extend(rows(case, 12, 1.0, None));
        }
        let mut rare = rows("c", 12, 2.0, None);
        for row in &mut rare {
            row.figure = "p99".into();
        }
        all.extend(rare);
        let text = tables(&all);
        assert_has(&text, &["case   rate", "case    p99"]);
        assert_eq!(text.matches("case").count(), 2, "{text}");
    }

    #[test]
    fn several_contenders_with_one_figure_stand_side_by_side() {
        let mut all = rows("fnv", 2, 1.0, None);
        let mut other = rows("fnv", 2, 19.0, Some(Limit::AtMost(1.05)));
        other[1].contender = "smol".into();
        all.push(other.remove(1));
        let text = tables(&all);
        assert_has(
            &text,
            &[
                "rate against tokio",
                "19.0",
                "smol, rate at most 1.050 times as much: met by 0 of 1; undecided: fnv.",
            ],
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn without_rows_there_is_no_table() {
        assert_eq!(tables(&[]), "");
    }

    #[test]
    fn figures_without_ratios_stand_themselves() {
        let row = |contender: &str, figure: &str, bytes: f64| {
            Row::new("idle", contender, figure, Unit::Bytes, vec![bytes; 6])
        };
        let over = row("morpheus", "over tokio", 4_096.0).held(Limit::AtMost(1_048_576.0));
        let all = [
            row("tokio", "resident", 2_048.0),
            row("morpheus", "resident", 6_144.0),
            over,
        ];
        let expected = [
            "idle, medians",
            "95 % of resident",
            "morpheus  6.00 KiB    4.00 KiB",
            "morpheus, over tokio at most 1.00 MiB: met, 4.00 KiB (4.00 KiB to 4.00 KiB).",
        ];
        assert_has(&tables(&all), &expected);
        assert!(!tables(&rows("spawn", 12, 1.0, None)).contains("medians"));
    }

    #[test]
    fn one_figure_alone_shows_how_its_rounds_lie() {
        let rounds: Vec<f64> = (1..=6).map(|ns| f64::from(ns) * 10.0).collect();
        let row = |contender: &str, rounds: &[f64]| {
            Row::new("a switch", contender, "time", Unit::Time, rounds.to_vec())
        };
        let text = tables(&[row("many", &rounds), row("few", &rounds[..2])]);
        let expected = "\
            \na switch, medians\n         time       95 % interval  minimum  maximum  average  n\n\
            many  35.0 ns  10.0 ns to 60.0 ns  10.0 ns  60.0 ns  35.0 ns  6\n\
            few   15.0 ns         n too small  10.0 ns  20.0 ns  15.0 ns  2\n";
        assert_eq!(text, expected);
        let once = tables(&[row("once", &rounds[..1])]);
        assert!(!once.contains("average"), "{once}");
    }
}
