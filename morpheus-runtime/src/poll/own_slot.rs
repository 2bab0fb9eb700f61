//! The calling thread's slot and domain: which runtime the thread belongs to, and how it gets and leaves its
//! slot there.
//!
//! A thread gets a slot when it first parks as a worker, is held, or polls a watched future. It gets none
//! when it starts, because tokio's hooks run for blocking threads too. It gives the slot back when it ends.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::{SlotFlag, WorkerState};

use crate::decide::history::History;
use crate::domain::Domain;
#[cfg(tokio_unstable)]
use crate::poll::hooks;
use crate::report::label::Label;
use morpheus_link::handle::{self, SlotHandle};
use morpheus_system::{nice, threads};

thread_local! {
    static MEMBERSHIP: RefCell<Membership> = const { RefCell::new(Membership { domain: None, claimed: None }) };
}

/// The calling thread's domain and slot, for all but the hot path ([`handle::current`]).
struct Membership {
    /// The domain of the runtime that started this thread; `None` for threads of others.
    domain: Option<Arc<Domain>>,
    claimed: Option<Claimed>,
}

/// A taken slot. It is given back when this is dropped, at the latest when the thread ends.
struct Claimed {
    domain: Arc<Domain>,
    index: usize,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // **Invariant:** first the thread lets go of its handle, then the slot is free for the next thread,
        // then the domain may be freed.
        let slot = handle::current();
        handle::clear();
        slot.runtime.set_state(WorkerState::Dead);
        #[cfg(tokio_unstable)]
        self.domain
            .thread_ids
            .forget(slot.runtime.tid.load(Ordering::Relaxed));
        slot.runtime.tid.store(0, Ordering::Release);
        self.domain.link.slots_changed();
        self.domain.slots.give_back(self.index);
    }
}

/// Returns the domain for threads that belong to no runtime of Morpheus's.
pub(crate) type Plain = fn() -> Option<Arc<Domain>>;

/// Sets the domain of the calling thread. Tokio's thread-start hook calls it.
pub(crate) fn belongs_to(domain: Arc<Domain>) {
    // `try_with`: a thread that is being torn down needs no slot.
    let _ = MEMBERSHIP.try_with(|membership| membership.borrow_mut().domain = Some(domain));
}

/// Whether the calling thread is one of `domain`. A current-thread runtime runs on whichever thread is in its `block_on`, and that one
/// need not have [entered](enter) it: `AsRef` gives tokio's runtime out, and a `LocalSet` asks for that.
pub(crate) fn is_of(domain: &Arc<Domain>) -> bool {
    let is_of = MEMBERSHIP.try_with(|membership| {
        let membership = membership.borrow();
        let own = membership.domain.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, domain))
    });
    is_of.unwrap_or(false)
}

/// Makes the calling thread a thread of `domain` until the guard is dropped. This serves `block_on` of a
/// current-thread runtime.
///
/// The thread's previous membership is put aside: its domain, its slot there with all words, and a poll under
/// way in it. That poll still counts as under way.
///
/// `plain` returns the domain of a thread that belongs to no runtime, as for [`claim_or`].
pub(crate) fn enter(domain: &Arc<Domain>, plain: Plain) -> Entered {
    let put_aside = |membership: &RefCell<Membership>| {
        let own = Membership {
            domain: Some(domain.clone()),
            claimed: None,
        };
        (membership.replace(own), handle::put_aside())
    };
    let put_aside = match is_of(domain) {
        false => MEMBERSHIP.try_with(put_aside).ok(),
        true => None,
    };
    // A thread that is being torn down, or one that belongs to that domain already: nothing changes.
    let Some((membership, slot)) = put_aside else {
        return Entered {
            before: None,
            plain,
        };
    };
    let before = Before {
        membership,
        slot,
        #[cfg(tokio_unstable)]
        hooked: hooks::put_aside(),
    };
    let entered = Entered {
        before: Some(before),
        plain,
    };
    carry_critical_depth(entered.before_depth(), plain);
    entered
}

/// Makes the thread belong to a domain while it exists; made by [`enter`].
#[must_use = "the thread belongs to the domain until this is dropped"]
pub(crate) struct Entered {
    before: Option<Before>,
    plain: Plain,
}

/// The thread's membership before [`enter`].
struct Before {
    membership: Membership,
    slot: handle::PutAside,
    #[cfg(tokio_unstable)]
    hooked: hooks::PutAside,
}

impl Entered {
    fn before_depth(&self) -> u32 {
        let Some(before) = &self.before else {
            return 0;
        };
        // SAFETY: `before.membership.claimed` keeps the table alive.
        unsafe { before.slot.critical_depth() }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        // Relaxed: the thread's own word; 0 in the stand-in.
        let depth = handle::current()
            .runtime
            .critical_depth
            .load(Ordering::Relaxed);
        let had_slot = handle::current().is_taken();
        // The slot is given back while its handle is in force. Then the previous handle returns.
        let claimed = MEMBERSHIP.try_with(|membership| membership.borrow_mut().claimed.take());
        drop(claimed);
        before.slot.put_back();
        #[cfg(tokio_unstable)]
        hooks::put_back(before.hooked);
        let own = MEMBERSHIP.try_with(|membership| membership.replace(before.membership));
        drop(own);
        if had_slot {
            carry_critical_depth(depth, self.plain);
        }
    }
}

/// Carries the thread's number of critical sections over to its slot in another domain. A guard counts for
/// the thread, and may be dropped on the other side of a `block_on`.
fn carry_critical_depth(depth: u32, plain: Plain) {
    let slot = match depth {
        0 => Some(handle::current()).filter(|slot| slot.is_taken()),
        _ => claim_or(plain),
    };
    if let Some(slot) = slot {
        // Relaxed: the thread's own word, as in `enter_critical`.
        slot.runtime.critical_depth.store(depth, Ordering::Relaxed);
    }
}

/// The calling thread's slot; takes one if the thread has none. `None` when the table is full, and on a
/// thread that belongs to no runtime of Morpheus's.
#[inline]
pub(crate) fn claim() -> Option<SlotHandle> {
    claim_or(|| None)
}

/// Does the same as [`claim`], on the domain that `plain` returns where the thread belongs to no runtime of
/// Morpheus's.
#[inline]
pub(crate) fn claim_or(plain: Plain) -> Option<SlotHandle> {
    (handle::current().is_taken() || claim_slow(plain)).then(handle::current)
}

/// Takes a slot. Returns whether there was one, and not the slot itself: returned through memory, it would
/// cost every poll a load that stalls.
#[cold]
fn claim_slow(plain: Plain) -> bool {
    let taken = MEMBERSHIP.try_with(|membership| {
        let mut membership = membership.borrow_mut();
        let domain = match &membership.domain {
            Some(domain) => domain.clone(),
            None => plain()?,
        };
        let index = domain.slots.take()?;
        nice::remember_own();
        domain.shorten_slice();
        let slot = handle_of(&domain, index);
        slot.runtime.flags.store(0, Ordering::Relaxed);
        slot.runtime.critical_depth.store(0, Ordering::Relaxed);
        if domain.settings.demotable {
            slot.runtime.set_flag(SlotFlag::Demotable);
        }
        let tid = threads::own_tid();
        #[cfg(tokio_unstable)]
        domain.thread_ids.note(tid);
        // Release: pairs with the controller's Acquire load of `tid`. Zero means that the slot is free.
        slot.runtime.tid.store(tid, Ordering::Release);
        slot.runtime.set_state(WorkerState::Running);
        handle::set(slot);
        handle::list_thread(tid);
        domain.link.slots_changed();
        membership.claimed = Some(Claimed { domain, index });
        Some(())
    });
    matches!(taken, Ok(Some(())))
}

/// The calling thread's handle of a slot in a domain's table, after the slot's words moved to their target
/// memory.
fn handle_of(domain: &Arc<Domain>, index: usize) -> SlotHandle {
    // SAFETY: `domain` owns the table and the flag. `Claimed` keeps `domain` alive, and calls `clear` before
    // it lets it go.
    unsafe { SlotHandle::of(&domain.slots, index, domain.sleeper.flag()) }
}

/// Wakes the controller, if it sleeps, after this thread wrote one of its sequence words.
#[inline]
pub(crate) fn notice(slot: SlotHandle) {
    if slot.must_wake_controller() {
        wake_controller();
    }
}

/// Moves the slot to its target memory if it is not there, and returns the handle. Only outside of a poll,
/// and only where no other copy of the handle is in use: a move makes the old handle invalid.
#[inline]
pub(crate) fn settled(slot: SlotHandle) -> SlotHandle {
    if slot.is_settled() {
        return slot;
    }
    move_slot();
    handle::current()
}

/// Moves the calling thread's slot.
#[cold]
fn move_slot() {
    with_domain(|domain, index| {
        handle::set(handle_of(domain, index));
    });
}

/// Runs `f` with the domain and the index of the calling thread's slot; `None` without a slot.
pub(crate) fn with_domain<R>(f: impl FnOnce(&Arc<Domain>, usize) -> R) -> Option<R> {
    MEMBERSHIP
        .try_with(|membership| {
            let (domain, index) = {
                let membership = membership.borrow();
                let claimed = membership.claimed.as_ref()?;
                (claimed.domain.clone(), claimed.index)
            };
            // The borrow has ended: `f` may poll futures that come back here.
            Some(f(&domain, index))
        })
        .ok()
        .flatten()
}

/// Runs `f` with the history of a label on the runtime of the calling thread's slot; `None` without a slot.
/// It is cheaper than [`with_domain`], and `f` must not poll.
pub(crate) fn with_history<R>(label: &'static Label, f: impl FnOnce(&History) -> R) -> Option<R> {
    MEMBERSHIP
        .try_with(|membership| {
            let membership = membership.borrow();
            let claimed = membership.claimed.as_ref()?;
            Some(f(claimed.domain.histories.of(label)))
        })
        .ok()
        .flatten()
}

#[cold]
fn wake_controller() {
    with_domain(|domain, _| domain.wake_controller());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Runtime};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    fn plain() -> Option<Arc<Domain>> {
        Some(crate::control::plain::domain())
    }

    fn own_slot() -> usize {
        claim_or(plain).unwrap();
        ptr::from_ref(handle::current().runtime).addr()
    }

    fn own_domain() -> *const Domain {
        claim_or(plain).unwrap();
        with_domain(|domain, _| Arc::as_ptr(domain)).unwrap()
    }

    #[test]
    fn a_thread_returns_to_its_previous_slot_and_domain() {
        let (one, two) = (runtime(), runtime());
        let before = (own_slot(), own_domain());
        let seq = handle::current().runtime.begin_poll();
        for runtime in [&one, &two, &one] {
            let entered = enter(runtime.domain(), plain);
            assert!(!handle::current().is_taken() && !handle::current().runtime.in_poll());
            assert_eq!(own_domain(), Arc::as_ptr(runtime.domain()));
            // The thread is there already: nothing is put aside.
            let slot = own_slot();
            drop(enter(runtime.domain(), plain));
            assert_eq!(own_slot(), slot);
            // One runtime inside another.
            let inner = enter(two.domain(), plain);
            assert_eq!(own_domain(), Arc::as_ptr(two.domain()));
            drop(inner);
            assert_eq!(
                (own_slot(), own_domain()),
                (slot, Arc::as_ptr(runtime.domain()))
            );
            drop(entered);
            assert_eq!((own_slot(), own_domain()), before);
        }
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _entered = enter(one.domain(), plain);
            claim_or(plain).unwrap();
            panic!("on purpose");
        }));
        assert!(caught.is_err());
        assert_eq!((own_slot(), own_domain()), before);
        assert!(handle::current().runtime.in_poll(), "the poll goes on");
        handle::current().runtime.end_poll(seq);
        for runtime in [one, two] {
            let slots = runtime.domain().slots.in_use();
            assert!(
                slots <= 1,
                "{slots} slots were in use, although each was given back"
            );
        }
    }

    #[test]
    fn critical_sections_belong_to_the_thread() {
        let runtime = runtime();
        own_slot();
        let outer = crate::critical_section();
        let entered = enter(runtime.domain(), plain);
        assert!(handle::current().runtime.in_critical());
        let inner = crate::critical_section();
        drop(outer);
        assert!(handle::current().runtime.in_critical());
        drop(entered);
        assert!(
            handle::current().runtime.in_critical(),
            "the guard from inside still counts"
        );
        drop(inner);
        assert!(!handle::current().runtime.in_critical());
    }
}
