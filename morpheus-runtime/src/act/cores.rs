//! The table of a runtime's cores: which cores are held, and which thread has each core.
//!
//! A *core* is tokio's word for what a worker thread runs: a queue and a place in the idle set. Its number is tokio's
//! worker index. Workers write to the table and the controller samples it. Every access is Relaxed and pairs with
//! nothing, because no other memory depends on these words.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Core {
    /// Whether a spare holds the core in a hold task now.
    is_held: AtomicBool,
    /// Time that the core was held so far, in nanoseconds, without the present hold.
    held_ns: AtomicU64,
    /// Kernel thread ID of the thread that last unparked with this core and has not handed it off since; 0 if there
    /// is none.
    thread: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct CoreTable {
    cores: Box<[Core]>,
}

impl CoreTable {
    pub(crate) fn new(cores: usize) -> CoreTable {
        CoreTable {
            cores: (0..cores).map(|_| Core::default()).collect(),
        }
    }

    pub(crate) fn is_held(&self, core: usize) -> bool {
        let core = self.cores.get(core);
        core.is_some_and(|core| core.is_held.load(Ordering::Relaxed))
    }

    pub(crate) fn set_held(&self, core: usize, is_held: bool) {
        if let Some(core) = self.cores.get(core) {
            core.is_held.store(is_held, Ordering::Relaxed);
        }
    }

    /// Adds the duration of a hold that has ended.
    pub(crate) fn add_held_ns(&self, core: usize, held_ns: u64) {
        if let Some(core) = self.cores.get(core) {
            core.held_ns.fetch_add(held_ns, Ordering::Relaxed);
        }
    }

    /// Returns how long a core was held so far, in nanoseconds. Tokio counts the same time as busy, a moment later.
    pub(crate) fn held_ns(&self, core: usize) -> u64 {
        let core = self.cores.get(core);
        core.map_or(0, |core| core.held_ns.load(Ordering::Relaxed))
    }

    /// Records the thread that has a core. Called by that thread. Returns the thread that was known to have it, and so has lost it.
    pub(crate) fn note_thread(&self, core: usize, tid: u32) -> Option<u32> {
        let word = &self.cores.get(core)?.thread;
        let before = word.load(Ordering::Relaxed);
        if before == tid {
            return None;
        }
        word.store(tid, Ordering::Relaxed);
        (before != 0).then_some(before)
    }

    /// Records that a core has no known thread. Called by a worker that is about to hand its core off.
    pub(crate) fn forget_thread(&self, core: usize) {
        self.note_thread(core, 0);
    }

    /// Returns the thread of a core, if it is known.
    pub(crate) fn thread(&self, core: usize) -> Option<u32> {
        let tid = self.cores.get(core)?.thread.load(Ordering::Relaxed);
        (tid != 0).then_some(tid)
    }

    /// Whether a thread is known to have a core.
    pub(crate) fn has_thread(&self, tid: u32) -> bool {
        let has = |core: &Core| core.thread.load(Ordering::Relaxed) == tid;
        tid != 0 && self.cores.iter().any(has)
    }
}
