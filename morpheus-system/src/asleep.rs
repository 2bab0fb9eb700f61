//! Tells whether a thread is asleep in the kernel, by the state letter in `/proc/self/task/TID/stat`, and its CPU, by the same file.
//!
//! The state is read, not inferred from CPU time: a preempted thread also uses little CPU in a millisecond.
//! Taking preempted threads for blocked ones would release spares, and these would preempt still more
//! threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::clock;
use crate::threads::own_tid;

/// The maximum number of `stat` files that stay open between two samples. Opening one costs two to three
/// times the CPU time of a read.
const MOST_KEPT: usize = 16;
/// Of the descriptors that a process may have, one in this many may be a kept `stat` file.
const KEPT_SHARE: u64 = 16;
/// A kept file is closed when it was not read for this time, in nanoseconds.
const UNUSED_NS: u64 = clock::SECOND_NS / 2;

/// The `stat` file of one thread.
#[derive(Debug)]
pub struct ThreadStat {
    file: File,
}

impl ThreadStat {
    /// Opens the file. `None` where the thread is gone, no descriptor is left, or `/proc` is not mounted.
    pub fn open(tid: u32) -> Option<ThreadStat> {
        ThreadStat::try_open(tid).ok()
    }

    fn try_open(tid: u32) -> io::Result<ThreadStat> {
        let file = File::open(format!("/proc/self/task/{tid}/stat"))?;
        Ok(ThreadStat { file })
    }

    /// Whether the thread sleeps (state S or D); `None` when it is gone.
    pub fn is_asleep(&self) -> Option<bool> {
        let mut head = [0u8; 64];
        let read = self.file.read_at(&mut head, 0).ok()?;
        state_letter(&head[..read]).map(|state| matches!(state, b'S' | b'D'))
    }

    /// The CPU on which the thread runs or last ran; `None` when it is gone.
    pub fn cpu(&self) -> Option<usize> {
        // Some fifty numbers.
        let mut line = [0u8; 1_024];
        let read = self.file.read_at(&mut line, 0).ok()?;
        // The state is the third field, and the CPU the 39th.
        let mut fields = after_name(&line[..read])?.split(|&byte| byte == b' ');
        str::from_utf8(fields.nth(36)?).ok()?.parse().ok()
    }
}

/// How often the calling thread has gone to sleep since it began: its voluntary context switches. A thread that was preempted, or that
/// yielded, has not.
pub fn times_own() -> u64 {
    // SAFETY: a `rusage` is numbers alone, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable for the whole call, which fails for no thread of this process.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

/// Reads thread states, and keeps the files of threads that it reads repeatedly.
///
/// The number of open files is bounded (`most_kept`); files of further threads are opened, read and closed.
/// The file of a thread that has ended is closed at the next read, or with the unused files.
#[derive(Debug, Default)]
pub struct ThreadStats {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    tid: u32,
    stat: ThreadStat,
    read_ns: u64,
}

impl ThreadStats {
    /// Whether the thread sleeps; a thread that has ended does not. `None` when its state cannot be read: no
    /// descriptor is left, or `/proc` is not mounted, or mounted for another PID namespace.
    pub fn is_asleep(&mut self, tid: u32, now_ns: u64) -> Option<bool> {
        if let Some(index) = self.kept.iter().position(|kept| kept.tid == tid) {
            let kept = &mut self.kept[index];
            kept.read_ns = now_ns;
            if let Some(asleep) = kept.stat.is_asleep() {
                return Some(asleep);
            }
            // The thread has ended. Another thread may have its number by now.
            self.kept.swap_remove(index);
        }
        let stat = match self.open(tid) {
            Ok(stat) => stat,
            Err(error) => {
                let has_ended = error.kind() == io::ErrorKind::NotFound && has_own_numbers();
                return has_ended.then_some(false);
            }
        };
        let asleep = stat.is_asleep().unwrap_or(false);
        if self.kept.len() < most_kept() {
            self.kept.push(Kept {
                tid,
                stat,
                read_ns: now_ns,
            });
        }
        Some(asleep)
    }

    /// Opens a file. Where the process has used up its descriptors, it closes the kept files first.
    fn open(&mut self, tid: u32) -> io::Result<ThreadStat> {
        let used_up =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        match ThreadStat::try_open(tid) {
            Err(error) if used_up(&error) && !self.kept.is_empty() => {
                self.close_all();
                ThreadStat::try_open(tid)
            }
            result => result,
        }
    }

    /// Closes the files that were not read for `UNUSED_NS`, those of ended threads included.
    pub fn close_unused(&mut self, now_ns: u64) {
        self.kept
            .retain(|kept| now_ns.saturating_sub(kept.read_ns) < UNUSED_NS);
    }

    /// Closes all files, for a controller that is about to sleep.
    pub fn close_all(&mut self) {
        self.kept.clear();
    }
}

/// Whether `/proc` is there and has this PID namespace's numbers. One that was mounted for another has other threads' files, or none.
fn has_own_numbers() -> bool {
    let own = own_tid();
    Path::new(&format!("/proc/self/task/{own}/stat")).exists()
}

/// The number of files that may stay open: less than [`MOST_KEPT`] under a low `RLIMIT_NOFILE`.
fn most_kept() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable for the whole call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    #[allow(
        clippy::useless_conversion,
        reason = "`rlim_t` has 32 bits on a 32-bit glibc"
    )]
    let most = u64::from(limit.rlim_cur);
    (most / KEPT_SHARE).min(MOST_KEPT as u64) as usize
}

/// Whether a low descriptor limit keeps fewer files open than would be useful.
pub fn are_descriptors_scarce() -> bool {
    most_kept() < MOST_KEPT
}

/// The fields after the name. That may contain any bytes, up to 16, parentheses included: they follow the last ')'.
fn after_name(stat: &[u8]) -> Option<&[u8]> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2..)
}

fn state_letter(stat: &[u8]) -> Option<u8> {
    after_name(stat)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        assert_eq!(state_letter(b"12 (a) S (b)) R 1 2"), Some(b'R'));
        assert_eq!(state_letter(b"12 (a"), None);
        assert_eq!(state_letter(b"12 (a)"), None);
    }

    /// Starts a thread that waits until the sender is dropped.
    fn waiting_thread() -> (u32, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let (tid_tx, tid_rx) = mpsc::channel();
        let (stop_tx, stop_rx) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tid_tx.send(crate::threads::own_tid()).unwrap();
            stop_rx.recv().ok();
        });
        (tid_rx.recv().unwrap(), stop_tx, thread)
    }

    #[test]
    fn kept_files_are_bounded_and_closed_when_unused() {
        let threads: Vec<_> = (0..2 * MOST_KEPT).map(|_| waiting_thread()).collect();
        let mut stats = ThreadStats::default();
        for (tid, ..) in &threads {
            assert!(stats.is_asleep(*tid, 1).is_some());
        }
        assert_eq!(stats.kept.len(), most_kept());
        let (first, ..) = threads[0];
        let _ = stats.is_asleep(first, UNUSED_NS);
        stats.close_unused(UNUSED_NS + 1);
        assert_eq!(stats.kept.len(), 1);
        assert_eq!(stats.kept[0].tid, first);
        stats.close_all();
        assert!(stats.kept.is_empty());
        for (_, stop, thread) in threads {
            drop(stop);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_not_asleep_and_its_file_is_closed() {
        let (tid, stop, thread) = waiting_thread();
        let mut stats = ThreadStats::default();
        assert!(stats.is_asleep(tid, 1).is_some());
        assert_eq!(stats.kept.len(), 1);
        drop(stop);
        thread.join().unwrap();
        // The join returns before the kernel has taken the thread off its list.
        let ended = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            stats.is_asleep(tid, 2) == Some(false) && stats.kept.is_empty()
        });
        assert!(ended, "{stats:?}");
    }

    #[test]
    fn a_thread_counts_how_often_it_has_slept() {
        let slept = |does: fn()| {
            let before = times_own();
            does();
            times_own() - before
        };
        let nap = || std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(slept(nap), 1);
        let computes = || {
            let begun_ns = clock::own_cpu_ns();
            while clock::own_cpu_ns() < begun_ns + 20_000_000 {
                std::thread::yield_now();
            }
        };
        assert_eq!(slept(computes), 0);
    }

    #[test]
    fn a_blocked_thread_is_asleep_and_a_running_one_is_not() {
        let (tid, stop, sleeper) = waiting_thread();
        let stat = ThreadStat::open(tid).unwrap();
        let asleep = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            stat.is_asleep() == Some(true)
        });
        assert!(asleep);
        drop(stop);
        sleeper.join().unwrap();
        let own = ThreadStat::open(crate::threads::own_tid()).unwrap();
        assert_eq!(own.is_asleep(), Some(false));
    }
}
