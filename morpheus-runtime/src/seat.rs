//! Seats: which slot a thread writes, and how it finds it in a nanosecond.
//!
//! A thread gets a seat when it first parks as a worker, sits in a hold, or polls a watched future; not
//! when it starts, because tokio's hooks run for blocking threads too. It leaves the seat when it ends.
//!
//! The hot path is [`current`]: one thread-local that holds two references. A thread without a seat has
//! those of a shared, immutable stand-in, so that nothing there needs a null check.
//!
//! **Invariant:** the references in the thread-local point into the table of a domain that [`Claimed`],
//! beside it, keeps alive; `Claimed`'s destructor puts the stand-in back before it lets the domain go.
//! [`Entered`] puts both aside together, and puts both back together.
//!
//! **A [`Seat`] is good until the thread parks or begins a watched poll**, for the slot may move then, with all its words.
//! A guard that lives longer (a critical section) asks [`current`] again when it ends.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, WorkerState};

use crate::domain::Domain;
use crate::history::History;
use crate::label::Label;
use crate::link::area::Area;
use crate::sleeper::Sleeper;

/// The two halves of a thread's slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) runtime: &'static RuntimeSlot,
    pub(crate) kernel: &'static KernelSlot,
    /// The domain's [`Sleeper`] flag, here so that a poll need not look up the domain.
    controller_asleep: &'static AtomicBool,
    /// Which memory the slot is in, and which it should be in.
    area: *mut Area,
    target: &'static AtomicPtr<Area>,
}

/// Never written: whoever would write checks [`Seat::is_taken`] first.
static NO_RUNTIME_SLOT: RuntimeSlot = RuntimeSlot::new();
/// Differs from the slot above in the one word that a checkpoint compares.
static NO_KERNEL_SLOT: KernelSlot = KernelSlot::never_requested();

static NOBODY_SLEEPS: AtomicBool = AtomicBool::new(false);
static NOBODY_MOVES: AtomicPtr<Area> = AtomicPtr::new(ptr::null_mut());

const STAND_IN: Seat = Seat {
    runtime: &NO_RUNTIME_SLOT,
    kernel: &NO_KERNEL_SLOT,
    controller_asleep: &NOBODY_SLEEPS,
    area: ptr::null_mut(),
    target: &NOBODY_MOVES,
};

/// A [`Seat`] as pointers: a thread-local of references would be tested for null at every access, the
/// empty thread-local having that representation.
#[derive(Clone, Copy)]
struct Pointers {
    runtime: *const RuntimeSlot,
    kernel: *const KernelSlot,
    controller_asleep: *const AtomicBool,
    area: *mut Area,
    target: *const AtomicPtr<Area>,
}

impl Pointers {
    const fn to(seat: Seat) -> Pointers {
        Pointers {
            runtime: seat.runtime,
            kernel: seat.kernel,
            controller_asleep: seat.controller_asleep,
            area: seat.area,
            target: seat.target,
        }
    }
}

thread_local! {
    static SEAT: Cell<Pointers> = const { Cell::new(Pointers::to(STAND_IN)) };
    /// The words of the thread's slot when it forks.
    static AT_FORK: RuntimeSlot = const { RuntimeSlot::new() };
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
        let seat = current();
        SEAT.set(Pointers::to(STAND_IN));
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

impl Seat {
    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        !std::ptr::eq(self.runtime, &raw const NO_RUNTIME_SLOT)
    }

    /// Wakes the controller, if it sleeps, after this thread wrote one of its sequence words.
    #[inline]
    pub(crate) fn notice(self) {
        if Sleeper::is_needed(self.controller_asleep) {
            wake_controller();
        }
    }

    /// The seat, after its slot moved to where it should be. Only outside of a poll, and by whoever has no
    /// other copy of the seat: the slot that it stands for is given up.
    #[inline]
    pub(crate) fn settled(self) -> Seat {
        // Relaxed: `settle` loads it again, and what it finds there it acquires. Seen late, the slot moves
        // with the next poll.
        if self.target.load(Ordering::Relaxed) == self.area {
            return self;
        }
        move_over();
        current()
    }
}

/// The calling thread's seat, or the stand-in.
#[inline]
pub(crate) fn current() -> Seat {
    let seat = SEAT.get();
    // SAFETY: each pointer was made from a reference of a `Seat` whose target is a static or is kept alive
    // by this thread's `Claimed`, which replaces them before it lets go (the module's invariant).
    unsafe {
        Seat {
            runtime: &*seat.runtime,
            kernel: &*seat.kernel,
            controller_asleep: &*seat.controller_asleep,
            area: seat.area,
            target: &*seat.target,
        }
    }
}

/// Says whose thread this is; called by tokio's thread-start hook.
pub(crate) fn belongs_to(domain: Arc<Domain>) {
    // `try_with`: a thread that is being torn down needs no seat.
    let _ = HOME.try_with(|home| home.borrow_mut().domain = Some(domain));
}

/// Makes the calling thread one of `domain`'s until what this returns is dropped: the thread in `block_on` of a
/// current-thread runtime. What it was before is put aside: the domain, a slot there with all its words, and a poll under
/// way in it, which goes on to count as under way.
pub(crate) fn enter(domain: &Arc<Domain>) -> Entered {
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
            let seat = SEAT.replace(Pointers::to(STAND_IN));
            (home, seat)
        })
    });
    // A thread that is being torn down, or one of that domain's anyway: nothing changes.
    let Ok(Some((home, seat))) = put_aside else {
        return Entered { before: None };
    };
    let before = Before {
        home,
        seat,
        #[cfg(tokio_unstable)]
        hooked: crate::hooks::put_aside(),
    };
    let entered = Entered {
        before: Some(before),
    };
    carry_critical_depth(entered.before_depth());
    entered
}

/// A thread that belongs to a domain for a time; made by [`enter`].
#[must_use = "the thread belongs to the domain until this is dropped"]
pub(crate) struct Entered {
    before: Option<Before>,
}

/// What the thread was before.
struct Before {
    home: Home,
    seat: Pointers,
    #[cfg(tokio_unstable)]
    hooked: crate::hooks::PutAside,
}

impl Entered {
    fn before_depth(&self) -> u32 {
        let Some(before) = &self.before else {
            return 0;
        };
        // SAFETY: a static's, or of a table that `before.home.claimed` keeps alive (the module's invariant).
        let runtime = unsafe { &*before.seat.runtime };
        // Relaxed: the thread's own word.
        runtime.critical_depth.load(Ordering::Relaxed)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        // Relaxed: the thread's own word; 0 in the stand-in.
        let depth = current().runtime.critical_depth.load(Ordering::Relaxed);
        let had_seat = current().is_taken();
        // First the slot is given back, with its pointers in `SEAT`, then the one from before returns.
        let claimed = HOME.try_with(|home| home.borrow_mut().claimed.take());
        drop(claimed);
        SEAT.set(before.seat);
        #[cfg(tokio_unstable)]
        crate::hooks::put_back(before.hooked);
        let own = HOME.try_with(|home| home.replace(before.home));
        drop(own);
        if had_seat {
            carry_critical_depth(depth);
        }
    }
}

/// Has the calling thread be in as many critical sections as it was in its other domain: a guard counts for the thread,
/// and may be dropped on the other side of a `block_on`.
fn carry_critical_depth(depth: u32) {
    let seat = match depth {
        0 => Some(current()).filter(|seat| seat.is_taken()),
        _ => claim(),
    };
    if let Some(seat) = seat {
        // Relaxed: the thread's own word, as in `enter_critical`.
        seat.runtime.critical_depth.store(depth, Ordering::Relaxed);
    }
}

/// The calling thread's seat, taken now if it has none; `None` when the table is full.
#[inline]
pub(crate) fn claim() -> Option<Seat> {
    (current().is_taken() || claim_slow()).then(current)
}

/// Takes a seat. Returns whether there was one, and not the seat itself: handed back through memory, it
/// would cost every poll a stalled load.
#[cold]
fn claim_slow() -> bool {
    let taken = HOME.try_with(|home| {
        let mut home = home.borrow_mut();
        let domain = match &home.domain {
            Some(domain) => domain.clone(),
            None => crate::domain::of_plain_threads(),
        };
        let index = domain.seats.take()?;
        crate::nice::remember_own();
        domain.shorten_slice();
        let seat = sit_down(&domain, index);
        seat.runtime.flags.store(0, Ordering::Relaxed);
        seat.runtime.critical_depth.store(0, Ordering::Relaxed);
        if domain.settings.escapable {
            seat.runtime.set_flag(SlotFlag::Escapable);
        }
        let tid = crate::threads::own_tid();
        #[cfg(tokio_unstable)]
        domain.thread_ids.note(tid);
        // Release: pairs with the controller's Acquire load of `tid`; zero means nobody sits here.
        seat.runtime.tid.store(tid, Ordering::Release);
        seat.runtime.set_state(WorkerState::Running);
        SEAT.set(Pointers::to(seat));
        domain.link.seats_changed();
        home.claimed = Some(Claimed { domain, index });
        Some(())
    });
    matches!(taken, Ok(Some(())))
}

/// The seat of the calling thread in a table, with its slot where it should be.
fn sit_down(domain: &Arc<Domain>, index: usize) -> Seat {
    let (area, runtime, kernel) = domain.seats.settle(index);
    // SAFETY: table and slots live as long as `domain`, which `Claimed` keeps alive until the stand-in is
    // back in `SEAT`; nothing copies the references out of this thread or beyond the seat's life.
    unsafe {
        Seat {
            runtime: &*ptr::from_ref(runtime),
            kernel: &*ptr::from_ref(kernel),
            controller_asleep: &*ptr::from_ref(domain.sleeper.flag()),
            area,
            target: &*ptr::from_ref(domain.seats.target_of(index)),
        }
    }
}

/// Moves the calling thread's slot.
#[cold]
fn move_over() {
    with_home(|domain, index| {
        SEAT.set(Pointers::to(sit_down(domain, index)));
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

/// For a thread that is about to fork: keeps the words of a slot in lent memory, which the child does not inherit.
pub(crate) fn save_for_child() {
    let seat = current();
    if !seat.area.is_null() {
        AT_FORK.with(|saved| saved.copy_from(seat.runtime));
    }
}

/// For the thread of a forked child: goes on in the slot that now is private memory, where it stopped.
pub(crate) fn restore_in_child() {
    let seat = current();
    if !seat.area.is_null() {
        AT_FORK.with(|saved| seat.runtime.copy_from(saved));
    }
}

#[cold]
fn wake_controller() {
    with_home(|domain, _| domain.wake_controller());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Runtime};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    fn own_slot() -> usize {
        claim().unwrap();
        ptr::from_ref(current().runtime).addr()
    }

    fn own_domain() -> *const Domain {
        claim().unwrap();
        with_home(|domain, _| Arc::as_ptr(domain)).unwrap()
    }

    #[test]
    fn a_thread_is_what_it_was_before() {
        let (one, two) = (runtime(), runtime());
        let before = (own_slot(), own_domain());
        let seq = current().runtime.begin_poll();
        for runtime in [&one, &two, &one] {
            let entered = enter(runtime.domain());
            assert!(!current().is_taken() && !current().runtime.in_poll());
            assert_eq!(own_domain(), Arc::as_ptr(runtime.domain()));
            // There already: nothing is put aside.
            let slot = own_slot();
            drop(enter(runtime.domain()));
            assert_eq!(own_slot(), slot);
            // One within another.
            let inner = enter(two.domain());
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
            let _entered = enter(one.domain());
            claim().unwrap();
            panic!("on purpose");
        }));
        assert!(caught.is_err());
        assert_eq!((own_slot(), own_domain()), before);
        assert!(current().runtime.in_poll(), "the poll goes on");
        current().runtime.end_poll(seq);
        for runtime in [one, two] {
            let seats = runtime.domain().seats.in_use();
            assert!(seats <= 1, "{seats} seats were taken, each given back");
        }
    }

    #[test]
    fn critical_sections_are_the_thread_s() {
        let runtime = runtime();
        own_slot();
        let outer = crate::critical_section();
        let entered = enter(runtime.domain());
        assert!(current().runtime.in_critical());
        let inner = crate::critical_section();
        drop(outer);
        assert!(current().runtime.in_critical());
        drop(entered);
        assert!(current().runtime.in_critical(), "of the one from inside");
        drop(inner);
        assert!(!current().runtime.in_critical());
    }
}
