//! The report as JSON: [`Report`] as it is, with its version.

use std::io::{self, Write};

use crate::model::Report;

/// Writes a report, indented, with a newline at the end.
///
/// # Errors
///
/// When writing fails.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}
