//! Decides how a poll of a slow or unrated task runs (handed off, after a wait for a permit, or inline), and runs it.

use std::cell::Cell;
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
use crate::poll::handoff::{self, HandoffMark};
use crate::poll::mark::{PollMark, marked, undo_demotion};
use crate::poll::own_slot;
use crate::poll::own_verdict::{self, Began, Stalled};
use crate::poll::state::WatchState;
use crate::report::label::Label;
use morpheus_link::handle::{self, SlotHandle};
use morpheus_system::clock;

/// A throttled slow task gets one part in this many of a CPU.
const THROTTLED_SHARE: u64 = 4;

/// After this many failed flushes the poll runs inline, even if the worker still has queued tasks.
const TRIES_INLINE: u8 = 8;

/// Polls a future that needs more than a mark: one with a rating, one under a label with a rating or with
/// none yet, or one that sets `demotable` itself.
///
/// Only this much is compiled for each type of future. The decision, and tokio's code for a handoff, would
/// be 2,200 lines of LLVM's code for each.
#[cold]
pub(crate) fn poll<F: Future>(
    mut future: Pin<&mut F>,
    state: &mut WatchState,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let mut output = None;
    let mut poll = |cx: &mut Context<'_>| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            output = Some(value);
        }
    };
    poll_or_wait(&mut poll, state, slot, cx);
    output.map_or(Poll::Pending, Poll::Ready)
}

/// Calls `poll` once, or not at all: then the task waits for a permit.
fn poll_or_wait(
    poll: &mut dyn FnMut(&mut Context<'_>),
    state: &mut WatchState,
    slot: SlotHandle,
    cx: &mut Context<'_>,
) {
    let demotable_is_set = state
        .own_demotable()
        .is_none_or(|demotable| demotable == slot.runtime.has_flag(SlotFlag::Demotable));
    let has_no_rating = state.rating.is_clean() && state.waiter.is_none();
    if demotable_is_set && has_no_rating && is_healthy_here(state.label) {
        let verdict = marked(state.label, slot, || poll(cx)).1;
        if !verdict.is_empty() || state.is_lot_full() {
            learn(state, verdict);
        }
        return;
    }
    // A thread with a slot belongs to a domain. The exception is a thread that is being torn down, and it
    // polls nothing.
    own_slot::with_domain(|domain, index| {
        let history = domain.histories.of(state.label);
        let may_hand_off = may_hand_off_poll(state, domain, history);
        let plan = may_hand_off.then(|| permit_for(state, domain, history, cx.waker()));
        let (permit, is_refused) = match plan {
            Some(Plan::Handoff(permit)) => (Some(permit), false),
            Some(Plan::Wait) => {
                // The caller counted this poll, which does not take place.
                state.polls = state.polls.wrapping_sub(1);
                return;
            }
            Some(Plan::Inline) => (None, true),
            None => (None, false),
        };
        let _demotable = state
            .own_demotable()
            .and_then(|demotable| Demotable::mark(slot, demotable));
        domain.slots.private[index].stamp(slot.runtime.next_poll());
        let handoff =
            permit.and_then(|permit| Some(HandoffMark::begin(domain, index, slot)?.hold(permit)));
        let verdict = match handoff {
            Some(_handoff) => {
                let label = state.label;
                let seen = Cell::new(None);
                let begun = Cell::new(0);
                handoff::poll(domain, poll, cx, || {
                    let began = Began::now();
                    let mark = PollMark::begin(slot, label);
                    begun.set(mark.seq);
                    Measured {
                        mark,
                        began,
                        domain,
                        seen: &seen,
                    }
                });
                let verdict = slot.kernel.verdict_for(begun.get());
                own_verdict::or_own(verdict, seen.take(), || history)
            }
            None => {
                // The poll may be long: without the flush, the task in the LIFO slot would wait until it
                // ends.
                let unrated = history.is_unrated();
                let may_flush = !is_refused && !domain.observes();
                if may_flush && (unrated || state.rating(history) >= Rating::Slow) {
                    handoff::flush_lifo();
                }
                let _unproven = unrated.then(|| History::begin_unproven(history));
                // A hook has handed the task's poll off, in which this one runs.
                let is_in_handoff = slot.runtime.has_flag(SlotFlag::Handoff);
                let began = is_in_handoff.then(Began::now);
                let verdict = marked(state.label, slot, || poll(cx)).1;
                let seen = began.and_then(|began| began.ends(&domain.settings));
                own_verdict::or_own(verdict, seen, || history)
            }
        };
        if domain.settings.policy >= Policy::Throttle && verdict.contains(VerdictFlags::THROTTLED) {
            let used_ns = slot.kernel.oncpu_ns.load(Ordering::Relaxed);
            state.not_before_ns = clock::now_ns() + used_ns.saturating_mul(THROTTLED_SHARE - 1);
        }
        learn(state, verdict);
    });
}

/// A handoff poll, from when it begins until this is dropped.
struct Measured<'a> {
    #[expect(dead_code, reason = "dropped after the poll is measured")]
    mark: PollMark,
    began: Began,
    domain: &'a Domain,
    seen: &'a Cell<Option<Stalled>>,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.seen.set(self.began.ends(&self.domain.settings));
    }
}

/// Sets the slot's `demotable` flag to the task's own setting for one poll, instead of the runtime's.
struct Demotable {
    before: bool,
}

impl Demotable {
    /// `None` where the flag has this value already.
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
        // The thread's current slot, which has the flags of the previous one if it moved.
        Demotable::set(handle::current(), self.before);
    }
}

/// Whether the calling thread's runtime rates a label healthy.
fn is_healthy_here(label: &'static Label) -> bool {
    label.is_healthy() || own_slot::with_history(label, History::is_healthy).unwrap_or(true)
}

fn may_hand_off_poll(state: &mut WatchState, domain: &Arc<Domain>, history: &History) -> bool {
    let is_slow = state.rating(history) >= Rating::Slow;
    let wants = state.may_hand_off && wants_handoff(domain, is_slow, history);
    if (state.waiter.is_some() || wants) && can_hand_off(domain) {
        return true;
    }
    // The task may have waited for a permit on a worker, and be polled elsewhere now.
    if let Some(waiter) = state.waiter.take() {
        waiter.leave();
    }
    false
}

/// Whether the next poll of a task is to be handed off: the task is taken for slow, or a poll of its unrated label runs on a
/// worker now.
pub(crate) fn wants_handoff(domain: &Domain, is_slow: bool, history: &History) -> bool {
    let settings = &domain.settings;
    settings.mechanisms.handoffs
        && settings.policy >= Policy::Takeover
        && (is_slow || history.has_unproven())
}

/// Whether the calling thread can hand off its core. Without a controller no permit would ever be granted. A task whose poll was
/// handed off has no core any more: a slow future inside runs within that poll, with its permit.
pub(crate) fn can_hand_off(domain: &Domain) -> bool {
    let has_handed_off = handle::current().runtime.has_flag(SlotFlag::Handoff);
    !has_handed_off && !domain.permits.is_closed() && handoff::is_allowed(domain)
}

/// The request for the permit of a task.
pub(crate) fn request<'a>(
    domain: &Domain,
    demotable: bool,
    rating: Rating,
    history: &'a Arc<History>,
    not_before_ns: u64,
) -> Request<'a> {
    let may_demote = demotable && domain.settings.policy >= Policy::Demote;
    let class = if may_demote && rating == Rating::Hog {
        Class::Hog
    } else {
        Class::Slow
    };
    Request {
        class,
        history: may_demote.then_some(history),
        sleeps: history.sleeps(),
        short_polls: 0,
        not_before_ns,
        blocks_thread: false,
        returns: false,
    }
}

/// How a poll of a slow task runs.
enum Plan {
    /// Now, with the core handed off.
    Handoff(Permit),
    /// Later: the task is woken for the next attempt.
    Wait,
    /// Now, on the worker.
    Inline,
}

fn permit_for(
    state: &mut WatchState,
    domain: &Arc<Domain>,
    history: &Arc<History>,
    waker: &Waker,
) -> Plan {
    let mut returns = false;
    if let Some(waiter) = state.waiter.take() {
        match waiter.take_up(waker) {
            Ok(Some(permit)) => return Plan::Handoff(permit),
            Ok(None) => {
                state.waiter = Some(waiter);
                return Plan::Wait;
            }
            // The permit was taken back because the task did not take it up in time: it asks anew.
            Err(NoPermit::TakenBack) => returns = true,
            Err(NoPermit::Inline) => {
                let plan = plan_without_permit(state, domain, waker);
                if matches!(plan, Plan::Wait) {
                    state.waiter = Some(waiter);
                }
                return plan;
            }
        }
    }
    let demotable = state.own_demotable().unwrap_or(domain.settings.demotable);
    let rating = state.rating(history);
    let request = Request {
        returns,
        ..request(domain, demotable, rating, history, state.not_before_ns)
    };
    let scarce = domain.spares_scarce.load(Ordering::Relaxed);
    match domain.permits.ask(request, scarce, waker) {
        Answer::Granted(permit) => Plan::Handoff(permit),
        Answer::Wait(waiter) => {
            state.waiter = Some(waiter);
            // The controller's clock may decide when the permit is granted.
            domain.wake_controller();
            Plan::Wait
        }
        Answer::Full => plan_without_permit(state, domain, waker),
    }
}

/// Decides for a poll that gets no permit: it runs inline, once the tasks that only this worker can reach are
/// flushed.
///
/// If the worker loses its core in the flush, the task asks for a permit again: a poll on this thread would run beside the workers without one. The number of tries is limited ([`TRIES_INLINE`]): on a machine that is full, a
/// worker loses its core more often than not.
fn plan_without_permit(state: &mut WatchState, domain: &Domain, waker: &Waker) -> Plan {
    if state.tries_inline < TRIES_INLINE && domain.permits.allows_handoffs() {
        state.tries_inline += 1;
        if !handoff::try_flush_queue(domain) {
            waker.wake_by_ref();
            return Plan::Wait;
        }
        // Fills the LIFO slot, so that the next spawned task makes tokio wake a worker that looks for work.
        handoff::flush_lifo();
    }
    state.tries_inline = 0;
    domain.counters.handoffs_refused.add(1);
    handoff::flush_lifo();
    Plan::Inline
}

/// Learns from a poll that has ended, and undoes what it has cost its thread.
#[cold]
pub(crate) fn learn(state: &mut WatchState, verdict: VerdictFlags) {
    undo_demotion(verdict);
    state.count_polls();
    let was_healthy = state.rating.is_clean();
    let became_hog = state.rating.learn(verdict);
    if verdict.is_empty() && !state.label.is_healthy() {
        own_slot::with_history(state.label, History::learn_good);
    }
    if became_hog || (was_healthy && !state.rating.is_clean()) {
        own_slot::with_domain(|domain, _| {
            let counters = &domain.counters;
            if was_healthy {
                counters.slow_tasks.add(1);
            }
            if became_hog {
                counters.hog_tasks.add(1);
            }
        });
    }
}
