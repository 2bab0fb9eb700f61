// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own tracing: its files, and the lines that it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file of the tracing.
pub fn file(name: &str) -> PathBuf {
    Path::new("/sys/kernel/tracing").join(name)
}

pub fn write(name: &str, text: &str) {
    let path = file(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("{text} to {}: {error}", path.display()));
}

/// Empties the trace, for events that the caller enables. It goes on with `tracing_on`.
pub fn prepare(buffer_kb_of_cpu: u32) {
    write("tracing_on", "0");
    write("trace", "");
    write("trace_clock", "mono");
    write("buffer_size_kb", &buffer_kb_of_cpu.to_string());
}

/// Ends it. Returns the lines.
pub fn end() -> String {
    write("tracing_on", "0");
    fs::read_to_string(file("trace")).unwrap()
}

/// A line such as "  sh-12  [003] d..2.  1.500000: sched_wakeup: comm=sh pid=13 prio=120 target_cpu=001". Names may have
/// blanks, colons and brackets.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub at_ns: u64,
    /// The CPU that it was written on.
    pub cpu: usize,
    /// The text after the event's name.
    pub fields: &'a str,
}

impl<'a> Line<'a> {
    /// `None` if it is of another event.
    pub fn read(line: &'a str, event: &str) -> Option<Line<'a>> {
        let (head, fields) = line.split_once(&format!(": {event}: "))?;
        let (head, at) = head.rsplit_once(' ')?;
        let (seconds, micros) = at.split_once('.')?;
        let (_, cpu) = head.rsplit_once('[')?;
        Some(Line {
            at_ns: seconds.parse::<u64>().ok()? * 1_000_000_000
                + micros.parse::<u64>().ok()? * 1000,
            cpu: cpu.split_once(']')?.0.parse().ok()?,
            fields,
        })
    }

    /// The number of the last field of this name: what comes before may be a name that looks like one.
    pub fn number<N: FromStr>(&self, field: &str) -> Option<N> {
        let (_, value) = self.fields.rsplit_once(&format!("{field}="))?;
        value.split_whitespace().next()?.parse().ok()
    }
}
