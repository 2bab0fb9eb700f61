//! `latency --json`: response times at a rate, or with `--paired` what checkpoints cost.

use serde_json::Value;

use super::{Figure, SUMMARY, Section, Table, curves, pairs, rows, summary_cells};
use crate::page::claims::{at, number, text, yes};
use crate::page::plot::rows::Row;
use crate::unit::Unit;

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(super::counted(object, "workers", "worker"));
    about.extend(text(object, "link").map(|link| format!("link {link}")));
    if yes(object, "pressure") {
        about.push("beside a busy process for each CPU".into());
    }
    if yes(object, "with_checkpoints") {
        about.push("with checkpoints".into());
    }
    let mut section = Section {
        title: "latency".into(),
        ..Section::default()
    };
    if let Some(open) = at(object, "open") {
        about.extend(number(open, "duration_s").map(|s| format!("{s:.1} s")));
        section.figures.extend(at_a_rate(open));
        let why = text(open, "why_not").map(|why| format!("The rate was not reached: {why}."));
        section.notes.extend(why);
        if at(open, "settled") == Some(&Value::Bool(false)) {
            section
                .notes
                .push("The median had not settled when the measurement began.".into());
        }
    }
    if let Some(cost) = at(object, "cost") {
        about
            .extend(super::counted(cost, "checkpoints", "checkpoint").map(|n| n + " an operation"));
        if let Some(value) = at(cost, "pairs") {
            section
                .figures
                .extend(pairs(value, "What checkpoints cost", "with checkpoints"));
        }
        if let Some(ns) = number(cost, "checkpoint_ns") {
            let operation = super::time(cost, "operation_ns");
            section.notes.push(format!(
                "An operation takes {operation} of CPU time, one checkpoint {}.",
                Unit::Time.show(ns)
            ));
        }
    }
    section.about = about.join(", ");
    section
}

fn at_a_rate(open: &Value) -> Vec<Figure> {
    let sets = [
        (
            "response",
            "response_ns",
            "from the intended start to the end",
        ),
        ("service", "service_ns", "from the start: hides all waiting"),
        (
            "clock",
            "clock_late_ns",
            "how late the thread was that starts operations",
        ),
    ];
    let there: Vec<_> = sets
        .iter()
        .filter(|(_, path, _)| at(open, path).is_some())
        .collect();
    let mut table = Table::new(&["time"]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    table.heads.push("counts".into());
    for (name, path, what) in &there {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(summary_cells(&open[*path]));
        cells.push((*what).into());
        table.rows.push(cells);
    }
    let entries: Vec<(String, &Value)> = there
        .iter()
        .map(|(name, path, _)| ((*name).to_owned(), &open[*path]))
        .collect();
    let mut figures = vec![Figure {
        title: "Response time".into(),
        caption: "Response: from the intended start of an operation to its end. Service: from its start. Clock: how late \
                  the thread was that starts them."
            .into(),
        plot: curves(&entries),
        table,
    }];
    let rate = [("asked for", "asked_per_s", 6), ("reached", "ops_per_s", 0)];
    let rate: Vec<Row> = rate
        .iter()
        .map(|(label, path, slot)| Row {
            label: (*label).into(),
            slot: *slot,
            value: number(open, path),
            ..Row::default()
        })
        .filter(|row| row.value.is_some())
        .collect();
    let mut table = Table::new(&["operations a second", ""]);
    table.rows = rate
        .iter()
        .map(|row| {
            vec![
                row.label.clone(),
                row.value
                    .map_or("–".into(), |x| Unit::Count.show(x.round())),
            ]
        })
        .collect();
    figures.push(Figure {
        title: "Operations a second".into(),
        caption: "Whether the rate that was asked for was reached: else response times are of another load.".into(),
        plot: rows(Unit::Count, vec![(String::new(), rate)]),
        table,
    });
    figures.retain(|figure| !figure.table.rows.is_empty());
    figures
}
