//! Makes records of a daemon's readings, and writes them.
//!
//! The disk may take its time, and the daemon's one thread has none: records go through a bounded queue to a thread that
//! writes them. Where the queue is full a record is lost, and the history has a gap.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Resolution;
use super::file::{Error, Writer};
use super::record::Record;
use crate::reading::Reading;

/// How many records may wait: a minute's.
const QUEUE: usize = 64;
const MINUTE: Duration = Duration::from_secs(60);
/// A shorter time than this, at the end of a run, is no interval.
const LEAST: Duration = Duration::from_millis(500);

/// Records what a daemon does, from its first reading on.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    records: Option<Sender<(Resolution, Record)>>,
    thread: Option<JoinHandle<()>>,
    /// Since the last record of each resolution.
    spans: [Option<Span>; 2],
    last: Option<(Reading, Instant, u64)>,
}

/// The readings since a record.
#[derive(Debug)]
struct Span {
    from: Reading,
    since: Instant,
    longest_wait_ns: Option<u64>,
}

impl Recorder {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or is something else.
    pub fn start(path: &Path) -> Result<Recorder, Error> {
        let writer = Writer::open(path)?;
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        // As other programs find it.
        let path = path.canonicalize().map_err(io)?;
        let (sender, records) = bounded(QUEUE);
        let thread = thread::Builder::new()
            .name("morpheus-history".into())
            .spawn({
                let path = path.clone();
                move || write_all(writer, &records, &path)
            })
            .map_err(io)?;
        Ok(Recorder {
            path,
            records: Some(sender),
            thread: Some(thread),
            spans: [None, None],
            last: None,
        })
    }

    /// Where it writes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a reading; to be called about once in a second. `unix_ms` is the time on the clock.
    pub fn take(&mut self, reading: &Reading, now: Instant, unix_ms: u64) {
        for resolution in Resolution::ALL {
            let span = &mut self.spans[resolution as usize];
            let Some(open) = span else {
                *span = Some(Span::new(reading, now));
                continue;
            };
            open.longest_wait_ns = open.longest_wait_ns.max(reading.batch_waits_ns);
            let is_over = match resolution {
                Resolution::Seconds => true,
                Resolution::Minutes => now.saturating_duration_since(open.since) >= MINUTE,
            };
            if is_over {
                let record = open.record(reading, now, unix_ms);
                *span = Some(Span::new(reading, now));
                self.send(resolution, record);
            }
        }
        self.last = Some((reading.clone(), now, unix_ms));
    }

    fn send(&self, resolution: Resolution, record: Record) {
        if let Some(records) = &self.records {
            // Full, or its thread has ended: a gap.
            let _ = records.try_send((resolution, record));
        }
    }
}

impl Span {
    fn new(from: &Reading, since: Instant) -> Span {
        Span {
            from: from.clone(),
            since,
            longest_wait_ns: None,
        }
    }

    fn record(&self, now: &Reading, at: Instant, unix_ms: u64) -> Record {
        let interval = at.saturating_duration_since(self.since);
        Record::between(&self.from, now, interval, self.longest_wait_ns, unix_ms)
    }
}

/// The last minute is recorded as far as it went, and all that was taken is written.
impl Drop for Recorder {
    fn drop(&mut self) {
        if let (Some((reading, at, unix_ms)), Some(minute)) = (&self.last, &self.spans[1])
            && at.saturating_duration_since(minute.since) >= LEAST
        {
            self.send(Resolution::Minutes, minute.record(reading, *at, *unix_ms));
        }
        drop(self.records.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it was told on standard error.
            let _ = thread.join();
        }
    }
}

fn write_all(mut writer: Writer, records: &Receiver<(Resolution, Record)>, path: &Path) {
    let mut said_so = false;
    for (resolution, record) in records {
        let mut written = writer.append(resolution, &record);
        if written.is_ok() && resolution == Resolution::Minutes {
            written = writer.sync();
        }
        match written {
            Ok(()) => said_so = false,
            Err(_) if said_so => {}
            Err(error) => {
                said_so = true;
                eprintln!(
                    "scx_morpheus: the history {} cannot be written: {error}; it is tried again",
                    path.display()
                );
            }
        }
    }
    // It has been told, or the next start finds out.
    let _ = writer.sync();
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::history::{Figure, read};

    fn reading(second: u64) -> Reading {
        Reading::parse(&json!({
            "runs": "scheduler", "counters": { "from_main": 100 * second },
            "batch_waits_ns": if second == 30 { 9_000_000 } else { 1_000_000 },
        }))
    }

    #[test]
    fn seconds_and_minutes_of_a_run() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("history");
        let mut recorder = Recorder::start(&path).unwrap();
        let start = Instant::now();
        for second in 0..=90 {
            let now = start + Duration::from_secs(second);
            recorder.take(&reading(second), now, 1_000 * second);
            // The thread is to keep up: a queue of a minute is filled in no time here.
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(recorder.path().ends_with("history"));
        drop(recorder);
        let history = read(&path).unwrap();
        assert_eq!(history.seconds.len(), 90);
        assert!(history.seconds.iter().all(|record| {
            record.get(Figure::Dispatches) == Some(100.0) && record.interval_ms == 1000
        }));
        let minutes: Vec<_> = history
            .minutes
            .iter()
            .map(|record| (record.end_unix_ms, record.interval_ms))
            .collect();
        assert_eq!(minutes, [(60_000, 60_000), (90_000, 30_000)]);
        assert_eq!(history.minutes[0].get(Figure::Dispatches), Some(100.0));
        // The longest of the minute, and not of its last second.
        assert_eq!(history.minutes[0].get(Figure::LongestWait), Some(9.0));
        assert_eq!(history.minutes[1].get(Figure::LongestWait), Some(1.0));
    }

    #[test]
    fn a_run_of_one_reading_has_no_interval() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("history");
        let mut recorder = Recorder::start(&path).unwrap();
        recorder.take(&reading(1), Instant::now(), 0);
        drop(recorder);
        assert!(read(&path).unwrap().minutes.is_empty());
        assert!(Recorder::start(Path::new("/proc/history")).is_err());
    }
}
