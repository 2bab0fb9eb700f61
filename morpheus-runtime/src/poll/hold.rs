//! The hold task: takes the worker that polls it out of service.
//!
//! Its poll blocks until [`Spares`](crate::act::spare::Spares) releases the worker. Tasks that only this
//! worker can reach would wait equally long. So the hold task first moves them to where other workers steal
//! ([`handoff::flush_queue`]). In between it spawns a no-op, so that tokio wakes a worker that looks for
//! work.
//!
//! The pool's thread that is to take the core over may be faster. Then the hold task is spawned again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::SlotFlag;
use tokio::runtime::Handle;

use crate::act::spare::HoldEnd;
use crate::domain::Domain;
use crate::poll::handoff;
use crate::poll::own_slot;
use crate::report::own;
use morpheus_link::handle;
use morpheus_system::clock;

/// Takes one more worker out of service, whichever polls the hold task first, unless all that may be held are
/// already.
pub(crate) fn ask_for_one(domain: &Arc<Domain>, handle: &Handle) {
    if domain.spares.announce_hold() {
        inject(domain.clone(), handle);
    }
}

fn inject(domain: Arc<Domain>, handle: &Handle) {
    let again = handle.clone();
    own::spawn(handle, async move {
        // Before the application has tasks, none can be queued on this worker. Acquire: pairs with the
        // Release store of the builder.
        if domain.has_tasks.load(Ordering::Acquire)
            && !handoff::flush_queue(&domain, || own::spawn(&again, async {}))
        {
            inject(domain, &again);
            return;
        }
        hold_worker(&domain);
    });
}

fn hold_worker(domain: &Domain) {
    let has_slot = own_slot::claim().is_some();
    // Shortens the slice now: a released worker must run at once.
    domain.shorten_slice();
    let core = tokio::runtime::worker_index();
    let mark = |held: bool| {
        // A daemon may have connected meanwhile, and then the slot moves.
        if has_slot {
            let slot = own_slot::settled(handle::current());
            if held {
                slot.runtime.set_flag(SlotFlag::Held);
            } else {
                slot.runtime.clear_flag(SlotFlag::Held);
            }
        }
        if let Some(core) = core {
            domain.cores.set_held(core, held);
        }
    };
    mark(true);
    let since_ns = clock::now_ns();
    let end = domain.spares.hold();
    if end == (HoldEnd::Closed { is_last: true }) {
        // If the runtime ends: with this core the drivers stay. The other workers drop the runtime's tasks.
        domain.handed_over.wait();
    }
    if let Some(core) = core {
        domain
            .cores
            .add_held_ns(core, clock::now_ns().saturating_sub(since_ns));
    }
    mark(false);
    if has_slot {
        // Relaxed: the thread's own word.
        let tid = handle::current().runtime.tid.load(Ordering::Relaxed);
        domain.note_core_thread(tid);
    }
    if let HoldEnd::Released { after_ns } = end {
        domain.counters.takeover_latency.record(after_ns);
    }
}
