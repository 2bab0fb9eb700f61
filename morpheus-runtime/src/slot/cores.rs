//! The table of a runtime's cores: which are held, and which thread has each.
//!
//! A *core* is tokio's word for what a worker thread runs: a queue and a place in the idle set. Its number is tokio's worker
//! index. Threads write here, and the controller samples it; so all of it is Relaxed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Core {
    /// Sits in a hold at this moment.
    is_held: AtomicBool,
    /// How long it was held so far, without the hold that lasts.
    held_ns: AtomicU64,
    /// The thread that last came back from a park with it, and has not handed it off since; 0 when there is none.
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
        self.cores
            .get(core)
            .is_some_and(|core| core.is_held.load(Ordering::Relaxed))
    }

    pub(crate) fn set_held(&self, core: usize, is_held: bool) {
        if let Some(core) = self.cores.get(core) {
            core.is_held.store(is_held, Ordering::Relaxed);
        }
    }

    /// Adds the time of a hold that has ended.
    pub(crate) fn add_held_ns(&self, core: usize, held_ns: u64) {
        if let Some(core) = self.cores.get(core) {
            core.held_ns.fetch_add(held_ns, Ordering::Relaxed);
        }
    }

    /// How long a core was held so far. Tokio counts a hold as busy a moment later.
    pub(crate) fn held_ns(&self, core: usize) -> u64 {
        self.cores
            .get(core)
            .map_or(0, |core| core.held_ns.load(Ordering::Relaxed))
    }

    /// For a thread that has a core, and says so.
    pub(crate) fn note_thread(&self, core: usize, tid: u32) {
        if let Some(core) = self.cores.get(core) {
            core.thread.store(tid, Ordering::Relaxed);
        }
    }

    /// For a worker that is about to hand its core off.
    pub(crate) fn forget_thread(&self, core: usize) {
        self.note_thread(core, 0);
    }

    /// The thread of a core, if it is known.
    pub(crate) fn thread(&self, core: usize) -> Option<u32> {
        let tid = self.cores.get(core)?.thread.load(Ordering::Relaxed);
        (tid != 0).then_some(tid)
    }

    /// Whether a thread has a core, as far as it is known.
    pub(crate) fn has_thread(&self, tid: u32) -> bool {
        let has = |core: &Core| core.thread.load(Ordering::Relaxed) == tid;
        tid != 0 && self.cores.iter().any(has)
    }
}
