//! Is a thread asleep in the kernel? Read, not guessed.
//!
//! "It used little CPU in the last millisecond" is also what a preempted thread looks like, and taking
//! those for blocked ones feeds on itself. The state letter in `/proc/self/task/TID/stat` knows.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A kept descriptor of one thread's `stat` file; reading it costs about a microsecond.
#[derive(Debug)]
pub(crate) struct ThreadStat {
    tid: u32,
    file: File,
}

impl ThreadStat {
    /// `None` where the thread is gone or `/proc` is not mounted.
    pub(crate) fn open(tid: u32) -> Option<ThreadStat> {
        let file = File::open(format!("/proc/self/task/{tid}/stat")).ok()?;
        Some(ThreadStat { tid, file })
    }

    pub(crate) fn tid(&self) -> u32 {
        self.tid
    }

    /// Whether the thread sleeps (state S or D); `None` when it is gone.
    pub(crate) fn is_asleep(&self) -> Option<bool> {
        // The name may contain anything up to 16 bytes, parentheses included: the state follows the last ')'.
        let mut head = [0u8; 64];
        let read = self.file.read_at(&mut head, 0).ok()?;
        state_letter(&head[..read]).map(|state| matches!(state, b'S' | b'D'))
    }
}

fn state_letter(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2).copied()
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

    #[test]
    fn a_blocked_thread_is_asleep_and_a_running_one_is_not() {
        let (tid_tx, tid_rx) = mpsc::channel();
        let (stop_tx, stop_rx) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tid_tx.send(crate::threads::own_tid()).unwrap();
            stop_rx.recv().ok();
        });
        let stat = ThreadStat::open(tid_rx.recv().unwrap()).unwrap();
        let asleep = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            stat.is_asleep() == Some(true)
        });
        assert!(asleep);
        drop(stop_tx);
        sleeper.join().unwrap();
        let own = ThreadStat::open(crate::threads::own_tid()).unwrap();
        assert_eq!(own.is_asleep(), Some(false));
    }
}
