//! A reading in Prometheus's text format, for the textfile collector of its node exporter or for a script.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::reading::{Process, Reading, SLEEPS, TIERS};
use crate::telemetry::{bucket_end_us, sum_us};

/// The regimes that there are: each is a series, and one of them is 1.
const REGIMES: [&str; 3] = ["light", "mixed", "heavy"];

/// The exported metrics, in Prometheus's text format.
#[must_use]
pub fn text(reading: &Reading) -> String {
    let mut text = Exposition::default();
    about_the_daemon(&mut text, reading);
    counters(&mut text, reading);
    wake_latency(&mut text, reading);
    adaptation(&mut text, reading);
    processes(&mut text, reading);
    text.0
}

/// Writes the file anew, so that a reader finds the whole of the old text or of the new one.
///
/// # Errors
///
/// When the system refuses: no such directory, no rights, no room. Then the old file is as it was.
pub fn write(path: &Path, reading: &Reading) -> io::Result<()> {
    let beside = temporary(path)?;
    let written = (|| {
        // A daemon that was killed while it wrote has left a file.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new()
            .write(true)
            // Where anybody may write, a link may be waiting under this name.
            .create_new(true)
            .mode(0o644)
            .open(&beside)?
            .write_all(text(reading).as_bytes())?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        // There may be none, and nothing more can be done about one that stays.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// In the same directory, so that it can be renamed; with an end that no collector reads.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a file"))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(beside))
}

/// The format's lines.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// Begins a metric, whose samples have to follow.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(self.0, "# HELP scx_morpheus_{name} {help}");
        let _ = writeln!(self.0, "# TYPE scx_morpheus_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.0, "scx_morpheus_{name}");
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"");
            let _ = write!(Escaped(&mut self.0), "{value}");
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A metric with one sample, where there is a value.
    fn one<T: Display>(&mut self, name: &str, kind: &str, help: &str, value: Option<T>) {
        if let Some(value) = value {
            self.metric(name, kind, help);
            self.sample(name, &[], value);
        }
    }
}

/// Escapes what a label's value may not hold as it is.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                character => self.0.push(character),
            }
        }
        Ok(())
    }
}

fn about_the_daemon(text: &mut Exposition, reading: &Reading) {
    if let Some(runs) = &reading.runs {
        text.metric("info", "gauge", "1, and what runs.");
        text.sample("info", &[("runs", runs)], 1);
    }
    text.one(
        "processes",
        "gauge",
        "Connected processes.",
        reading.processes,
    );
    text.one(
        "workers",
        "gauge",
        "Threads of connected processes that are bound to a slot.",
        reading.workers,
    );
    text.one(
        "refused_total",
        "counter",
        "Connections and requests that were refused.",
        reading.refused,
    );
    text.one("cpus", "gauge", "CPUs that are scheduled.", reading.cpus);
}

fn counters(text: &mut Exposition, reading: &Reading) {
    let families = [
        (
            "to_",
            "placements_total",
            "queue",
            "Tasks that were put somewhere, by where.",
        ),
        (
            "from_",
            "choices_total",
            "queue",
            "Tasks that a CPU took when it had to choose, by where from.",
        ),
        (
            "kicks_",
            "kicks_total",
            "kind",
            "Preemptions that were asked for, by what for; those that were skipped, too.",
        ),
    ];
    let starting_with = |prefix: &'static str| {
        reading
            .counters
            .iter()
            .filter_map(move |(name, count)| Some((name.strip_prefix(prefix)?, count)))
    };
    for (prefix, name, label, help) in families {
        if starting_with(prefix).next().is_some() {
            text.metric(name, "counter", help);
        }
        for (what, count) in starting_with(prefix) {
            text.sample(name, &[(label, &what)], count);
        }
    }
    let caches = [("l2_hits_", "hit"), ("l2_misses_", "miss")];
    if caches
        .iter()
        .any(|(prefix, _)| starting_with(prefix).next().is_some())
    {
        let help = "Wakeups by whether the CPU shares its L2 cache with the one before.";
        text.metric("l2_total", "counter", help);
    }
    for (prefix, result) in caches {
        for (tier, count) in starting_with(prefix) {
            text.sample("l2_total", &[("tier", &tier), ("result", &result)], count);
        }
    }
    let has_family = |name: &str| {
        let prefixes = families.iter().map(|(prefix, ..)| prefix);
        prefixes
            .chain(caches.iter().map(|(prefix, _)| prefix))
            .any(|prefix| name.starts_with(prefix))
    };
    let mut others = reading
        .counters
        .iter()
        .filter(|(name, _)| !has_family(name))
        .peekable();
    if others.peek().is_some() {
        text.metric("counts_total", "counter", "Other counts, by name.");
    }
    for (name, count) in others {
        text.sample("counts_total", &[("what", name)], count);
    }
}

fn wake_latency(text: &mut Exposition, reading: &Reading) {
    let name = "wake_latency_seconds";
    if reading.wake.iter().any(Option::is_some) {
        text.metric(
            name,
            "histogram",
            "From a task's wakeup until it runs. The sum is computed from the buckets.",
        );
    }
    for (tier, histogram) in TIERS.iter().zip(&reading.wake) {
        let Some(histogram) = histogram else { continue };
        let mut within = 0u64;
        for (index, count) in histogram.iter().enumerate() {
            within = within.saturating_add(*count);
            // As a decimal fraction of whole microseconds, so that it is always the same text.
            let end: &dyn Display = match bucket_end_us(index) {
                Some(us) => &format!("{:.6}", us as f64 / 1e6),
                None => &"+Inf",
            };
            let labels: [(&str, &dyn Display); 2] = [("tier", tier), ("le", end)];
            text.sample("wake_latency_seconds_bucket", &labels, within);
        }
        let labels: [(&str, &dyn Display); 1] = [("tier", tier)];
        text.sample("wake_latency_seconds_sum", &labels, sum_us(histogram) / 1e6);
        text.sample("wake_latency_seconds_count", &labels, within);
    }
}

fn adaptation(text: &mut Exposition, reading: &Reading) {
    if let Some(sleeps) = reading.sleeps {
        text.metric("sleeps_total", "counter", "Sleeps of tasks, by kind.");
        for (kind, count) in SLEEPS.iter().zip(sleeps) {
            text.sample("sleeps_total", &[("kind", kind)], count);
        }
    }
    if let Some(now) = &reading.regime {
        text.metric("regime", "gauge", "1 for the regime that is in force.");
        for regime in REGIMES {
            text.sample("regime", &[("regime", &regime)], u8::from(regime == now));
        }
    }
    text.one(
        "burst",
        "gauge",
        "1 while there is a storm of wakeups.",
        reading.burst.map(u8::from),
    );
    text.one(
        "longrun",
        "gauge",
        "1 while batch work has gone on for long.",
        reading.longrun.map(u8::from),
    );
    text.one(
        "idle_ratio",
        "gauge",
        "Which part of the CPUs' time nobody wanted, from 0 to 1.",
        reading.idle_share,
    );
    text.one(
        "batch_wait_seconds",
        "gauge",
        "The longest that batch tasks went without service in the last second.",
        reading.batch_waits_ns.map(|ns| ns as f64 / 1e9),
    );
    if !reading.knobs.is_empty() {
        text.metric(
            "knob",
            "gauge",
            "A knob's value, in the unit that its name ends in.",
        );
    }
    for (knob, value) in &reading.knobs {
        text.sample("knob", &[("knob", knob)], value);
    }
    if !reading.modes.is_empty() {
        text.metric(
            "knob_info",
            "gauge",
            "1, and the value of a knob that is a word.",
        );
    }
    for (knob, value) in &reading.modes {
        text.sample("knob_info", &[("knob", knob), ("value", value)], 1);
    }
    text.one(
        "procdb_profiles",
        "gauge",
        "Programs in the process database.",
        reading.procdb.map(|profiles| profiles.known),
    );
    text.one(
        "procdb_confident_profiles",
        "gauge",
        "Those whose tier it predicts.",
        reading.procdb.map(|profiles| profiles.confident),
    );
}

/// Each process once: it has a connection for each of its runtimes, and two samples with the same labels are an error to a collector.
fn each_once(connections: &[Process]) -> Vec<Process> {
    let mut processes: BTreeMap<u64, Process> = BTreeMap::new();
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    for more in connections {
        let Some(process) = processes.get_mut(&more.pid) else {
            processes.insert(more.pid, more.clone());
            continue;
        };
        process.workers = process.workers.saturating_add(more.workers);
        process.stalled = sum(process.stalled, more.stalled);
        process.demoted = sum(process.demoted, more.demoted);
        process.throttled = sum(process.throttled, more.throttled);
    }
    processes.into_values().collect()
}

fn processes(text: &mut Exposition, reading: &Reading) {
    let connected = each_once(&reading.connections);
    if !connected.is_empty() {
        text.metric(
            "process_workers",
            "gauge",
            "Workers of a connected process.",
        );
    }
    for process in &connected {
        let labels: [(&str, &dyn Display); 2] = [("pid", &process.pid), ("comm", &process.comm)];
        text.sample("process_workers", &labels, process.workers);
    }
    let ladder = |process: &Process| {
        [
            ("stalled", process.stalled),
            ("demoted", process.demoted),
            ("throttled", process.throttled),
        ]
    };
    if connected
        .iter()
        .flat_map(ladder)
        .any(|(_, count)| count.is_some())
    {
        let help = "Workers of a connected process, by what is so of their present poll.";
        text.metric("process_ladder", "gauge", help);
    }
    for process in &connected {
        for (state, count) in ladder(process) {
            if let Some(count) = count {
                let labels: [(&str, &dyn Display); 3] = [
                    ("pid", &process.pid),
                    ("comm", &process.comm),
                    ("state", &state),
                ];
                text.sample("process_ladder", &labels, count);
            }
        }
    }
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
