// SPDX-License-Identifier: GPL-2.0-only
//! The unsolicited reports of a daemon: a line on standard output, a file for Prometheus, and the history.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use morpheus_tools::history::Recorder;
use morpheus_tools::prometheus;
use morpheus_tools::reading::Reading;
use morpheus_tools::telemetry::{self, Rates};

/// How often the history has a record.
const HISTORY_INTERVAL: Duration = Duration::from_secs(1);

/// How often to say it, and where.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How often to print a line.
    pub lines: Option<Duration>,
    /// The file for Prometheus.
    pub file: Option<PathBuf>,
    /// How often it is written anew.
    pub file_interval: Duration,
    /// The file of the history.
    pub history: Option<PathBuf>,
}

/// Says it in time. The file goes with it: a daemon that has ended exports nothing.
#[derive(Debug)]
pub struct Reporter {
    plan: Plan,
    next_line: Option<Instant>,
    next_file: Option<Instant>,
    history: Option<Recorder>,
    next_record: Option<Instant>,
    /// The reading from which the next line shows the difference.
    before: Reading,
    since: Instant,
    /// The last write failed, and it was said.
    said_so: bool,
}

impl Reporter {
    /// Counts from `now` on. The file is due at once, a line after its interval. A history that cannot be written is told,
    /// and there is none.
    #[must_use]
    pub fn new(plan: Plan, now: Instant) -> Reporter {
        let recorder = plan.history.as_deref().map(Recorder::start);
        let history = recorder.and_then(|started| {
            started
                .inspect_err(|error| crate::say!("scx_morpheus: no history is recorded: {error}"))
                .ok()
        });
        Reporter {
            next_line: plan.lines.map(|interval| now + interval),
            next_file: plan.file.is_some().then_some(now),
            next_record: history.is_some().then_some(now),
            history,
            plan,
            before: Reading::default(),
            since: now,
            said_so: false,
        }
    }

    /// When something is to be said next; `None` is never.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        [self.next_line, self.next_file, self.next_record]
            .into_iter()
            .flatten()
            .min()
    }

    /// The file of the history, where one is recorded.
    #[must_use]
    pub fn history(&self) -> Option<&Path> {
        self.history.as_ref().map(Recorder::path)
    }

    /// Whether something is to be said now.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|then| then <= now)
    }

    /// Says what is due of these numbers.
    pub fn report(&mut self, numbers: &Value, now: Instant) {
        let reading = Reading::parse(numbers);
        if let (Some(path), true) = (&self.plan.file, is_past(self.next_file, now)) {
            match prometheus::write(path, &reading) {
                Ok(()) => self.said_so = false,
                Err(_) if self.said_so => {}
                Err(error) => {
                    self.said_so = true;
                    crate::say!(
                        "scx_morpheus: cannot write {}: {error}; it is tried again",
                        path.display()
                    );
                }
            }
            self.next_file = Some(now + self.plan.file_interval);
        }
        if let (Some(history), true) = (&mut self.history, is_past(self.next_record, now)) {
            // A clock from before 1970 is no reason to end.
            let unix = SystemTime::now().duration_since(UNIX_EPOCH);
            let unix_ms = unix.unwrap_or_default().as_millis().try_into();
            history.take(&reading, now, unix_ms.unwrap_or(u64::MAX));
            self.next_record = Some(now + HISTORY_INTERVAL);
        }
        if is_past(self.next_line, now) {
            let elapsed = now.saturating_duration_since(self.since);
            let rates = Rates::between(&self.before, &reading, elapsed);
            // A daemon goes on when its lines have no reader any more.
            let _ = writeln!(io::stdout(), "{}", telemetry::line(&reading, &rates));
            self.next_line = self.plan.lines.map(|interval| now + interval);
            (self.before, self.since) = (reading, now);
        }
    }
}

fn is_past(then: Option<Instant>, now: Instant) -> bool {
    then.is_some_and(|then| then <= now)
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Some(path) = &self.plan.file {
            // It may never have been written.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_due_without_a_plan() {
        let now = Instant::now();
        let reporter = Reporter::new(Plan::default(), now);
        assert_eq!(reporter.next(), None);
        assert!(!reporter.is_due(now + Duration::from_secs(1000)));
    }

    #[test]
    fn the_history_is_recorded_each_second() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("history");
        let plan = Plan {
            history: Some(path.clone()),
            ..Plan::default()
        };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut reporter = Reporter::new(plan.clone(), start);
        assert!(reporter.history().is_some() && reporter.is_due(start));
        for round in 0..3 {
            let now = start + round * second;
            assert!(reporter.is_due(now));
            reporter.report(&json!({ "processes": 7 }), now);
            assert!(!reporter.is_due(now + second / 2));
        }
        // A second one is told, and goes on without.
        assert_eq!(Reporter::new(plan, start).next(), None);
        drop(reporter);
        let history = morpheus_tools::history::read(&path).unwrap();
        assert_eq!((history.seconds.len(), history.minutes.len()), (2, 1));
        assert_eq!(history.seconds[1].processes, 7);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let apart = now.as_millis() as u64 - history.seconds[0].end_unix_ms;
        assert!(apart < 60_000, "{apart} ms ago");
    }

    #[test]
    fn the_file_comes_at_once_and_goes_at_the_end() {
        let path = std::env::temp_dir().join(format!("morpheus-{}.prom", std::process::id()));
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let plan = Plan {
            lines: Some(100 * second),
            file: Some(path.clone()),
            file_interval: 5 * second,
            history: None,
        };
        let mut reporter = Reporter::new(plan, start);
        assert!(reporter.is_due(start));
        reporter.report(&json!({ "workers": 3 }), start);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\nscx_morpheus_workers 3\n"), "{text}");
        assert!(!reporter.is_due(start + 4 * second));
        assert_eq!(reporter.next(), Some(start + 5 * second));
        reporter.report(&json!({ "workers": 4 }), start + 5 * second);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\nscx_morpheus_workers 4\n"), "{text}");
        // A line is about what happened since the one before, whenever the file was written.
        assert_eq!(reporter.since, start);
        reporter.report(&json!({ "workers": 4 }), start + 100 * second);
        assert_eq!(reporter.since, start + 100 * second);
        drop(reporter);
        assert!(!path.exists());
    }
}
