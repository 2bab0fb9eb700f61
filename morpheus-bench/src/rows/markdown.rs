//! Rows for documents: tables in Markdown, made from what `--json` printed.

use super::text::{distinct, to, without_ratio};
use super::{Ratio, Row};
use crate::pairs::Verdict;

/// More figures of contenders that were measured in turns would make a table that is too wide for a page.
const MOST_FIGURES: usize = 8;

/// The rows as tables. What is compared in pairs: a line for each case, and for each contender the ratios of all figures;
/// bold is what lies outside of the noise. What is measured in turns: a line for each contender.
pub fn tables(rows: &[Row]) -> String {
    let mut tables = Vec::new();
    for (case, own) in without_ratio(rows) {
        tables.push(in_turns(case, &own));
    }
    let with_ratio: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    for to in distinct(with_ratio.iter().filter_map(|row| self::to(row))) {
        let own = with_ratio.iter().copied();
        let own: Vec<&Row> = own.filter(|row| self::to(row) == Some(to)).collect();
        let figures = distinct(own.iter().map(|row| row.figure.as_str()));
        let cases = |figure: &str| -> Vec<&str> {
            let with = own.iter().filter(|row| row.figure == figure);
            distinct(with.map(|row| row.case.as_str()))
        };
        let most = figures.iter().map(|figure| cases(figure).len()).max();
        let (common, rare): (Vec<&str>, Vec<&str>) = figures
            .iter()
            .partition(|figure| Some(cases(figure).len()) == most);
        if let Some(first) = common.first() {
            tables.push(compared(rows, &own, to, &cases(first), &common));
        }
        for figure in rare {
            tables.push(compared(rows, &own, to, &cases(figure), &[figure]));
        }
    }
    tables.join("\n")
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

fn rule(columns: usize) -> String {
    format!("|{}\n", "---|".repeat(columns))
}

fn compared(rows: &[Row], own: &[&Row], to: &str, cases: &[&str], figures: &[&str]) -> String {
    let contenders = distinct(own.iter().map(|row| row.contender.as_str()));
    let is_alone = figures.len() == 1 && contenders.len() > 1;
    let mut heads = vec!["case".to_owned(), format!("{to}: {}", figures[0])];
    for contender in &contenders {
        heads.extend(figures.iter().map(|figure| match is_alone {
            true => (*contender).to_owned(),
            false => format!("{contender}: {figure} ×"),
        }));
    }
    heads.extend(is_alone.then(|| "A/A".to_owned()));
    let mut text = line(heads.iter().cloned()) + &rule(heads.len());
    for case in cases {
        let find = |contender: &str, figure: &str| {
            let mut all = own.iter();
            all.find(|row| row.case == *case && row.contender == contender && row.figure == figure)
        };
        let there = rows
            .iter()
            .find(|row| row.case == *case && row.contender == to && row.figure == figures[0]);
        let there = there.and_then(|row| Some(row.unit.show(row.median?)));
        let mut cells = vec![(*case).to_owned(), there.unwrap_or_default()];
        for contender in &contenders {
            for figure in figures {
                let ratio = find(contender, figure).and_then(|row| row.ratio.as_ref());
                cells.push(ratio.map_or(String::new(), |ratio| shown(ratio, !is_alone)));
            }
        }
        if is_alone {
            let noise = find(contenders[0], figures[0]).and_then(|row| row.noise());
            cells.push(noise.map_or(String::new(), |noise| format!("±{:.1} %", noise * 100.0)));
        }
        text += &line(cells);
    }
    text
}

fn shown(ratio: &Ratio, with_interval: bool) -> String {
    let Some(median) = ratio.median else {
        return String::new();
    };
    let digits = match median {
        median if median >= 9.95 => 1,
        _ => 3,
    };
    let mut text = format!("{median:.digits$}");
    if let Verdict::Differs { .. } = ratio.verdict {
        text = format!("**{text}**");
    }
    if let (true, Some((low, high))) = (with_interval, ratio.low.zip(ratio.high)) {
        text += &format!(" ({low:.digits$}–{high:.digits$})");
    }
    text
}

fn in_turns(case: &str, own: &[&Row]) -> String {
    let mut figures = distinct(own.iter().map(|row| row.figure.as_str()));
    figures.truncate(MOST_FIGURES);
    let contenders = distinct(own.iter().map(|row| row.contender.as_str()));
    let heads = std::iter::once(case.to_owned());
    let heads = heads.chain(figures.iter().map(|figure| (*figure).to_owned()));
    let mut text = line(heads) + &rule(1 + figures.len());
    for contender in contenders {
        let cell = |figure: &&str| {
            let mut all = own.iter();
            let row = all.find(|row| row.contender == contender && row.figure == **figure);
            let shown = row.and_then(|row| Some(row.unit.show(row.median?)));
            shown.unwrap_or_default()
        };
        let cells = std::iter::once(contender.to_owned());
        text += &line(cells.chain(figures.iter().map(cell)));
    }
    text
}

#[cfg(test)]
mod tests {
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
}
