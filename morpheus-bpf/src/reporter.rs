// SPDX-License-Identifier: GPL-2.0-only
//! What a daemon says of itself without being asked: a line on standard output, and a file for Prometheus.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use morpheus_tools::prometheus;
use morpheus_tools::reading::Reading;
use morpheus_tools::telemetry::{self, Rates};

/// How often to say it, and where.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How often to print a line.
    pub lines: Option<Duration>,
    /// The file for Prometheus.
    pub file: Option<PathBuf>,
    /// How often it is written anew.
    pub file_interval: Duration,
}

/// Says it in time. The file goes with it: a daemon that has ended exports nothing.
#[derive(Debug)]
pub struct Reporter {
    plan: Plan,
    next_line: Option<Instant>,
    next_file: Option<Instant>,
    /// What the next line is about the difference to.
    before: Reading,
    since: Instant,
    /// The last write failed, and it was said.
    said_so: bool,
}

impl Reporter {
    /// Counts from `now` on. The file is due at once, a line after its interval.
    #[must_use]
    pub fn new(plan: Plan, now: Instant) -> Reporter {
        Reporter {
            next_line: plan.lines.map(|interval| now + interval),
            next_file: plan.file.is_some().then_some(now),
            plan,
            before: Reading::default(),
            since: now,
            said_so: false,
        }
    }

    /// When something is to be said next; `None` is never.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        [self.next_line, self.next_file].into_iter().flatten().min()
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
                    eprintln!(
                        "scx_morpheus: cannot write {}: {error}; it is tried again",
                        path.display()
                    );
                }
            }
            self.next_file = Some(now + self.plan.file_interval);
        }
        if is_past(self.next_line, now) {
            let elapsed = now.saturating_duration_since(self.since);
            let rates = Rates::between(&self.before, &reading, elapsed);
            // A daemon goes on where nobody reads its lines any more.
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
    fn the_file_comes_at_once_and_goes_at_the_end() {
        let path = std::env::temp_dir().join(format!("morpheus-{}.prom", std::process::id()));
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let plan = Plan {
            lines: Some(100 * second),
            file: Some(path.clone()),
            file_interval: 5 * second,
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
