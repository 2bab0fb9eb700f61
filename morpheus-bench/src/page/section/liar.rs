//! `liar --json`: what honest critical sections cost, and what a liar gains.

use serde_json::Value;

use super::{
    Figure, SUMMARY, Section, Table, coloured, curves, median, pairs, rows, summary_cells,
    with_interval,
};
use crate::page::claims::{at, count, list, number, text};
use crate::page::plot::Plot;
use crate::page::plot::rows::Row;
use crate::unit::Unit;

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(super::counted(object, "workers", "worker"));
    about.extend(text(object, "link").map(|link| format!("link {link}")));
    about.extend(number(object, "critical_duration_ms").map(|ms| format!("sections of {ms} ms")));
    let mut section = Section {
        title: "liar".into(),
        about: about.join(", "),
        ..Section::default()
    };
    if let Some(value) = at(object, "honest.pairs") {
        section.figures.extend(pairs(
            value,
            "What a critical section costs",
            "within a section",
        ));
    }
    if let Some(guard) = at(object, "honest.guard_ns").and_then(median) {
        section.notes.push(format!(
            "Entering and leaving a section takes {}.",
            with_interval(Unit::Time, guard)
        ));
    }
    if let Some(n) = count(object, "honest.escalations.slowed_down") {
        section.notes.push(format!(
            "Demotions and throttling within honest sections: {n}; there is to be none."
        ));
    }
    section.figures.extend(beside(list(object, "beside")));
    section
}

fn beside(all: &[Value]) -> Vec<Figure> {
    let who = |row: &Value| text(row, "who");
    let mut figures = Vec::new();
    let share = |row: &Value| {
        Some(Row {
            label: who(row)?,
            value: Some(number(row, "cpu_share")?),
            ..Row::default()
        })
    };
    let fair = all.iter().find_map(|row| number(row, "fair_share"));
    let shares: Vec<Row> = all.iter().filter_map(share).collect();
    if let Some(Plot::Rows(mut plot)) = rows(Unit::Share, vec![(String::new(), coloured(shares))]) {
        plot.reference = fair.map(|fair| (fair, "fair share".to_owned()));
        let mut table = Table::new(&[
            "who",
            "its CPU",
            "fair",
            "demotions",
            "throttling",
            "requests",
            "takeovers",
        ]);
        let or = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        table.rows = all
            .iter()
            .map(|row| {
                let percent = |path| or(number(row, path).map(|x| Unit::Share.show(x)));
                let counted = |name: &str| or(count(row, &format!("escalations.{name}")));
                vec![
                    or(who(row)),
                    percent("cpu_share"),
                    percent("fair_share"),
                    counted("demotions"),
                    counted("throttles"),
                    counted("requests"),
                    counted("takeovers"),
                ]
            })
            .collect();
        figures.push(Figure {
            title: "CPU of the liar".into(),
            caption: "Share of one CPU beside busy processes, against what is fair: of the liar, and of the same task \
                      without a critical section."
                .into(),
            plot: Some(Plot::Rows(plot)),
            table,
        });
    }
    let wakes: Vec<(String, &Value)> = all
        .iter()
        .filter_map(|row| Some((who(row)?, at(row, "wakes_ns")?)))
        .collect();
    let mut table = Table::new(&["beside"]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    for (name, summary) in &wakes {
        let mut cells = vec![name.clone()];
        cells.extend(summary_cells(summary));
        table.rows.push(cells);
    }
    let row = |(name, summary): &(String, &Value)| Row {
        label: name.clone(),
        value: number(summary, "p99"),
        second: number(summary, "p99").and(number(summary, "p50")),
        instead: "n too small".into(),
        ..Row::default()
    };
    let p99s = coloured(wakes.iter().map(row).collect());
    figures.push(Figure {
        title: "The others' wakes".into(),
        caption:
            "Wakes of another task of the same runtime, beside each. Filled: p99, hollow: p50."
                .into(),
        plot: rows(Unit::Time, vec![(String::new(), p99s)]),
        table,
    });
    figures.push(Figure {
        title: "The others' wakes, percentiles".into(),
        caption:
            "From the intended start; those that were not served by the end count with their age."
                .into(),
        plot: curves(&wakes),
        table: Table::default(),
    });
    figures.retain(|figure| figure.plot.is_some() || !figure.table.rows.is_empty());
    figures
}
