//! The table of a domain's slots: which slots are free, and which memory each slot is in.
//!
//! A slot is in this process's own memory, or in memory that a daemon shared. Only the slot's own thread moves it,
//! outside of a poll, and then publishes the new memory in `areas`. All other threads read `areas` first. So no word
//! of a worker is lost in the move, and the slot of a stalled worker does not move
//! (`morpheus-common/src/PROTOCOL.md`, "Moving a slot").
//!
//! **Invariant:** a pointer in `areas` or `target` is null, which means `own`, or points to an element of `shared`.
//! No element is dropped before the table is, and its addresses stay mapped. So a reference to a slot is valid as long
//! as the table, even after the slot has moved.
//!
//! The memory of an element is another daemon's after [`Table::share`], if no slot is there and none is on its way. A
//! process that lost many daemons then keeps the memory of few of them: of the present one, and of each one in which
//! some thread's slot has stayed, because the thread has slept since.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

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
    /// Park count of that core at the handoff. This or the next one changes when the core is served.
    pub core_parks: AtomicU64,
    /// The core's busy time then, in nanoseconds.
    pub core_busy_ns: AtomicU64,
    /// Start of a poll under a label that is not healthy: its number, the CPU clock of its thread, and the time. Only
    /// such polls read clocks; polls of healthy labels do not pay for them.
    pub begun_seq: AtomicU64,
    /// The CPU clock of its thread then.
    pub begun_cpu_ns: AtomicU64,
    /// The time then, in nanoseconds.
    pub begun_ns: AtomicU64,
    /// The handoff poll's permit as the runtime's `permit` module writes it (its class, and whether it is a sleeper's); 0 without one. The
    /// controller counts sleeping handoff polls by class, and changes it when a poll turns out to be another than the permit says.
    pub permit_class: AtomicU32,
    /// The shared area that the slot is on its way to; null while it is not moving. As `Table::areas`.
    moving_to: AtomicPtr<Area>,
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
    /// The areas that daemons shared. Each is in use, or waits to be the next daemon's.
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
        let target = self.set_out(index);
        let to = self.area(target);
        let from = self.area_of(index);
        if !ptr::eq(from, to) {
            to.runtime(index).continue_from(from.runtime(index));
            // Release, pairs with the Acquire in `area_of`: a reader that finds the slot there sees all of its words.
            self.areas[index].store(target, Ordering::Release);
        }
        // Release, pairs with the Acquire in `is_vacant`: a reader that finds the slot arrived finds it in `areas`.
        self.private[index]
            .moving_to
            .store(ptr::null_mut(), Ordering::Release);
        (target, to.runtime(index), to.kernel(index))
    }

    /// Returns the memory that a slot should be in, which stays the same daemon's until `moving_to` is null again.
    fn set_out(&self, index: usize) -> *mut Area {
        loop {
            // Acquire, pairs with the Release in `share`: the area is initialised.
            let target = self.target_of(index).load(Ordering::Acquire);
            // Release, pairs with the Acquire in `is_vacant`: a reader of this finds in `areas` where the slot went
            // before.
            self.private[index]
                .moving_to
                .store(target, Ordering::Release);
            // SeqCst, pairs with the one in `vacant`: either that finds the slot on its way, or this finds the target
            // changed.
            fence(Ordering::SeqCst);
            // Acquire, as above.
            if self.target_of(index).load(Ordering::Acquire) == target {
                return target;
            }
        }
    }

    /// Adds shared memory. Slots move to it from now on. It takes the place of an earlier daemon's memory, if no slot is
    /// left in that.
    ///
    /// # Errors
    ///
    /// The kernel does not map the memory where that of the earlier daemon was.
    pub fn share(&self, shared: SharedArea) -> io::Result<Lease> {
        let mut areas = lock(&self.shared);
        let vacant = self.vacant(&areas).next();
        let area = match vacant {
            Some(area) => {
                self.area(area.as_ptr()).renew(shared)?;
                area
            }
            None => {
                let area = NonNull::from(Box::leak(Box::new(Area::Shared(shared))));
                areas.push(area);
                area
            }
        };
        // Release, pairs with the Acquire in `set_out`: the area is initialised.
        self.target.store(area.as_ptr(), Ordering::Release);
        Ok(Lease(area))
    }

    /// Shares memory as a daemon would, from a plain memory file.
    #[cfg(any(test, feature = "testing"))]
    pub fn share_for_tests(&self) -> Lease {
        let shared = SharedArea::for_tests(self.room());
        self.share(shared).expect("room for the memory")
    }

    /// Returns the memory of earlier daemons to the kernel, where no slot is left in it. A daemon charges it until then,
    /// and may refuse this process for it.
    pub fn return_memory(&self) {
        let areas = lock(&self.shared);
        for area in self.vacant(&areas) {
            // Where the kernel refuses, the memory is returned before the next daemon's comes.
            let _ = self.area(area.as_ptr()).vacate();
        }
    }

    /// Returns the areas that no slot is in or on its way to. The lock on `areas` keeps the target as it is.
    fn vacant<'a>(
        &'a self,
        areas: &'a [NonNull<Area>],
    ) -> impl Iterator<Item = NonNull<Area>> + 'a {
        let target = self.target.load(Ordering::Relaxed);
        // SeqCst, pairs with the one in `set_out`.
        fence(Ordering::SeqCst);
        self.bring_free_slots_home();
        areas
            .iter()
            .copied()
            .filter(move |area| area.as_ptr() != target && self.is_vacant(*area))
    }

    fn is_vacant(&self, area: NonNull<Area>) -> bool {
        (0..self.in_use()).all(|index| {
            // In this order. Acquire, pairs with the Release in `settle`: a slot that has arrived is in `areas`.
            let to = self.private[index].moving_to.load(Ordering::Acquire);
            // Acquire, pairs with the Release in `settle`: the worker has done with where the slot was before.
            let at = self.areas[index].load(Ordering::Acquire);
            to != area.as_ptr() && at != area.as_ptr()
        })
    }

    /// Moves the slots without a thread to this process's own memory.
    fn bring_free_slots_home(&self) {
        // While it is locked no thread takes one of these, and none has one: this thread is their one writer.
        for index in self.free().iter().map(|index| *index as usize) {
            let from = self.area_of(index);
            if !ptr::eq(from, &raw const self.own) {
                self.own.runtime(index).continue_from(from.runtime(index));
                // Release, pairs with the Acquire in `area_of`.
                self.areas[index].store(ptr::null_mut(), Ordering::Release);
            }
        }
    }

    /// Makes this process's own memory the target. Slots move to it from now on.
    pub fn use_own_memory(&self) {
        let _areas = lock(&self.shared);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares memory, moves slot 0 there, has it poll once, and returns the lease and the number of that poll.
    fn poll_in_shared_memory(table: &Table) -> (Lease, u64) {
        let lease = table.share_for_tests();
        table.settle(0);
        assert!(ptr::eq(table.runtime(0), table.slot_in(lease, 0)));
        let seq = table.runtime(0).begin_poll();
        table.runtime(0).end_poll(seq);
        (lease, seq)
    }

    #[test]
    fn the_next_daemon_s_memory_takes_the_place_of_the_last_one_s() {
        let table = Table::new(4);
        assert_eq!(table.take(), Some(0));
        let (first, mut last) = poll_in_shared_memory(&table);
        for _ in 0..5 {
            table.use_own_memory();
            table.settle(0);
            assert_ne!(table.slot_in(first, 0).observe_poll(), 0, "the old words");
            let next = table.share_for_tests();
            assert_eq!(next, first);
            assert_eq!(table.slot_in(next, 0).observe_poll(), 0, "new memory");
            table.use_own_memory();
            let (again, seq) = poll_in_shared_memory(&table);
            assert_eq!(again, first);
            assert!(seq > last, "{seq} after {last}: a word was lost");
            last = seq;
        }
        assert_eq!(lock(&table.shared).len(), 1);
    }

    #[test]
    fn memory_is_returned_before_another_daemon_comes() {
        let table = Table::new(4);
        assert_eq!((table.take(), table.take()), (Some(0), Some(1)));
        let (lease, last) = poll_in_shared_memory(&table);
        table.settle(1);
        let words = || {
            let slot = table.slot_in(lease, 0);
            (slot.observe_poll(), table.heartbeat_ns(lease))
        };
        let shared = words();
        assert_ne!(shared.0, 0);
        table.return_memory();
        assert_eq!(words(), shared, "it is in force");
        table.use_own_memory();
        table.settle(0);
        table.return_memory();
        assert_eq!(words(), shared, "a slot is there");
        table.settle(1);
        // The second time it is not there any more.
        for _ in 0..2 {
            table.return_memory();
            assert_eq!(words(), (0, 0), "it is private memory");
        }
        let (again, seq) = poll_in_shared_memory(&table);
        assert_eq!(again, lease);
        assert!(seq > last);
    }

    #[test]
    fn memory_in_which_a_slot_has_stayed_is_no_other_daemon_s() {
        let table = Table::new(4);
        assert_eq!((table.take(), table.take()), (Some(0), Some(1)));
        let (first, _) = poll_in_shared_memory(&table);
        table.settle(1);
        let seq = table.runtime(1).begin_poll();
        table.use_own_memory();
        table.settle(0);
        let (second, _) = poll_in_shared_memory(&table);
        assert_ne!(second, first);
        assert_eq!(table.runtime(1).observe_poll(), seq, "its poll goes on");
        table.runtime(1).end_poll(seq);
        table.use_own_memory();
        table.settle(0);
        table.settle(1);
        let mut leases = [first, second].to_vec();
        for _ in 0..3 {
            leases.push(poll_in_shared_memory(&table).0);
            table.use_own_memory();
            table.settle(0);
        }
        assert_eq!(lock(&table.shared).len(), 2, "{leases:?}");
    }

    #[test]
    fn a_slot_without_a_thread_keeps_no_memory_of_a_daemon() {
        let table = Table::new(4);
        assert_eq!(table.take(), Some(0));
        let (first, last) = poll_in_shared_memory(&table);
        table.use_own_memory();
        table.give_back(0);
        let next = table.share_for_tests();
        assert_eq!(next, first);
        assert_eq!(table.take(), Some(0));
        table.settle(0);
        assert!(table.runtime(0).begin_poll() > last);
    }
}
