// SPDX-License-Identifier: GPL-2.0-only
//! Writes the process database on a thread of its own: on a disk that is slow or hangs a write takes seconds, and an application
//! that gets no heartbeat for one second takes the daemon for dead.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use super::ProcDb;
use super::file::save;

/// The file of a database, and the write that is under way.
#[derive(Debug)]
pub struct Saver {
    path: PathBuf,
    writing: Option<JoinHandle<io::Result<()>>>,
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
        if !self.writing.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        self.join();
        let (database, path, write) = (database.clone(), self.path.clone(), self.write);
        let thread = thread::Builder::new().name("morpheus-procdb".into());
        match thread.spawn(move || write(&database, &path)) {
            Ok(writing) => self.writing = Some(writing),
            Err(error) => self.tell(Err(error)),
        }
    }

    /// Writes what the database has in the end, after the write that is under way.
    pub fn finish(&mut self, database: &ProcDb) {
        self.join();
        self.tell((self.write)(database, &self.path));
    }

    fn join(&mut self) {
        if let Some(writing) = self.writing.take() {
            let ended = writing.join();
            self.tell(ended.unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        }
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
    use std::sync::{Condvar, Mutex};
    use std::time::{Duration, Instant};

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
