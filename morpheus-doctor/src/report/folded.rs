//! Folded stacks: a line for each stack, outermost function first, with the microseconds that it stands for, as flame-graph tools
//! read them.

use std::io::{self, Write};

use crate::model::{Doing, Report};
use crate::report::names::is_hostile;

/// Writes the samples of a report as `computing;outer;inner 1234` lines, the weight in microseconds. Samples of less than half a
/// microsecond are left out.
///
/// # Errors
///
/// When writing fails.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for sample in &report.samples {
        let weight_us = sample.weight_ns / 1_000 + u64::from(sample.weight_ns % 1_000 >= 500);
        if weight_us == 0 {
            continue;
        }
        out.write_all(match sample.doing {
            Doing::Computing => b"computing",
            Doing::Blocked => b"blocked",
        })?;
        for function in &sample.functions {
            write!(out, ";{}", one_field(function))?;
        }
        writeln!(out, " {weight_us}")?;
    }
    out.flush()
}

/// A name that neither ends its field nor its line.
fn one_field(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| match c {
            ';' => ':',
            c if is_hostile(c) => '?',
            c => c,
        })
        .collect();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}
