//! Slot handles: how a thread finds the slot that it writes, in a nanosecond.
//!
//! The hot path is [`current`]: one thread-local that holds two references. A thread without a slot has
//! those of a shared, immutable stand-in, so that nothing there needs a null check.
//!
//! **Invariant:** the references in the thread-local point into a table that their thread keeps alive;
//! it calls [`clear`] before it lets the table go.
//! While a thread belongs to another runtime, its handle is [put aside](put_aside) together with what keeps the table alive.
//!
//! **A [`SlotHandle`] is good until the thread parks or begins a watched poll**, for the slot may move then, with all its words.
//! A guard that lives longer (a critical section) asks [`current`] again when it ends.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use morpheus_common::slot::{KernelSlot, RuntimeSlot};

use crate::os::sleeper::Sleeper;
use crate::slot::area::Area;
use crate::slot::table::Table;

/// The two halves of a thread's slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotHandle {
    pub(crate) runtime: &'static RuntimeSlot,
    pub(crate) kernel: &'static KernelSlot,
    /// The domain's [`Sleeper`] flag, here so that a poll need not look up the domain.
    controller_asleep: &'static AtomicBool,
    /// Which memory the slot is in, and which it should be in.
    area: *mut Area,
    target: &'static AtomicPtr<Area>,
}

/// Never written: whoever would write checks [`SlotHandle::is_taken`] first.
static NO_RUNTIME_SLOT: RuntimeSlot = RuntimeSlot::new();
/// Differs from the slot above in the one word that a checkpoint compares.
static NO_KERNEL_SLOT: KernelSlot = KernelSlot::never_requested();

static NOBODY_SLEEPS: AtomicBool = AtomicBool::new(false);
static NOBODY_MOVES: AtomicPtr<Area> = AtomicPtr::new(ptr::null_mut());

const STAND_IN: SlotHandle = SlotHandle {
    runtime: &NO_RUNTIME_SLOT,
    kernel: &NO_KERNEL_SLOT,
    controller_asleep: &NOBODY_SLEEPS,
    area: ptr::null_mut(),
    target: &NOBODY_MOVES,
};

/// A [`SlotHandle`] as pointers: a thread-local of references would be tested for null at every access, the
/// empty thread-local having that representation.
#[derive(Clone, Copy)]
struct Pointers {
    runtime: *const RuntimeSlot,
    kernel: *const KernelSlot,
    controller_asleep: *const AtomicBool,
    area: *mut Area,
    target: *const AtomicPtr<Area>,
}

impl Pointers {
    const fn to(slot: SlotHandle) -> Pointers {
        Pointers {
            runtime: slot.runtime,
            kernel: slot.kernel,
            controller_asleep: slot.controller_asleep,
            area: slot.area,
            target: slot.target,
        }
    }
}

thread_local! {
    static SLOT: Cell<Pointers> = const { Cell::new(Pointers::to(STAND_IN)) };
    /// The words of the thread's slot when it forks.
    static AT_FORK: RuntimeSlot = const { RuntimeSlot::new() };
}

impl SlotHandle {
    /// The handle of a slot in a table, for the thread that has it.
    ///
    /// # Safety
    ///
    /// The table and the flag live until the thread has called [`clear`].
    pub(crate) unsafe fn of(
        table: &Table,
        index: usize,
        controller_asleep: &AtomicBool,
    ) -> SlotHandle {
        let (area, runtime, kernel) = table.settle(index);
        // SAFETY: all of it lives as long as the table and the flag, which the caller keeps; nothing copies the references
        // out of this thread or beyond the handle's life.
        unsafe {
            SlotHandle {
                runtime: &*ptr::from_ref(runtime),
                kernel: &*ptr::from_ref(kernel),
                controller_asleep: &*ptr::from_ref(controller_asleep),
                area,
                target: &*ptr::from_ref(table.target_of(index)),
            }
        }
    }

    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        !std::ptr::eq(self.runtime, &raw const NO_RUNTIME_SLOT)
    }

    /// Whether the controller sleeps, and is to be woken after this thread wrote one of its sequence words.
    #[inline]
    pub(crate) fn must_wake_controller(self) -> bool {
        Sleeper::is_needed(self.controller_asleep)
    }

    /// Whether the slot is where it should be.
    #[inline]
    pub(crate) fn is_settled(self) -> bool {
        // Relaxed: `settle` loads it again, and what it finds there it acquires. Seen late, the slot moves
        // with the next poll.
        self.target.load(Ordering::Relaxed) == self.area
    }
}

/// The calling thread's slot, or the stand-in.
#[inline]
pub(crate) fn current() -> SlotHandle {
    let slot = SLOT.get();
    // SAFETY: each pointer was made from a reference of a `SlotHandle` whose target is a static or is kept alive
    // by this thread, which calls `clear` before it lets go (the module's invariant).
    unsafe {
        SlotHandle {
            runtime: &*slot.runtime,
            kernel: &*slot.kernel,
            controller_asleep: &*slot.controller_asleep,
            area: slot.area,
            target: &*slot.target,
        }
    }
}

/// Makes a handle the calling thread's.
pub(crate) fn set(slot: SlotHandle) {
    SLOT.set(Pointers::to(slot));
}

/// The handle of a thread that has another one meanwhile; made by [`put_aside`].
pub(crate) struct PutAside(Pointers);

/// Puts the calling thread's handle aside, and the stand-in in its place.
pub(crate) fn put_aside() -> PutAside {
    PutAside(SLOT.replace(Pointers::to(STAND_IN)))
}

impl PutAside {
    /// Critical sections that the thread is in there.
    ///
    /// # Safety
    ///
    /// What the handle points to is still kept alive (the module's invariant, while it is put aside).
    pub(crate) unsafe fn critical_depth(&self) -> u32 {
        // SAFETY: the caller's promise; or a static.
        let runtime = unsafe { &*self.0.runtime };
        // Relaxed: the thread's own word.
        runtime.critical_depth.load(Ordering::Relaxed)
    }

    /// Makes it the calling thread's again.
    pub(crate) fn put_back(self) {
        SLOT.set(self.0);
    }
}

/// Puts the stand-in back: the thread has no slot any more.
pub(crate) fn clear() {
    SLOT.set(Pointers::to(STAND_IN));
}

/// For a thread that is about to fork: keeps the words of a slot in shared memory, which the child does not inherit.
pub(crate) fn save_for_child() {
    let slot = current();
    if !slot.area.is_null() {
        AT_FORK.with(|saved| saved.copy_from(slot.runtime));
    }
}

/// For the thread of a forked child: goes on in the slot that now is private memory, where it stopped.
pub(crate) fn restore_in_child() {
    let slot = current();
    if !slot.area.is_null() {
        AT_FORK.with(|saved| slot.runtime.copy_from(saved));
    }
}
