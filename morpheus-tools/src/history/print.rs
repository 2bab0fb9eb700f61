//! A history as a table and as JSON.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::record::{Figure, Record};
use super::{History, Resolution};
use crate::telemetry::{Latency, rate_text};

/// The last time that the calendar here has: the end of the year 9999.
const LATEST_UNIX_S: u64 = 253_402_300_799;
/// Where the ends of two records are further apart than this number of their lengths, no daemon ran in between.
const GAP_INTERVALS: u64 = 3;

/// A line for each record, the oldest first; the times are UTC.
#[must_use]
pub fn table(history: &History, resolution: Resolution) -> String {
    let mut text = format!(
        "{:<20} {:>9} {:>8} {:>8} {:>9} {:>11} {:>11} {:>11} {:>8} {:>5} {:>9} {:>7}\n",
        "end (UTC)",
        "dispatch",
        "kicks",
        "idle k.",
        "wakeups",
        "p99 lat cr.",
        "p99 interac",
        "p99 batch",
        "longest",
        "idle",
        "processes",
        "workers"
    );
    let mut before: Option<&Record> = None;
    for record in history.of(resolution) {
        if before.is_some_and(|before| is_gap(before, record)) {
            text += "…\n";
        }
        before = Some(record);
        let rate = |figure| shown(record.get(figure).map(rate_text));
        let p99 = |figure| {
            let latency = record.get(figure).map(|us| Latency { us, or_more: false });
            shown(latency.map(|latency| latency.to_string()))
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<20} {:>9} {:>8} {:>8} {:>9} {:>11} {:>11} {:>11} {:>8} {:>5} {:>9} {:>7}",
            time(record.end_unix_ms),
            rate(Figure::Dispatches),
            rate(Figure::HardKicks),
            rate(Figure::SoftKicks),
            rate(Figure::Wakeups),
            p99(Figure::LatCriticalP99),
            p99(Figure::InteractiveP99),
            p99(Figure::BatchP99),
            shown(
                record
                    .get(Figure::LongestWait)
                    .map(|ms| format!("{ms:.0} ms"))
            ),
            shown(
                record
                    .get(Figure::Idle)
                    .map(|share| format!("{:.0}%", share * 100.0))
            ),
            record.processes,
            record.workers,
        );
    }
    text
}

/// Both resolutions, the oldest records first.
#[must_use]
pub fn json(history: &History) -> Value {
    let all = |records: &[Record]| records.iter().map(object).collect::<Vec<_>>();
    json!({
        "seconds": all(&history.seconds),
        "minutes": all(&history.minutes),
        "damaged_records": history.damaged,
    })
}

/// Whether there was no daemon for a while between two records, or the clock was set.
pub(crate) fn is_gap(before: &Record, after: &Record) -> bool {
    match after.end_unix_ms.checked_sub(before.end_unix_ms) {
        None => true,
        Some(apart_ms) => apart_ms > GAP_INTERVALS * u64::from(after.interval_ms.max(1)),
    }
}

fn object(record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("end".into(), time(record.end_unix_ms).into());
    object.insert("end_unix_ms".into(), record.end_unix_ms.into());
    object.insert("interval_ms".into(), record.interval_ms.into());
    object.insert("processes".into(), record.processes.into());
    object.insert("workers".into(), record.workers.into());
    for figure in Figure::ALL {
        object.insert(figure.name().into(), record.get(figure).into());
    }
    object.into()
}

fn shown(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// As RFC 3339 has it. A file may hold any number.
fn time(unix_ms: u64) -> String {
    let second = Duration::from_secs((unix_ms / 1000).min(LATEST_UNIX_S));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + second).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn history(ends_ms: &[u64]) -> History {
        let reading = Reading::parse(&json!({
            "runs": "scheduler", "processes": 3, "counters": { "from_main": 50, "kicks_idle": 2 }, "idle_share": 0.5,
        }));
        let second = Duration::from_secs(1);
        let records = ends_ms.iter().map(|end| {
            Record::between(&Reading::default(), &reading, second, Some(4_000_000), *end)
        });
        History {
            seconds: records.collect(),
            ..History::default()
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_record_and_marks_gaps() {
        let history = history(&[1_000, 2_000, 60_000, 59_000, u64::MAX]);
        let text = table(&history, Resolution::Seconds);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 9, "{text}");
        assert!(lines[1].starts_with("1970-01-01T00:00:01Z "), "{text}");
        for part in [" 50 ", " 2.0 ", " 4 ms ", " 50% ", " 3 "] {
            assert!(lines[1].contains(part), "{part}: {text}");
        }
        assert!(lines[8].starts_with("9999-12-31T23:59:59Z "), "{text}");
        assert_eq!([3, 5, 7].map(|line| lines[line]), ["…"; 3]);
        assert_eq!(table(&history, Resolution::Minutes).lines().count(), 1);
        let widths: Vec<_> = lines
            .iter()
            .filter(|line| **line != "…")
            .map(|line| line.chars().count())
            .collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    }

    #[test]
    fn json_has_every_figure() {
        let value = json(&history(&[1_000]));
        let record = &value["seconds"][0];
        assert_eq!(record["end"], "1970-01-01T00:00:01Z");
        assert_eq!(record["dispatches_per_s"], 50.0);
        assert_eq!(record["wake_p99_batch_us"], Value::Null);
        for figure in Figure::ALL {
            assert!(record.get(figure.name()).is_some(), "{}", figure.name());
        }
        assert_eq!(value["minutes"], json!([]));
        assert_eq!(value["damaged_records"], 0);
    }
}
