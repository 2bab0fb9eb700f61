//! Rows for people: tables that fit a terminal, and what met its limit and what did not.
//!
//! Cases in which contenders are compared show their ratios, the others the figures themselves.

use super::{Ratio, Row};
use crate::pairs::{Bar, Limit};
use crate::report::{Table, WIDTH, wrap};

/// The ratios in these rows, as tables: a contender at a time with all its figures, or all contenders side by side where
/// there is but one figure. Beneath each table stands which limits are kept.
pub fn tables(rows: &[Row]) -> String {
    let with_ratio: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let figures = distinct(with_ratio.iter().map(|row| row.figure.as_str()));
    let mut text = String::new();
    for (case, own) in without_ratio(rows) {
        text += &format!("\n{case}, medians\n");
        text += &in_turns(&own);
        for line in own.iter().filter_map(|row| held(row)) {
            text += &(wrap(&line, WIDTH) + "\n");
        }
    }
    for to in distinct(with_ratio.iter().filter_map(|row| to(row))) {
        let own: Vec<&Row> = with_ratio
            .iter()
            .copied()
            .filter(|row| self::to(row) == Some(to))
            .collect();
        let contenders = distinct(own.iter().map(|row| row.contender.as_str()));
        if let ([figure], 2..) = (&figures[..], contenders.len()) {
            text += &format!("\n{figure} against {to}\n");
            text += &side_by_side(rows, &own, to, &contenders);
            text += &lines(&own);
            continue;
        }
        for contender in contenders {
            let own: Vec<&Row> = own
                .iter()
                .copied()
                .filter(|row| row.contender == contender)
                .collect();
            text +=
                &format!("\n{contender} against {to}, whose own figures stand before the ratios\n");
            text += &of_one(rows, &own, to, &figures);
            text += &lines(&own);
        }
    }
    text
}

fn lines(rows: &[&Row]) -> String {
    let lines = limits(rows).into_iter();
    lines.map(|line| wrap(&line, WIDTH) + "\n").collect()
}

/// What a row's ratio is to.
pub fn to(row: &Row) -> Option<&str> {
    row.ratio.as_ref().map(|ratio| ratio.to.as_str())
}

/// Each once, in the order in which they come first.
pub fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// The cases in which no contender has a ratio, each with its rows.
pub fn without_ratio(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let cases = distinct(rows.iter().map(|row| row.case.as_str())).into_iter();
    let own = |case| -> Vec<&Row> { rows.iter().filter(|row| row.case == case).collect() };
    let cases = cases.map(|case| (case, own(case)));
    cases
        .filter(|(_, own)| own.iter().all(|row| row.ratio.is_none()))
        .collect()
}

/// The figures of contenders that were measured in turns. Where the table is too wide, the last figures go.
fn in_turns(own: &[&Row]) -> String {
    let contenders = distinct(own.iter().map(|row| row.contender.as_str()));
    let mut table = Table::default();
    let names = contenders.iter().map(|name| (*name).to_owned()).collect();
    table.column("", 0, names);
    let figures = distinct(own.iter().map(|row| row.figure.as_str()));
    for (figure, place) in figures.into_iter().zip(0..) {
        let cell = |contender: &&str| {
            let mut all = own.iter();
            let row = all.find(|row| row.contender == **contender && row.figure == figure);
            let median = row.and_then(|row| Some(row.unit.show(row.median?)));
            median.unwrap_or_default()
        };
        table.column(figure, place, contenders.iter().map(cell).collect());
    }
    table.render(WIDTH)
}

/// Whether a figure keeps to its limit, in a sentence.
pub fn held(row: &Row) -> Option<String> {
    let (limit, judged) = (row.limit?.show(row.unit), row.judged?);
    let mut figure = row.unit.show(row.median?);
    if let Some((low, high)) = row.low.zip(row.high) {
        figure += &format!(" ({} to {})", row.unit.show(low), row.unit.show(high));
    }
    Some(format!(
        "{}, {} {limit}: {judged}, {figure}.",
        row.contender, row.figure
    ))
}

/// All figures of one contender. Those that only some cases have stand in a table of their own.
fn of_one(rows: &[Row], own: &[&Row], to: &str, figures: &[&str]) -> String {
    let of = |figure: &str| -> Vec<&str> {
        let with = own.iter().filter(|row| row.figure == figure);
        distinct(with.map(|row| row.case.as_str()))
    };
    let most = figures.iter().map(|figure| of(figure).len()).max();
    let (common, rare): (Vec<&str>, Vec<&str>) = figures
        .iter()
        .filter(|figure| !of(figure).is_empty())
        .partition(|figure| Some(of(figure).len()) == most);
    let mut text = String::new();
    if let Some(first) = common.first() {
        text += &table(rows, own, to, &of(first), &common);
    }
    for figure in rare {
        text += &table(rows, own, to, &of(figure), &[figure]);
    }
    text
}

fn table(rows: &[Row], own: &[&Row], to: &str, cases: &[&str], figures: &[&str]) -> String {
    let mut table = Table::default();
    let names = cases.iter().map(|case| (*case).to_owned()).collect();
    table.column("case", 0, names);
    for figure in figures {
        let column = |cell: &dyn Fn(&Row, &Ratio) -> String| -> Vec<String> {
            let find = |case: &&str| {
                let mut all = own.iter();
                let row = all.find(|row| row.case == **case && row.figure == *figure)?;
                Some(cell(row, row.ratio.as_ref()?))
            };
            let cells = cases.iter().map(|case| find(case).unwrap_or_default());
            cells.collect()
        };
        let there = |row: &Row, _: &Ratio| median_there(rows, row, to);
        table.column(figure, 1, column(&there));
        table.column("ratio", 0, column(&|_, ratio| shown(ratio)));
        table.column("", 0, column(&|_, ratio| ratio.says().into()));
        table.column("A/A", 2, column(&|row, _| noise(row)));
    }
    table.render(WIDTH)
}

/// One figure of all contenders.
fn side_by_side(rows: &[Row], own: &[&Row], to: &str, contenders: &[&str]) -> String {
    let cases = distinct(own.iter().map(|row| row.case.as_str()));
    let column = |contender: &str, cell: &dyn Fn(&Row, &Ratio) -> String| -> Vec<String> {
        let find = |case: &&str| {
            let mut all = own.iter();
            let row = all.find(|row| row.case == **case && row.contender == contender)?;
            Some(cell(row, row.ratio.as_ref()?))
        };
        let cells = cases.iter().map(|case| find(case).unwrap_or_default());
        cells.collect()
    };
    let mut table = Table::default();
    let names = cases.iter().map(|case| (*case).to_owned()).collect();
    table.column("case", 0, names);
    let there = |row: &Row, _: &Ratio| median_there(rows, row, to);
    table.column(to, 1, column(contenders[0], &there));
    for contender in contenders {
        table.column(contender, 0, column(contender, &|_, ratio| median(ratio)));
    }
    table.column("A/A", 0, column(contenders[0], &|row, _| noise(row)));
    table.render(WIDTH)
}

/// The same figure of what a row's contender is compared with.
fn median_there(rows: &[Row], row: &Row, to: &str) -> String {
    let mut all = rows.iter();
    let there = all.find(|other| {
        other.case == row.case && other.figure == row.figure && other.contender == to
    });
    let median = there.and_then(|there| there.median);
    median.map_or(String::new(), |median| row.unit.show(median))
}

fn median(ratio: &Ratio) -> String {
    match ratio.median {
        Some(median) if median < 9.95 => format!("{median:.3}"),
        Some(median) => format!("{median:.1}"),
        None => "–".into(),
    }
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

fn noise(row: &Row) -> String {
    let noise = row.noise().map(|noise| format!("±{:.1} %", noise * 100.0));
    noise.unwrap_or_default()
}

/// How many rows keep to each limit, and which do not, in a sentence for each.
pub fn limits(rows: &[&Row]) -> Vec<String> {
    let mut groups: Vec<(&str, &str, Limit)> = Vec::new();
    for row in rows {
        let limit = row.ratio.as_ref().and_then(|ratio| ratio.limit);
        if let Some(limit) = limit {
            let group = (row.contender.as_str(), row.figure.as_str(), limit);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    let line = |(contender, figure, limit): (&str, &str, Limit)| {
        let of = |row: &&&Row| {
            let own = row.ratio.as_ref().and_then(|ratio| ratio.limit);
            row.contender == contender && row.figure == figure && own == Some(limit)
        };
        let with = |judged: Bar| -> Vec<&str> {
            let own = rows.iter().filter(of);
            let judged =
                own.filter(|row| row.ratio.as_ref().is_some_and(|r| r.judged == Some(judged)));
            judged.map(|row| row.case.as_str()).collect()
        };
        let all = rows.iter().filter(of).count();
        let met = with(Bar::Met).len();
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
            "morpheus  6.00 KiB    4.00 KiB",
            "morpheus, over tokio at most 1.00 MiB: met, 4.00 KiB (4.00 KiB to 4.00 KiB).",
        ];
        assert_has(&tables(&all), &expected);
        assert!(!tables(&rows("spawn", 12, 1.0, None)).contains("medians"));
    }
}
