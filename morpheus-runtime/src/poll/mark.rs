//! The mark that a watched poll leaves in its thread's slot.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use morpheus_common::slot::VerdictFlags;

use crate::poll::file::File;
use crate::poll::home;
use crate::report::label::Label;
use crate::slot::handle::Seat;

/// Marks the end of a poll, also of one that panics.
pub(crate) struct PollMark {
    seat: Seat,
    pub(crate) seq: u64,
}

impl PollMark {
    #[inline]
    pub(crate) fn begin(seat: Seat, label: &'static Label) -> PollMark {
        // Relaxed: `begin_poll` releases it.
        seat.runtime.label.store(label.id(), Ordering::Relaxed);
        let seq = seat.runtime.begin_poll();
        home::notice(seat);
        PollMark { seat, seq }
    }
}

impl Drop for PollMark {
    #[inline]
    fn drop(&mut self) {
        self.seat.runtime.end_poll(self.seq);
    }
}

#[inline]
pub(crate) fn poll_inline<F: Future>(
    future: Pin<&mut F>,
    label: &'static Label,
    seat: Seat,
    cx: &mut Context<'_>,
) -> (Poll<F::Output>, VerdictFlags) {
    let mark = PollMark::begin(seat, label);
    let seq = mark.seq;
    let result = future.poll(cx);
    drop(mark);
    (result, seat.kernel.verdict_for(seq))
}

/// A watched future inside the poll of another one: it lends its label for the time.
#[cold]
pub(crate) fn poll_within<F: Future>(
    future: Pin<&mut F>,
    file: &mut File,
    seat: Seat,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    struct Restore(Seat, u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.runtime.label.store(self.1, Ordering::Relaxed);
        }
    }
    file.count_poll();
    if file.is_lot_full() {
        file.count_polls();
    }
    // Relaxed: the thread's own word; the controller takes the label that it happens to find.
    let outer = seat.runtime.label.load(Ordering::Relaxed);
    let _restore = Restore(seat, outer);
    seat.runtime.label.store(file.label.id(), Ordering::Relaxed);
    future.poll(cx)
}
