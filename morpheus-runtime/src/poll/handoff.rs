//! Handoff polls: tokio hands the worker's core to another thread while this thread polls a slow task.
//!
//! `tokio::task::block_in_place` moves the worker's core (its queue and its LIFO slot) to a thread of the
//! blocking pool. So no queued task waits behind the slow poll. Inside it, `Handle::block_on` polls the
//! future. This gives the future tokio's coop budget back: without one, a future that is always ready would
//! never return. It also makes tokio refuse the same calls that it refuses inside a task.
//!
//! **Panics.** Tokio reports two facts by a panic alone: that it refuses `block_in_place` on worker 0 (see
//! `is_refused`), and that a pool has no thread (see `has_blocking_thread`). This module first asks what can
//! be known without a panic. It catches a panic that comes all the same, and polls inline. In a program built
//! with `panic = "abort"` that panic would end the process. There, worker 0 hands its core over for no poll,
//! and neither does a worker of a plain tokio runtime: both poll inline. A hold is unaffected: its task is
//! the runtime's own, and no `LocalSet` or current-thread runtime ever polls it.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use morpheus_common::slot::SlotFlag;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::act::permit::Permit;
use crate::domain::Domain;
use crate::report::own;
use morpheus_link::handle::{self, SlotHandle};
use morpheus_system::clock;
use morpheus_system::lock::lock;
use morpheus_system::slice;
use morpheus_system::threads;

/// How long an answer about a blocking pool stays valid, in nanoseconds. A thread of tokio's blocking pool
/// lives for 10 s without work unless the application sets another time, so a thread seen 2 s ago still
/// exists.
const POOL_ANSWER_VALID_NS: u64 = 2_000_000_000;

/// Whether tokio allows `block_in_place` on the calling thread: it must be a worker of a multi-thread runtime
/// that has its core. Elsewhere (a `LocalSet`, a current-thread runtime, a blocking thread, the future of
/// `block_on`) tokio would panic. No task queues behind the poll there.
pub(crate) fn is_allowed(domain: &Domain) -> bool {
    // With another runtime entered on this worker, tokio would hand the core to the pool of that runtime, and
    // the shutdown of that runtime would wait for this worker.
    let Some(handle) = domain.handle_of_worker() else {
        return false;
    };
    !is_refused(&handle)
        && domain
            .warm_pools
            .as_ref()
            .is_none_or(|pools| has_blocking_thread(&handle, pools))
}

thread_local! {
    /// The runtime that was current when tokio last refused `block_in_place` to this thread.
    static REFUSED: Cell<Option<tokio::runtime::Id>> = const { Cell::new(None) };
}

/// Whether tokio refuses `block_in_place` here although worker and flavor look right, as far as this can be
/// known.
///
/// It refuses on a current-thread runtime in whose future a multi-thread runtime was entered. There
/// `worker_index` belongs to the current-thread runtime and is 0, and the flavor belongs to the multi-thread
/// runtime. Only the panic tells this thread from worker 0 of the multi-thread runtime. The panic is caught,
/// and remembered for the thread, so that it is printed once and not for each poll. The price: a thread of
/// the multi-thread runtime's pool that ran the current-thread runtime hands its core over for no poll during
/// the rest of its life.
fn is_refused(handle: &Handle) -> bool {
    // A panic that aborts cannot be tried.
    (cfg!(panic = "abort") && tokio::runtime::worker_index() == Some(0))
        || REFUSED.get() == Some(handle.id())
}

pub(crate) fn note_refusal() {
    REFUSED.set(Handle::try_current().ok().map(|handle| handle.id()));
}

/// Makes sure that the blocking pool of a plain tokio runtime has a thread. Without one, and where none can
/// be started, `block_in_place` panics after it has given the core away. (On a Morpheus runtime the
/// controller occupies such a thread.)
///
/// Tokio reports by a panic that it can start no thread, and the standard library by an error. So this
/// function first starts a thread through the standard library and ends it. If another thread uses up the
/// limit before tokio starts its own, tokio panics after all. Either answer stays valid for
/// [`POOL_ANSWER_VALID_NS`].
fn has_blocking_thread(
    handle: &Handle,
    pools: &Mutex<HashMap<tokio::runtime::Id, (u64, bool)>>,
) -> bool {
    if cfg!(panic = "abort") {
        return false;
    }
    let now_ns = clock::now_ns();
    {
        let mut pools = lock(pools);
        let (asked_ns, is_warm) = pools.entry(handle.id()).or_insert((0, false));
        if now_ns.saturating_sub(*asked_ns) < POOL_ANSWER_VALID_NS {
            return *is_warm;
        }
        // Other workers poll inline until there is an answer: a thread can take milliseconds to start.
        (*asked_ns, *is_warm) = (now_ns, false);
    }
    let start = AssertUnwindSafe(|| drop(handle.spawn_blocking(|| ())));
    let is_started = threads::available(1, None) == 1 && catch_unwind(start).is_ok();
    let mut pools = lock(pools);
    pools.insert(handle.id(), (now_ns, is_started));
    if pools.len() > 1024 {
        pools.retain(|_, (asked_ns, _)| now_ns.saturating_sub(*asked_ns) < POOL_ANSWER_VALID_NS);
    }
    is_started
}

/// A handoff poll, as the controller sees it: from before the core is handed over until the poll has ended
/// and the core is back.
pub(crate) struct HandoffMark {
    pub(crate) domain: Arc<Domain>,
    index: usize,
    permit: Option<Permit>,
}

impl HandoffMark {
    /// `None`: the runtime ends, and the poll keeps its worker.
    pub(crate) fn begin(
        domain: &Arc<Domain>,
        index: usize,
        slot: SlotHandle,
    ) -> Option<HandoffMark> {
        if !domain.handed_over.begin() {
            return None;
        }
        let private = &domain.slots.private[index];
        if let (Some(core), Ok(handle)) = (tokio::runtime::worker_index(), Handle::try_current()) {
            let metrics = handle.metrics();
            // Only cores of a Morpheus runtime are counted, and only there the handle is known to belong to
            // the core's runtime.
            if domain.warm_pools.is_none() && core < metrics.num_workers() {
                let parks = metrics.worker_park_unpark_count(core);
                let busy_ns = clock::nanos(metrics.worker_total_busy_duration(core));
                // Relaxed, these four: the flag set below releases them.
                private.core_parks.store(parks, Ordering::Relaxed);
                private.core_busy_ns.store(busy_ns, Ordering::Relaxed);
                private
                    .core_handed_over
                    .store(core as u32 + 1, Ordering::Relaxed);
                domain.cores.forget_thread(core);
            }
        }
        slot.runtime.set_flag(SlotFlag::Handoff);
        domain.counters.handoff_polls.add(1);
        Some(HandoffMark {
            domain: domain.clone(),
            index,
            permit: None,
        })
    }

    /// Records that another thread has taken the core: no spare is needed for it, also if it never parks.
    #[cfg(tokio_unstable)]
    pub(crate) fn core_is_taken(&self) {
        let private = &self.domain.slots.private[self.index];
        private.core_handed_over.store(0, Ordering::Relaxed);
    }

    /// Keeps the permit until the poll has ended. One that the task was granted on another runtime is counted there alone.
    pub(crate) fn hold(mut self, permit: Permit) -> HandoffMark {
        if permit.is_of(&self.domain.permits) {
            let word = &self.domain.slots.private[self.index].permit_class;
            word.store(permit.word(), Ordering::Relaxed);
        }
        self.permit = Some(permit);
        self
    }
}

impl Drop for HandoffMark {
    fn drop(&mut self) {
        // The thread's current slot, which has the flags of the previous one if it moved.
        let slot = handle::current();
        if slot.is_taken() {
            slot.runtime.clear_flag(SlotFlag::Handoff);
        }
        let private = &self.domain.slots.private[self.index];
        private.core_handed_over.store(0, Ordering::Relaxed);
        // Relaxed: see `Permits::becomes_hog`.
        let word = private.permit_class.swap(0, Ordering::Relaxed);
        if let Some(permit) = &mut self.permit
            && word != 0
        {
            permit.set_word(word);
        }
        self.domain.handed_over.end();
    }
}

/// Calls `poll` once with the worker's core handed over.
///
/// The caller has checked [`is_allowed`]. Where tokio refuses all the same (a current-thread runtime in whose
/// future a multi-thread runtime was entered), it polls inline.
///
/// `begin` marks the beginning of the poll, and the value that it returns marks the end when it is dropped.
/// Handing the core over may wait for a lock of tokio's. That time is no part of the poll, and says nothing
/// about its task.
pub(crate) fn poll<M>(
    domain: &Domain,
    poll: &mut dyn FnMut(&mut Context<'_>),
    cx: &mut Context<'_>,
    begin: impl Fn() -> M,
) {
    let mut polled = false;
    let in_handoff = || {
        polled = true;
        slice::leave_worker();
        Handle::current().block_on(poll_fn(|_| {
            let _mark = begin();
            poll(cx);
            Poll::Ready(())
        }))
    };
    #[cfg(tokio_unstable)]
    crate::poll::short_polls::give_back();
    let result = catch_unwind(AssertUnwindSafe(|| tokio::task::block_in_place(in_handoff)));
    settle_slice(domain);
    match result {
        Ok(()) => {}
        Err(panic) if polled => resume_unwind(panic),
        Err(_) => {
            note_refusal();
            let _mark = begin();
            poll(cx);
        }
    }
}

/// Moves the task in this worker's LIFO slot into the queue that other workers steal from.
///
/// Tokio lets no other worker steal from the slot. A task that is spawned takes the slot and moves the
/// previous one into the queue. A current-thread runtime has no LIFO slot.
pub(crate) fn flush_lifo() {
    if tokio::runtime::worker_index().is_some()
        && let Ok(handle) = Handle::try_current()
        && handle.runtime_flavor() == RuntimeFlavor::MultiThread
    {
        own::spawn(&handle, async {});
    }
}

/// Moves the tasks that only this worker can reach to where other workers can steal them. Returns whether the
/// worker has its core back.
///
/// These are the task in the LIFO slot, and the tasks that yielded or used up their coop budget. Tokio keeps
/// the latter in a list of the thread and wakes them when the worker parks. Handing the core over puts both
/// into the queue that other workers steal from. So this function hands it over and takes it back.
///
/// The pool's thread that is to take the core over may be faster. Then that thread serves the queue, and the
/// calling thread has no core any more. `meanwhile` runs between the two steps; the longer it takes, the more
/// often the other thread is faster. Where the pool has no free thread, the calling thread takes the core
/// back. So this call takes no thread from blocking calls.
///
/// Only for a task that this runtime spawned for itself: only workers of this runtime poll it, so tokio does
/// not refuse. [`try_flush_queue`] is for any other task.
pub(crate) fn flush_queue(domain: &Domain, meanwhile: impl FnOnce()) -> bool {
    before_handoff(domain);
    tokio::task::block_in_place(meanwhile);
    after_handoff(domain, has_core())
}

/// Does the same as [`flush_queue`] for a task of the application, where [`is_allowed`]. Where tokio refuses
/// all the same, as in [`poll`], there is no core to lose.
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

/// Records the thread of the core, and restores the slice, after a handoff. Returns whether the thread still is a worker.
fn after_handoff(domain: &Domain, is_worker: bool) -> bool {
    if domain.warm_pools.is_none() && is_worker {
        domain.note_core_thread(threads::own_tid());
    } else {
        slice::leave_worker();
    }
    is_worker
}

/// Gives this thread a worker's slice after a handoff poll, if it has its core back. Without a core it serves blocking calls of the
/// application next, and those run with its own slice.
fn settle_slice(domain: &Domain) {
    if domain.has_workers() && has_core() {
        domain.shorten_slice();
    } else {
        slice::leave_worker();
    }
}

/// Whether the calling thread has its core. Without a core, tokio wakes a task that yields at once; with a
/// core, later.
pub(crate) fn has_core() -> bool {
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::act::permit::{Answer, Class, Request};
    use crate::poll::own_slot;
    use crate::{Builder, Link};

    /// A future waits for a permit of one runtime, is spawned on another, and becomes a hog there.
    #[test]
    fn a_permit_of_another_runtime_is_counted_there() {
        let runtime = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
            builder.build().unwrap()
        };
        let (one, other) = (runtime(), runtime());
        let request = Request::for_tests(Class::Slow);
        let asked = one.domain().permits.ask(request, false, Waker::noop());
        let Answer::Granted(permit) = asked else {
            panic!("none was granted");
        };
        assert!(one.domain().permits.is_busy());
        let polled = other.handle().spawn_blocking(move || {
            let slot = own_slot::claim().unwrap();
            own_slot::with_domain(|domain, index| {
                let begun = HandoffMark::begin(domain, index, slot).unwrap();
                let mark = begun.hold(permit);
                let word = &domain.slots.private[index].permit_class;
                domain.permits.becomes_hog(word);
                drop(mark);
            })
        });
        assert!(other.block_on(polled).unwrap().is_some());
        for runtime in [&one, &other] {
            assert!(!runtime.domain().permits.is_busy());
        }
    }

    /// A slow poll computes with the thread's own slice, so that workers run before it, and the worker has a short one again after it.
    #[test]
    fn a_handoff_poll_has_the_slice_of_its_thread() {
        let own = slice::current();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        let runtime = builder.build().unwrap();
        let domain = runtime.domain().clone();
        let polled = runtime.handle().spawn(async move {
            own_slot::claim().unwrap();
            let was_short = slice::is_workers();
            let mut during = None;
            let mut note = |_: &mut Context<'_>| during = Some(slice::current());
            poll(
                &domain,
                &mut note,
                &mut Context::from_waker(Waker::noop()),
                || (),
            );
            (was_short, during, has_core(), slice::is_workers())
        });
        let (was_short, during, has_core, is_short) = runtime.block_on(polled).unwrap();
        assert!(was_short || runtime.domain().counters.slices_refused.get() > 0);
        assert_eq!((during, is_short), (Some(own), was_short && has_core));
    }

    /// The application hands its core over by itself.
    #[test]
    fn a_thread_that_lost_its_core_has_its_own_slice() {
        let own = slice::current();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        let runtime = builder.build().unwrap();
        let domain = runtime.domain().clone();
        let wakes = || runtime.block_on(runtime.handle().spawn(async {})).unwrap();
        let begun_ns = clock::now_ns();
        let goes_on = || clock::now_ns() - begun_ns < 10_000_000_000;
        // A worker is known once it has parked.
        let (blocked, release, tid) = loop {
            wakes();
            let (began, begins) = std::sync::mpsc::channel();
            let (release, held) = std::sync::mpsc::channel::<()>();
            let domain = domain.clone();
            let blocked = runtime.handle().spawn(async move {
                own_slot::claim().unwrap();
                let was_short = slice::is_workers();
                let tid = threads::own_tid();
                let core = tokio::runtime::worker_index().unwrap();
                let is_known = domain.cores.thread(core) == Some(tid);
                began.send(is_known.then_some(tid)).unwrap();
                tokio::task::block_in_place(|| {
                    let _ = held.recv();
                    (was_short, slice::current())
                })
            });
            match begins.recv().unwrap() {
                Some(tid) => break (blocked, release, tid),
                None => assert!(goes_on(), "no worker parks"),
            }
            drop(release);
            runtime.block_on(blocked).unwrap();
        };
        // The thread that has the core now parks, and says so when it wakes up.
        while slice::of(tid) != own && goes_on() {
            wakes();
        }
        drop(release);
        let (was_short, during) = runtime.block_on(blocked).unwrap();
        assert!(was_short || runtime.domain().counters.slices_refused.get() > 0);
        assert_eq!(during, own);
        // It may serve any blocking call from now on.
        let slices = (0..8).map(|_| runtime.handle().spawn_blocking(slice::current));
        for served in slices.collect::<Vec<_>>() {
            assert_eq!(runtime.block_on(served).unwrap(), own);
        }
    }

    /// The index of a worker is also that of a current-thread runtime.
    #[test]
    fn a_current_thread_runtime_on_a_thread_of_the_pool_makes_no_worker() {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        let runtime = builder.build().unwrap();
        let served = runtime.handle().spawn_blocking(|| {
            let mut tokio = tokio::runtime::Builder::new_current_thread();
            let claims = async { own_slot::claim().is_some() };
            let has_slot = tokio.build().unwrap().block_on(claims);
            (has_slot, slice::is_workers())
        });
        let served = runtime.block_on(served).unwrap();
        assert_eq!(served, (true, false));
    }
}
