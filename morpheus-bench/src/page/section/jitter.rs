//! `jitter --json`: how late sleeping threads wake, with `--sweep` over intervals.

use serde_json::Value;

use super::{
    Figure, MOST_LINES, SUMMARY, Section, Table, coloured, curves, marked, median, rows,
    summary_cells, time, with_interval,
};
use crate::page::claims::{at, count, list, number, text};
use crate::page::plot::lines::{Across, Point};
use crate::page::plot::rows::Row;
use crate::unit::Unit;

pub fn section(object: &Value) -> Section {
    let mut about = Vec::new();
    about.extend(text(object, "policy").map(|policy| format!("policy {policy}")));
    about.extend(count(object, "cpu").map(|cpu| format!("on CPU {cpu}")));
    let conditions: Vec<&Value> = list(object, "rows")
        .iter()
        .filter(|row| number(row, "interval_ns").is_some())
        .collect();
    let mut section = Section {
        title: "jitter".into(),
        about: about.join(", "),
        figures: figures(&conditions),
        ..Section::default()
    };
    section.notes.extend(text(object, "answer"));
    section
}

/// What differs but for the interval: the call, the slack and the load.
fn kind(row: &Value, all: &[&Value]) -> String {
    let differ = |path: &str| all.iter().any(|other| at(other, path) != at(row, path));
    let mut parts = Vec::new();
    // A sweep has one kind of select, which the kernel gives a slack of its own.
    if differ("call") && text(row, "call").as_deref() == Some("select") {
        parts.push("select".into());
    } else {
        let slack = number(row, "slack_ns");
        parts.extend(slack.map(|ns| format!("slack {}", Unit::Time.tick(ns, ns))));
    }
    if differ("load") {
        parts.extend(count(row, "load").map(|n| format!("load {n}")));
    }
    parts.join(", ")
}

fn interval(row: &Value) -> String {
    number(row, "interval_ns").map_or("–".into(), |ns| Unit::Time.tick(ns, ns))
}

fn figures(all: &[&Value]) -> Vec<Figure> {
    let mut table = Table::new(&["interval", "kind", "mean", "deviation", "median"]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    let mut intervals: Vec<f64> = Vec::new();
    for row in all {
        let mut cells = vec![
            interval(row),
            kind(row, all),
            time(row, "mean_ns"),
            time(row, "deviation_ns"),
            at(row, "median_ns")
                .and_then(median)
                .map_or("–".into(), |found| with_interval(Unit::Time, found)),
        ];
        cells.extend(summary_cells(
            at(row, "lateness_ns").unwrap_or(&Value::Null),
        ));
        table.rows.push(cells);
        let own = number(row, "interval_ns").unwrap_or_default();
        if !intervals.contains(&own) {
            intervals.push(own);
        }
    }
    let plot_row = |row: &&&Value| {
        let found = at(row, "median_ns").and_then(median);
        let alone = number(row, "lateness_ns.p50");
        Row {
            label: kind(row, all),
            value: found.map(|(value, _)| value).or(alone),
            interval: found.and_then(|(_, interval)| interval),
            instead: "n too small".into(),
            ..Row::default()
        }
    };
    let group = |ns: &f64| {
        let own: Vec<&&Value> = all
            .iter()
            .filter(|row| number(row, "interval_ns") == Some(*ns))
            .collect();
        let name = format!("every {}", Unit::Time.tick(*ns, *ns));
        (name, coloured(own.iter().map(plot_row).collect()))
    };
    let mut figures = vec![Figure {
        title: "Lateness, median".into(),
        caption: "How late a sleep ends: medians with 95 % intervals.".into(),
        plot: rows(Unit::Time, intervals.iter().map(group).collect()),
        table,
    }];
    if intervals.len() > 1 {
        figures.push(sweep(all));
    }
    let entries: Vec<(String, &Value)> = all
        .iter()
        .filter_map(|row| {
            let name = match intervals.len() {
                1 => kind(row, all),
                _ => format!("{}, {}", interval(row), kind(row, all)),
            };
            Some((name, at(row, "lateness_ns")?))
        })
        .collect();
    // Of a sweep there are too many, of few samples each.
    if entries.len() <= MOST_LINES {
        figures.push(Figure {
            title: "Lateness, percentiles".into(),
            caption: format!("How late a sleep ends. {}", super::PERCENTILES),
            plot: curves(&entries),
            table: Table::default(),
        });
    }
    figures.push(idle(all));
    figures.retain(|figure| figure.plot.is_some() || !figure.table.rows.is_empty());
    figures
}

fn sweep(all: &[&Value]) -> Figure {
    let mut kinds: Vec<String> = Vec::new();
    for row in all {
        let own = kind(row, all);
        if !kinds.contains(&own) {
            kinds.push(own);
        }
    }
    let point = |row: &&Value| {
        let (y, interval) = at(row, "median_ns").and_then(median)?;
        let x = number(row, "interval_ns")?;
        Some(Point { x, y, interval })
    };
    let with_points = |label: String| {
        let own = all.iter().filter(|row| kind(row, all) == label);
        let points = own.filter_map(point).collect();
        (label, points)
    };
    let across = Across::Numbers {
        unit: Unit::Time,
        name: "length of a sleep".into(),
        log: true,
    };
    Figure {
        title: "Do longer sleeps wake later?".into(),
        caption: "Median lateness over the length of the sleep, with 95 % intervals.".into(),
        plot: marked(across, kinds.into_iter().map(with_points).collect()),
        table: Table::default(),
    }
}

/// Where the CPU was meanwhile.
fn idle(all: &[&Value]) -> Figure {
    let mut table = Table::new(&["interval", "kind", "idle state", "time in it", "entries"]);
    for row in all {
        for state in list(row, "idle") {
            let or = |text: Option<String>| text.unwrap_or_else(|| "–".into());
            table.rows.push(vec![
                interval(row),
                kind(row, all),
                or(text(state, "name")),
                or(number(state, "share").map(|x| Unit::Share.show(x))),
                or(count(state, "entries")),
            ]);
        }
    }
    Figure {
        title: "Idle states".into(),
        caption: "Where the CPU was while the thread slept.".into(),
        plot: None,
        table,
    }
}
