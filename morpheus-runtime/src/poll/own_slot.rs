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
#[cfg(tokio_unstable)]
use crate::poll::hooks;
use crate::report::label::Label;
use crate::slot::handle::{self, SlotHandle};

thread_local! {
    static HOME: RefCell<Home> = const { RefCell::new(Home { domain: None, claimed: None }) };
}

/// The slow side of a thread's slot.
struct Home {
    /// The runtime whose thread this is; `None` for threads of others.
    domain: Option<Arc<Domain>>,
    claimed: Option<Claimed>,
}

/// A taken slot; given back when the thread ends.
struct Claimed {
    domain: Arc<Domain>,
    index: usize,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // First nobody finds the slot any more, then it may go to the next thread, then the domain may
        // go: this order is the module's invariant.
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

/// Gives the domain of threads that belong to no runtime of Morpheus's.
pub(crate) type Plain = fn() -> Option<Arc<Domain>>;

/// Says whose thread this is; called by tokio's thread-start hook.
pub(crate) fn belongs_to(domain: Arc<Domain>) {
    // `try_with`: a thread that is being torn down needs no slot.
    let _ = HOME.try_with(|home| home.borrow_mut().domain = Some(domain));
}

/// Makes the calling thread one of `domain`'s until what this returns is dropped: the thread in `block_on` of a
/// current-thread runtime. What it was before is put aside: the domain, a slot there with all its words, and a poll under
/// way in it, which goes on to count as under way.
///
/// `plain` is the domain of a thread that belongs to no runtime, as for [`claim_or`].
pub(crate) fn enter(domain: &Arc<Domain>, plain: Plain) -> Entered {
    let put_aside = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        let belongs_there = home
            .domain
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, domain));
        (!belongs_there).then(|| {
            let own = Home {
                domain: Some(domain.clone()),
                claimed: None,
            };
            let home = std::mem::replace(&mut *home, own);
            (home, handle::put_aside())
        })
    });
    // A thread that is being torn down, or one of that domain's anyway: nothing changes.
    let Ok(Some((home, slot))) = put_aside else {
        return Entered {
            before: None,
            plain,
        };
    };
    let before = Before {
        home,
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

/// A thread that belongs to a domain for a time; made by [`enter`].
#[must_use = "the thread belongs to the domain until this is dropped"]
pub(crate) struct Entered {
    before: Option<Before>,
    plain: Plain,
}

/// What the thread was before.
struct Before {
    home: Home,
    slot: handle::PutAside,
    #[cfg(tokio_unstable)]
    hooked: hooks::PutAside,
}

impl Entered {
    fn before_depth(&self) -> u32 {
        let Some(before) = &self.before else {
            return 0;
        };
        // SAFETY: `before.home.claimed` keeps the table alive.
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
        // First the slot is given back, with its handle in force, then the one from before returns.
        let claimed = HOME.try_with(|home| home.borrow_mut().claimed.take());
        drop(claimed);
        before.slot.put_back();
        #[cfg(tokio_unstable)]
        hooks::put_back(before.hooked);
        let own = HOME.try_with(|home| home.replace(before.home));
        drop(own);
        if had_slot {
            carry_critical_depth(depth, self.plain);
        }
    }
}

/// Has the calling thread be in as many critical sections as it was in its other domain: a guard counts for the thread,
/// and may be dropped on the other side of a `block_on`.
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

/// The calling thread's slot, taken now if it has none; `None` when the table is full, and on a thread of no runtime of
/// Morpheus's.
#[inline]
pub(crate) fn claim() -> Option<SlotHandle> {
    claim_or(|| None)
}

/// The same, on the domain that `plain` gives where the thread belongs to no runtime of Morpheus's.
#[inline]
pub(crate) fn claim_or(plain: Plain) -> Option<SlotHandle> {
    (handle::current().is_taken() || claim_slow(plain)).then(handle::current)
}

/// Takes a slot. Returns whether there was one, and not the slot itself: handed back through memory, it
/// would cost every poll a stalled load.
#[cold]
fn claim_slow(plain: Plain) -> bool {
    let taken = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        let domain = match &home.domain {
            Some(domain) => domain.clone(),
            None => plain()?,
        };
        let index = domain.slots.take()?;
        nice::remember_own();
        domain.shorten_slice();
        let slot = sit_down(&domain, index);
        slot.runtime.flags.store(0, Ordering::Relaxed);
        slot.runtime.critical_depth.store(0, Ordering::Relaxed);
        if domain.settings.demotable {
            slot.runtime.set_flag(SlotFlag::Demotable);
        }
        let tid = threads::own_tid();
        #[cfg(tokio_unstable)]
        domain.thread_ids.note(tid);
        // Release: pairs with the controller's Acquire load of `tid`; zero means nobody sits here.
        slot.runtime.tid.store(tid, Ordering::Release);
        slot.runtime.set_state(WorkerState::Running);
        handle::set(slot);
        domain.link.slots_changed();
        home.claimed = Some(Claimed { domain, index });
        Some(())
    });
    matches!(taken, Ok(Some(())))
}

/// The slot of the calling thread in a table, with its slot where it should be.
fn sit_down(domain: &Arc<Domain>, index: usize) -> SlotHandle {
    // SAFETY: `domain` has both; `Claimed` keeps it alive, and calls `clear` before it lets it go.
    unsafe { SlotHandle::of(&domain.slots, index, domain.sleeper.flag()) }
}

/// Wakes the controller, if it sleeps, after this thread wrote one of its sequence words.
#[inline]
pub(crate) fn notice(slot: SlotHandle) {
    if slot.must_wake_controller() {
        wake_controller();
    }
}

/// The slot, after its slot moved to where it should be. Only outside of a poll, and by whoever has no
/// other copy of the slot: the slot that it stands for is given up.
#[inline]
pub(crate) fn settled(slot: SlotHandle) -> SlotHandle {
    if slot.is_settled() {
        return slot;
    }
    move_over();
    handle::current()
}

/// Moves the calling thread's slot.
#[cold]
fn move_over() {
    with_domain(|domain, index| {
        handle::set(sit_down(domain, index));
    });
}

/// Runs `f` with the domain and the number of the calling thread's slot, when it has one.
pub(crate) fn with_domain<R>(f: impl FnOnce(&Arc<Domain>, usize) -> R) -> Option<R> {
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

/// Runs `f` with the history of a label on the runtime of the calling thread's slot. Cheaper than [`with_domain`], and `f`
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
    fn a_thread_is_what_it_was_before() {
        let (one, two) = (runtime(), runtime());
        let before = (own_slot(), own_domain());
        let seq = handle::current().runtime.begin_poll();
        for runtime in [&one, &two, &one] {
            let entered = enter(runtime.domain(), plain);
            assert!(!handle::current().is_taken() && !handle::current().runtime.in_poll());
            assert_eq!(own_domain(), Arc::as_ptr(runtime.domain()));
            // There already: nothing is put aside.
            let slot = own_slot();
            drop(enter(runtime.domain(), plain));
            assert_eq!(own_slot(), slot);
            // One within another.
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
            assert!(slots <= 1, "{slots} slots were taken, each given back");
        }
    }

    #[test]
    fn critical_sections_are_the_thread_s() {
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
            "of the one from inside"
        );
        drop(inner);
        assert!(!handle::current().runtime.in_critical());
    }
}
