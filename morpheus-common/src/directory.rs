//! The directory: where a tool outside of the process finds the slots of its threads and the names of its labels.
//!
//! The program's writable data has one [`Directory`]. `morpheus-doctor` finds it by its mark, and reads from there which label the task
//! has that a thread polls:
//!
//! ```text
//! Directory ── threads ──► Thread ── handle ──► the thread's own word ──► RuntimeSlot ── label: a number
//!           └─ labels ───► array by number ───► Label ── text, length, line
//! ```
//!
//! A slot moves, and a thread may have several; so the directory has the address of the thread's own word that points to the slot in
//! use, and nothing changes here in a poll.
//!
//! The runtime writes, nothing here reads: to the reader each word is a claim of the process, which may be old, or anything.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The first bytes of a [`Directory`]. Another form of what lies behind it has another mark.
pub const MARK: [u8; 16] = *b"morpheus labels1";
/// Most threads that are listed. Threads after these have no labels outside of the process.
pub const MOST_THREADS: usize = 1024;

/// The threads and labels of a program, behind the mark. The reader's offsets are those of this structure.
#[repr(C)]
#[derive(Debug)]
pub struct Directory {
    mark: [u8; 16],
    /// The threads, in no order.
    pub threads: &'static [Thread; MOST_THREADS],
    /// The first of the pointers to labels, by number; null before there is a label.
    pub labels: AtomicPtr<AtomicPtr<Label>>,
    /// How many pointers there are.
    pub label_count: AtomicU32,
}

impl Directory {
    /// Makes a directory of these threads, without labels.
    #[must_use]
    pub const fn new(threads: &'static [Thread; MOST_THREADS]) -> Directory {
        Directory {
            mark: MARK,
            threads,
            labels: AtomicPtr::new(core::ptr::null_mut()),
            label_count: AtomicU32::new(0),
        }
    }

    /// Publishes the array of pointers to labels. An entry may be null, and is stored when its label exists.
    ///
    /// `L` is a `repr(C)` structure that begins with a [`Label`].
    pub fn publish_labels<L>(&self, labels: &'static [AtomicPtr<L>]) {
        let first = labels.as_ptr().cast_mut().cast();
        // Relaxed: released by the store below.
        self.label_count
            .store(labels.len() as u32, Ordering::Relaxed);
        // Release, for readers outside of the process: one that sees the array sees its length.
        self.labels.store(first, Ordering::Release);
    }
}

/// A thread's entry.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// The thread's number as the process has it; 0 in an entry that is free, or that is being written.
    pub tid: AtomicU32,
    is_taken: AtomicU32,
    /// The address of the word that has the address of the thread's slot.
    pub handle: AtomicPtr<()>,
}

impl Thread {
    /// An entry without a thread.
    #[must_use]
    pub const fn free() -> Thread {
        Thread {
            tid: AtomicU32::new(0),
            is_taken: AtomicU32::new(0),
            handle: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Takes the entry for a thread, if it is free. Returns whether it was.
    pub fn take(&self, tid: u32, handle: *mut ()) -> bool {
        // Acquire, pairs with the Release in `give_back`: the stores of the thread that had the entry before are over.
        if self.is_taken.swap(1, Ordering::Acquire) != 0 {
            return false;
        }
        // Relaxed: released by the store below.
        self.handle.store(handle, Ordering::Relaxed);
        // Release, for readers outside of the process: one that sees the number sees the handle.
        self.tid.store(tid, Ordering::Release);
        true
    }

    /// Frees the entry. Only for the thread that has taken it.
    pub fn give_back(&self) {
        // Relaxed: released by the store below.
        self.tid.store(0, Ordering::Relaxed);
        // Release, pairs with the Acquire in `take`.
        self.is_taken.store(0, Ordering::Release);
    }
}

/// A label's name: a given one, or a file and a line.
#[repr(C)]
#[derive(Debug)]
pub struct Label {
    /// The first byte of the text, which lives for ever. None of an empty text.
    pub text: Option<&'static u8>,
    /// The length of the text, in bytes.
    pub length: u32,
    /// The line in that file; 0 of a given name.
    pub line: u32,
}

impl Label {
    /// The label with this name, or at this line of the file.
    #[must_use]
    pub fn new(text: &'static str, line: u32) -> Label {
        Label {
            text: text.as_bytes().first(),
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            line,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_an_entry() {
        static ENTRY: Thread = Thread::free();
        static IS_HAD: AtomicBool = AtomicBool::new(false);
        let threads: std::vec::Vec<_> = (1..=4)
            .map(|tid| {
                thread::spawn(move || {
                    let mut taken = 0;
                    while taken < 1000 {
                        if !ENTRY.take(tid, core::ptr::dangling_mut()) {
                            thread::yield_now();
                            continue;
                        }
                        assert!(!IS_HAD.swap(true, Ordering::Relaxed));
                        assert_eq!(ENTRY.tid.load(Ordering::Relaxed), tid);
                        IS_HAD.store(false, Ordering::Relaxed);
                        ENTRY.give_back();
                        taken += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(ENTRY.tid.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn labels_have_text_length_and_line() {
        let label = Label::new("main.rs", 7);
        assert_eq!((label.text, label.length, label.line), (Some(&b'm'), 7, 7));
        assert_eq!(Label::new("", 0).text, None);
    }
}
