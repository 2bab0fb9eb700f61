//! The table of a domain's slots: which slots are free, and which memory each slot is in.
//!
//! A slot is in this process's own memory, or in memory that a daemon shared. Only the slot's own thread moves it,
//! outside of a poll, and then publishes the new memory in `areas`. All other threads read `areas` first. So no word
//! of a worker is lost in the move, and the slot of a stalled worker does not move
//! (`morpheus-common/src/PROTOCOL.md`, "Moving a slot").
//!
//! **Invariant:** a pointer in `areas` or `target` is null, which means `own`, or points to an element of `shared`.
//! No element is dropped before the table is. So a reference to a slot is valid as long as the table, even after the
//! slot has moved.

use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use morpheus_common::abi;
use morpheus_common::slot::{KernelSlot, RuntimeSlot};

use crate::area::{Area, SharedArea, Untouched};
use morpheus_system::clock;
use morpheus_system::lock::lock;

/// The words of a slot that only this process needs; the shared halves are in [`morpheus_common`].
#[derive(Debug)]
pub struct Private {
    /// Core (tokio's worker index) + 1 that the present handoff poll handed off; 0 if none.
    pub core_handed_over: AtomicU32,
    /// Park count of that core at the handoff.
    pub core_parks: AtomicU64,
    /// Start of a poll under a label that is not healthy: its number, the CPU clock of its thread, and the time. Only
    /// such polls read clocks; polls of healthy labels do not pay for them.
    pub begun_seq: AtomicU64,
    /// The CPU clock of its thread then.
    pub begun_cpu_ns: AtomicU64,
    /// The time then, in nanoseconds.
    pub begun_ns: AtomicU64,
    /// Class of the handoff poll's permit, plus one; 0 without a permit. The controller counts sleeping handoff polls by class,
    /// and changes it when a slow task's poll becomes a hog poll.
    pub permit_class: AtomicU32,
}

impl Private {
    /// Records the start of the poll `seq`, which is about to begin.
    pub fn stamp(&self, seq: u64) {
        // Relaxed, these three: `begin_poll` releases them. The controller acquires the poll's number there, and
        // checks `begun_seq` against it.
        self.begun_cpu_ns
            .store(clock::own_cpu_ns(), Ordering::Relaxed);
        self.begun_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.begun_seq.store(seq, Ordering::Relaxed);
    }

    /// Returns when the poll `seq` began, on the wall clock and on its thread's CPU clock, in nanoseconds. `None` if
    /// that was not recorded.
    pub fn begun(&self, seq: u64) -> Option<(u64, u64)> {
        // Relaxed: see `stamp`. The next poll may overwrite these words now; then this poll has ended, and no code
        // uses the result.
        let noted = self.begun_seq.load(Ordering::Relaxed) == seq;
        noted.then(|| {
            (
                self.begun_ns.load(Ordering::Relaxed),
                self.begun_cpu_ns.load(Ordering::Relaxed),
            )
        })
    }
}

/// Names one area of shared memory: a pointer to its element of `Table::shared`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(NonNull<Area>);

// SAFETY: a lease is only a name. Only the table, which is `Sync`, dereferences it.
unsafe impl Send for Lease {}

/// All slots of a domain.
pub struct Table {
    own: Area,
    areas: Untouched<AtomicPtr<Area>>,
    /// The memory that slots should be in; workers compare it with the memory of their slot.
    target: AtomicPtr<Area>,
    /// The target of slots for which shared memory has no room: always null.
    fixed: AtomicPtr<Area>,
    /// Every area that a daemon ever shared: a few pages for each daemon that was joined.
    shared: Mutex<Vec<NonNull<Area>>>,
    /// By slot.
    pub private: Untouched<Private>,
    free: Mutex<Vec<u32>>,
    /// Slots below this number were taken at least once; the controller samples these.
    high_water: AtomicUsize,
    refused: AtomicU64,
}

// SAFETY: the pointers in `shared` are boxes that this table owns, and `Area` is `Send` and `Sync`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Makes a zeroed slice whose pages are not touched before their first use.
fn zeroed<T>(len: usize) -> Untouched<T> {
    // SAFETY: the callers' types (slots, `Private`, pointers) consist of atomics only.
    unsafe { Untouched::new(len) }
}

impl Table {
    /// Makes a table whose slots are all free, in this process's own memory.
    #[must_use]
    pub fn new(slots: usize) -> Table {
        Table {
            own: Area::Own {
                runtime: zeroed(slots),
                kernel: zeroed(slots),
            },
            areas: zeroed(slots),
            target: AtomicPtr::default(),
            fixed: AtomicPtr::default(),
            shared: Mutex::default(),
            private: zeroed(slots),
            free: Mutex::default(),
            high_water: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns the number of slots.
    fn len(&self) -> usize {
        self.private.len()
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        lock(&self.free)
    }

    /// Takes a free slot and returns its index; counts a refusal when there is none.
    pub fn take(&self) -> Option<usize> {
        let mut free = self.free();
        if let Some(index) = free.pop() {
            return Some(index as usize);
        }
        let index = self.high_water.load(Ordering::Relaxed);
        if index >= self.len() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // Release, pairs with the Acquire in `in_use`: the slots below are initialised memory.
        self.high_water.store(index + 1, Ordering::Release);
        Some(index)
    }

    /// Frees a slot. Its thread does not use it any more.
    pub fn give_back(&self, index: usize) {
        self.free().push(index as u32);
    }

    /// Returns the number of slots that a controller has to sample: all below this index.
    pub fn in_use(&self) -> usize {
        self.high_water.load(Ordering::Acquire)
    }

    /// Returns how many threads found the table full and are not watched.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the area that a pointer in `areas` or `target` means.
    fn area(&self, pointer: *mut Area) -> &Area {
        // SAFETY: null or an element of `shared`, which lives as long as `self` (the module's invariant).
        unsafe { pointer.as_ref() }.unwrap_or(&self.own)
    }

    /// Returns the area that a slot is in.
    fn area_of(&self, index: usize) -> &Area {
        // Acquire, pairs with the Release in `settle`: a reader that finds the slot there sees all of its words.
        self.area(self.areas[index].load(Ordering::Acquire))
    }

    /// Returns the runtime's half of a slot, which its worker writes.
    pub fn runtime(&self, index: usize) -> &RuntimeSlot {
        self.area_of(index).runtime(index)
    }

    /// Returns the runtime's halves of all slots that are or were in use.
    pub fn runtimes(&self) -> impl Iterator<Item = &RuntimeSlot> {
        (0..self.in_use()).map(|index| self.runtime(index))
    }

    /// Returns the kernel's half of a slot, for a controller that stands in for the kernel side. `None` if there is a
    /// kernel side.
    pub fn kernel_to_write(&self, index: usize) -> Option<&KernelSlot> {
        self.area_of(index).kernel_to_write(index)
    }

    /// Returns the word that tells a worker where its slot should be. If it differs from the slot's memory, the slot
    /// is to move.
    pub fn target_of(&self, index: usize) -> &AtomicPtr<Area> {
        match index < self.room() {
            true => &self.target,
            false => &self.fixed,
        }
    }

    /// Returns the number of slots that fit into shared memory: a process may have [`abi::MORPHEUS_MAX_SLOTS`], of
    /// which one is the controller's.
    pub fn room(&self) -> usize {
        self.len().min(abi::MORPHEUS_MAX_SLOTS as usize - 1)
    }

    /// Moves a slot to the memory that it should be in. Only for the slot's own thread, outside of a poll. Returns
    /// that memory, as in `target_of`, and the two halves.
    pub fn settle(&self, index: usize) -> (*mut Area, &RuntimeSlot, &KernelSlot) {
        // Acquire, pairs with the Release in `share`: the area is initialised.
        let target = self.target_of(index).load(Ordering::Acquire);
        let to = self.area(target);
        let from = self.area_of(index);
        if !ptr::eq(from, to) {
            to.runtime(index).continue_from(from.runtime(index));
            // Release, pairs with the Acquire in `area_of`: a reader that finds the slot there sees all of its words.
            self.areas[index].store(target, Ordering::Release);
        }
        (target, to.runtime(index), to.kernel(index))
    }

    /// Adds shared memory. Slots move to it from now on.
    pub fn share(&self, shared: SharedArea) -> Lease {
        let area = NonNull::from(Box::leak(Box::new(Area::Shared(shared))));
        lock(&self.shared).push(area);
        // Release, pairs with the Acquire in `settle`: the area is initialised.
        self.target.store(area.as_ptr(), Ordering::Release);
        Lease(area)
    }

    /// Makes this process's own memory the target. Slots move to it from now on.
    pub fn use_own_memory(&self) {
        self.target.store(ptr::null_mut(), Ordering::Release);
    }

    /// Returns the last heartbeat of the kernel side that shared this memory, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn heartbeat_ns(&self, lease: Lease) -> u64 {
        match self.area(lease.0.as_ptr()) {
            Area::Shared(shared) => shared.heartbeat_ns(),
            Area::Own { .. } => 0,
        }
    }

    /// Returns a slot in shared memory by its number.
    pub fn slot_in(&self, lease: Lease, index: usize) -> &RuntimeSlot {
        self.area(lease.0.as_ptr()).runtime(index)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let shared = self
            .shared
            .get_mut()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for area in shared.drain(..) {
            // SAFETY: leaked in `share`, and dropped only here. The table is being dropped, so no reference to it is
            // left.
            drop(unsafe { Box::from_raw(area.as_ptr()) });
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("slots", &self.len())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}
