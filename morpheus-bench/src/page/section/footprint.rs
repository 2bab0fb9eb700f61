//! `footprint --json`: what a runtime takes of memory, by its number of spares, and what a task takes.

use serde_json::Value;

use super::{Figure, Row, Section, Table, coloured, rows, with_interval};
use crate::page::claims::{at, count, list, number, text};
use crate::unit::Unit;

/// The columns of the table of idle runtimes, and where their bytes are.
const PARTS: [(&str, &str); 6] = [
    ("resident", "memory.resident"),
    ("without a file", "memory.anonymous"),
    ("stacks", "memory.split.stacks"),
    ("heap", "memory.split.heap"),
    ("files", "memory.split.files"),
    ("mapped", "memory.mapped"),
];

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(super::counted(object, "workers", "worker"));
    about.extend(super::counted(object, "runs", "round"));
    let mut section = Section {
        title: "footprint".into(),
        about: about.join(", "),
        ..Section::default()
    };
    section.figures.extend(idle(list(object, "idle")));
    section.figures.extend(tasks(list(object, "tasks")));
    for row in list(object, "idle") {
        section.notes.extend(bar(row));
    }
    section
}

fn bytes(value: &Value, path: &str) -> String {
    number(value, path).map_or("–".into(), |bytes| Unit::Bytes.show(bytes))
}

/// The axis has powers of ten on it, which bytes do not come in. Pages are whole.
fn kibibytes(bytes: f64) -> f64 {
    (bytes / 1024.0).round()
}

fn idle(all: &[Value]) -> Option<Figure> {
    let mut table = Table::new(&["runtime", "threads"]);
    table.heads.extend(PARTS.map(|(head, _)| head.to_owned()));
    table.heads.push("over tokio".into());
    let mut marks = Vec::new();
    for row in all {
        let Some(runtime) = text(row, "runtime") else {
            continue;
        };
        let threads = count(row, "memory.threads").unwrap_or("–".into());
        let mut cells = vec![runtime.clone(), threads];
        cells.extend(PARTS.map(|(_, path)| bytes(row, path)));
        cells.push(bytes(row, "over_tokio_bytes"));
        table.rows.push(cells);
        marks.push(Row {
            label: runtime,
            value: number(row, "memory.resident").map(kibibytes),
            second: number(row, "memory.anonymous").map(kibibytes),
            ..Row::default()
        });
    }
    Some(Figure {
        title: "Resident memory of a runtime that has nothing to do, KiB".into(),
        caption: "Less is better. Hollow: without the pages of the program and its libraries."
            .into(),
        plot: rows(Unit::Count, vec![(String::new(), coloured(marks))]),
        table,
    })
    .filter(|figure| !figure.table.rows.is_empty())
}

fn tasks(all: &[Value]) -> Option<Figure> {
    let mut table = Table::new(&[
        "runtime",
        "started by",
        "requested",
        "over tokio",
        "resident",
    ]);
    table.rows = all
        .iter()
        .filter_map(|row| {
            Some(vec![
                text(row, "runtime")?,
                text(row, "via")?.replace('_', " "),
                bytes(row, "requested_bytes"),
                bytes(row, "over_tokio_bytes"),
                bytes(row, "resident_bytes"),
            ])
        })
        .collect();
    Some(Figure {
        title: "A task that waits".into(),
        caption: "Requested from the allocator, the mean of four sizes; and resident.".into(),
        plot: None,
        table,
    })
    .filter(|figure| !figure.table.rows.is_empty())
}

/// What an idle runtime with its default number of spares takes more than tokio, against its bar.
fn bar(row: &Value) -> Option<String> {
    let (limit, over) = (number(row, "bar_bytes")?, number(row, "over_tokio_bytes")?);
    let interval = at(row, "over_tokio").and_then(super::median);
    let interval = interval.unwrap_or((over, None));
    Some(format!(
        "{} takes {} more than tokio; the bar is {}: {}.",
        text(row, "runtime")?,
        with_interval(Unit::Bytes, interval),
        Unit::Bytes.show(limit),
        text(row, "judged")?
    ))
}
