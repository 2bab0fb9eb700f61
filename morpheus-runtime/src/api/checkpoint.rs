//! Checkpoints: where a task answers a request to yield.

use crate::control::here;

/// Whether the current poll was asked to yield. It changes nothing, and is always false outside a watched
/// poll.
///
/// ```
/// assert!(!morpheus_runtime::yield_requested());
/// ```
#[inline]
#[must_use]
pub fn yield_requested() -> bool {
    here::is_requested()
}

/// Yields if this task was asked to, outside a critical section; otherwise it costs the same as
/// [`checkpoint_sync`].
///
/// It is for loops that compute. One checkpoint every 10 to 100 µs is enough, and `strip!` (feature `strip`)
/// finds the distance by itself. It works in watched tasks; elsewhere it never yields.
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
    here::checkpoint()
}
