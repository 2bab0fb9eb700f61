//! The state that a watched future keeps from poll to poll.

use std::sync::Arc;

use crate::act::permit::Waiter;
use crate::decide::history::History;
use crate::decide::rating::{Handoff, Options, Rating, TaskRating};
use crate::report::label::Label;

/// A future adds its polls to the label's total in lots of this size, so that the label's cache line stays
/// put.
const POLLS_A_LOT: u16 = 256;

/// The rating and the settings of one watched future. The reference points to the label, which is never
/// freed.
#[derive(Debug)]
pub(crate) struct WatchState {
    pub(crate) label: &'static Label,
    pub(crate) waiter: Option<Arc<Waiter>>,
    pub(crate) not_before_ns: u64,
    pub(crate) polls: u16,
    pub(crate) rating: TaskRating,
    /// Whether the runtime decides if the task is demotable. These are two bytes and no `Option<bool>`:
    /// comparing that with `None` costs a poll up to three instructions.
    pub(crate) demotable_by_default: bool,
    /// The task's own setting; meaningless while `demotable_by_default` is set.
    pub(crate) demotable: bool,
    pub(crate) may_hand_off: bool,
    /// How many times in a row the worker lost its core in the flush before an inline poll.
    pub(crate) tries_inline: u8,
}

/// A watched task is this many bytes larger than another task. Tokio aligns tasks to 128 bytes, so eight more
/// bytes can cost one more cache line.
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
            rating: TaskRating::clean(),
            demotable_by_default: options.demotable.is_none(),
            demotable: options.demotable.unwrap_or_default(),
            may_hand_off: options.handoff == Handoff::Allowed,
            tries_inline: 0,
        }
    }

    pub(crate) fn count_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        self.label.totals.polls.add(usize::from(polls));
    }

    #[inline]
    pub(crate) fn is_lot_full(&self) -> bool {
        self.polls >= POLLS_A_LOT
    }

    /// Whether nothing is rated or set, so that the poll needs no lookup.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.rating.is_clean()
            && self.waiter.is_none()
            && self.demotable_by_default
            && self.label.is_healthy()
    }

    /// The task's own `demotable` setting, if it has one.
    pub(crate) fn own_demotable(&self) -> Option<bool> {
        (!self.demotable_by_default).then_some(self.demotable)
    }

    /// Counts a poll. Only a future that panics in 65,536 polls in a row wraps the counter: any other future
    /// adds its polls to the label's total before.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    pub(crate) fn rating(&self, history: &History) -> Rating {
        self.rating.rating().max(history.rating())
    }
}
