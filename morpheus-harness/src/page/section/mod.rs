//! The section of the page for each benchmark's file, and the pieces that they share.

mod criterion;
pub mod log;
mod rows;

use serde_json::Value;

use super::RowsOf;
use super::claims::{at, text, yes};
use super::plot::Plot;
use super::plot::lines::{Across, Line, Lines};
use super::plot::palette;
use super::plot::rows::{Row, Rows};
use crate::interrupt;
use crate::unit::Unit;

/// More lines make a plot unreadable.
const MOST_LINES: usize = 8;
/// Of rows likewise; the table has all.
const MOST_ROWS: usize = 48;
/// More points of a line are thinned out: a phone has fewer dots.
const MOST_POINTS: usize = 600;

/// A benchmark's part of the page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Which benchmark.
    pub title: String,
    /// Under which conditions, in a line.
    pub about: String,
    /// The machine, as the file has it.
    pub host: Option<Value>,
    /// The plots, with their numbers.
    pub figures: Vec<Figure>,
    /// Remarks, in sentences.
    pub notes: Vec<String>,
}

/// A plot with its numbers.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// In a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The plot, where there is enough for one.
    pub plot: Option<Plot>,
    /// The same in numbers.
    pub table: Table,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Heads of the columns; the first names the rows.
    pub heads: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows yet.
    pub fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|head| (*head).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Without columns that say nothing in any row.
    pub fn without_empty_columns(&self) -> Self {
        let says = |column: &usize| {
            let cell = |row: &Vec<String>| row.get(*column).is_some_and(|cell| cell != "–");
            *column == 0 || self.rows.iter().any(cell)
        };
        let kept: Vec<usize> = (0..self.heads.len()).filter(says).collect();
        let of = |row: &Vec<String>| {
            kept.iter()
                .filter_map(|column| row.get(*column).cloned())
                .collect()
        };
        Self {
            heads: of(&self.heads),
            rows: self.rows.iter().map(of).collect(),
        }
    }
}

/// The sections of what a file says.
///
/// # Errors
/// When nothing in it is known, with what to do.
pub fn of(objects: &[Value], rows_of: RowsOf) -> Result<Vec<Section>, String> {
    if objects.iter().any(|object| at(object, "record").is_some()) {
        return Ok(vec![one(&rows_of(objects)?)?]);
    }
    objects.iter().map(one).collect()
}

const KNOWN: &str = "starvation, latency, liar, jitter, overhead, governor, escalation, service, compare, loops, footprint, instructions and scale";

fn one(object: &Value) -> Result<Section, String> {
    let bench = text(object, "bench").ok_or_else(|| {
        format!("does not say of which benchmark it is: it is to be what {KNOWN} print with --json")
    })?;
    let mut section = match bench.as_str() {
        "compare" | "escalation" | "footprint" | "governor" | "instructions" | "jitter"
        | "latency" | "liar" | "loops" | "overhead" | "scale" | "service" | "starvation" => {
            rows::section(object, &bench)
        }
        "criterion" => criterion::section(object),
        _ => {
            return Err(format!(
                "is of {bench:?}, which is not known here: {KNOWN} are"
            ));
        }
    };
    let is_empty = |figure: &Figure| figure.table.rows.is_empty();
    if section.figures.iter().all(is_empty) {
        return Err(format!(
            "has no figure of {bench} in it: measure again, with `{bench} --json` of this version"
        ));
    }
    section.host = at(object, "host").filter(|host| host.is_object()).cloned();
    if yes(object, "interrupted") {
        section.notes.push(interrupt::ENDED_EARLY.into());
    }
    Ok(section)
}

/// Lines with their names; none where no line has two points.
fn lines(across: Across, unit: Unit, mut all: Vec<(String, Vec<(f64, f64)>)>) -> Option<Plot> {
    all.retain(|(_, points)| points.len() > 1);
    all.truncate(MOST_LINES);
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let line = |((label, mut points), slot): ((String, Vec<(f64, f64)>), usize)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line {
            label,
            slot,
            points,
        }
    };
    let lines: Vec<Line> = all
        .into_iter()
        .zip(palette::places(&names))
        .map(line)
        .collect();
    (!lines.is_empty()).then_some(Plot::Lines(Lines {
        across,
        unit,
        lines,
    }))
}

/// Rows of numbers in groups, and what they are compared with; none where there is no number.
fn rows(
    unit: Unit,
    reference: Option<(f64, String)>,
    mut groups: Vec<(String, Vec<Row>)>,
) -> Option<Plot> {
    let mut left = MOST_ROWS;
    for (_, rows) in &mut groups {
        rows.truncate(left);
        left -= rows.len();
    }
    groups.retain(|(_, rows)| !rows.is_empty());
    let mut all = groups.iter().flat_map(|(_, rows)| rows);
    all.any(|row| row.value.is_some())
        .then_some(Plot::Rows(Rows {
            unit,
            reference,
            groups,
        }))
}

/// Gives the rows of each group their colours.
fn coloured(mut rows: Vec<Row>) -> Vec<Row> {
    let names: Vec<String> = rows.iter().map(|row| row.label.clone()).collect();
    for (row, slot) in rows.iter_mut().zip(palette::places(&names)) {
        row.slot = slot;
    }
    rows
}

/// How to read the axis of a percentile curve.
const PERCENTILES: &str = "The axis below is stretched: 90, 99 and 99.9 % are equally far apart.";

/// Every n-th point, so that at most [`MOST_POINTS`] are left.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    points.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_files_say_what_is_known() {
        for (value, expected) in [
            (json!({}), "does not say"),
            (json!({ "bench": "nonsense" }), "is not known"),
            (json!({ "bench": 3 }), "does not say"),
            (json!({ "bench": "latency" }), "measure again"),
            (
                json!({ "bench": "jitter", "rows": "none" }),
                "measure again",
            ),
            (
                json!({ "bench": "starvation", "runs": [1, null, {}] }),
                "measure again",
            ),
            (
                json!({ "bench": "overhead", "cache": { "sizes": [{}] } }),
                "measure again",
            ),
            (
                json!({ "bench": "governor", "rows": [{}, 3], "courses": [{}, 3] }),
                "measure again",
            ),
            (
                json!({ "bench": "liar", "honest": [], "beside": {} }),
                "measure again",
            ),
            (json!({ "bench": "escalation" }), "measure again"),
            (
                json!({ "bench": "compare", "cases": [{ "case": 3 }, {}] }),
                "measure again",
            ),
            (
                json!({ "bench": "footprint", "idle": [{ "runtime": 3 }, {}], "tasks": 1 }),
                "measure again",
            ),
            (
                json!({ "bench": "criterion", "medians": [{ "name": 3 }] }),
                "measure again",
            ),
            (json!({ "record": "run" }), "no run"),
        ] {
            let rows_of: RowsOf = |_| Err("has no run with a figure".into());
            let error = of(&[value], rows_of).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_of_runs_is_one_section_of_its_rows() {
        let runs = [json!({ "record": "host" }), json!({ "record": "run" })];
        let rows_of: RowsOf = |runs| {
            assert_eq!(runs.len(), 2);
            let rows: Vec<_> = [("default", 4e6), ("morpheus", 2e6)]
                .map(|(name, median)| {
                    crate::rows::Row::new("latency", name, "wake p99", Unit::Time, vec![median])
                })
                .into();
            Ok(json!({ "bench": "scale", "rows": rows }))
        };
        let [section] = &of(&runs, rows_of).unwrap()[..] else {
            panic!("not one section");
        };
        let table = &section.figures[0].table;
        assert_eq!(section.figures[0].title, "latency: wake p99");
        assert_eq!(
            table.rows[0][..2],
            ["default", "4.00 ms"].map(str::to_owned)
        );
        assert_eq!(
            table.rows[1][..2],
            ["morpheus", "2.00 ms"].map(str::to_owned)
        );
    }

    #[test]
    fn many_points_are_thinned_and_few_are_not() {
        let points = |n: usize| (0..n).map(|i| (i as f64, 1.0)).collect::<Vec<_>>();
        assert_eq!(thinned(points(600)).len(), 600);
        assert!(thinned(points(100_000)).len() <= MOST_POINTS);
        assert!(thinned(Vec::new()).is_empty());
    }
}
