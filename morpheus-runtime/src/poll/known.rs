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
use crate::decide::offender::Standing;
use crate::domain::Domain;
use crate::os::{clock, nice};
use crate::poll::file::File;
use crate::poll::mark::{PollMark, poll_inline};
use crate::poll::{handoff, home};
use crate::report::label::Label;
use crate::slot::handle::{self, Seat};

/// A throttled offender gets one part in this many of a CPU.
const THROTTLED_SHARE: u64 = 4;

/// Who is to be polled inline is, after so many tries to leave nothing behind, whatever is.
const TRIES_INLINE: u8 = 8;

/// A future with a record, or under a label with one, or with none yet; or one that says whether it is escapable.
#[cold]
pub(crate) fn poll<F: Future>(
    future: Pin<&mut F>,
    file: &mut File,
    seat: Seat,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let says_so_already = file
        .own_escapable()
        .is_none_or(|escapable| escapable == seat.runtime.has_flag(SlotFlag::Escapable));
    let has_no_record = file.record.is_clean() && file.waiter.is_none();
    if says_so_already && has_no_record && is_calm_here(file.label) {
        let (result, verdict) = poll_inline(future, file.label, seat, cx);
        if !verdict.is_empty() || file.is_lot_full() {
            learn(file, verdict);
        }
        return result;
    }
    let done = home::with_home(|domain, index| {
        let history = domain.histories.of(file.label);
        let may_go = may_go_in_place(file, domain, history);
        let turn = may_go.then(|| permit_for(file, domain, history, cx.waker()));
        let (permit, is_refused) = match turn {
            Some(Turn::Now(permit)) => (Some(permit), false),
            Some(Turn::Later) => {
                // Counted by the caller, and not polled after all.
                file.polls = file.polls.wrapping_sub(1);
                return Poll::Pending;
            }
            Some(Turn::Inline) => (None, true),
            None => (None, false),
        };
        let _escapable = file
            .own_escapable()
            .and_then(|escapable| Escapable::mark(seat, escapable));
        domain.seats.private[index].stamp(seat.runtime.next_poll());
        let (result, verdict) = match permit {
            Some(permit) => {
                let _in_place = handoff::Visit::begin(domain, index, seat, &permit);
                let label = file.label;
                let begun = std::cell::Cell::new(0);
                let result = handoff::poll(domain, future, cx, || {
                    let mark = PollMark::begin(seat, label);
                    begun.set(mark.seq);
                    mark
                });
                (result, seat.kernel.verdict_for(begun.get()))
            }
            None => {
                // It may hold up its worker for long: what waits in the LIFO slot would wait with it.
                let on_probation = history.is_on_probation();
                let may_flush = !is_refused && !domain.observes();
                if may_flush && (on_probation || file.standing(history) >= Standing::Suspect) {
                    handoff::evict_lifo();
                }
                let _unproven = on_probation.then(|| history.begin_unproven());
                poll_inline(future, file.label, seat, cx)
            }
        };
        if domain.settings.policy >= Policy::Throttle && verdict.contains(VerdictFlags::THROTTLED) {
            let used_ns = seat.kernel.oncpu_ns.load(Ordering::Relaxed);
            file.not_before_ns = clock::now_ns() + used_ns.saturating_mul(THROTTLED_SHARE - 1);
        }
        if verdict.contains(VerdictFlags::DEMOTED) {
            nice::undo_own();
        }
        learn(file, verdict);
        result
    });
    // A thread that has a seat has a home, but for one that is being torn down, which polls nothing.
    done.unwrap_or(Poll::Pending)
}

/// Has the slot's `escapable` flag say for one poll what the task says, and not what the runtime says.
struct Escapable {
    before: bool,
}

impl Escapable {
    /// `None` where the flag says so already.
    fn mark(seat: Seat, escapable: bool) -> Option<Escapable> {
        let before = seat.runtime.has_flag(SlotFlag::Escapable);
        (before != escapable).then(|| {
            Escapable::set(seat, escapable);
            Escapable { before }
        })
    }

    fn set(seat: Seat, escapable: bool) {
        match escapable {
            true => seat.runtime.set_flag(SlotFlag::Escapable),
            false => seat.runtime.clear_flag(SlotFlag::Escapable),
        }
    }
}

impl Drop for Escapable {
    fn drop(&mut self) {
        // The thread's slot of this moment, which has the flags of the one before if it moved.
        Escapable::set(handle::current(), self.before);
    }
}

/// Whether the calling thread's runtime has nothing against a label.
fn is_calm_here(label: &'static Label) -> bool {
    label.is_calm() || home::with_history(label, History::is_calm).unwrap_or(true)
}

fn may_go_in_place(file: &mut File, domain: &Arc<Domain>, history: &History) -> bool {
    let known = file.waiter.is_some()
        || (file.may_offend
            && domain.settings.mechanisms.offenders
            && domain.settings.policy >= Policy::Takeover
            && (file.standing(history) >= Standing::Suspect || history.has_unproven()));
    // Without a controller nobody would end the wait for a permit.
    if known && !domain.permits.is_closed() && handoff::is_allowed(domain) {
        return true;
    }
    // It may have queued on a worker and be polled elsewhere now.
    if let Some(waiter) = file.waiter.take() {
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
    file: &mut File,
    domain: &Arc<Domain>,
    history: &Arc<History>,
    waker: &Waker,
) -> Turn {
    if let Some(waiter) = file.waiter.take() {
        match waiter.take_up(waker) {
            Ok(Some(permit)) => return Turn::Now(permit),
            Ok(None) => {
                file.waiter = Some(waiter);
                return Turn::Later;
            }
            // It took too long to come: from the start.
            Err(NoPermit::TakenBack) => {}
            Err(NoPermit::Inline) => {
                let turn = refused(file, domain, waker);
                if matches!(turn, Turn::Later) {
                    file.waiter = Some(waiter);
                }
                return turn;
            }
        }
    }
    let escapable = file.own_escapable().unwrap_or(domain.settings.escapable);
    let may_demote = escapable && domain.settings.policy >= Policy::Demote;
    let class = if may_demote && file.standing(history) == Standing::Convict {
        Class::Convict
    } else {
        Class::Suspect
    };
    let request = Request {
        class,
        history: may_demote.then_some(history),
        sleeps: history.sleeps(),
        not_before_ns: file.not_before_ns,
    };
    let scarce = domain.spares_scarce.load(Ordering::Relaxed);
    match domain.permits.ask(request, scarce, waker) {
        Answer::Granted(permit) => Turn::Now(permit),
        Answer::Wait(waiter) => {
            file.waiter = Some(waiter);
            // Its turn may depend on the controller's clock.
            domain.wake_controller();
            Turn::Later
        }
        Answer::Full => refused(file, domain, waker),
    }
}

/// No place to be polled in place: inline, once nothing that waits on this worker alone is left behind the poll.
///
/// It asks again where the worker lost its core over that: without one it would be one more in place. Not for ever: on a
/// machine that is full, cores change hands more often than not.
fn refused(file: &mut File, domain: &Domain, waker: &Waker) -> Turn {
    if file.tries_inline < TRIES_INLINE && domain.permits.has_places() {
        file.tries_inline += 1;
        if !handoff::try_to_leave_nothing_behind(domain) {
            waker.wake_by_ref();
            return Turn::Later;
        }
        // Takes the LIFO slot, so that the next one wakes somebody, who comes and looks.
        handoff::evict_lifo();
    }
    file.tries_inline = 0;
    domain
        .counters
        .in_place_refused
        .fetch_add(1, Ordering::Relaxed);
    handoff::evict_lifo();
    Turn::Inline
}

#[cold]
pub(crate) fn learn(file: &mut File, verdict: VerdictFlags) {
    file.count_polls();
    let was_clean = file.record.is_clean();
    let convicted = file.record.learn(verdict);
    if verdict.is_empty() && !file.label.is_calm() {
        home::with_history(file.label, History::learn_good);
    }
    if convicted || (was_clean && !file.record.is_clean()) {
        home::with_home(|domain, _| {
            let counters = &domain.counters;
            if was_clean {
                counters.suspects.fetch_add(1, Ordering::Relaxed);
            }
            if convicted {
                counters.convicts.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}
