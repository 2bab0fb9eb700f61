//! The contents of each table. Text, Markdown and the page arrange rows in the same way.

use super::{Bound, Ratio, Row};
use crate::{report, stats};

/// Each once, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The value of this key among all; the default, added, where it is new.
pub fn named<K: PartialEq, T: Default>(all: &mut Vec<(K, T)>, key: K) -> &mut T {
    let known = all.iter().position(|(other, _)| *other == key);
    let place = known.unwrap_or_else(|| {
        all.push((key, T::default()));
        all.len() - 1
    });
    &mut all[place].1
}

/// All that have a key, by that: keys, and what has the same one, in the order in which they come first.
pub fn grouped<T: Copy, K: PartialEq>(
    all: impl IntoIterator<Item = T>,
    key: impl Fn(T) -> Option<K>,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    let keyed = all.into_iter().filter_map(|one| Some((key(one)?, one)));
    keyed.for_each(|(key, one)| named(&mut groups, key).push(one));
    groups
}

/// The cases of these rows.
pub fn cases<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|row| row.case.as_str()))
}

/// Those of these rows that were measured.
pub fn measured<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let rows = rows.iter().copied();
    rows.filter(|row| row.median.is_some()).collect()
}

/// The contenders of these rows.
pub fn contenders<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|row| row.contender.as_str()))
}

/// These rows, by their contender.
pub fn by_contender<'a>(rows: &[&'a Row]) -> Vec<(&'a str, Vec<&'a Row>)> {
    grouped(rows.iter().copied(), |row| Some(row.contender.as_str()))
}

/// The figures of these rows, in the order of the contender that has most of them.
pub fn figures<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut contenders = by_contender(rows);
    contenders.sort_by_key(|(_, own)| std::cmp::Reverse(own.len()));
    let rows = contenders.into_iter().flat_map(|(_, own)| own);
    distinct(rows.map(|row| row.figure.as_str()))
}

/// The contender that a row's ratio is to.
pub fn to(row: &Row) -> Option<&str> {
    row.ratio.as_ref().map(|ratio| ratio.to.as_str())
}

/// The row of a case, a contender and a figure.
pub fn find<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    case: &str,
    contender: &str,
    figure: &str,
) -> Option<&'a Row> {
    let is = |row: &&Row| row.case == case && row.contender == contender && row.figure == figure;
    rows.into_iter().find(is)
}

/// The cases in which no contender has a ratio, each with its rows.
pub fn without_ratio(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut cases = grouped(rows, |row| Some(row.case.as_str()));
    cases.retain(|(_, own)| own.iter().all(|row| row.ratio.is_none()));
    cases
}

/// The rows with ratios, by the contender that the ratios are to.
pub fn with_ratio(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    grouped(rows, to)
}

/// The tables of these rows, as cases and figures: the figures that most cases have are in one table, and each of the others has
/// a table of its own.
pub fn tables<'a>(rows: &[&'a Row]) -> Vec<(Vec<&'a str>, Vec<&'a str>)> {
    let cases_of = |figure: &str| {
        let with = rows.iter().filter(|row| row.figure == figure);
        cases(&with.copied().collect::<Vec<_>>())
    };
    let figures = figures(rows);
    let most = figures.iter().map(|figure| cases_of(figure).len()).max();
    let (common, rare): (Vec<&str>, Vec<&str>) = figures
        .iter()
        .partition(|figure| Some(cases_of(figure).len()) == most);
    let common = common
        .first()
        .map(|first| (cases_of(first), common.clone()));
    let rare = rare
        .into_iter()
        .map(|figure| (cases_of(figure), vec![figure]));
    common.into_iter().chain(rare).collect()
}

/// A line of a table: a name, and the cells behind it.
pub fn line(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// The heads of a table of findings.
pub const FINDINGS: [&str; 6] = ["", "load and figure", "there", "×", "A/A", ""];

/// The findings on features, a line each: the feature, the load and its figure, that of the contender which it is compared with,
/// the ratio with its interval, the noise, and what that says.
pub fn findings(rows: &[Row]) -> Vec<[String; 6]> {
    let line = |row: &Row| {
        let (finding, ratio) = (row.finding?, row.ratio.as_ref()?);
        let mut times = self::ratio(ratio).unwrap_or_default();
        times += &ratio_interval(ratio).unwrap_or_default();
        Some([
            row.contender.clone(),
            format!("{}: {}", row.case, row.figure),
            there(rows, &row.case, &ratio.to, &row.figure),
            times,
            noise(row),
            finding.says().to_owned(),
        ])
    };
    rows.iter().filter_map(line).collect()
}

/// The median of the contender that others are compared with; it may be compared with another itself.
pub fn there(rows: &[Row], case: &str, to: &str, figure: &str) -> String {
    let own = rows.iter().filter(|row| row.ratio.is_none());
    median(find(own, case, to, figure).or_else(|| find(rows, case, to, figure)))
}

/// The median of a row in its unit, with `≥` where it is only known to be at least this, and `≤` likewise; nothing where there is none.
pub fn median(row: Option<&Row>) -> String {
    let shown = row.and_then(|row| {
        let median = row.unit.show(row.median?);
        Some(format!("{}{median}", row.bound.sign()))
    });
    shown.unwrap_or_default()
}

/// The interval of a row's median; nothing where there are too few rounds. Where the median is a bound, so is that end.
pub fn interval(row: Option<&Row>) -> String {
    let shown = row.and_then(|row| {
        let Bound { at_least, at_most } = row.bound;
        let low = Bound::of(false, at_most).sign().to_owned() + &row.unit.show(row.low?);
        let high = Bound::of(at_least, false).sign().to_owned() + &row.unit.show(row.high?);
        Some(format!("{low} to {high}"))
    });
    shown.unwrap_or_default()
}

/// Heads of what [`spread`] says.
pub const SPREAD: [&str; 5] = ["95 % interval", "minimum", "maximum", "average", "n"];

/// How the rounds of a row lie.
pub fn spread(row: &Row) -> [String; 5] {
    let show = |value: Option<f64>| value.map_or("–".into(), |value| row.unit.show(value));
    let (least, greatest) = row.range().unzip();
    let interval = match row.low {
        Some(_) => interval(Some(row)),
        None => "n too small".into(),
    };
    [
        interval,
        show(least),
        show(greatest),
        show(stats::mean(&row.rounds)),
        report::count(row.n as u64),
    ]
}

/// Whether there is room for that: these rows have but one figure, of several rounds.
pub fn has_room(rows: &[&Row]) -> bool {
    figures(rows).len() == 1 && rows.iter().any(|row| row.rounds.len() > 1)
}

/// The noise of a row's pairs; nothing where there are too few.
pub fn noise(row: &Row) -> String {
    let noise = row.noise().map(|noise| format!("±{:.1} %", noise * 100.0));
    noise.unwrap_or_default()
}

/// The median of a ratio, to as many digits as its size needs.
pub fn ratio(ratio: &Ratio) -> Option<String> {
    let median = ratio.median?;
    let digits = ratio_digits(median);
    Some(format!("{median:.digits$}"))
}

/// The interval of a ratio, to as many digits, in brackets behind it.
pub fn ratio_interval(ratio: &Ratio) -> Option<String> {
    let (low, high) = ratio.low.zip(ratio.high)?;
    let digits = ratio_digits(ratio.median?);
    Some(format!(" ({low:.digits$}–{high:.digits$})"))
}

/// How many digits behind the point a ratio of this size needs.
fn ratio_digits(median: f64) -> usize {
    if median < 9.95 { 3 } else { 1 }
}
