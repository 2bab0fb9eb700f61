//! `request --json`: how much CPU time a poll had used when it was asked to yield.

use serde_json::Value;

use super::{Figure, SUMMARY, Section, Table, curves, summary_cells, time};
use crate::page::claims::{at, number, text};

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(text(object, "link").map(|link| format!("link {link}")));
    about.extend(super::counted(object, "neighbours", "busy neighbour"));
    if number(object, "budget_ns").is_some() {
        about.push(format!("budget {}", time(object, "budget_ns")));
    }
    let mut section = Section {
        title: "request".into(),
        about: about.join(", "),
        ..Section::default()
    };
    let entries: Vec<(String, &Value)> = [("CPU time", "used_ns"), ("by the wall", "passed_ns")]
        .into_iter()
        .filter_map(|(name, path)| Some((name.to_owned(), at(object, path)?)))
        .filter(|(_, summary)| number(summary, "p50").is_some())
        .collect();
    let mut table = Table::new(&[""]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    for (name, summary) in &entries {
        let mut cells = vec![name.clone()];
        cells.extend(summary_cells(summary));
        table.rows.push(cells);
    }
    section.figures.push(Figure {
        title: "When a poll that computes is asked to yield".into(),
        caption:
            "From the beginning of the poll until one of its checkpoints, every 10 µs, says so."
                .into(),
        plot: curves(&entries),
        table,
    });
    if let Some(never) = number(object, "never_asked").filter(|never| *never > 0.0) {
        section.notes.push(format!(
            "{never} polls computed for a second and were never asked."
        ));
    }
    section
}
