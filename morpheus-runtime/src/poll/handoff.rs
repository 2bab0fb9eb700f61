//! Polling a slow task in place: tokio hands the worker's queue to another thread meanwhile.
//!
//! `tokio::task::block_in_place` moves the worker's core (its queue, LIFO slot included) to a thread of
//! the blocking pool, so that nothing is left behind the slow task to starve. Inside it, the future is
//! polled through `Handle::block_on`: that gives it tokio's coop budget back, without which a future that
//! is always ready would never return, and keeps the calls that tokio refuses inside a task refused.
//!
//! **Panics.** Two facts tokio tells by a panic alone: that it refuses `block_in_place` on worker 0 (see `is_refused`),
//! and that a pool has no thread (see `has_blocking_thread`). What can be known without is asked first; a panic that comes all
//! the same is caught, and the poll runs inline. In a program built with `panic = "abort"` it would end the process. There,
//! worker 0 hands its core over for no poll, and neither does a worker of a plain tokio runtime: such polls run inline. A
//! hold is unaffected: it is a task of this runtime's own, and no `LocalSet` or current-thread runtime ever polls it.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use morpheus_common::slot::SlotFlag;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::act::permit::Permit;
use crate::domain::Domain;
use crate::os::clock;
use crate::os::slice;
use crate::os::threads;
use crate::slot::handle::SlotHandle;

/// A thread of tokio's blocking pool lives for 10 s without work, unless the application says otherwise;
/// one that was seen so long ago is still there.
const POOL_STAYS_WARM_NS: u64 = 2_000_000_000;

/// Whether the calling thread is in a place where tokio allows `block_in_place`: a worker of a
/// multi-thread runtime that has its core. Elsewhere (a `LocalSet`, a current-thread runtime, a blocking
/// thread, the future of `block_on`) it would panic, and nobody queues behind the poll anyway.
pub(crate) fn is_allowed(domain: &Domain) -> bool {
    if tokio::runtime::worker_index().is_none() {
        return false;
    }
    let Ok(handle) = Handle::try_current() else {
        return false;
    };
    // With another runtime entered on this worker, tokio would hand the core to that one's pool, and its
    // shutdown would wait for a worker of ours.
    let entered_another = domain.runtime.get().is_some_and(|own| *own != handle.id());
    handle.runtime_flavor() == RuntimeFlavor::MultiThread
        && !entered_another
        && !is_refused(&handle)
        && domain
            .warm_pools
            .as_ref()
            .is_none_or(|pools| has_blocking_thread(&handle, pools))
}

thread_local! {
    /// The runtime with whose handle entered this thread was last refused `block_in_place`.
    static REFUSED: Cell<Option<tokio::runtime::Id>> = const { Cell::new(None) };
}

/// Whether tokio refuses `block_in_place` here although worker and flavor look right, as far as this can be known.
///
/// That is so on a current-thread runtime in whose future a multi-thread one was entered: `worker_index` is that of the
/// first, which is 0, and the flavor that of the second. Tokio tells this from worker 0 of the second by a panic alone. It
/// is caught, and remembered for the thread, so that it is printed once and not for each poll. The price is that
/// a thread of the second one's pool that ran the first polls nothing in place for the rest of its life.
fn is_refused(handle: &Handle) -> bool {
    // A panic that aborts cannot be tried.
    (cfg!(panic = "abort") && tokio::runtime::worker_index() == Some(0))
        || REFUSED.get() == Some(handle.id())
}

fn note_refusal() {
    REFUSED.set(Handle::try_current().ok().map(|handle| handle.id()));
}

/// On somebody else's runtime: makes sure that its pool has a thread, because without one, and without
/// leave to start one, `block_in_place` panics after it gave the core away. (A Morpheus runtime has its
/// controller there.)
///
/// Tokio says by a panic that it can start no thread, and the standard library by an error. So a thread is started and ended
/// first. If another thread takes its place before tokio asks, tokio panics after all. Either answer is remembered for
/// [`POOL_STAYS_WARM_NS`].
fn has_blocking_thread(
    handle: &Handle,
    pools: &Mutex<HashMap<tokio::runtime::Id, (u64, bool)>>,
) -> bool {
    if cfg!(panic = "abort") {
        return false;
    }
    let now_ns = clock::now_ns();
    let lock = || {
        pools
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    {
        let mut pools = lock();
        let (asked_ns, is_warm) = pools.entry(handle.id()).or_insert((0, false));
        if now_ns.saturating_sub(*asked_ns) < POOL_STAYS_WARM_NS {
            return *is_warm;
        }
        // Other workers poll inline until there is an answer: a thread can take milliseconds to start.
        (*asked_ns, *is_warm) = (now_ns, false);
    }
    let start = AssertUnwindSafe(|| drop(handle.spawn_blocking(|| ())));
    let is_started = threads::available(1, None) == 1 && catch_unwind(start).is_ok();
    let mut pools = lock();
    pools.insert(handle.id(), (now_ns, is_started));
    if pools.len() > 1024 {
        pools.retain(|_, (asked_ns, _)| now_ns.saturating_sub(*asked_ns) < POOL_STAYS_WARM_NS);
    }
    is_started
}

/// A handoff poll, as the controller sees it: from before the core is handed over until it is back.
pub(crate) struct HandoffMark<'a> {
    domain: &'a Domain,
    index: usize,
    slot: SlotHandle,
}

impl<'a> HandoffMark<'a> {
    pub(crate) fn begin(
        domain: &'a Domain,
        index: usize,
        slot: SlotHandle,
        permit: &Permit,
    ) -> HandoffMark<'a> {
        let private = &domain.slots.private[index];
        if let (Some(core), Ok(handle)) = (tokio::runtime::worker_index(), Handle::try_current()) {
            let metrics = handle.metrics();
            // Only a Morpheus runtime's cores are counted by anybody, and only there the handle is known
            // to be the core's.
            if domain.warm_pools.is_none() && core < metrics.num_workers() {
                let parks = metrics.worker_park_unpark_count(core);
                // Relaxed, these three: the flag set below releases them.
                private.core_parks.store(parks, Ordering::Relaxed);
                private
                    .core_handed_over
                    .store(core as u32 + 1, Ordering::Relaxed);
                domain.cores.forget_thread(core);
            }
        }
        private
            .permit_class
            .store(permit.class() as u32, Ordering::Relaxed);
        slot.runtime.set_flag(SlotFlag::Handoff);
        domain
            .counters
            .handoff_polls
            .fetch_add(1, Ordering::Relaxed);
        HandoffMark {
            domain,
            index,
            slot,
        }
    }
}

impl Drop for HandoffMark<'_> {
    fn drop(&mut self) {
        self.slot.runtime.clear_flag(SlotFlag::Handoff);
        self.domain.slots.private[self.index]
            .core_handed_over
            .store(0, Ordering::Relaxed);
    }
}

/// Polls `future` once with the worker's queue handed over. Only where [`is_allowed`]; where tokio refuses
/// all the same (a current-thread runtime in whose future the handle of a multi-thread one was entered),
/// inline.
///
/// `begin` marks the poll's beginning, and what it returns its end: handing the core over, which may wait
/// for a lock of tokio's, is no part of the poll and says nothing about its task.
pub(crate) fn poll<F: Future, M>(
    domain: &Domain,
    mut future: Pin<&mut F>,
    cx: &mut Context<'_>,
    begin: impl Fn() -> M,
) -> Poll<F::Output> {
    let mut polled = false;
    let mut slice_before = None;
    let in_handoff = || {
        polled = true;
        let short = domain.settings.mechanisms.slice
            && domain.settings.policy >= morpheus_common::ladder::Policy::Demote;
        slice_before = short.then(slice::current).flatten();
        if slice_before.is_some() {
            slice::set_current(slice::IN_PLACE_SLICE_NS);
        }
        Handle::current().block_on(poll_fn(|_| {
            let _mark = begin();
            Poll::Ready(future.as_mut().poll(cx))
        }))
    };
    let result = catch_unwind(AssertUnwindSafe(|| tokio::task::block_in_place(in_handoff)));
    put_slice_back(domain, slice_before);
    match result {
        Ok(result) => result,
        Err(panic) if polled => resume_unwind(panic),
        Err(_) => {
            note_refusal();
            let _mark = begin();
            future.poll(cx)
        }
    }
}

/// Pushes whatever sits in this worker's LIFO slot into the queue that others can steal from.
///
/// Tokio lets nobody steal the slot; a task that is spawned takes it, and moves the one before along. A current-thread
/// runtime has none.
pub(crate) fn flush_lifo() {
    if tokio::runtime::worker_index().is_some()
        && let Ok(handle) = Handle::try_current()
        && handle.runtime_flavor() == RuntimeFlavor::MultiThread
    {
        drop(handle.spawn(async {}));
    }
}

/// Puts what waits on this worker alone to where others can take it; whether the worker has its core back.
///
/// That is the task in the LIFO slot, which cannot be stolen, and the tasks that yielded or used up their coop
/// budget, which tokio keeps in a list of the thread and wakes when the worker parks. Both go into the queue that
/// others steal from when the core is handed over, so it is, and taken back.
///
/// The thread that was to take the core over may be faster: then it serves what waits, and this one has none.
/// `meanwhile` is done in between, and gives it the more time the longer it takes.
/// Where the pool has no thread for it, this one takes the core back: it takes no thread from blocking calls.
///
/// Only for a task that this runtime spawned for itself: only its workers poll it, so that tokio refuses nothing.
/// [`try_flush_queue`] is for any other.
pub(crate) fn flush_queue(domain: &Domain, meanwhile: impl FnOnce()) -> bool {
    before_handoff(domain);
    tokio::task::block_in_place(meanwhile);
    after_handoff(domain, has_core())
}

/// The same for a poll, where [`is_allowed`]. Where tokio refuses all the same, as in [`poll`], there is no core to lose.
pub(crate) fn try_flush_queue(domain: &Domain) -> bool {
    before_handoff(domain);
    let is_refused = catch_unwind(|| tokio::task::block_in_place(|| ())).is_err();
    if is_refused {
        note_refusal();
    }
    after_handoff(domain, is_refused || has_core())
}

fn before_handoff(domain: &Domain) {
    if domain.warm_pools.is_none()
        && let Some(core) = tokio::runtime::worker_index()
    {
        domain.cores.forget_thread(core);
    }
}

/// Returns whether the thread still is a worker.
fn after_handoff(domain: &Domain, is_worker: bool) -> bool {
    if domain.warm_pools.is_none() && is_worker {
        domain.note_core_thread(threads::own_tid());
    } else {
        put_slice_back(domain, None);
    }
    is_worker
}

/// After a handoff: the slice from before, or, for a thread of this runtime whose core is gone, the slice that it had
/// before it was a worker, because it serves blocking calls of the application next.
fn put_slice_back(domain: &Domain, before: Option<u64>) {
    if domain.warm_pools.is_none() && !has_core() {
        slice::leave_worker();
    } else if let Some(before) = before {
        slice::set_current(before);
    }
}

/// Without its core, a thread of tokio's wakes at once who yields there; with it, later.
fn has_core() -> bool {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let yielding = std::pin::pin!(tokio::task::yield_now());
    let _ = yielding.poll(&mut Context::from_waker(&waker));
    // Relaxed: written by this thread, if at all.
    !woken.0.load(Ordering::Relaxed)
}
