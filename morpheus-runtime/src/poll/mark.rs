//! The mark that a watched poll leaves in its thread's slot.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use morpheus_common::slot::VerdictFlags;

#[cfg(tokio_unstable)]
use crate::poll::hooks::Joined;
use crate::poll::own_slot;
use crate::poll::state::WatchState;
use crate::report::label::Label;
use morpheus_link::handle::SlotHandle;

/// Marks a poll in the slot from `begin` until it is dropped, also when the poll panics.
pub(crate) struct PollMark {
    slot: SlotHandle,
    pub(crate) seq: u64,
}

impl PollMark {
    #[inline]
    pub(crate) fn begin(slot: SlotHandle, label: &'static Label) -> PollMark {
        // Relaxed: `begin_poll` releases it.
        slot.runtime.label.store(label.id(), Ordering::Relaxed);
        let seq = slot.runtime.begin_poll();
        own_slot::notice(slot);
        PollMark { slot, seq }
    }
}

impl Drop for PollMark {
    #[inline]
    fn drop(&mut self) {
        self.slot.runtime.end_poll(self.seq);
    }
}

#[inline]
pub(crate) fn poll_inline<F: Future>(
    future: Pin<&mut F>,
    label: &'static Label,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) -> (Poll<F::Output>, VerdictFlags) {
    let mark = PollMark::begin(slot, label);
    let seq = mark.seq;
    let result = future.poll(cx);
    drop(mark);
    (result, slot.kernel.verdict_for(seq))
}

/// Polls a watched future under the mark of its task.
#[cfg(tokio_unstable)]
#[inline]
pub(crate) fn poll_joined<F: Future>(
    future: Pin<&mut F>,
    joined: Joined,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) -> (Poll<F::Output>, VerdictFlags) {
    let seq = joined.seq.get();
    let result = future.poll(cx);
    drop(joined);
    (result, slot.kernel.verdict_for(seq))
}

/// Polls a watched future inside the poll of another one: it lends its label to that poll meanwhile.
#[cold]
pub(crate) fn poll_within<F: Future>(
    future: Pin<&mut F>,
    state: &mut WatchState,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    struct Restore(SlotHandle, u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.runtime.label.store(self.1, Ordering::Relaxed);
        }
    }
    state.count_poll();
    if state.is_lot_full() {
        state.count_polls();
    }
    // Relaxed: the thread's own word. The controller reads whichever label is there.
    let outer = slot.runtime.label.load(Ordering::Relaxed);
    let _restore = Restore(slot, outer);
    slot.runtime
        .label
        .store(state.label.id(), Ordering::Relaxed);
    future.poll(cx)
}
