//! Slot handles: a thread finds the slot that it writes in about a nanosecond.
//!
//! The hot path is [`current`]: one thread-local that holds two references. A thread without a slot has references to
//! a shared, immutable stand-in, so the hot path needs no null check.
//!
//! **Invariant:** the references in the thread-local point into a table that their thread keeps alive. The thread
//! calls [`clear`] before it drops the table. While a thread works for another runtime, its handle is [put
//! aside](put_aside) together with the reference that keeps the table alive.
//!
//! **A [`SlotHandle`] is valid until the thread parks or begins a watched poll**, because the slot may then move with
//! all its words. A guard that lives longer (a critical section) calls [`current`] again when it ends.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use morpheus_common::slot::{KernelSlot, RuntimeSlot};

use crate::area::Area;
use crate::directory;
use crate::table::Table;
use morpheus_system::sleeper::Sleeper;

/// The two halves of a thread's slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotHandle {
    /// The half that the thread writes.
    pub runtime: &'static RuntimeSlot,
    /// The half that the kernel side, or the controller, writes.
    pub kernel: &'static KernelSlot,
    /// The flag of the domain's [`Sleeper`], copied here so that a poll does not look up the domain.
    controller_asleep: &'static AtomicBool,
    /// The memory that the slot is in; `target` has the memory that it should be in.
    area: *mut Area,
    target: &'static AtomicPtr<Area>,
}

/// Never written: writers check [`SlotHandle::is_taken`] first.
static NO_RUNTIME_SLOT: RuntimeSlot = RuntimeSlot::new();
/// Differs from a fresh slot in the one word that a checkpoint compares.
static NO_KERNEL_SLOT: KernelSlot = KernelSlot::never_requested();

static CONTROLLER_AWAKE: AtomicBool = AtomicBool::new(false);
/// Not where the stand-in is: so [`SlotHandle::is_settled`] is false for it.
static NO_TARGET: AtomicPtr<Area> = AtomicPtr::new(ptr::dangling_mut());

const STAND_IN: SlotHandle = SlotHandle {
    runtime: &NO_RUNTIME_SLOT,
    kernel: &NO_KERNEL_SLOT,
    controller_asleep: &CONTROLLER_AWAKE,
    area: ptr::null_mut(),
    target: &NO_TARGET,
};

/// A [`SlotHandle`] as pointers. A thread-local of references would cost a null test at every access, because null
/// represents the empty thread-local.
///
/// The slot is the first word: tools outside of the process read it there ([`crate::directory`]).
#[repr(C)]
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
    /// The words of the thread's slot at a fork.
    static AT_FORK: RuntimeSlot = const { RuntimeSlot::new() };
}

impl SlotHandle {
    /// Returns the handle of a slot in a table, for the thread that has the slot.
    ///
    /// # Safety
    ///
    /// The table and the flag live until the thread has called [`clear`].
    pub unsafe fn of(table: &Table, index: usize, controller_asleep: &AtomicBool) -> SlotHandle {
        let (area, runtime, kernel) = table.settle(index);
        // SAFETY: all of it lives as long as the table and the flag, which the caller keeps alive until the thread
        // calls `clear`. No code copies the references out of this thread or beyond the handle's life.
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

    /// Whether the thread has a slot; false for the stand-in.
    #[inline]
    pub fn is_taken(self) -> bool {
        !std::ptr::eq(self.runtime, &raw const NO_RUNTIME_SLOT)
    }

    /// Whether this thread must wake the controller after it wrote one of its sequence words.
    #[inline]
    pub fn must_wake_controller(self) -> bool {
        Sleeper::is_needed(self.controller_asleep)
    }

    /// Whether the slot is in the memory that it should be in; false for the stand-in.
    #[inline]
    pub fn is_settled(self) -> bool {
        // Relaxed, pairs with nothing: `settle` loads the word again with Acquire. If this load is late, the slot
        // moves with the next poll.
        self.target.load(Ordering::Relaxed) == self.area
    }
}

/// Returns the calling thread's slot, or the stand-in.
#[inline]
pub fn current() -> SlotHandle {
    let slot = SLOT.get();
    // SAFETY: each pointer was made from a reference of a `SlotHandle`. The target is a static, or the thread keeps
    // it alive until it has called `clear` (the module's invariant).
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

/// Lists the calling thread, which has the number `tid`, in the [`directory`] until it ends.
pub fn list_thread(tid: u32) {
    // The word lives as long as the thread.
    SLOT.with(|slot| directory::list_thread(tid, slot.as_ptr().cast()));
}

/// Sets the calling thread's handle.
pub fn set(slot: SlotHandle) {
    SLOT.set(Pointers::to(slot));
}

/// The handle of a thread that temporarily has another one; made by [`put_aside`].
pub struct PutAside(Pointers);

/// Puts the calling thread's handle aside and sets the stand-in.
pub fn put_aside() -> PutAside {
    PutAside(SLOT.replace(Pointers::to(STAND_IN)))
}

impl PutAside {
    /// Returns the number of critical sections that the thread is in there.
    ///
    /// # Safety
    ///
    /// The target of the handle is still alive (the module's invariant, while the handle is put aside).
    pub unsafe fn critical_depth(&self) -> u32 {
        // SAFETY: the caller promises that the target is alive; otherwise it is a static.
        let runtime = unsafe { &*self.0.runtime };
        // Relaxed, pairs with nothing: the thread's own word.
        runtime.critical_depth.load(Ordering::Relaxed)
    }

    /// Makes it the calling thread's handle again.
    pub fn put_back(self) {
        SLOT.set(self.0);
    }
}

/// Sets the stand-in: the thread has no slot any more.
pub fn clear() {
    SLOT.set(Pointers::to(STAND_IN));
}

/// Saves the words of a slot in shared memory, which the child does not inherit. Called by a thread that is about to
/// fork.
pub fn save_for_child() {
    let slot = current();
    if !slot.area.is_null() {
        AT_FORK.with(|saved| saved.copy_from(slot.runtime));
    }
}

/// Restores the saved words into the private memory that the child has instead. Called by the child's thread.
pub fn restore_in_child() {
    let slot = current();
    if !slot.area.is_null() {
        AT_FORK.with(|saved| slot.runtime.copy_from(saved));
    }
}
