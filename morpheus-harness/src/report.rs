//! Numbers as people read them, and tables that fit a terminal.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use indicatif::HumanCount;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::interrupt;

/// Columns that the output of a benchmark may take.
pub const WIDTH: usize = 110;

/// A time in nanoseconds with two or three digits and a unit: `211 µs`, `1.2 ms`, `2.70 s`.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999_500.0 => (ns / 1e3, "µs"),
        ns if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = usize::from(value < 99.95) + usize::from(value < 9.995 && unit == "s");
    format!("{value:.digits$} {unit}")
}

/// A whole number with thousands separated: `16,000`.
pub fn count(n: u64) -> String {
    HumanCount(n).to_string()
}

/// How many times `a` is `b`, as people say it: `1,300`, `12`, `1.4`.
pub fn times(a: f64, b: f64) -> String {
    let factor = a / b;
    if !factor.is_finite() {
        "–".into()
    } else if factor >= 10.0 {
        count(factor.round() as u64)
    } else {
        format!("{factor:.1}")
    }
}

/// A column of a [`Table`].
struct Column {
    /// The head first.
    cells: Vec<String>,
    /// Columns with the highest number go first when the table is too wide.
    expendable: u8,
}

/// A table of text: the first column flush left, the others flush right.
#[derive(Default)]
pub struct Table {
    columns: Vec<Column>,
}

impl Table {
    /// Adds a column. When the table is too wide, columns with the highest `expendable` are left out
    /// first, from the right; those with 0 stay.
    pub fn column(&mut self, head: &str, expendable: u8, cells: Vec<String>) {
        let cells = std::iter::once(head.to_owned()).chain(cells).collect();
        self.columns.push(Column { cells, expendable });
    }

    /// The table in at most `width` columns of text, as far as the columns that must stay allow.
    pub fn render(mut self, width: usize) -> String {
        while self.width() > width {
            let worst = self.columns.iter().map(|c| c.expendable).max().unwrap_or(0);
            if worst == 0 {
                break;
            }
            let last = self.columns.iter().rposition(|c| c.expendable == worst);
            self.columns
                .remove(last.expect("the maximum is among them"));
        }
        let heights = self.columns.iter().map(|column| column.cells.len());
        let lines = 0..heights.max().unwrap_or(0);
        lines.map(|number| self.line(number)).collect()
    }

    fn line(&self, number: usize) -> String {
        let mut line = String::new();
        for (i, column) in self.columns.iter().enumerate() {
            let text = column.cells.get(number).map_or("", String::as_str);
            let pad = column.width();
            if i == 0 {
                line += &format!("{text:<pad$}");
            } else {
                line += &format!("  {text:>pad$}");
            }
        }
        line.trim_end().to_owned() + "\n"
    }

    fn width(&self) -> usize {
        let gaps = 2 * self.columns.len().saturating_sub(1);
        self.columns.iter().map(Column::width).sum::<usize>() + gaps
    }
}

impl Column {
    fn width(&self) -> usize {
        let widths = self.cells.iter().map(|text| text.chars().count());
        widths.max().unwrap_or(0)
    }
}

/// Prints to stdout. A reader that closes the pipe has seen enough: no error. Where it cannot be written, the process ends with 1: what
/// was measured is cut off.
pub fn print(text: &str) {
    if !is_written(text) {
        std::process::exit(1);
    }
}

/// Prints to stdout as [`print()`] does, and returns false where that fails. The reason goes to stderr.
pub fn is_written(text: &str) -> bool {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "the results cannot be written: {error}");
            false
        }
        _ => true,
    }
}

/// One line of JSON.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs of numbers and text") + "\n"
}

/// Reads JSON by way of a [`Value`]: so each type is compiled for one reader, not for each of serde's.
///
/// # Errors
/// It is no JSON, or not of this type.
pub fn from_json<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str::<Value>(text).and_then(serde_json::from_value)
}

/// How a benchmark ends that has something to show: 0 measured, 1 something failed, 130 after Ctrl-C. A measurement that Ctrl-C
/// prevented has not failed.
pub fn exit_code(interrupted: bool, failed: bool) -> ExitCode {
    ExitCode::from(match (interrupted, failed) {
        (true, _) => 130,
        (false, true) => 1,
        (false, false) => 0,
    })
}

/// Says why the program `name` has nothing to show, and how it ends: with 1.
pub fn failed(name: &str, why: &str) -> ExitCode {
    eprintln!("{name}: {why}");
    ExitCode::FAILURE
}

/// Says beneath a table whether Ctrl-C ended what it shows.
pub fn note_early_end(text: &mut String, interrupted: bool) {
    if interrupted {
        *text += interrupt::ENDED_EARLY;
        text.push('\n');
    }
}

/// The words of a text in lines, each of which has as many as it `fits`.
pub fn lines(text: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if fits(&format!("{line} {word}")) => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Breaks text between words so that no line is longer than `width`.
pub fn wrap(text: &str, width: usize) -> String {
    lines(text, |line| line.chars().count() <= width).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_fitting_unit() {
        let shown = [
            0,
            850,
            1_200,
            99_940,
            211_400,
            999_600,
            1_249_000,
            199_000_000,
            2_700_000_000,
        ]
        .map(time);
        let expected = [
            "0 ns", "850 ns", "1.2 µs", "99.9 µs", "211 µs", "1.0 ms", "1.2 ms", "199 ms", "2.70 s",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn counts_and_factors() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [times(3.0, 2.0), times(2600.0, 2.0), times(1.0, 0.0)],
            ["1.5", "1,300", "–"]
        );
    }

    #[test]
    fn a_wide_table_loses_its_least_needed_columns() {
        let mut table = Table::default();
        table.column("runtime", 0, vec!["tokio".into()]);
        table.column("p99", 0, vec!["211 µs".into()]);
        table.column("max", 2, vec!["x".repeat(50)]);
        table.column("polls", 1, vec!["12".into()]);
        assert_eq!(
            table.render(40),
            "runtime     p99  polls\ntokio    211 µs     12\n"
        );
    }

    #[test]
    fn words_wrap() {
        assert_eq!(wrap("one two  three", 8), "one two\nthree");
    }
}
