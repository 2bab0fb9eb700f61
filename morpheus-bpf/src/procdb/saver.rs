// SPDX-License-Identifier: GPL-2.0-only
//! Writes the process database on a thread of its own: on a disk that is slow or hangs a write takes seconds, and an application
//! that gets no heartbeat for one second takes the daemon for dead.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::ProcDb;
use super::file::save;

/// Writes that have not ended by then are not waited for at the end: the daemon restarts or ends.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The file of a database, and the write that is under way.
#[derive(Debug)]
pub struct Saver {
    path: PathBuf,
    /// Gets the result.
    writing: Option<Receiver<io::Result<()>>>,
    /// A write failed, and it was said.
    said_so: bool,
    write: fn(&ProcDb, &Path) -> io::Result<()>,
}

impl Saver {
    /// Writes to `path`, as [`save`] does.
    #[must_use]
    pub fn new(path: PathBuf) -> Saver {
        Saver {
            path,
            writing: None,
            said_so: false,
            write: save,
        }
    }

    /// Begins to write what the database has now, and returns at once. Writes nothing while an earlier write goes on.
    pub fn begin(&mut self, database: &ProcDb) {
        if self.has_ended(Duration::ZERO) {
            self.start(database);
        }
    }

    /// Writes what the database has in the end, after the write that is under way. Both have two seconds in all, and are left
    /// alone after that.
    pub fn finish(&mut self, database: &ProcDb) {
        let until = Instant::now() + LAST_WRITES;
        let rest = || until.saturating_duration_since(Instant::now());
        if self.has_ended(rest()) {
            self.start(database);
        }
        if !self.has_ended(rest()) {
            crate::say!(
                "scx_morpheus: {} is still being written, and is not waited for: what was learnt of processes may be lost",
                self.path.display()
            );
        }
    }

    fn start(&mut self, database: &ProcDb) {
        let (database, path, write) = (database.clone(), self.path.clone(), self.write);
        let (ended, writing) = channel();
        self.writing = Some(writing);
        let thread = thread::Builder::new().name("morpheus-procdb".into());
        let started = thread.spawn(move || {
            // Nobody waits for it any more where this fails.
            let _ = ended.send(write(&database, &path));
        });
        if let Err(error) = started {
            self.writing = None;
            self.tell(Err(error));
        }
    }

    /// Waits for the end of the write that is under way. Returns whether none goes on.
    fn has_ended(&mut self, within: Duration) -> bool {
        let Some(writing) = &self.writing else {
            return true;
        };
        let written = match writing.recv_timeout(within) {
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it panicked")),
            Ok(written) => written,
        };
        self.writing = None;
        self.tell(written);
        true
    }

    /// Says on standard error what went wrong, once until a write succeeds.
    fn tell(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => self.said_so = false,
            Err(_) if self.said_so => {}
            Err(error) => {
                self.said_so = true;
                crate::say!(
                    "scx_morpheus: what was learnt of processes cannot be kept in {}: {error} (--procdb names another \
                     file, --no-procdb keeps nothing)",
                    self.path.display()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procdb::file::load;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Condvar, Mutex};

    /// How many writes have begun, and how many may end.
    static WRITES: (Mutex<(u32, u32)>, Condvar) = (Mutex::new((0, 0)), Condvar::new());

    fn slow(database: &ProcDb, path: &Path) -> io::Result<()> {
        let mut writes = WRITES.0.lock().unwrap();
        writes.0 += 1;
        let number = writes.0;
        WRITES.1.notify_all();
        drop(WRITES.1.wait_while(writes, |writes| writes.1 < number));
        save(database, path)
    }

    #[test]
    fn a_disk_that_hangs_holds_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("procdb");
        let mut saver = Saver {
            write: slow,
            ..Saver::new(path.clone())
        };
        let mut database = ProcDb::new();
        let start = Instant::now();
        for _ in 0..3 {
            database.advance();
            saver.begin(&database);
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        let wait = |condition: fn(&mut (u32, u32)) -> bool| {
            let writes = WRITES.0.lock().unwrap();
            drop(WRITES.1.wait_while(writes, condition).unwrap());
        };
        wait(|writes| writes.0 == 0);
        assert_eq!(WRITES.0.lock().unwrap().0, 1, "one at a time");
        assert!(load(&path).unwrap().is_none());
        WRITES.0.lock().unwrap().1 = u32::MAX;
        WRITES.1.notify_all();
        saver.finish(&database);
        assert_eq!(load(&path).unwrap().unwrap().look, 3, "the last state");
        assert_eq!(WRITES.0.lock().unwrap().0, 2);
    }

    static HANGING: AtomicU32 = AtomicU32::new(0);

    fn hangs(_: &ProcDb, _: &Path) -> io::Result<()> {
        // Relaxed: only a number.
        HANGING.fetch_add(1, Ordering::Relaxed);
        loop {
            thread::park();
        }
    }

    #[test]
    fn the_end_waits_for_no_disk_that_hangs() {
        let mut saver = Saver {
            write: hangs,
            ..Saver::new(PathBuf::from("procdb"))
        };
        let start = Instant::now();
        saver.begin(&ProcDb::new());
        saver.finish(&ProcDb::new());
        let passed = start.elapsed();
        assert!(
            (LAST_WRITES..Duration::from_secs(30)).contains(&passed),
            "{passed:?}"
        );
        assert_eq!(HANGING.load(Ordering::Relaxed), 1, "one at a time");
    }

    #[test]
    fn a_failure_is_no_end() {
        let mut saver = Saver::new(PathBuf::from("/proc/none/procdb"));
        let database = ProcDb::new();
        saver.begin(&database);
        saver.finish(&database);
        assert!(saver.said_so);
        let directory = tempfile::tempdir().unwrap();
        saver.path = directory.path().join("procdb");
        saver.begin(&database);
        saver.finish(&database);
        assert!(!saver.said_so);
    }
}
