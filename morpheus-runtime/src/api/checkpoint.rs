//! Checkpoints: where a task answers a request to yield.

use std::sync::atomic::Ordering;

use crate::poll::handoff;
use crate::slot::handle::{self, SlotHandle};

/// Whether a request is possible, which is all that a checkpoint checks without a request. It compares two
/// words of the thread's slot. They are also equal in a slot in which nothing was ever polled.
#[inline]
fn may_be_requested(slot: SlotHandle) -> bool {
    // SAFETY: only this thread writes `poll_seq` (the slot's protocol), so this plain read races with
    // nothing. An atomic load would take one instruction more, because compilers do not fold it into a
    // comparison.
    let own = unsafe { slot.runtime.poll_seq.as_ptr().read() };
    // Relaxed: a request that is seen one checkpoint later counts as one that came later (see
    // `KernelSlot::requested`).
    slot.kernel.request_seq.load(Ordering::Relaxed) == own
}

/// Whether the current poll was asked to yield. It changes nothing, and is always false outside a watched
/// poll.
///
/// ```
/// assert!(!morpheus_runtime::yield_requested());
/// ```
#[inline]
#[must_use]
pub fn yield_requested() -> bool {
    let slot = handle::current();
    may_be_requested(slot) && slot.runtime.in_poll()
}

/// Yields if this task was asked to, outside a critical section; otherwise it costs the same as
/// [`checkpoint_sync`].
///
/// It is for loops that compute. One checkpoint every 10 to 100 µs is enough, and
/// [`strip!`](macro@crate::strip) finds the distance by itself. It works in watched tasks; elsewhere it never
/// yields.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let mut sum = 0u64;
/// for block in 0..100u64 {
///     sum += (0..1000).map(|i| i ^ block).sum::<u64>();
///     morpheus_runtime::checkpoint().await;
/// }
/// # assert!(sum > 0);
/// # }
/// ```
#[inline]
pub async fn checkpoint() {
    if checkpoint_sync() {
        tokio::task::yield_now().await;
    }
}

/// Whether this task was asked to yield, outside a critical section. If true, return `Pending` or await soon.
///
/// It acknowledges the request, and flushes the worker's LIFO slot, so that other workers can take the task
/// in it. It returns true until the poll ends. Without a request it costs a load of a thread-local, two loads
/// from the thread's slot, and a comparison.
///
/// ```
/// fn sum_until_asked(numbers: &mut impl Iterator<Item = u64>) -> u64 {
///     let mut sum = 0;
///     for number in numbers {
///         sum += number;
///         if morpheus_runtime::checkpoint_sync() {
///             break;
///         }
///     }
///     sum
/// }
/// assert_eq!(sum_until_asked(&mut (0..10)), 45);
/// ```
#[inline]
#[must_use = "true means that others wait: yield"]
pub fn checkpoint_sync() -> bool {
    may_be_requested(handle::current()) && answer()
}

/// Answers a request. It finds the slot again by itself, so that the caller has nothing to keep in registers.
#[cold]
#[inline(never)]
fn answer() -> bool {
    let slot = handle::current();
    if !yield_requested() || slot.runtime.in_critical() {
        return false;
    }
    // Relaxed: the thread's own word.
    let seq = slot.runtime.poll_seq.load(Ordering::Relaxed);
    if !slot.runtime.acknowledged(seq) {
        slot.runtime.acknowledge(seq);
        slot.runtime.count_yield();
        handoff::flush_lifo();
    }
    true
}
