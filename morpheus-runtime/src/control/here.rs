//! The API on the calling thread: polls a watched future, passes a checkpoint, begins and ends a critical section.
//!
//! The public API needs Linux for this, for [`domain`](crate::domain) and for the start of a runtime alone. On other systems
//! `passthrough/` replaces them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::control::plain;
use crate::domain::Domain;
use crate::poll::mark::{self, LentLabel};
use crate::poll::own_slot::Entered;
use crate::poll::state::WatchState;
use crate::poll::{handoff, known, own_slot};
use morpheus_link::handle::{self, SlotHandle};

/// Makes the calling thread one of a current-thread runtime until the returned guard is dropped.
pub(crate) fn enter(domain: &Arc<Domain>) -> Entered {
    own_slot::enter(domain, || Some(plain::domain()))
}

/// Polls a watched future.
#[inline]
pub(crate) fn poll<F: Future>(
    future: Pin<&mut F>,
    state: &mut WatchState,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    if own_slot::claim_or(|| Some(plain::domain())).is_none() {
        // There are more threads than slots: the poll is not watched, and the thread is counted as such.
        return future.poll(cx);
    }
    let slot = handle::current();
    #[cfg(tokio_unstable)]
    if state.is_clean()
        && let Some(joined) = crate::poll::hooks::join(state.label, slot)
    {
        let (result, verdict) = mark::marked_with_task(joined, slot, || future.poll(cx));
        if !verdict.is_empty() {
            known::learn(state, verdict);
        }
        return result;
    }
    // The mark of the task around this future, if it has one, is paused: this poll gets its own.
    #[cfg(tokio_unstable)]
    let _paused = crate::poll::hooks::pause();
    if slot.runtime.in_poll() {
        let _lent = LentLabel::lend(state, slot);
        return future.poll(cx);
    }
    let slot = own_slot::settled(slot);
    state.count_poll();
    if !state.is_clean() {
        return known::poll(future, state, slot, cx);
    }
    let (result, verdict) = mark::marked(state.label, slot, || future.poll(cx));
    if !verdict.is_empty() || state.is_lot_full() {
        known::learn(state, verdict);
    }
    result
}

/// Whether a request is possible, which is all that a checkpoint checks without a request. It compares two
/// words of the thread's slot. They are also equal in a slot in which nothing was ever polled.
#[inline]
fn may_be_requested(slot: SlotHandle) -> bool {
    // SAFETY: only this thread writes `poll_seq` (the slot's protocol), so this plain read races with
    // nothing. An atomic load would take one instruction more, because compilers do not fold it into a
    // comparison.
    let own = unsafe { slot.runtime.poll_seq.as_ptr().read() };
    // Relaxed: a request that is seen one checkpoint later counts as one that came later (see
    // `KernelSlot::requested`).
    slot.kernel.request_seq.load(Ordering::Relaxed) == own
}

/// Whether the current poll was asked to yield.
#[inline]
pub(crate) fn is_requested() -> bool {
    let slot = handle::current();
    may_be_requested(slot) && slot.runtime.in_poll()
}

/// Answers a request to yield. False without one, and in a critical section.
#[inline]
pub(crate) fn checkpoint() -> bool {
    may_be_requested(handle::current()) && answer()
}

/// Answers a request. It finds the slot again by itself, so that the caller has nothing to keep in registers.
#[cold]
#[inline(never)]
fn answer() -> bool {
    let slot = handle::current();
    if !is_requested() || slot.runtime.in_critical() {
        return false;
    }
    // Relaxed: the thread's own word.
    let seq = slot.runtime.poll_seq.load(Ordering::Relaxed);
    if !slot.runtime.acknowledged(seq) {
        slot.runtime.acknowledge(seq);
        slot.runtime.count_yield();
        handoff::flush_lifo();
    }
    true
}

/// Begins a critical section on this thread. Returns whether it was counted, and is to be ended.
pub(crate) fn enter_critical() -> bool {
    let slot = own_slot::claim_or(|| Some(plain::domain()));
    if let Some(slot) = slot {
        slot.runtime.enter_critical();
    }
    slot.is_some()
}

/// Ends a critical section that was counted.
pub(crate) fn leave_critical() {
    let slot = handle::current();
    // Without a slot the thread is being torn down, and has given the slot back.
    if slot.is_taken() {
        slot.runtime.leave_critical();
    }
}
