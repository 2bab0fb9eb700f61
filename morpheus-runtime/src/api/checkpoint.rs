//! Checkpoints: where a task answers a request to yield.

use crate::control::here;

/// Whether the poll that runs here was asked to yield. Only looks; outside a watched poll always false.
///
/// ```
/// assert!(!morpheus_runtime::yield_requested());
/// ```
#[inline]
#[must_use]
pub fn yield_requested() -> bool {
    here::is_requested()
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
    here::checkpoint()
}
