//! `takeover --json`: how soon a spare runs what waits.

use serde_json::Value;

use super::{Figure, SUMMARY, Section, Table, curves, summary_cells, time};
use crate::page::claims::{at, number, text};

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(text(object, "link").map(|link| format!("link {link}")));
    about.extend(super::counted(object, "neighbours", "busy neighbour"));
    about.extend(match at(object, "watched") {
        Some(Value::Bool(true)) => Some("watched tasks".to_owned()),
        Some(Value::Bool(false)) => Some("unwatched tasks".to_owned()),
        _ => None,
    });
    let mut section = Section {
        title: "takeover".into(),
        about: about.join(", "),
        ..Section::default()
    };
    if let Some(waited) = at(object, "waited_ns").filter(|waited| number(waited, "p50").is_some()) {
        let mut table = Table::new(&[""]);
        table.heads.extend(SUMMARY.map(str::to_owned));
        let mut cells = vec!["until the next task runs".to_owned()];
        cells.extend(summary_cells(waited));
        table.rows.push(cells);
        section.figures.push(Figure {
            title: "What waits behind a worker that blocks".into(),
            caption: "From the call that blocks until the next task runs on a spare.".into(),
            plot: curves(&[("waited".into(), waited)]),
            table,
        });
    }
    if number(object, "detected_p50_ns").is_some() {
        section.notes.push(format!(
            "The controller knew after {} in the median, {} at p99.",
            time(object, "detected_p50_ns"),
            time(object, "detected_p99_ns")
        ));
    }
    section
}
