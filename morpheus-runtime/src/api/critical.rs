//! Critical sections: stretches in which a task holds a resource that other tasks need, and must not be
//! slowed down.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::control::here;

/// A critical section that lasts until this guard is dropped; made by [`critical_section`].
#[must_use = "the section ends when the guard is dropped"]
#[derive(Debug)]
pub struct CriticalSection {
    /// Whether the thread had a slot that counts the section. The guard looks the slot up again at the end,
    /// because it may have moved.
    is_counted: bool,
    /// The depth belongs to the thread: the guard must not be dropped on another one.
    not_send: PhantomData<*const ()>,
}

/// Begins a critical section on this thread. Sections may nest.
///
/// Within a section a task is neither demoted nor throttled, and [`checkpoint_sync`](crate::checkpoint_sync)
/// returns false: a task that holds a lock should release it before it yields. Spares still take over from
/// its worker. The guard is not `Send`, so it cannot be kept over an `.await` of a spawned task; [`critical`]
/// is for that.
///
/// ```
/// let guard = morpheus_runtime::critical_section();
/// // … touch what other tasks wait for …
/// drop(guard);
/// ```
pub fn critical_section() -> CriticalSection {
    CriticalSection {
        is_counted: here::enter_critical(),
        not_send: PhantomData,
    }
}

impl Drop for CriticalSection {
    fn drop(&mut self) {
        if self.is_counted {
            here::leave_critical();
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
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
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

#[cfg(all(test, target_os = "linux", not(morpheus_passthrough)))]
mod tests {
    use super::*;
    use crate::poll::own_slot;
    use crate::{Builder, Link, Watch as _};
    use morpheus_link::handle;

    /// A daemon joins within one section, and leaves within the next.
    #[test]
    fn a_section_ends_in_the_slot_it_moved_to() {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        // The task is not watched, because a slot moves only outside of a watched poll.
        let runtime = builder.watch_every_task(false).build().unwrap();
        let slot = || std::ptr::from_ref(handle::current().runtime) as usize;
        let task = runtime.handle().spawn(async move {
            async {}.watched("critical: claims a slot").await;
            let table = |act: fn(&morpheus_link::table::Table)| {
                own_slot::with_domain(|domain, _| act(&domain.slots)).unwrap();
            };
            let shares: fn(&morpheus_link::table::Table) = |table| {
                table.share_for_tests();
            };
            for moves in [shares, morpheus_link::table::Table::use_own_memory] {
                let before = slot();
                critical(async {
                    assert!(handle::current().runtime.in_critical());
                    table(moves);
                    let inner = async { handle::current().runtime.in_critical() };
                    assert!(
                        inner.watched("critical: moves").await,
                        "the depth moves with the slot"
                    );
                })
                .await;
                assert_ne!(slot(), before, "the slot has moved");
                assert!(!handle::current().runtime.in_critical());
            }
        });
        runtime.block_on(task).unwrap();
    }

    #[test]
    fn sections_nest() {
        let outer = critical_section();
        let slot = handle::current();
        assert!(slot.is_taken());
        let inner = critical_section();
        drop(outer);
        assert!(slot.runtime.in_critical());
        drop(inner);
        assert!(!slot.runtime.in_critical());
    }
}
