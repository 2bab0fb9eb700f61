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

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, WorkerState};

use crate::clock;
use crate::domain::Domain;
use crate::sleeper::Sleeper;

/// What only this process needs to know of a seat; the shared halves are in [`morpheus_common`].
#[derive(Debug)]
pub(crate) struct Private {
    /// Core (tokio's worker index) + 1 that the present poll in place handed over; 0 when none.
    pub(crate) core_handed_over: AtomicU32,
    /// That core's park count at the time.
    pub(crate) core_parks: AtomicU64,
    /// For a poll under a label that is not calm: its number, the CPU clock of its thread and the time when
    /// it began. Clocks are read there only, so that calm polls stay cheap.
    pub(crate) begun_seq: AtomicU64,
    pub(crate) begun_cpu_ns: AtomicU64,
    pub(crate) begun_ns: AtomicU64,
    /// Class of the permit of the poll in place, for the controller's count of those asleep.
    pub(crate) permit_class: AtomicU32,
}

impl Private {
    /// Notes when the poll `seq`, which is about to begin, begins.
    pub(crate) fn stamp(&self, seq: u64) {
        // Relaxed, these three: `begin_poll` releases them, and the controller, which acquires the number
        // there, checks `begun_seq` against it.
        self.begun_cpu_ns
            .store(clock::own_cpu_ns(), Ordering::Relaxed);
        self.begun_ns.store(clock::now_ns(), Ordering::Relaxed);
        self.begun_seq.store(seq, Ordering::Relaxed);
    }

    /// When the poll `seq` began, by the wall and by its thread's CPU clock, if that was noted.
    pub(crate) fn begun(&self, seq: u64) -> Option<(u64, u64)> {
        // Relaxed: see `stamp`. The next poll may overwrite them at this moment; then the poll is over, and
        // whatever is found about it concerns nobody.
        let noted = self.begun_seq.load(Ordering::Relaxed) == seq;
        noted.then(|| {
            (
                self.begun_ns.load(Ordering::Relaxed),
                self.begun_cpu_ns.load(Ordering::Relaxed),
            )
        })
    }
}

/// All seats of a domain.
pub(crate) struct Table {
    pub(crate) runtime: Box<[RuntimeSlot]>,
    pub(crate) kernel: Box<[KernelSlot]>,
    pub(crate) private: Box<[Private]>,
    free: Mutex<Vec<u32>>,
    /// Seats below this number were taken at least once: what a controller has to look at.
    high_water: AtomicUsize,
    refused: AtomicU64,
}

/// A zeroed slice whose pages are not touched before they are used.
fn zeroed<T>(len: usize) -> Box<[T]> {
    // SAFETY: the callers' types (slots, `Private`) consist of atomics only, for which zero is valid.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

impl Table {
    pub(crate) fn new(seats: usize) -> Table {
        Table {
            runtime: zeroed(seats),
            kernel: zeroed(seats),
            private: zeroed(seats),
            free: Mutex::default(),
            high_water: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take(&self) -> Option<usize> {
        let mut free = self.free();
        if let Some(index) = free.pop() {
            return Some(index as usize);
        }
        let index = self.high_water.load(Ordering::Relaxed);
        if index >= self.runtime.len() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // Release: pairs with the Acquire in `in_use`; the seats below are initialised memory.
        self.high_water.store(index + 1, Ordering::Release);
        Some(index)
    }

    fn give_back(&self, index: usize) {
        self.free().push(index as u32);
    }

    /// Seats a controller has to look at: all below this number.
    pub(crate) fn in_use(&self) -> usize {
        self.high_water.load(Ordering::Acquire)
    }

    /// Threads that found the table full and go unwatched.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("seats", &self.runtime.len())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

/// The two halves of a thread's slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) runtime: &'static RuntimeSlot,
    pub(crate) kernel: &'static KernelSlot,
    /// The domain's [`Sleeper`] flag, here so that a poll need not look up the domain.
    controller_asleep: &'static AtomicBool,
}

/// Never written: whoever would write checks [`Seat::is_taken`] first.
static NO_RUNTIME_SLOT: RuntimeSlot = RuntimeSlot::new();
/// Differs from the slot above in the one word that a checkpoint compares.
static NO_KERNEL_SLOT: KernelSlot = KernelSlot::never_requested();

static NOBODY_SLEEPS: AtomicBool = AtomicBool::new(false);

const STAND_IN: Seat = Seat {
    runtime: &NO_RUNTIME_SLOT,
    kernel: &NO_KERNEL_SLOT,
    controller_asleep: &NOBODY_SLEEPS,
};

/// A [`Seat`] as pointers: a thread-local of references would be tested for null at every access, the
/// empty thread-local having that representation.
#[derive(Clone, Copy)]
struct Pointers {
    runtime: *const RuntimeSlot,
    kernel: *const KernelSlot,
    controller_asleep: *const AtomicBool,
}

impl Pointers {
    const fn to(seat: Seat) -> Pointers {
        Pointers {
            runtime: seat.runtime,
            kernel: seat.kernel,
            controller_asleep: seat.controller_asleep,
        }
    }
}

thread_local! {
    static SEAT: Cell<Pointers> = const { Cell::new(Pointers::to(STAND_IN)) };
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
        seat.runtime.tid.store(0, Ordering::Release);
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
        }
    }
}

/// Says whose thread this is; called by tokio's thread-start hook.
pub(crate) fn belongs_to(domain: Arc<Domain>) {
    // `try_with`: a thread that is being torn down needs no seat.
    let _ = HOME.try_with(|home| home.borrow_mut().domain = Some(domain));
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
        domain.prepare_thread();
        crate::nice::remember_own();
        // SAFETY: the table lives as long as `domain`, which `Claimed` keeps alive until the stand-in is
        // back in `SEAT`; nothing copies the reference out of this thread or beyond the seat's life.
        let seat: Seat = unsafe {
            Seat {
                runtime: &*std::ptr::from_ref(&domain.seats.runtime[index]),
                kernel: &*std::ptr::from_ref(&domain.seats.kernel[index]),
                controller_asleep: &*std::ptr::from_ref(domain.sleeper.flag()),
            }
        };
        seat.runtime.flags.store(0, Ordering::Relaxed);
        seat.runtime.critical_depth.store(0, Ordering::Relaxed);
        if domain.settings.escapable {
            seat.runtime.set_flag(SlotFlag::Escapable);
        }
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::gettid() } as u32;
        // Release: pairs with the controller's Acquire load of `tid`; zero means nobody sits here.
        seat.runtime.tid.store(tid, Ordering::Release);
        seat.runtime.set_state(WorkerState::Running);
        SEAT.set(Pointers::to(seat));
        home.claimed = Some(Claimed { domain, index });
        Some(())
    });
    matches!(taken, Ok(Some(())))
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

#[cold]
fn wake_controller() {
    with_home(|domain, _| domain.sleeper.wake());
}
