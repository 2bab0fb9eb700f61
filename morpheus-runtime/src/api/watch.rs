//! Watched futures: each poll leaves its mark in the thread's slot.
//!
//! A poll of a future without a rating costs two stores to the thread's own cache line and one load of the
//! verdict word. It reads no clock. A future with a rating takes the slow path, which may hand off the core
//! or wait for a permit.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::control::here;
use crate::decide::rating::{Handoff, Options};
use crate::poll::state::WatchState;
use crate::report::label::{self, Label};
use crate::report::names;

pin_project_lite::pin_project! {
    /// A future that is watched while it is polled; made by [`watch`] and [`Watch::watched`].
    ///
    /// A poll may return `Pending` without polling the future inside; see [`watch`].
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Watched<F> {
        #[pin]
        future: F,
        state: WatchState,
    }
}

impl<F> Watched<F> {
    pub(crate) fn with(future: F, options: Options) -> Watched<F> {
        Watched {
            future,
            state: WatchState::new(options),
        }
    }

    pub(crate) fn labelled(future: F, label: &'static Label) -> Watched<F> {
        Watched::with(
            future,
            Options {
                label,
                demotable: None,
                handoff: Handoff::Allowed,
            },
        )
    }
}

/// Watches a future that is part of another task, under the place of this call as its label.
///
/// It works on every runtime. On a multi-thread runtime of Morpheus's a stalled poll is asked to yield, a
/// spare takes over from its worker, and its task is remembered. On a plain tokio runtime the poll is asked
/// to yield and reported, and slow tasks are handed off where tokio allows it (a worker of a multi-thread
/// runtime). A watched future inside another watched one lends its label to the outer poll while it is
/// polled.
///
/// In a program built with `panic = "abort"` no poll is handed off on a plain tokio runtime, nor on the first
/// worker of one of Morpheus's: tokio reports by a panic that it does not allow it there.
///
/// A poll may return `Pending` without polling the future inside, once this future or its label was found
/// slow. It then waits for a permit, and is woken when it has one. So code that polls once and gives up
/// (`now_or_never`, a timeout of zero) can get no result although the future inside is ready. Watch such a
/// future from outside of that code, or use [`Handoff::Never`](crate::task::Handoff::Never), which never
/// waits.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let sum = morpheus_runtime::watch(async { (1..=10).sum::<u32>() }).await;
/// assert_eq!(sum, 55);
/// # }
/// ```
#[track_caller]
pub fn watch<F: Future>(future: F) -> Watched<F> {
    Watched::labelled(future, label::at(std::panic::Location::caller()))
}

/// [`watch`] as a method, with a name for the label.
pub trait Watch: Future + Sized {
    /// Watches the future under a name. All futures under one name share one history on each runtime.
    ///
    /// ```
    /// use morpheus_runtime::Watch as _;
    ///
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// let answer = async { 42 }.watched("answers").await;
    /// assert_eq!(answer, 42);
    /// # }
    /// ```
    fn watched(self, label: &'static str) -> Watched<Self> {
        Watched::labelled(self, label::named(label))
    }

    /// Watches the future under a name that is made while the program runs. Labels are never freed, so a
    /// process keeps the first 1024 such names, each cut off after 96 bytes. All later names share one label.
    ///
    /// ```
    /// use morpheus_runtime::Watch as _;
    ///
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// for kind in ["mail", "invoice"] {
    ///     async { 42 }.watched_as(&format!("job: {kind}")).await;
    /// }
    /// # }
    /// ```
    fn watched_as(self, label: &str) -> Watched<Self> {
        Watched::labelled(self, names::GIVEN.label(format_args!("{label}")))
    }
}

impl<F: Future> Watch for F {}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        here::poll(this.future, this.state, cx)
    }
}

#[cfg(all(test, target_os = "linux", not(morpheus_passthrough)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Waker;

    use morpheus_common::slot::{SlotFlag, VerdictFlags};

    use super::*;
    use crate::act::permit::{Answer, Class, Request};
    use crate::poll::own_slot;
    use crate::{Builder, Runtime, task};
    use morpheus_link::handle;

    fn runtime(demotable: bool) -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).demotable(demotable);
        // The tests watch futures, and no hook hands off the tasks around these.
        builder.link(crate::Link::Watchdog).watch_every_task(false);
        builder.build().unwrap()
    }

    /// Whether the calling thread's slot says that it may be demoted.
    fn is_demotable() -> bool {
        handle::current().runtime.has_flag(SlotFlag::Demotable)
    }

    #[test]
    fn a_task_sets_demotable_for_its_own_polls() {
        for of_runtime in [true, false] {
            let runtime = runtime(of_runtime);
            let task = runtime.handle().spawn(async move {
                for of_task in [Some(true), Some(false), None, Some(true)] {
                    let mut builder = task::Builder::new().label("watch: demotable");
                    if let Some(demotable) = of_task {
                        builder = builder.demotable(demotable);
                    }
                    // 40 polls make the label healthy, so that both paths are taken.
                    for _ in 0..40 {
                        let found = builder.watch(async { is_demotable() }).await;
                        assert_eq!(found, of_task.unwrap_or(of_runtime), "{of_task:?}");
                        let restored = async { is_demotable() }.watched("watch: other").await;
                        assert_eq!(restored, of_runtime, "after {of_task:?}");
                    }
                }
            });
            runtime.block_on(task).unwrap();
        }
    }

    /// A poll that returns `Pending` for lack of a permit does not count for its label.
    #[test]
    fn a_poll_that_waits_for_a_permit_is_not_counted() {
        static POLLED: AtomicU32 = AtomicU32::new(0);
        let runtime = runtime(true);
        let task = runtime.handle().spawn(async {
            async {}.watched("watch: claims a slot").await;
            let domain = own_slot::with_domain(|domain, _| domain.clone()).unwrap();
            let mut taken = Vec::new();
            let mut queued = Vec::new();
            // The 1,000 waiters in front of it keep it from a permit during the test.
            while queued.len() < 1_000 {
                let request = Request::for_tests(Class::Hog);
                match domain.permits.ask(request, false, Waker::noop()) {
                    Answer::Granted(permit) => taken.push(permit),
                    Answer::Wait(waiter) => queued.push(waiter),
                    Answer::Full => break,
                }
            }
            let polled = std::future::poll_fn(|_| {
                POLLED.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(())
            });
            let mut watched = std::pin::pin!(polled.watched("watch: waits"));
            {
                let state = watched.as_mut().project().state;
                let hog_poll = VerdictFlags::STALLED | VerdictFlags::HOG;
                assert!(state.rating.learn(hog_poll));
                state.polls = u16::MAX;
            }
            for _ in 0..10 {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(watched.as_mut().poll(&mut cx).is_pending());
            }
            let zero = tokio::time::timeout(std::time::Duration::ZERO, watched.as_mut());
            assert!(zero.await.is_err(), "a ready future, and no time for it");
            assert_eq!(watched.as_mut().project().state.polls, u16::MAX);
            assert_eq!(POLLED.load(Ordering::Relaxed), 0);
            for waiter in queued {
                waiter.leave();
            }
            drop(taken);
            watched.as_mut().project().state.polls = 0;
            watched.await;
            assert_eq!(POLLED.load(Ordering::Relaxed), 1);
        });
        runtime.block_on(task).unwrap();
        let totals = &label::named("watch: waits").totals;
        assert_eq!(totals.polls.get(), 1);
    }
}
