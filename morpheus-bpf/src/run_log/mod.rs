// SPDX-License-Identifier: GPL-2.0-only
//! The log of a run that was started with `scx_morpheus start`: the kernel's lines about scheduling, and the daemon's report
//! when the kernel takes the scheduler out, in one file and in their order.
//!
//! A thread follows the kernel's log from the start of the run on. It ends when the [`RunLog`] is dropped, and has written
//! by then what the kernel had logged. Under systemd there is none: the journal has both.

mod file;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::kernel_log::{self, Filter, Follower, Next};
use file::Rotated;

/// The directory that `start` writes into unless it is told another one.
pub const DIRECTORY: &str = "/var/log/scx_morpheus";
/// The name of the newest file. Older ones have a number behind it.
const NAME: &str = "kernel.log";
/// The most that is taken of one text of the daemon's: the kernel's dump may be megabytes.
const MOST_SAID_BYTES: usize = 256 << 10;

/// Why there is no such log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel's log cannot be followed.
    #[error(transparent)]
    Kernel(#[from] kernel_log::Error),
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system has no more threads or descriptors.
    #[error("cannot start the thread that follows the kernel's log: {0}")]
    Thread(io::Error),
}

/// The output of a run: on standard error, and in the file where there is one.
#[derive(Debug, Default)]
pub struct RunLog {
    capture: Option<Capture>,
}

#[derive(Debug)]
struct Capture {
    shared: Arc<Shared>,
    /// Closed to end the thread.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: Mutex<Rotated>,
    path: PathBuf,
}

impl RunLog {
    /// One that writes no file.
    #[must_use]
    pub fn without_file() -> RunLog {
        RunLog::default()
    }

    /// One that writes into `directory`, which is made if it is not there. The caller blocks the signals that it waits for
    /// before: the thread inherits that.
    ///
    /// # Errors
    ///
    /// When the kernel's log may not be read, or the file not be written.
    pub fn to(directory: &Path) -> Result<RunLog, Error> {
        let follower = Follower::from_now(Path::new(kernel_log::DEVICE))?;
        RunLog::following(follower, directory)
    }

    fn following(follower: Follower, directory: &Path) -> Result<RunLog, Error> {
        let path = directory.join(NAME);
        let file = Rotated::open(&path).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        let shared = Arc::new(Shared {
            file: Mutex::new(file),
            path,
        });
        shared.note(&format!(
            "scx_morpheus {} starts, process {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ));
        let (end, told) = UnixStream::pair().map_err(Error::Thread)?;
        let thread = thread::Builder::new()
            .name("morpheus-kmsg".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || follow(follower, &told, &shared)
            })
            .map_err(Error::Thread)?;
        Ok(RunLog {
            capture: Some(Capture {
                shared,
                end: Some(end),
                thread: Some(thread),
            }),
        })
    }

    /// The file, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let capture = self.capture.as_ref()?;
        Some(&capture.shared.path)
    }

    /// Says it on standard error, and notes it.
    pub fn say(&self, text: &str) {
        self.note(text);
        crate::say!("{text}");
    }

    /// Notes it alone.
    pub fn note(&self, text: &str) {
        if let Some(capture) = &self.capture {
            capture.shared.note(text);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It has no way to panic that would not be told on standard error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Text of the daemon's, at this time on the kernel's clock.
    fn note(&self, text: &str) {
        let now = clock_gettime(ClockId::Monotonic);
        let mut end = text.len().min(MOST_SAID_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let stamp = format!("[{:>5}.{:06}]", now.tv_sec, now.tv_nsec / 1000);
        let lines = text[..end].lines();
        let lines: String = lines.map(|line| format!("{stamp} {line}\n")).collect();
        self.write(&lines);
    }

    fn write(&self, text: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A daemon schedules on where its log has no room; the file says so once it has some again.
        file.write(text.as_bytes());
    }
}

/// Until the other end of `told` is closed, and the kernel's log has been read to its end.
fn follow(mut follower: Follower, told: &UnixStream, shared: &Shared) {
    let mut filter = Filter::default();
    loop {
        let mut fds = [
            PollFd::new(&follower, PollFlags::IN),
            PollFd::new(told, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                shared.note(&format!(
                    "the kernel's log is not followed any more: {error}"
                ));
                return;
            }
        }
        let ends = !fds[1].revents().is_empty();
        loop {
            match follower.read_next() {
                Ok(Next::Record(record)) if filter.keeps(&record) => {
                    shared.write(&format!("{record}\n"));
                }
                Ok(Next::Record(_)) => {}
                Ok(Next::Lost) => shared.note("lines of the kernel's log were lost here"),
                Ok(Next::End) => break,
                Err(error) => {
                    shared.note(&format!(
                        "the kernel's log is not followed any more: {error}"
                    ));
                    return;
                }
            }
        }
        if ends {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
