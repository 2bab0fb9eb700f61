//! Rows for documents: tables in Markdown, made from what `--json` printed.

use super::view::{self, find};
use super::{Ratio, Row};
use crate::pairs::Verdict;
use crate::unit::Unit;

/// More figures of contenders that were measured in turns would make a table that is too wide for a page.
const MOST_FIGURES: usize = 12;

/// The rows as tables. Comparisons in pairs: a line for each case, and for each contender the ratios of all figures;
/// bold is what lies outside of the noise. Measurements in turns: a line for each contender.
///
/// The findings on features: a line for each of them under each load.
pub fn tables(rows: &[Row]) -> String {
    let found = view::findings(rows);
    if !found.is_empty() {
        let heads = view::FINDINGS.map(str::to_owned);
        let lines = std::iter::once(heads).chain(found);
        return written(&lines.map(Vec::from).collect::<Vec<_>>());
    }
    let mut tables = Vec::new();
    for (case, own) in view::without_ratio(rows) {
        tables.push(in_turns(case, &view::measured(&own)));
    }
    for (to, own) in view::with_ratio(rows) {
        let contenders = view::contenders(&own);
        for (cases, figures) in view::tables(&own) {
            tables.push(compared(rows, &own, to, &contenders, &cases, &figures));
        }
    }
    tables.join("\n")
}

/// These figures alone, in one table: a line for each contender, and a column for each case and figure; where these are many, the
/// other way round.
///
/// # Errors
/// No row has one of the figures; the text is for people.
pub fn chosen(rows: &[Row], figures: &[&str]) -> Result<String, String> {
    let own =
        |figure: &str| -> Vec<&Row> { rows.iter().filter(|row| row.figure == figure).collect() };
    if let Some(missing) = figures.iter().find(|figure| own(figure).is_empty()) {
        return Err(format!("no row has the figure {missing:?}"));
    }
    let all: Vec<&Row> = figures.iter().flat_map(|figure| own(figure)).collect();
    let contenders = view::contenders(&all);
    let is_there = |(case, figure): &(&str, &str)| {
        let mut own = all.iter().filter(|row| row.case == *case);
        own.any(|row| row.figure == *figure)
    };
    let cases = view::cases(&all).into_iter();
    let of_case = |case| figures.iter().map(move |figure| (case, *figure));
    let columns: Vec<(&str, &str)> = cases.flat_map(of_case).filter(is_there).collect();
    let named = |(case, figure): &(&str, &str)| format!("{case}: {figure}");
    let cell = |contender: &str, (case, figure): &(&str, &str)| {
        view::median(find(rows, case, contender, figure))
    };
    let mut table = vec![view::line("", columns.iter().map(named))];
    for contender in contenders {
        let cells = columns.iter().map(|column| cell(contender, column));
        table.push(view::line(contender, cells));
    }
    if columns.len() > MOST_FIGURES {
        table = transposed(&table);
    }
    Ok(written(&table))
}

fn transposed(table: &[Vec<String>]) -> Vec<Vec<String>> {
    let columns = 0..table[0].len();
    let of = |column: usize| table.iter().map(|line| line[column].clone()).collect();
    columns.map(of).collect()
}

/// A table, of which the first line has the heads.
fn written(table: &[Vec<String>]) -> String {
    let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(table[0].len()));
    let lines: String = table[1..].iter().map(line).collect();
    line(&table[0]) + &rule + &lines
}

fn compared(
    rows: &[Row],
    own: &[&Row],
    to: &str,
    contenders: &[&str],
    cases: &[&str],
    figures: &[&str],
) -> String {
    let is_alone = figures.len() == 1 && contenders.len() > 1;
    let mut heads = vec!["case".to_owned(), format!("{to}: {}", figures[0])];
    for contender in contenders {
        heads.extend(figures.iter().map(|figure| match is_alone {
            true => (*contender).to_owned(),
            false => format!("{contender}: {figure} ×"),
        }));
    }
    heads.extend(is_alone.then(|| "A/A".to_owned()));
    let mut table = vec![heads];
    for case in cases {
        let mut cells = vec![(*case).to_owned(), view::there(rows, case, to, figures[0])];
        for contender in contenders {
            cells.extend(figures.iter().map(|figure| {
                let row = find(own.iter().copied(), case, contender, figure);
                let ratio = row.and_then(|row| row.ratio.as_ref());
                ratio.map_or(String::new(), |ratio| shown(ratio, !is_alone))
            }));
        }
        if is_alone {
            let first = find(own.iter().copied(), case, contenders[0], figures[0]);
            cells.push(first.map_or(String::new(), view::noise));
        }
        table.push(cells);
    }
    written(&table)
}

fn shown(ratio: &Ratio, with_interval: bool) -> String {
    let Some(mut text) = view::ratio(ratio) else {
        return String::new();
    };
    if let Verdict::Differs { .. } = ratio.verdict {
        text = format!("**{text}**");
    }
    let interval = view::ratio_interval(ratio).filter(|_| with_interval);
    text + &interval.unwrap_or_default()
}

fn in_turns(case: &str, own: &[&Row]) -> String {
    let mut figures = view::figures(own);
    figures.truncate(MOST_FIGURES);
    let heads = figures.iter().map(|figure| (*figure).to_owned());
    let mut table = vec![view::line(case, heads)];
    for contender in view::contenders(own) {
        let cells = figures.iter().map(|figure| {
            let row = find(own.iter().copied(), case, contender, figure);
            let is_ratio = row.is_some_and(|row| row.unit == Unit::Factor);
            match view::interval(row) {
                interval if is_ratio && !interval.is_empty() => {
                    format!("{} ({interval})", view::median(row))
                }
                _ => view::median(row),
            }
        });
        table.push(view::line(contender, cells));
    }
    written(&table)
}

#[cfg(test)]
mod tests {
    use super::super::Bound;
    use super::super::tests::rows;
    use super::*;
    use crate::unit::Unit;

    #[test]
    fn pairs_have_a_line_for_each_case_and_bold_is_beyond_the_noise() {
        let mut all = rows("spawn", 12, 1.0, None);
        all.extend(rows("fnv", 12, 0.5, None));
        let text = tables(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| case | tokio: rate | morpheus: rate × |");
        assert_eq!(lines[1], "|---|---|---|");
        assert!(
            lines[2].starts_with("| spawn | 1,001 | 1.001 (0.998–1.001) |"),
            "{text}"
        );
        assert!(lines[3].contains("| **0.50"), "{text}");
    }

    #[test]
    fn several_contenders_with_one_figure_have_a_column_each_and_the_noise() {
        let mut all = rows("fnv", 12, 19.0, None);
        let mut other = rows("fnv", 12, 1.0, None).remove(1);
        other.contender = "smol".into();
        all.push(other);
        let text = tables(&all);
        assert!(
            text.starts_with("| case | tokio: rate | morpheus | smol | A/A |\n"),
            "{text}"
        );
        assert!(text.contains("| **19.0** | 1.001 | ±0.2 % |"), "{text}");
    }

    #[test]
    fn turns_have_a_line_for_each_contender() {
        let row = |contender: &str, figure: &str, bytes: f64| {
            Row::new("idle", contender, figure, Unit::Bytes, vec![bytes])
        };
        let all = [
            row("tokio", "resident", 2_048.0),
            row("morpheus", "over", 1_024.0),
        ];
        let expected = "| idle | resident | over |\n|---|---|---|\n| tokio | 2.00 KiB |  |\n| morpheus |  | 1.00 KiB |\n";
        assert_eq!(tables(&all), expected);
    }

    #[test]
    fn chosen_figures_of_all_cases_stand_in_one_table() {
        let row = |case: &str, contender: &str, figure: &str, ns: f64| {
            Row::new(case, contender, figure, Unit::Time, vec![ns; 3])
        };
        let censored = |case: &str, rounds: usize| {
            let known = |round| match round < rounds {
                true => Bound::AT_LEAST,
                false => Bound::EXACT,
            };
            let known = (0..3).map(|round| (round, known(round)));
            row(case, "tokio", "p99", 3e9).bounded_by(known.collect())
        };
        let rows = [
            censored("4 clients", 3),
            row("4 clients", "tokio", "p50", 2e9),
            censored("40 clients", 1),
            row("4 clients", "morpheus", "p99", 5e5),
        ];
        let expected = "|  | 4 clients: p99 | 40 clients: p99 |\n|---|---|---|\n\
                        | tokio | ≥ 3.00 s | 3.00 s |\n| morpheus | 500 µs |  |\n";
        assert_eq!(chosen(&rows, &["p99"]).as_deref(), Ok(expected));
        assert!(chosen(&rows, &["p99", "p9"]).unwrap_err().contains("p9"));
        let many: Vec<Row> = (0..=MOST_FIGURES)
            .map(|number| row(&format!("{number} clients"), "tokio", "p99", 3e9))
            .collect();
        let text = chosen(&many, &["p99"]).unwrap();
        assert!(
            text.starts_with("|  | tokio |\n|---|---|\n| 0 clients: p99 | 3.00 s |\n"),
            "{text}"
        );
    }
}
