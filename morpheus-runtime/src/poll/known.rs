//! Polls of futures that are known to be slow, or of which nothing is known yet: in place, after a wait for a permit, or
//! inline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use morpheus_common::ladder::Policy;
use morpheus_common::slot::{SlotFlag, VerdictFlags};

use crate::act::permit::{Answer, Class, NoPermit, Permit, Request};
use crate::decide::history::History;
use crate::decide::rating::Rating;
use crate::domain::Domain;
use crate::os::{clock, nice};
use crate::poll::mark::{PollMark, poll_inline};
use crate::poll::state::WatchState;
use crate::poll::{handoff, own_slot};
use crate::report::label::Label;
use crate::slot::handle::{self, SlotHandle};

/// A throttled slow task gets one part in this many of a CPU.
const THROTTLED_SHARE: u64 = 4;

/// Who is to be polled inline is, after so many tries to leave nothing behind, whatever is.
const TRIES_INLINE: u8 = 8;

/// A future with a record, or under a label with one, or with none yet; or one that says whether it is demotable.
#[cold]
pub(crate) fn poll<F: Future>(
    future: Pin<&mut F>,
    state: &mut WatchState,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let says_so_already = state
        .own_demotable()
        .is_none_or(|demotable| demotable == slot.runtime.has_flag(SlotFlag::Demotable));
    let has_no_record = state.record.is_clean() && state.waiter.is_none();
    if says_so_already && has_no_record && is_healthy_here(state.label) {
        let (result, verdict) = poll_inline(future, state.label, slot, cx);
        if !verdict.is_empty() || state.is_lot_full() {
            learn(state, verdict);
        }
        return result;
    }
    let done = own_slot::with_domain(|domain, index| {
        let history = domain.histories.of(state.label);
        let may_go = may_hand_off_poll(state, domain, history);
        let turn = may_go.then(|| permit_for(state, domain, history, cx.waker()));
        let (permit, is_refused) = match turn {
            Some(Turn::Now(permit)) => (Some(permit), false),
            Some(Turn::Later) => {
                // Counted by the caller, and not polled after all.
                state.polls = state.polls.wrapping_sub(1);
                return Poll::Pending;
            }
            Some(Turn::Inline) => (None, true),
            None => (None, false),
        };
        let _demotable = state
            .own_demotable()
            .and_then(|demotable| Demotable::mark(slot, demotable));
        domain.slots.private[index].stamp(slot.runtime.next_poll());
        let (result, verdict) = match permit {
            Some(permit) => {
                let _in_place = handoff::HandoffMark::begin(domain, index, slot, &permit);
                let label = state.label;
                let begun = std::cell::Cell::new(0);
                let result = handoff::poll(domain, future, cx, || {
                    let mark = PollMark::begin(slot, label);
                    begun.set(mark.seq);
                    mark
                });
                (result, slot.kernel.verdict_for(begun.get()))
            }
            None => {
                // It may hold up its worker for long: what waits in the LIFO slot would wait with it.
                let unrated = history.is_unrated();
                let may_flush = !is_refused && !domain.observes();
                if may_flush && (unrated || state.rating(history) >= Rating::Slow) {
                    handoff::flush_lifo();
                }
                let _unproven = unrated.then(|| history.begin_unproven());
                poll_inline(future, state.label, slot, cx)
            }
        };
        if domain.settings.policy >= Policy::Throttle && verdict.contains(VerdictFlags::THROTTLED) {
            let used_ns = slot.kernel.oncpu_ns.load(Ordering::Relaxed);
            state.not_before_ns = clock::now_ns() + used_ns.saturating_mul(THROTTLED_SHARE - 1);
        }
        if verdict.contains(VerdictFlags::DEMOTED) {
            nice::undo_own();
        }
        learn(state, verdict);
        result
    });
    // A thread that has a slot has a home, but for one that is being torn down, which polls nothing.
    done.unwrap_or(Poll::Pending)
}

/// Has the slot's `demotable` flag say for one poll what the task says, and not what the runtime says.
struct Demotable {
    before: bool,
}

impl Demotable {
    /// `None` where the flag says so already.
    fn mark(slot: SlotHandle, demotable: bool) -> Option<Demotable> {
        let before = slot.runtime.has_flag(SlotFlag::Demotable);
        (before != demotable).then(|| {
            Demotable::set(slot, demotable);
            Demotable { before }
        })
    }

    fn set(slot: SlotHandle, demotable: bool) {
        match demotable {
            true => slot.runtime.set_flag(SlotFlag::Demotable),
            false => slot.runtime.clear_flag(SlotFlag::Demotable),
        }
    }
}

impl Drop for Demotable {
    fn drop(&mut self) {
        // The thread's slot of this moment, which has the flags of the one before if it moved.
        Demotable::set(handle::current(), self.before);
    }
}

/// Whether the calling thread's runtime has nothing against a label.
fn is_healthy_here(label: &'static Label) -> bool {
    label.is_healthy() || own_slot::with_history(label, History::is_healthy).unwrap_or(true)
}

fn may_hand_off_poll(state: &mut WatchState, domain: &Arc<Domain>, history: &History) -> bool {
    let known = state.waiter.is_some()
        || (state.may_hand_off
            && domain.settings.mechanisms.handoffs
            && domain.settings.policy >= Policy::Takeover
            && (state.rating(history) >= Rating::Slow || history.has_unproven()));
    // Without a controller nobody would end the wait for a permit.
    if known && !domain.permits.is_closed() && handoff::is_allowed(domain) {
        return true;
    }
    // It may have queued on a worker and be polled elsewhere now.
    if let Some(waiter) = state.waiter.take() {
        waiter.leave();
    }
    false
}

enum Turn {
    Now(Permit),
    Later,
    Inline,
}

fn permit_for(
    state: &mut WatchState,
    domain: &Arc<Domain>,
    history: &Arc<History>,
    waker: &Waker,
) -> Turn {
    if let Some(waiter) = state.waiter.take() {
        match waiter.take_up(waker) {
            Ok(Some(permit)) => return Turn::Now(permit),
            Ok(None) => {
                state.waiter = Some(waiter);
                return Turn::Later;
            }
            // It took too long to come: from the start.
            Err(NoPermit::TakenBack) => {}
            Err(NoPermit::Inline) => {
                let turn = refused(state, domain, waker);
                if matches!(turn, Turn::Later) {
                    state.waiter = Some(waiter);
                }
                return turn;
            }
        }
    }
    let demotable = state.own_demotable().unwrap_or(domain.settings.demotable);
    let may_demote = demotable && domain.settings.policy >= Policy::Demote;
    let class = if may_demote && state.rating(history) == Rating::Hog {
        Class::Hog
    } else {
        Class::Slow
    };
    let request = Request {
        class,
        history: may_demote.then_some(history),
        sleeps: history.sleeps(),
        not_before_ns: state.not_before_ns,
    };
    let scarce = domain.spares_scarce.load(Ordering::Relaxed);
    match domain.permits.ask(request, scarce, waker) {
        Answer::Granted(permit) => Turn::Now(permit),
        Answer::Wait(waiter) => {
            state.waiter = Some(waiter);
            // Its turn may depend on the controller's clock.
            domain.wake_controller();
            Turn::Later
        }
        Answer::Full => refused(state, domain, waker),
    }
}

/// No place to be handed off: inline, once nothing that waits on this worker alone is left behind the poll.
///
/// It asks again where the worker lost its core over that: without one it would be one more in place. Not for ever: on a
/// machine that is full, cores change hands more often than not.
fn refused(state: &mut WatchState, domain: &Domain, waker: &Waker) -> Turn {
    if state.tries_inline < TRIES_INLINE && domain.permits.has_places() {
        state.tries_inline += 1;
        if !handoff::try_flush_queue(domain) {
            waker.wake_by_ref();
            return Turn::Later;
        }
        // Takes the LIFO slot, so that the next one wakes somebody, who comes and looks.
        handoff::flush_lifo();
    }
    state.tries_inline = 0;
    domain
        .counters
        .handoffs_refused
        .fetch_add(1, Ordering::Relaxed);
    handoff::flush_lifo();
    Turn::Inline
}

#[cold]
pub(crate) fn learn(state: &mut WatchState, verdict: VerdictFlags) {
    state.count_polls();
    let was_clean = state.record.is_clean();
    let convicted = state.record.learn(verdict);
    if verdict.is_empty() && !state.label.is_healthy() {
        own_slot::with_history(state.label, History::learn_good);
    }
    if convicted || (was_clean && !state.record.is_clean()) {
        own_slot::with_domain(|domain, _| {
            let counters = &domain.counters;
            if was_clean {
                counters.slow_tasks.fetch_add(1, Ordering::Relaxed);
            }
            if convicted {
                counters.hog_tasks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}
