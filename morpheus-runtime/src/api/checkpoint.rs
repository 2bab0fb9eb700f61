//! Checkpoints: where a task answers a request to yield.

use std::sync::atomic::Ordering;

use crate::poll::handoff;
use crate::slot::handle::{self, SlotHandle};

/// The first look, which is all that a checkpoint costs when nobody asked: two words of the thread's
/// slot, compared. Equal, they may still be those of a slot in which nothing was ever polled.
#[inline]
fn may_be_requested(slot: SlotHandle) -> bool {
    // SAFETY: `poll_seq` is written by this thread alone (the slot's protocol), so that this plain read
    // races with nothing. It is plain because compilers fold no atomic load into a comparison: one
    // instruction less.
    let own = unsafe { slot.runtime.poll_seq.as_ptr().read() };
    // Relaxed: a request that is seen one checkpoint later is a request that came later (see
    // `KernelSlot::requested`).
    slot.kernel.request_seq.load(Ordering::Relaxed) == own
}

/// Whether the poll that runs here was asked to yield. Only looks; outside a watched poll always false.
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

/// Yields if this task was asked to, outside a critical section; else costs as much as
/// [`checkpoint_sync`].
///
/// For loops that compute: one every 10 to 100 µs is plenty, [`strip!`](macro@crate::strip) finds the distance
/// by itself. Works in watched tasks; elsewhere it never yields.
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

/// True when this task was asked to yield, outside a critical section: return `Pending` or await
/// something soon.
///
/// Acknowledges the request, and moves a task that waits in this worker's LIFO slot to where others can
/// take it. Until the poll ends it goes on to say true. Not asked, it is a load of a thread-local, two of
/// the thread's slot, and a comparison.
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

/// Finds the slot again by itself, so that the caller has nothing to keep in registers.
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
