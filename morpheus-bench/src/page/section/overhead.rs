//! `overhead … --json`: what a switch, a migration and a cold cache cost.

use serde_json::Value;

use super::{Figure, Section, Table, median_ns, rows, time, with_interval};
use crate::page::claims::{at, count, list, number, text, texts, yes};
use crate::page::plot::Plot;
use crate::page::plot::lines::{Across, Line, Lines, Point, Style};
use crate::page::plot::rows::Row;
use crate::unit::Unit;

/// What is shown of a measurement: a name, where it is, and its place in the palette.
type Named = (&'static str, &'static str, usize);

const PREEMPTION: [Named; 4] = [
    ("switch and call", "switch", 1),
    ("the call alone", "call", 4),
    ("one switch", "net", 0),
    ("A/A", "same", 6),
];
const MIGRATION: [Named; 7] = [
    ("the call alone", "call", 4),
    ("to an idle CPU, call included", "to_idle", 1),
    ("to a CPU that is awake, call included", "to_awake", 1),
    ("to an idle CPU", "net_to_idle", 0),
    ("to a CPU that is awake", "net_to_awake", 0),
    ("A/A, idle", "same_idle", 6),
    ("A/A, awake", "same_awake", 6),
];
const PARTS: [Named; 5] = [
    ("until the interrupt", "until_interrupt", 0),
    ("until the first instruction", "until_first_instruction", 2),
    ("until the source is free", "until_source_is_free", 3),
    ("off the CPU, destination awake", "off_cpu_awake", 4),
    ("off the CPU, destination idle", "off_cpu_idle", 4),
];
/// Each for a whole buffer, and divided by its lines.
const CACHE: [Named; 5] = [
    ("random cycle", "refill", 0),
    ("second method", "second", 2),
    ("linear", "linear", 4),
    ("read only", "read_only", 3),
    ("A/A", "same", 6),
];

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(text(object, "conditions.policy"));
    let cpus: Vec<String> = crate::page::claims::numbers(object, "conditions.cpus")
        .iter()
        .map(|cpu| format!("{cpu}"))
        .collect();
    if !cpus.is_empty() {
        about.push(format!("CPU {}", cpus.join(" and ")));
    }
    about.extend(super::counted(object, "experiments", "experiment"));
    if at(object, "conditions.memory_locked") == Some(&Value::Bool(true)) {
        about.push("memory locked".into());
    }
    let mut section = Section {
        title: "overhead".into(),
        about: about.join(", "),
        notes: texts(object, "conditions.notes"),
        ..Section::default()
    };
    let medians = "Medians with 95 % intervals. A/A: the difference of two measurements of the same thing, which is noise.";
    if let Some(preemption) = at(object, "preemption") {
        section.title += " preemption";
        section.figures.extend(bars(
            preemption,
            &PREEMPTION,
            "What a preemption costs",
            medians,
        ));
    }
    if let Some(migration) = at(object, "migration") {
        section.title += " migration";
        section.figures.extend(bars(
            migration,
            &MIGRATION,
            "What a migration costs",
            medians,
        ));
        let parts = at(migration, "parts").unwrap_or(&Value::Null);
        let caption = "As far as clocks on both CPUs tell. Medians with 95 % intervals.";
        section
            .figures
            .extend(bars(parts, &PARTS, "Where the time goes", caption));
    }
    if let Some(cache) = at(object, "cache") {
        section.title += " cache";
        section.figures.extend(sizes(cache));
    }
    section
}

fn bars(value: &Value, named: &[Named], title: &str, caption: &str) -> Option<Figure> {
    let mut table = Table::new(&["", "median", "least", "greatest", "mean", "experiments"]);
    let mut shown = Vec::new();
    for (name, path, slot) in named {
        let Some(figure) = at(value, path) else {
            continue;
        };
        let Some((median, interval)) = median_ns(figure) else {
            continue;
        };
        table.rows.push(vec![
            (*name).into(),
            with_interval(Unit::Time, (median, interval)),
            time(figure, "min_ns"),
            time(figure, "max_ns"),
            time(figure, "mean_ns"),
            count(figure, "n").unwrap_or_else(|| "–".into()),
        ]);
        shown.push(Row {
            label: (*name).into(),
            slot: *slot,
            value: Some(median),
            interval,
            ..Row::default()
        });
    }
    (!shown.is_empty()).then(|| Figure {
        title: title.into(),
        caption: caption.into(),
        plot: rows(Unit::Time, vec![(String::new(), shown)]),
        table,
    })
}

fn sizes(cache: &Value) -> Option<Figure> {
    let sizes = list(cache, "sizes");
    let bytes_and_lines = |size: &Value| {
        let positive = |path: &str| number(size, path).filter(|n| *n >= 1.0);
        positive("bytes").zip(positive("lines"))
    };
    let mut lines = Vec::new();
    for (name, path, slot) in CACHE {
        let point = |size: &Value| {
            let (bytes, lines) = bytes_and_lines(size)?;
            let (median, interval) = at(size, path).and_then(median_ns)?;
            Some(Point {
                x: bytes,
                y: median / lines,
                interval: interval.map(|(low, high)| (low / lines, high / lines)),
            })
        };
        let mut points: Vec<Point> = sizes.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !points.is_empty() {
            lines.push(Line {
                label: name.into(),
                slot,
                style: Style::Marked,
                points,
            });
        }
    }
    let mut table = Table::new(&[
        "size",
        "a line",
        "second method",
        "linear",
        "read only",
        "A/A",
        "positive",
    ]);
    for size in sizes {
        let Some((bytes, lines)) = bytes_and_lines(size) else {
            continue;
        };
        let a_line = |path: &str| {
            let found = at(size, path).and_then(median_ns);
            found.map_or("–".into(), |(median, interval)| {
                let interval = interval.map(|(low, high)| (low / lines, high / lines));
                with_interval(Unit::Time, (median / lines, interval))
            })
        };
        let mut cells = vec![Unit::Bytes.tick(bytes, bytes)];
        cells.extend(CACHE.map(|(_, path, _)| a_line(path)));
        let positive = if yes(size, "positive") { "yes" } else { "no" };
        cells.push(positive.into());
        table.rows.push(cells);
    }
    (!lines.is_empty()).then(|| Figure {
        title: "What a cache line costs after a migration".into(),
        caption: "By the size that the other core has written; medians with 95 % intervals, for each line. The second \
                  method has no migration. Linear and read only: how the cost is missed."
            .into(),
        plot: Some(Plot::Lines(Lines {
            across: Across::Numbers {
                unit: Unit::Bytes,
                name: "dirty on the other core".into(),
                log: true,
            },
            unit: Unit::Time,
            from_zero: true,
            reference: None,
            lines,
        })),
        table,
    })
}
