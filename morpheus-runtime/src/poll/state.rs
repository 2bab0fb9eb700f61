//! What a watched future carries from poll to poll.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::act::permit::Waiter;
use crate::decide::history::History;
use crate::decide::rating::{Handoff, Options, Rating, TaskRating};
use crate::report::label::Label;

/// Polls are added to the label's total in lots of this size, so that the label's cache line stays put.
const POLLS_A_LOT: u16 = 256;

/// What is known of one watched future. The reference points to the label, which lives for ever.
#[derive(Debug)]
pub(crate) struct WatchState {
    pub(crate) label: &'static Label,
    pub(crate) waiter: Option<Arc<Waiter>>,
    pub(crate) not_before_ns: u64,
    pub(crate) polls: u16,
    pub(crate) record: TaskRating,
    /// It is demotable if the runtime says so. Two bytes and no `Option<bool>`: comparing that with `None` costs a poll up to
    /// three instructions.
    pub(crate) demotable_by_default: bool,
    /// What it says itself, where it does.
    pub(crate) demotable: bool,
    pub(crate) may_hand_off: bool,
    /// So often it was to be polled inline, and its worker lost its core over what that takes.
    pub(crate) tries_inline: u8,
}

/// What a watched task has more than another. Tokio puts tasks on whole lines of 128 bytes, so that eight bytes more can be
/// another line.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<WatchState>() == 32);

impl Drop for WatchState {
    fn drop(&mut self) {
        self.count_polls();
        if let Some(waiter) = self.waiter.take() {
            waiter.leave();
        }
    }
}

impl WatchState {
    pub(crate) fn new(options: Options) -> WatchState {
        WatchState {
            label: options.label,
            waiter: None,
            not_before_ns: 0,
            polls: 0,
            record: TaskRating::clean(),
            demotable_by_default: options.demotable.is_none(),
            demotable: options.demotable.unwrap_or_default(),
            may_hand_off: options.handoff == Handoff::Allowed,
            tries_inline: 0,
        }
    }

    pub(crate) fn count_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        self.label
            .totals
            .polls
            .fetch_add(u64::from(polls), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_lot_full(&self) -> bool {
        self.polls >= POLLS_A_LOT
    }

    /// Nothing is known, so nothing has to be looked up.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.record.is_clean()
            && self.waiter.is_none()
            && self.demotable_by_default
            && self.label.is_healthy()
    }

    /// What the task says, if it says anything.
    pub(crate) fn own_demotable(&self) -> Option<bool> {
        (!self.demotable_by_default).then_some(self.demotable)
    }

    /// Counts a poll. It wraps, which only a future can reach that panics in 65,536 polls in a row: any other one's
    /// are added to the label's total before.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    pub(crate) fn rating(&self, history: &History) -> Rating {
        self.record.rating().max(history.rating())
    }
}
