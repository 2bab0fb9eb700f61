//! The mark that a watched poll leaves in its thread's slot.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use morpheus_common::slot::VerdictFlags;

#[cfg(tokio_unstable)]
use crate::poll::hooks::Joined;
use crate::poll::own_slot;
use crate::poll::state::WatchState;
use crate::report::label::Label;
use morpheus_link::handle::SlotHandle;
use morpheus_system::nice;

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

impl PollMark {
    /// Ends the mark. Returns the verdict on the poll, which the caller learns ([`learn`](crate::poll::known::learn)).
    #[inline]
    fn end(self) -> VerdictFlags {
        let mark = ManuallyDrop::new(self);
        mark.slot.runtime.end_poll(mark.seq);
        mark.slot.kernel.verdict_for(mark.seq)
    }
}

/// The poll has panicked, or was handed off.
impl Drop for PollMark {
    fn drop(&mut self) {
        self.slot.runtime.end_poll(self.seq);
        undo_demotion(self.slot.kernel.verdict_for(self.seq));
    }
}

/// Gives the calling thread its niceness back that its poll has cost it.
#[inline]
pub(crate) fn undo_demotion(verdict: VerdictFlags) {
    if verdict.contains(VerdictFlags::DEMOTED) && !nice::undo_own() {
        note_irreversible();
    }
}

#[cold]
fn note_irreversible() {
    own_slot::with_domain(|domain, _| domain.note_irreversible_nice());
}

/// Runs a poll under a mark.
#[inline]
pub(crate) fn marked<T>(
    label: &'static Label,
    slot: SlotHandle,
    poll: impl FnOnce() -> T,
) -> (T, VerdictFlags) {
    let mark = PollMark::begin(slot, label);
    let result = poll();
    (result, mark.end())
}

/// Runs the poll of a watched future under the mark of its task.
#[cfg(tokio_unstable)]
#[inline]
pub(crate) fn marked_with_task<T>(
    joined: Joined,
    slot: SlotHandle,
    poll: impl FnOnce() -> T,
) -> (T, VerdictFlags) {
    let seq = joined.seq.get();
    let result = poll();
    drop(joined);
    (result, slot.kernel.verdict_for(seq))
}

/// The label of a watched future that is polled inside the poll of another one: it lends its label to that
/// poll until this is dropped.
pub(crate) struct LentLabel {
    slot: SlotHandle,
    outer: u32,
}

impl LentLabel {
    /// Counts the poll that begins, and lends the label to the outer one.
    #[cold]
    pub(crate) fn lend(state: &mut WatchState, slot: SlotHandle) -> LentLabel {
        state.count_poll();
        if state.is_lot_full() {
            state.count_polls();
        }
        // Relaxed: the thread's own word. The controller reads whichever label is there.
        let outer = slot.runtime.label.load(Ordering::Relaxed);
        slot.runtime
            .label
            .store(state.label.id(), Ordering::Relaxed);
        LentLabel { slot, outer }
    }
}

impl Drop for LentLabel {
    fn drop(&mut self) {
        self.slot.runtime.label.store(self.outer, Ordering::Relaxed);
    }
}
