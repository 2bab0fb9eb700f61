//! Numbers as people read them, and tables that fit a terminal.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

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

/// [`time`], or `–` where there are too few samples.
pub fn maybe_time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".into(), time)
}

/// A whole number with thousands separated: `16,000`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
    head: String,
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
        self.columns.push(Column {
            head: head.into(),
            cells,
            expendable,
        });
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
        let rows = self
            .columns
            .iter()
            .map(|c| c.cells.len())
            .max()
            .unwrap_or(0);
        let mut text = self.line(|column| &column.head);
        for row in 0..rows {
            text += &self.line(|column| column.cells.get(row).map_or("", String::as_str));
        }
        text
    }

    fn line<'a>(&'a self, cell: impl Fn(&'a Column) -> &'a str) -> String {
        let mut line = String::new();
        for (i, column) in self.columns.iter().enumerate() {
            let (text, pad) = (cell(column), column.width());
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
        let cells = self.cells.iter().chain([&self.head]);
        cells.map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

/// Prints to stdout. A reader that closes the pipe has seen enough: no error.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// One line of JSON.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs of numbers and text") + "\n"
}

/// How a benchmark ended that has something to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All was measured.
    Complete,
    /// Some of it could not be.
    Failed,
    /// Ctrl-C came before the end.
    Interrupted,
}

impl Ended {
    /// From both answers. What Ctrl-C kept from being measured has not failed.
    pub fn of(interrupted: bool, failed: bool) -> Ended {
        match (interrupted, failed) {
            (true, _) => Ended::Interrupted,
            (false, true) => Ended::Failed,
            (false, false) => Ended::Complete,
        }
    }

    /// 0 measured, 1 failed, 130 after Ctrl-C.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(self) -> u8 {
        match self {
            Ended::Complete => 0,
            Ended::Failed => 1,
            Ended::Interrupted => 130,
        }
    }
}

/// Shows what the benchmark `name` measured, as JSON or as `table` has it, and says how it `ended`: 0 measured, 1 failed,
/// 130 after Ctrl-C.
pub fn conclude<R: Serialize>(
    name: &str,
    measured: Result<R, String>,
    json: bool,
    table: impl FnOnce(&R) -> String,
    ended: impl FnOnce(&R) -> Ended,
) -> ExitCode {
    match measured {
        Ok(result) => {
            let text = if json {
                self::json(&result)
            } else {
                table(&result)
            };
            print(&text);
            ended(&result).exit_code()
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says beneath a table whether Ctrl-C ended what it shows.
pub fn note_early_end(text: &mut String, interrupted: bool) {
    if interrupted {
        *text += interrupt::ENDED_EARLY;
        text.push('\n');
    }
}

/// Breaks text between words so that no line is longer than `width`.
pub fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
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
        assert_eq!(maybe_time(None), "–");
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
