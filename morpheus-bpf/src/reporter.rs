// SPDX-License-Identifier: GPL-2.0-only
//! The unsolicited reports of a daemon: a line on standard output, a file for Prometheus, and the history.
//!
//! Two threads write them, one the lines (`Lines`), the other one the files (`Files`): a pipe that is full or a file system that is
//! frozen holds up that one alone, and no application takes the daemon for dead. What is due to one that is held up is left out.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use morpheus_tools::history::Recorder;
use morpheus_tools::prometheus;
use morpheus_tools::reading::Reading;
use morpheus_tools::telemetry::{self, Rates};

/// How often the history has a record.
const HISTORY_INTERVAL: Duration = Duration::from_secs(1);
/// A write that has not ended by then is not waited for at the end.
const LAST_WRITE: Duration = Duration::from_millis(500);

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

/// Says it in time. The file goes with it: a daemon that has ended exports nothing, unless the file's own system is frozen.
#[derive(Debug)]
pub struct Reporter {
    plan: Plan,
    next_line: Option<Instant>,
    next_file: Option<Instant>,
    next_record: Option<Instant>,
    lines: Option<Writer>,
    files: Option<Writer>,
}

/// A thread that writes.
#[derive(Debug)]
struct Writer {
    /// Dropped, it tells the thread to end. There is room for one report beside the one that is being written.
    due: SyncSender<Due>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// A reading, and what is due of it.
#[derive(Clone, Debug)]
struct Due {
    reading: Reading,
    now: Instant,
    line: bool,
    file: bool,
    record: bool,
}

impl Reporter {
    /// Counts from `now` on. The file is due at once, a line after its interval. A history that cannot be written is told,
    /// and there is none.
    #[must_use]
    pub fn new(mut plan: Plan, now: Instant) -> Reporter {
        let recorder = plan.history.as_deref().map(Recorder::start);
        let history = recorder.and_then(|started| {
            started
                .inspect_err(|error| crate::say!("scx_morpheus: no history is recorded: {error}"))
                .ok()
        });
        plan.history = history.as_ref().map(|history| history.path().to_owned());
        let mut lines = Lines::new(now);
        let mut files = Files::new(plan.file.clone(), history);
        let (has_lines, has_files) = (
            plan.lines.is_some(),
            plan.file.is_some() || plan.history.is_some(),
        );
        let mut start = |is_needed: bool, write: Box<dyn FnMut(&Due) + Send>| {
            let started = is_needed.then(|| Writer::start(write)).transpose();
            started.unwrap_or_else(|error| {
                crate::say!("scx_morpheus: nothing is reported: no thread can be started: {error}");
                plan = Plan::default();
                None
            })
        };
        let lines = start(has_lines, Box::new(move |due| lines.write(due)));
        let files = start(has_files, Box::new(move |due| files.write(due)));
        Reporter {
            next_line: plan.lines.map(|interval| now + interval),
            next_file: plan.file.is_some().then_some(now),
            next_record: plan.history.is_some().then_some(now),
            plan,
            lines,
            files,
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
        self.plan.history.as_deref()
    }

    /// Whether something is to be said now.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|then| then <= now)
    }

    /// Hands over what is due of these numbers, and returns at once.
    pub fn report(&mut self, numbers: &Value, now: Instant) {
        let due = Due {
            reading: Reading::parse(numbers),
            now,
            file: is_past(self.next_file, now),
            record: is_past(self.next_record, now),
            line: is_past(self.next_line, now),
        };
        if due.file {
            self.next_file = Some(now + self.plan.file_interval);
        }
        if due.record {
            self.next_record = Some(now + HISTORY_INTERVAL);
        }
        if due.line {
            self.next_line = self.plan.lines.map(|interval| now + interval);
        }
        // Where one is held up, its next line has all that happened since its last one.
        if let (Some(lines), true) = (&self.lines, due.line) {
            let _ = lines.due.try_send(due.clone());
        }
        if let (Some(files), true) = (&self.files, due.file || due.record) {
            let _ = files.due.try_send(due);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The last sender: the thread ends after what it writes.
        self.due = sync_channel(1).0;
        if self.ended.recv_timeout(LAST_WRITE) == Err(RecvTimeoutError::Timeout) {
            crate::say!("scx_morpheus: a report is still being written, and is not waited for");
        }
    }
}

impl Writer {
    fn start(mut write: Box<dyn FnMut(&Due) + Send>) -> io::Result<Writer> {
        let (due, reports) = sync_channel(1);
        let (end, ended) = channel::<()>();
        let thread = thread::Builder::new().name("morpheus-report".into());
        thread.spawn(move || {
            let _end = end;
            for due in reports {
                write(&due);
            }
            drop(write);
        })?;
        Ok(Writer { due, ended })
    }
}

/// The lines on standard output.
#[derive(Debug)]
struct Lines {
    /// The reading from which the next line shows the difference.
    before: Reading,
    since: Instant,
}

impl Lines {
    fn new(now: Instant) -> Lines {
        Lines {
            before: Reading::default(),
            since: now,
        }
    }

    fn write(&mut self, due: &Due) {
        let elapsed = due.now.saturating_duration_since(self.since);
        let rates = Rates::between(&self.before, &due.reading, elapsed);
        // A daemon goes on when its lines have no reader any more.
        let _ = writeln!(io::stdout(), "{}", telemetry::line(&due.reading, &rates));
        (self.before, self.since) = (due.reading.clone(), due.now);
    }
}

/// The file for Prometheus, and the history.
#[derive(Debug)]
struct Files {
    file: Option<PathBuf>,
    history: Option<Recorder>,
    /// The last write failed, and it was said.
    said_so: bool,
}

impl Files {
    fn new(file: Option<PathBuf>, history: Option<Recorder>) -> Files {
        Files {
            file,
            history,
            said_so: false,
        }
    }

    fn write(&mut self, due: &Due) {
        if let (Some(path), true) = (&self.file, due.file) {
            match prometheus::write(path, &due.reading) {
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
        }
        if let (Some(history), true) = (&mut self.history, due.record) {
            // A clock from before 1970 is no reason to end.
            let unix = SystemTime::now().duration_since(UNIX_EPOCH);
            let unix_ms = unix.unwrap_or_default().as_millis().try_into();
            history.take(&due.reading, due.now, unix_ms.unwrap_or(u64::MAX));
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // It may never have been written.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_past(then: Option<Instant>, now: Instant) -> bool {
    then.is_some_and(|then| then <= now)
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
    fn the_history_is_due_each_second() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("history");
        let plan = Plan {
            history: Some(path.clone()),
            ..Plan::default()
        };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut reporter = Reporter::new(plan.clone(), start);
        assert_eq!(reporter.history(), Some(&*path));
        for round in 0..3 {
            let now = start + round * second;
            assert!(reporter.is_due(now));
            reporter.report(&json!({ "processes": 7 }), now);
            assert!(!reporter.is_due(now + second / 2));
        }
        // A second one is told, and goes on without.
        assert_eq!(Reporter::new(plan, start).next(), None);
    }

    #[test]
    fn the_history_has_each_second() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("history");
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut files = Files::new(None, Some(Recorder::start(&path).unwrap()));
        for round in 0..3 {
            files.write(&Due {
                reading: Reading::parse(&json!({ "processes": 7 })),
                now: start + round * second,
                line: false,
                file: false,
                record: true,
            });
        }
        drop(files);
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
        let has =
            |workers: &str| std::fs::read_to_string(&path).is_ok_and(|text| text.contains(workers));
        morpheus_testing::wait_for("the file", || has("\nscx_morpheus_workers 3\n"));
        assert!(!reporter.is_due(start + 4 * second));
        assert_eq!(reporter.next(), Some(start + 5 * second));
        reporter.report(&json!({ "workers": 4 }), start + 5 * second);
        morpheus_testing::wait_for("the file", || has("\nscx_morpheus_workers 4\n"));
        assert_eq!(reporter.next(), Some(start + 10 * second));
        // A line is about what happened since the one before, whenever the file was written.
        assert_eq!(reporter.next_line, Some(start + 100 * second));
        drop(reporter);
        assert!(!path.exists());
    }
}
