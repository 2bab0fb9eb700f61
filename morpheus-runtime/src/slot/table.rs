//! The table of a domain's slots: which are free, and which memory each one's slot is in.
//!
//! A slot is in this process's own memory, or in what a daemon shared. Only the
//! thread that sits there moves it, outside of a poll, and then says so in `areas`; everybody else asks
//! `areas` first. So nothing that a worker writes is lost on the way, and a worker that is stalled stays where
//! it is (`morpheus-common/src/PROTOCOL.md`, "Moving a slot").
//!
//! **Invariant:** a pointer in `areas` or `target` is null, which means `own`, or points to an element of
//! `shared`; none of these is dropped before the table is. So a reference to a slot is good for as long as the
//! table is, wherever the slot has moved since.

use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use morpheus_common::abi;
use morpheus_common::slot::{KernelSlot, RuntimeSlot};

use crate::os::clock;
use crate::slot::area::{Area, SharedArea, Untouched};

/// What only this process needs to know of a slot; the shared halves are in [`morpheus_common`].
#[derive(Debug)]
pub(crate) struct Private {
    /// Core (tokio's worker index) + 1 that the present handoff poll handed over; 0 when none.
    pub(crate) core_handed_over: AtomicU32,
    /// That core's park count at the time.
    pub(crate) core_parks: AtomicU64,
    /// For a poll under a label that is not calm: its number, the CPU clock of its thread and the time when
    /// it began. Clocks are read there only, so that calm polls fixed cheap.
    pub(crate) begun_seq: AtomicU64,
    pub(crate) begun_cpu_ns: AtomicU64,
    pub(crate) begun_ns: AtomicU64,
    /// Class of the permit of the handoff poll, for the controller's count of those asleep.
    pub(crate) permit_class: AtomicU32,
}

impl Private {
    /// Notes when the poll `seq`, which is about to begin, begins.
    pub(crate) fn stamp(&self, seq: u64) {
        // Relaxed, these three: `begin_poll` releases them, and the controller, which acquires the number
        // there, checks `begun_seq` against it.
        self.begun_cpu_ns
            .store(clock::own_cpu_ns(), Ordering::Relaxed);
        self.begun_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.begun_seq.store(seq, Ordering::Relaxed);
    }

    /// When the poll `seq` began, by the wall and by its thread's CPU clock, if that was noted.
    pub(crate) fn begun(&self, seq: u64) -> Option<(u64, u64)> {
        // Relaxed: see `stamp`. The next poll may overwrite them at this moment; then the poll is over, and
        // whatever is found about it concerns nobody.
        let noted = self.begun_seq.load(Ordering::Relaxed) == seq;
        noted.then(|| {
            (
                self.begun_ns.load(Ordering::Relaxed),
                self.begun_cpu_ns.load(Ordering::Relaxed),
            )
        })
    }
}

/// Memory that was shared, by its place in the table that it was shared to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(NonNull<Area>);

// SAFETY: it is a name; only the table, which is `Sync`, looks behind it.
unsafe impl Send for Lease {}

/// All slots of a domain.
pub(crate) struct Table {
    own: Area,
    areas: Untouched<AtomicPtr<Area>>,
    /// Where slots are to move; what workers compare with where theirs is.
    target: AtomicPtr<Area>,
    /// For slots that shared memory has no room for: never changes.
    fixed: AtomicPtr<Area>,
    /// Everything that was ever shared: a few pages for each daemon that came.
    shared: Mutex<Vec<NonNull<Area>>>,
    pub(crate) private: Untouched<Private>,
    free: Mutex<Vec<u32>>,
    /// Slots below this number were taken at least once: what a controller has to look at.
    high_water: AtomicUsize,
    refused: AtomicU64,
}

// SAFETY: the pointers in `shared` are boxes that this table owns, and `Area` is `Send` and `Sync`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// A zeroed slice whose pages are not touched before they are used.
fn zeroed<T>(len: usize) -> Untouched<T> {
    // SAFETY: the callers' types (slots, `Private`, pointers) consist of atomics only.
    unsafe { Untouched::new(len) }
}

impl Table {
    pub(crate) fn new(slots: usize) -> Table {
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

    /// Slots there are.
    pub(crate) fn len(&self) -> usize {
        self.private.len()
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn take(&self) -> Option<usize> {
        let mut free = self.free();
        if let Some(index) = free.pop() {
            return Some(index as usize);
        }
        let index = self.high_water.load(Ordering::Relaxed);
        if index >= self.len() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // Release: pairs with the Acquire in `in_use`; the slots below are initialised memory.
        self.high_water.store(index + 1, Ordering::Release);
        Some(index)
    }

    pub(crate) fn give_back(&self, index: usize) {
        self.free().push(index as u32);
    }

    /// Slots a controller has to look at: all below this number.
    pub(crate) fn in_use(&self) -> usize {
        self.high_water.load(Ordering::Acquire)
    }

    /// Threads that found the table full and go unwatched.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// What a pointer in `areas` or `target` means.
    fn area(&self, pointer: *mut Area) -> &Area {
        // SAFETY: null or an element of `shared`, which lives as long as `self` (the module's invariant).
        unsafe { pointer.as_ref() }.unwrap_or(&self.own)
    }

    /// Where the slot of a slot is.
    fn area_of(&self, index: usize) -> &Area {
        // Acquire, pairs with the Release in `settle`: who finds the slot there finds all of it.
        self.area(self.areas[index].load(Ordering::Acquire))
    }

    /// What the worker of a slot says.
    pub(crate) fn runtime(&self, index: usize) -> &RuntimeSlot {
        self.area_of(index).runtime(index)
    }

    /// What every worker says.
    pub(crate) fn runtimes(&self) -> impl Iterator<Item = &RuntimeSlot> {
        (0..self.in_use()).map(|index| self.runtime(index))
    }

    /// What is said to the worker of a slot, for whoever stands in for the kernel side; none where there is
    /// a kernel side.
    pub(crate) fn kernel_to_write(&self, index: usize) -> Option<&KernelSlot> {
        self.area_of(index).kernel_to_write(index)
    }

    /// What a worker looks at to learn that its slot is to move: differs from where it is.
    pub(crate) fn target_of(&self, index: usize) -> &AtomicPtr<Area> {
        match index < self.room() {
            true => &self.target,
            false => &self.fixed,
        }
    }

    /// Slots that shared memory has room for: a process may have so many slots, and one is the controller's.
    pub(crate) fn room(&self) -> usize {
        self.len().min(abi::MORPHEUS_MAX_SLOTS as usize - 1)
    }

    /// Moves the slot of a slot to where slots are to be. Only for the thread that sits there, outside of a
    /// poll. Returns where that is, as in `target_of`, and the two halves.
    pub(crate) fn settle(&self, index: usize) -> (*mut Area, &RuntimeSlot, &KernelSlot) {
        // Acquire, pairs with the Release in `share`: the area is there.
        let target = self.target_of(index).load(Ordering::Acquire);
        let to = self.area(target);
        let from = self.area_of(index);
        if !ptr::eq(from, to) {
            to.runtime(index).continue_from(from.runtime(index));
            // Release, pairs with the Acquire in `home`.
            self.areas[index].store(target, Ordering::Release);
        }
        (target, to.runtime(index), to.kernel(index))
    }

    /// Takes memory that was shared; slots move there from now on.
    pub(crate) fn share(&self, shared: SharedArea) -> Lease {
        let area = NonNull::from(Box::leak(Box::new(Area::Shared(shared))));
        self.shared
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push(area);
        // Release, pairs with the Acquire in `settle`.
        self.target.store(area.as_ptr(), Ordering::Release);
        Lease(area)
    }

    /// Slots move to this process's own memory from now on.
    pub(crate) fn use_own_memory(&self) {
        self.target.store(ptr::null_mut(), Ordering::Release);
    }

    /// When the kernel side that shared this last said that it is there.
    pub(crate) fn heartbeat_ns(&self, lease: Lease) -> u64 {
        match self.area(lease.0.as_ptr()) {
            Area::Shared(shared) => shared.heartbeat_ns(),
            Area::Own { .. } => 0,
        }
    }

    /// A slot in shared memory, by its number.
    pub(crate) fn slot_in(&self, lease: Lease, index: usize) -> &RuntimeSlot {
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
            // SAFETY: leaked in `share`, and dropped only here; nobody has a reference to the table any more.
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
