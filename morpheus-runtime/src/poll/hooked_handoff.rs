//! Hands the core off before a poll that the hooks watch. (`--cfg tokio_unstable`)
//!
//! A hook cannot answer "not ready". So the task's own thread waits, after another thread has taken the core: no worker waits,
//! and nothing queues behind the poll. The number of threads that wait is bounded by
//! [`max_handoffs`](crate::Builder::max_handoffs), together with those that poll.
//!
//! **A core may come back.** `tokio::task::block_in_place` takes the core back when its closure returns, unless another thread has
//! it by then. So the closure returns once tokio says that another thread has taken it. But that thread may hand it off in turn
//! before the closure returns, and then `block_in_place` takes it from there. A poll that slept with it would keep a core from all
//! others. So the thread asks afterwards whether it has the core, and offers it again if so.
//!
//! It waits for its permit within the closure. Of two hundred threads that left it first, each would take the core from the one
//! that has just offered it, and offer it anew: the core goes round, each time to a thread that has to be started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::act::permit::{Answer, Class, NoPermit, Permit, Request, Waiter};
use crate::domain::Domain;
use crate::poll::handoff::{self, HandoffMark};
use crate::poll::short_polls;
use crate::settings::{DEFAULT_BLOCKING_THREADS, pool_threads};
use morpheus_link::handle::SlotHandle;
use morpheus_system::clock;
use morpheus_system::{slice, threads};

/// How long a thread waits for another one to take its core, in nanoseconds. A thread that has the core then polls inline.
const TAKE_CORE_NS: u64 = 500_000_000;
/// It looks at least this often within that time: else the process was stopped meanwhile, and with it the thread that is
/// about to take the core.
const LEAST_LOOKS: u32 = 100;
/// After this time the thread asks whether any other can take the core, in nanoseconds.
const ASK_POOL_NS: u64 = 20_000_000;
/// How long no core is offered after that, in nanoseconds: the pool has no free thread and can start none.
const NO_OFFERS_NS: u64 = 2_000_000_000;
/// How often a thread offers its core. Each time that it comes back, another task has been handed off in between.
const MOST_OFFERS: u32 = 64;
/// The thread yields for this time before it sleeps between two looks, in nanoseconds. A thread of the pool needs tens of
/// microseconds to wake up, and where all CPUs are busy it waits for some slices. A sleep then costs a timer and two switches
/// more, for each handoff.
const YIELDS_FOR_NS: u64 = 2_000_000;

/// How long a thread waits for its task to be cancelled where the runtime ends, in nanoseconds. A worker polls up to 61 tasks of its queue
/// before it notices (`event_interval`).
const CANCELLED_WITHIN_NS: u64 = 10_000_000_000;

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static UNPARK: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Hands the core off and waits for a permit. `None`: the poll runs inline, because no permit is to be had or no thread takes
/// the core.
pub(crate) fn hand_off(
    domain: &Arc<Domain>,
    index: usize,
    slot: SlotHandle,
    request: Request<'_>,
) -> Option<HandoffMark> {
    let (Some(core), Ok(handle)) = (tokio::runtime::worker_index(), Handle::try_current()) else {
        return None;
    };
    // Relaxed, and the store: a hint. A thread that misses it finds out by itself.
    if clock::now_ns() < domain.offers_again_ns.load(Ordering::Relaxed) {
        domain.counters.handoffs_refused.add(1);
        return None;
    }
    let metrics = handle.metrics();
    let waker = UNPARK.with(Waker::clone);
    let (mut permit, mut waiter) = match domain.permits.ask(request, false, &waker) {
        Answer::Granted(permit) => (Some(permit), None),
        Answer::Wait(waiter) => {
            domain.wake_controller();
            (None, Some(waiter))
        }
        Answer::Full => {
            domain.counters.handoffs_refused.add(1);
            return None;
        }
    };
    let Some(mark) = HandoffMark::begin(domain, index, slot) else {
        if let Some(waiter) = waiter {
            waiter.leave();
        }
        return None;
    };
    short_polls::give_back();
    // The poll is probably short, and a worker's slice lets it run soon. The controller takes that if it turns out to be long.
    let leave_slice = || {
        if request.class != Class::Mixed {
            slice::leave_worker();
        }
    };
    // A thread that has its core must not wait, and one that has it no more is no worker.
    let wait = || {
        leave_slice();
        if let Some(waiter) = waiter.take() {
            permit = wait_for_permit(domain, waiter, request, &waker, &metrics);
        }
    };
    // Where `max_blocking_threads` is set, nothing is handed off.
    let most = pool_threads(DEFAULT_BLOCKING_THREADS, domain.settings.max_handoffs);
    let offered = catch_unwind(AssertUnwindSafe(|| {
        give_core_away(core, &metrics, most, wait)
    }));
    let is_away = match offered {
        Ok(Offered::Taken) => true,
        Ok(Offered::CameBack) => false,
        Ok(Offered::NotTaken) => {
            let again_ns = clock::now_ns().saturating_add(NO_OFFERS_NS);
            domain.offers_again_ns.store(again_ns, Ordering::Relaxed);
            false
        }
        Err(_) => {
            handoff::note_refusal();
            false
        }
    };
    if permit.is_none() || !is_away {
        if let Some(waiter) = waiter {
            waiter.leave();
        }
        domain.counters.handoffs_refused.add(1);
    }
    if !is_away {
        domain.shorten_slice();
    }
    // Without its core the poll is a handed over one, also where it has no permit.
    is_away.then(|| {
        mark.core_is_taken();
        // Where the core was taken after the wait for that had ended, it did not come to `wait`.
        leave_slice();
        match permit {
            Some(permit) => mark.hold(permit),
            None => mark,
        }
    })
}

/// What became of an offer of the core.
enum Offered {
    /// Another thread has it.
    Taken,
    /// No thread took it for [`TAKE_CORE_NS`], or none can.
    NotTaken,
    /// It came back each time.
    CameBack,
}

/// Offers the core to a pool of at most `most_threads` until this thread has it no more. `meanwhile` runs each time that another
/// thread has taken it.
fn give_core_away(
    core: usize,
    metrics: &RuntimeMetrics,
    most_threads: usize,
    mut meanwhile: impl FnMut(),
) -> Offered {
    for _ in 0..MOST_OFFERS {
        let mut is_taken = false;
        let (before, pool) = (CoreState::of(core, metrics), Pool::of(metrics));
        tokio::task::block_in_place(|| {
            let offered = Pool::of(metrics);
            is_taken = before.wait_for_change(|| pool.has_none_for_an_offer(offered, most_threads));
            if is_taken {
                meanwhile();
            }
        });
        if !handoff::has_core() {
            return Offered::Taken;
        }
        if !is_taken {
            return Offered::NotTaken;
        }
    }
    Offered::CameBack
}

/// Tokio's data on its pool for blocking calls.
#[derive(Clone, Copy)]
struct Pool {
    threads: usize,
    idle: usize,
}

impl Pool {
    fn of(metrics: &RuntimeMetrics) -> Pool {
        Pool {
            threads: metrics.num_blocking_threads(),
            idle: metrics.num_idle_blocking_threads(),
        }
    }

    /// Whether no thread can take a core, if the pool was this before the offer and was `offered` right after it: none was idle,
    /// and tokio, which starts threads within the offer, has started none. That alone does not tell: a thread may become idle
    /// between the two, and take the core as soon as it has a CPU. So there must be a reason: the pool is full, or the system
    /// starts no thread.
    fn has_none_for_an_offer(self, offered: Pool, most_threads: usize) -> bool {
        self.idle == 0
            && offered.threads <= self.threads
            && (offered.threads >= most_threads || threads::available(1, None) == 0)
    }
}

/// Tokio's data on a core that this thread has.
struct CoreState<'a> {
    core: usize,
    metrics: &'a RuntimeMetrics,
    /// Not always this thread: a core that came back still is the other one's.
    thread: Option<ThreadId>,
    parks: u64,
}

impl CoreState<'_> {
    fn of(core: usize, metrics: &RuntimeMetrics) -> CoreState<'_> {
        CoreState {
            core,
            metrics,
            thread: metrics.worker_thread_id(core),
            parks: metrics.worker_park_unpark_count(core),
        }
    }

    /// Waits until another thread has taken the core. Returns whether it has. `can_none` is asked once, after a while, whether
    /// no thread can.
    fn wait_for_change(&self, can_none: impl FnOnce() -> bool) -> bool {
        let begun_ns = clock::now_ns();
        let mut can_none = Some(can_none);
        let mut looks = 0;
        loop {
            looks += 1;
            let now = CoreState::of(self.core, self.metrics);
            // A thread whose own `block_in_place` ends takes the core as well, and then only parks tell.
            if now.thread != self.thread || now.parks != self.parks {
                return true;
            }
            match clock::now_ns().saturating_sub(begun_ns) {
                waited_ns if waited_ns >= TAKE_CORE_NS && looks >= LEAST_LOOKS => return false,
                waited_ns
                    if waited_ns >= ASK_POOL_NS && can_none.take().is_some_and(|ask| ask()) =>
                {
                    return false;
                }
                waited_ns if waited_ns < YIELDS_FOR_NS => thread::yield_now(),
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

/// Blocks this thread until the permit is granted. `None`: the poll runs without one.
fn wait_for_permit(
    domain: &Arc<Domain>,
    mut waiter: Arc<Waiter>,
    request: Request<'_>,
    waker: &Waker,
    metrics: &RuntimeMetrics,
) -> Option<Permit> {
    loop {
        match waiter.take_up(waker) {
            Ok(Some(permit)) => return Some(permit),
            Ok(None) => thread::park(),
            Err(NoPermit::Inline) => {
                if domain.permits.has_freed_threads() {
                    wait_for_cancellation(metrics);
                }
                return None;
            }
            Err(NoPermit::TakenBack) => {
                let again = Request {
                    returns: true,
                    ..request
                };
                match domain.permits.ask(again, false, waker) {
                    Answer::Granted(permit) => return Some(permit),
                    Answer::Wait(again) => waiter = again,
                    Answer::Full => return None,
                }
            }
        }
    }
}

/// Waits until tokio, which ends the runtime, has cancelled all tasks: a poll that has not begun then does not. Without that, all tasks that
/// wait would be polled once more, without permits. Tokio takes each task off its list before it cancels it. The wait is bounded, since
/// all workers may be in polls that wait for such a task.
fn wait_for_cancellation(metrics: &RuntimeMetrics) {
    let begun_ns = clock::now_ns();
    while metrics.num_alive_tasks() > 0
        && clock::now_ns().saturating_sub(begun_ns) < CANCELLED_WITHIN_NS
    {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::plain;
    use crate::poll::own_slot;
    use crate::{Builder, Link, Runtime};
    use morpheus_common::slot::SlotFlag;
    use morpheus_system::slice;

    fn one_worker() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        builder.build().unwrap()
    }

    /// Tokio refuses to hand off the core of a current-thread runtime.
    #[test]
    fn a_handoff_that_tokio_refuses_leaves_no_waiter() {
        let runtime = one_worker();
        let domain = runtime.domain();
        let request = Request {
            blocks_thread: true,
            ..Request::for_tests(Class::Slow)
        };
        let ask = || domain.permits.ask(request, false, Waker::noop());
        let mut permits = Vec::new();
        let waiter = loop {
            match ask() {
                Answer::Granted(permit) => permits.push(permit),
                Answer::Wait(waiter) => break waiter,
                Answer::Full => unreachable!("there are fewer permits than threads"),
            }
        };
        waiter.leave();
        let slot = own_slot::claim_or(|| Some(plain::domain())).unwrap();
        let mut tokio = tokio::runtime::Builder::new_current_thread();
        let handed_off = tokio
            .build()
            .unwrap()
            .block_on(async { hand_off(domain, 0, slot, request) });
        assert!(handed_off.is_none());
        assert_eq!(domain.permits.waiting(), 0);
    }

    /// The application's calls have all threads: the worker goes on after a moment.
    #[test]
    fn a_core_that_a_full_pool_cannot_take_is_offered_for_a_moment() {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(0).max_handoffs(1);
        let most = pool_threads(DEFAULT_BLOCKING_THREADS, 1);
        let runtime = builder.link(Link::Watchdog).build().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let metrics = runtime.handle().metrics();
        // One more than the pool has threads: it waits in the queue.
        loop {
            let before = Pool::of(&metrics);
            let held = held.clone();
            // One waits for the channel, the others for the lock.
            runtime.handle().spawn_blocking(move || {
                let _ = morpheus_system::lock::lock(&held).recv();
            });
            if before.has_none_for_an_offer(Pool::of(&metrics), most) {
                break;
            }
        }
        let offered = runtime.handle().spawn(async {
            let request = Request {
                blocks_thread: true,
                ..Request::for_tests(Class::Slow)
            };
            let slot = own_slot::claim().unwrap();
            own_slot::with_domain(|domain, index| {
                let begun_ns = clock::now_ns();
                let is_away = hand_off(domain, index, slot, request).is_some();
                (is_away, clock::now_ns() - begun_ns)
            })
        });
        let (is_away, waited_ns) = runtime.block_on(offered).unwrap().unwrap();
        drop(release);
        assert!(!is_away);
        assert!(
            (ASK_POOL_NS..TAKE_CORE_NS).contains(&waited_ns),
            "{waited_ns}"
        );
        let again_ns = runtime.domain().offers_again_ns.load(Ordering::Relaxed);
        assert!(again_ns > 0, "no thread took it");
    }

    #[test]
    fn a_pool_that_can_take_a_core_is_waited_for() {
        let pool = |threads, idle| Pool { threads, idle };
        let is_full = |before: Pool, offered| before.has_none_for_an_offer(offered, 3);
        assert!(is_full(pool(3, 0), pool(3, 0)));
        assert!(!is_full(pool(2, 0), pool(3, 0)), "it has started one");
        assert!(!is_full(pool(3, 1), pool(3, 0)), "one was idle");
        assert!(!is_full(pool(2, 0), pool(2, 0)), "one may have become idle");
    }

    /// A daemon comes while the poll goes on, and the thread's slot moves to the memory that it shares.
    #[test]
    fn the_end_of_a_handoff_clears_the_flag_where_the_slot_is_then() {
        let runtime = one_worker();
        let served = runtime.handle().spawn_blocking(|| {
            let slot = own_slot::claim().unwrap();
            let begin = |domain: &Arc<Domain>, index| {
                let mark = HandoffMark::begin(domain, index, slot).unwrap();
                assert!(slot.runtime.has_flag(SlotFlag::Handoff));
                domain.slots.share_for_tests();
                mark
            };
            let mark = own_slot::with_domain(begin).unwrap();
            let moved = own_slot::settled(slot);
            assert!(!std::ptr::eq(moved.runtime, slot.runtime));
            assert!(moved.runtime.has_flag(SlotFlag::Handoff));
            drop(mark);
            assert!(!moved.runtime.has_flag(SlotFlag::Handoff));
        });
        runtime.block_on(served).unwrap();
    }

    /// A thread that has its core no more computes or waits with its own slice, so that workers run before it.
    #[test]
    fn a_poll_that_was_handed_off_has_its_own_slice() {
        let own = slice::current();
        let runtime = one_worker();
        let polled = runtime.handle().spawn(async {
            let slot = own_slot::claim().unwrap();
            let was_short = slice::is_workers();
            let request = Request {
                blocks_thread: true,
                ..Request::for_tests(Class::Slow)
            };
            short_polls::count(tokio::task::id());
            let begin =
                |domain: &Arc<Domain>, index| hand_off(domain, index, slot, request).is_some();
            let is_away = own_slot::with_domain(begin).unwrap();
            assert!(
                !short_polls::has_table(),
                "it counts nothing without its core"
            );
            (was_short, is_away, slice::current())
        });
        let (was_short, is_away, during) = runtime.block_on(polled).unwrap();
        assert!(is_away && (was_short || runtime.domain().counters.slices_refused.get() > 0));
        assert_eq!(during, own);
    }
}
