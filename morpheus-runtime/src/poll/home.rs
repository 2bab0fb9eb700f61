//! Homes: which runtime a thread belongs to, and how it gets and leaves its slot there.
//!
//! A thread gets a slot when it first parks as a worker, sits in a hold, or polls a watched future; not
//! when it starts, because tokio's hooks run for blocking threads too. It leaves the slot when it ends.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::{SlotFlag, WorkerState};

use crate::decide::history::History;
use crate::domain::Domain;
use crate::os::{nice, threads};
use crate::report::label::Label;
use crate::slot::handle::{self, Seat};

thread_local! {
    static HOME: RefCell<Home> = const { RefCell::new(Home { domain: None, claimed: None }) };
}

/// The slow side of a thread's seat.
struct Home {
    /// The runtime whose thread this is; `None` for threads of others.
    domain: Option<Arc<Domain>>,
    claimed: Option<Claimed>,
}

/// A taken seat; given back when the thread ends.
struct Claimed {
    domain: Arc<Domain>,
    index: usize,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // First nobody finds the slot any more, then it may go to the next thread, then the domain may
        // go: this order is the module's invariant.
        let seat = handle::current();
        handle::clear();
        seat.runtime.set_state(WorkerState::Dead);
        #[cfg(tokio_unstable)]
        self.domain
            .thread_ids
            .forget(seat.runtime.tid.load(Ordering::Relaxed));
        seat.runtime.tid.store(0, Ordering::Release);
        self.domain.link.seats_changed();
        self.domain.seats.give_back(self.index);
    }
}

/// Says whose thread this is; called by tokio's thread-start hook.
pub(crate) fn belongs_to(domain: Arc<Domain>) {
    // `try_with`: a thread that is being torn down needs no seat.
    let _ = HOME.try_with(|home| home.borrow_mut().domain = Some(domain));
}

/// The calling thread's seat, taken now if it has none; `None` when the table is full, and on a thread of no runtime of
/// Morpheus's.
#[inline]
pub(crate) fn claim() -> Option<Seat> {
    claim_or(|| None)
}

/// The same, on the domain that `plain` gives where the thread belongs to no runtime of Morpheus's.
#[inline]
pub(crate) fn claim_or(plain: fn() -> Option<Arc<Domain>>) -> Option<Seat> {
    (handle::current().is_taken() || claim_slow(plain)).then(handle::current)
}

/// Takes a seat. Returns whether there was one, and not the seat itself: handed back through memory, it
/// would cost every poll a stalled load.
#[cold]
fn claim_slow(plain: fn() -> Option<Arc<Domain>>) -> bool {
    let taken = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        let domain = match &home.domain {
            Some(domain) => domain.clone(),
            None => plain()?,
        };
        let index = domain.seats.take()?;
        nice::remember_own();
        domain.shorten_slice();
        let seat = sit_down(&domain, index);
        seat.runtime.flags.store(0, Ordering::Relaxed);
        seat.runtime.critical_depth.store(0, Ordering::Relaxed);
        if domain.settings.escapable {
            seat.runtime.set_flag(SlotFlag::Escapable);
        }
        let tid = threads::own_tid();
        #[cfg(tokio_unstable)]
        domain.thread_ids.note(tid);
        // Release: pairs with the controller's Acquire load of `tid`; zero means nobody sits here.
        seat.runtime.tid.store(tid, Ordering::Release);
        seat.runtime.set_state(WorkerState::Running);
        handle::set(seat);
        domain.link.seats_changed();
        home.claimed = Some(Claimed { domain, index });
        Some(())
    });
    matches!(taken, Ok(Some(())))
}

/// The seat of the calling thread in a table, with its slot where it should be.
fn sit_down(domain: &Arc<Domain>, index: usize) -> Seat {
    // SAFETY: `domain` has both; `Claimed` keeps it alive, and calls `clear` before it lets it go.
    unsafe { Seat::of(&domain.seats, index, domain.sleeper.flag()) }
}

/// Wakes the controller, if it sleeps, after this thread wrote one of its sequence words.
#[inline]
pub(crate) fn notice(seat: Seat) {
    if seat.must_wake_controller() {
        wake_controller();
    }
}

/// The seat, after its slot moved to where it should be. Only outside of a poll, and by whoever has no
/// other copy of the seat: the slot that it stands for is given up.
#[inline]
pub(crate) fn settled(seat: Seat) -> Seat {
    if seat.is_settled() {
        return seat;
    }
    move_over();
    handle::current()
}

/// Moves the calling thread's slot.
#[cold]
fn move_over() {
    with_home(|domain, index| {
        handle::set(sit_down(domain, index));
    });
}

/// Runs `f` with the domain and the number of the calling thread's seat, when it has one.
pub(crate) fn with_home<R>(f: impl FnOnce(&Arc<Domain>, usize) -> R) -> Option<R> {
    HOME.try_with(|home| {
        let (domain, index) = {
            let home = home.borrow();
            let claimed = home.claimed.as_ref()?;
            (claimed.domain.clone(), claimed.index)
        };
        // The borrow has ended: `f` may poll futures that come back here.
        Some(f(&domain, index))
    })
    .ok()
    .flatten()
}

/// Runs `f` with the history of a label on the runtime of the calling thread's seat. Cheaper than [`with_home`], and `f`
/// may poll nothing.
pub(crate) fn with_history<R>(label: &'static Label, f: impl FnOnce(&History) -> R) -> Option<R> {
    HOME.try_with(|home| {
        let home = home.borrow();
        let claimed = home.claimed.as_ref()?;
        Some(f(claimed.domain.histories.of(label)))
    })
    .ok()
    .flatten()
}

#[cold]
fn wake_controller() {
    with_home(|domain, _| domain.wake_controller());
}
