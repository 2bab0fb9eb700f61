//! Critical sections: stretches in which a task holds what others need, and must not be slowed down.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::seat::{self, Seat};

/// A critical section that lasts as long as this guard; made by [`critical_section`].
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub struct CriticalSection {
    seat: Option<Seat>,
    /// The depth is the thread's: a guard must not be dropped on another one.
    not_send: PhantomData<*const ()>,
}

/// Begins a critical section on this thread; nestable.
///
/// Within one a task is neither demoted nor throttled, and [`checkpoint_sync`](crate::checkpoint_sync)
/// says false: whoever holds a lock that others wait for should be done with it first. The workers that
/// wait behind it are taken over all the same. It is not `Send`, so that it cannot be kept over an
/// `.await` of a spawned task; see [`critical`] for that.
///
/// ```
/// let guard = morpheus_runtime::critical_section();
/// // … touch what others wait for …
/// drop(guard);
/// ```
pub fn critical_section() -> CriticalSection {
    let seat = seat::claim();
    if let Some(seat) = seat {
        seat.runtime.enter_critical();
    }
    CriticalSection {
        seat,
        not_send: PhantomData,
    }
}

impl Drop for CriticalSection {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            seat.runtime.leave_critical();
        }
    }
}

pin_project_lite::pin_project! {
    /// A future that is in a critical section while it is polled; made by [`critical`].
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Critical<F> {
        #[pin]
        future: F,
    }
}

/// Makes a future critical while it is polled, on whichever thread that is.
///
/// ```
/// # #[morpheus_runtime::main(workers = 1, max_spares = 1)]
/// # async fn main() {
/// let done = morpheus_runtime::critical(async { "written" }).await;
/// assert_eq!(done, "written");
/// # }
/// ```
pub fn critical<F: Future>(future: F) -> Critical<F> {
    Critical { future }
}

impl<F: Future> Future for Critical<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _section = critical_section();
        self.project().future.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_nest() {
        let outer = critical_section();
        let seat = seat::current();
        assert!(seat.is_taken());
        let inner = critical_section();
        drop(outer);
        assert!(seat.runtime.in_critical());
        drop(inner);
        assert!(!seat.runtime.in_critical());
    }
}
