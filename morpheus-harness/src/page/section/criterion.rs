//! The medians of criterion's benches, as `cargo xtask bench` collects them.

use serde_json::Value;

use super::{Figure, Row, Section, Table, coloured, rows};
use crate::page::claims::{list, number, text};
use crate::rows::view::named;
use crate::unit::Unit;

pub fn section(object: &Value) -> Section {
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    let mut table = Table::new(&["bench", "median", "95 % interval"]);
    for bench in list(object, "medians") {
        let (Some(name), Some(median)) = (text(bench, "name"), number(bench, "median_ns")) else {
            continue;
        };
        let interval = number(bench, "low_ns").zip(number(bench, "high_ns"));
        table.rows.push(vec![
            name.clone(),
            Unit::Time.show(median),
            interval.map_or("–".into(), |ends| Unit::Time.range(ends)),
        ]);
        // `spawn/watched` stands under `spawn`.
        let (group, label) = name.split_once('/').unwrap_or((&name, &name));
        let row = Row {
            label: label.to_owned(),
            value: Some(median),
            interval,
            ..Row::default()
        };
        named(&mut groups, group.to_owned()).push(row);
    }
    let groups = groups
        .into_iter()
        .map(|(group, rows)| (group, coloured(rows)))
        .collect();
    Section {
        title: "criterion".into(),
        about: "steps of the hot path, one at a time".into(),
        figures: vec![Figure {
            title: "The time of each step".into(),
            caption:
                "Medians with 95 % intervals. The axis is logarithmic where they span decades."
                    .into(),
            plot: rows(Unit::Time, None, groups),
            table,
        }],
        ..Section::default()
    }
}
