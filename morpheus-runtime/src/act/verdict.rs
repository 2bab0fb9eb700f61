//! Requests to yield, and the niceness of demoted polls: what a runtime without a kernel side does to a thread.

use std::sync::atomic::Ordering;

use crate::report::counters::Counters;
use morpheus_link::table::Table;
use morpheus_system::nice;

/// Asks the poll `seq` in slot `index` to yield at its next checkpoint. Under a daemon it does nothing: the kernel side
/// asks.
pub(crate) fn request(slots: &Table, counters: &Counters, index: usize, seq: u64, now_ns: u64) {
    let Some(kernel) = slots.kernel_to_write(index) else {
        return;
    };
    kernel.request(seq);
    counters.requests.add(1);
    counters.last_request_ns.set(now_ns);
}

/// Lowers the thread of the poll `seq` in slot `index`, whose verdict says so already, and raises it again if the poll
/// ended meanwhile. Either the poll finds the verdict after this, or this finds the poll over. Returns false if the thread could
/// not be raised again.
pub(crate) fn lower_unless_over(slots: &Table, index: usize, seq: u64) -> bool {
    let slot = slots.runtime(index);
    // Acquire: pairs with the Release in `claim_slow`; a thread that has the slot is a worker.
    let tid = slot.tid.load(Ordering::Acquire);
    if tid == 0 || slot.in_critical() {
        return true;
    }
    match nice::lower(tid) {
        Some(before) if slot.observe_poll() != seq => nice::raise_to(tid, before),
        _ => true,
    }
}
