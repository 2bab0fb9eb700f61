//! This process's [`Directory`]: the runtime lists its threads and its labels there, for tools outside of the process.

use std::cell::OnceCell;
use std::sync::atomic::AtomicPtr;

use morpheus_common::directory::{Directory, MOST_THREADS, Thread};

static THREADS: [Thread; MOST_THREADS] = [const { Thread::free() }; MOST_THREADS];

/// `used`: nothing in this process reads it.
#[used]
static DIRECTORY: Directory = Directory::new(&THREADS);

/// A thread's entry, given back when the thread ends.
struct Listed(&'static Thread);

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

thread_local! {
    static LISTED: OnceCell<Option<Listed>> = const { OnceCell::new() };
}

/// Lists the calling thread until it ends: it has the number `tid`, and `word` is the address of its word that points to its slot. Does
/// nothing for a thread that is listed, and where there are more threads than entries.
pub(crate) fn list_thread(tid: u32, word: *mut ()) {
    // `try_with`: a thread that is being torn down is not listed.
    let _ = LISTED.try_with(|listed| {
        listed.get_or_init(|| {
            THREADS
                .iter()
                .find(|entry| entry.take(tid, word))
                .map(Listed)
        });
    });
}

/// Publishes the pointers to labels, by number. Each `L` is `repr(C)` and begins with a [`Label`](morpheus_common::directory::Label).
pub fn publish_labels<L>(labels: &'static [AtomicPtr<L>]) {
    DIRECTORY.publish_labels(labels);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn entries_of(tid: u32) -> usize {
        let all = THREADS.iter();
        all.filter(|entry| entry.tid.load(Ordering::Relaxed) == tid)
            .count()
    }

    #[test]
    fn a_thread_is_listed_once_and_until_it_ends() {
        const TID: u32 = u32::MAX;
        std::thread::spawn(|| {
            let mut word = 0_u64;
            let word = (&raw mut word).cast();
            list_thread(TID, word);
            list_thread(TID, word);
            assert_eq!(entries_of(TID), 1);
            let entry = THREADS
                .iter()
                .find(|entry| entry.tid.load(Ordering::Relaxed) == TID);
            assert_eq!(entry.unwrap().handle.load(Ordering::Relaxed), word);
        })
        .join()
        .unwrap();
        assert_eq!(entries_of(TID), 0);
    }
}
