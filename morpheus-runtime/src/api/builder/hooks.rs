//! Tokio's hooks, with the application's around them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::SlotFlag;
use morpheus_link::handle::{self, SlotHandle};

use super::{Builder, Hook};
use crate::domain::Domain;
use crate::poll::own_slot;

/// The slot of a thread that parks in a current-thread runtime. `None` for a thread that has not entered the runtime: its slot is that of
/// another one. `None` within a poll as well, where the slot must neither move nor seem idle: a thread of the runtime's own pool may run
/// the runtime in one.
fn slot_alone(own: &Arc<Domain>) -> Option<SlotHandle> {
    let slot = Some(handle::current()).filter(|slot| slot.is_taken())?;
    (!slot.runtime.in_poll() && own_slot::is_of(own)).then_some(slot)
}

fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        hook();
    }
}

/// Calls a hook of the application. Tasks of Morpheus's own are none of its: the poll of a held spare's lasts for as long as it is held.
#[cfg(tokio_unstable)]
fn tell(hook: Option<&super::TaskHook>, meta: &tokio::runtime::TaskMeta<'_>) {
    if let Some(hook) = hook
        && !crate::report::own::is_place(meta.spawned_at())
    {
        hook(meta);
    }
}

impl Builder {
    pub(super) fn set_hooks(&mut self, domain: &Arc<Domain>) {
        let is_worker = domain.has_workers();
        let (own, theirs) = (domain.clone(), self.hooks.clone());
        self.tokio.on_thread_start(move || {
            // Relaxed, and below: a number that is read after tokio's shutdown has waited for the threads.
            own.threads.fetch_add(1, Ordering::Relaxed);
            own.place_thread();
            own.raise_thread();
            own_slot::belongs_to(own.clone());
            call(theirs.on_start.as_ref());
        });
        let (own, theirs) = (domain.clone(), self.hooks.clone());
        self.tokio.on_thread_stop(move || {
            call(theirs.on_stop.as_ref());
            own.threads.fetch_sub(1, Ordering::Relaxed);
        });
        let (own, theirs) = (domain.clone(), self.hooks.clone());
        self.tokio.on_thread_park(move || {
            // The application's hook runs first: it may take long, and the worker is not parked until it
            // returns.
            call(theirs.on_park.as_ref());
            let slot = match is_worker {
                true => own_slot::claim(),
                false => slot_alone(&own),
            };
            if let Some(slot) = slot {
                // The thread may have lost its core and taken another one, with the kernel's slice.
                own.shorten_slice();
                slot.runtime.park();
                // Relaxed: the thread's own word.
                own.relief.parks(slot.runtime.tid.load(Ordering::Relaxed));
            }
        });
        let (own, theirs) = (domain.clone(), self.hooks.clone());
        self.tokio.on_thread_unpark(move || {
            let slot = match is_worker {
                true => Some(handle::current()).filter(|slot| slot.is_taken()),
                false => slot_alone(&own),
            };
            if let Some(slot) = slot {
                slot.runtime.unpark();
                // The flag marks a poll that is over.
                if slot.runtime.has_flag(SlotFlag::Hog) {
                    slot.runtime.clear_flag(SlotFlag::Hog);
                }
                let slot = own_slot::settled(slot);
                if is_worker {
                    // Relaxed: the thread's own word.
                    let tid = slot.runtime.tid.load(Ordering::Relaxed);
                    own.note_core_thread(tid);
                    own_slot::notice(slot);
                    own.relief.unparked(tid);
                }
            }
            call(theirs.on_unpark.as_ref());
        });
        #[cfg(tokio_unstable)]
        self.set_task_hooks(domain);
    }

    /// Sets the task hooks. The application's run within Morpheus's: a task that waits for a permit there is in no poll yet. They are set
    /// anew for each runtime, because tokio's builder keeps the previous ones.
    #[cfg(tokio_unstable)]
    fn set_task_hooks(&mut self, domain: &Arc<Domain>) {
        use crate::poll::hooks::{after_poll, before_poll};
        let watch = self.watches_every_task();
        // Without a check where the application has none: they run around every poll.
        let own = domain.clone();
        match self.hooks.on_before_task_poll.clone() {
            None if watch => self
                .tokio
                .on_before_task_poll(move |meta| before_poll(&own, meta)),
            theirs => self.tokio.on_before_task_poll(move |meta| {
                if watch {
                    before_poll(&own, meta);
                }
                tell(theirs.as_ref(), meta);
            }),
        };
        let own = domain.clone();
        match self.hooks.on_after_task_poll.clone() {
            None if watch => self
                .tokio
                .on_after_task_poll(move |meta| after_poll(&own, meta)),
            theirs => self.tokio.on_after_task_poll(move |meta| {
                tell(theirs.as_ref(), meta);
                if watch {
                    after_poll(&own, meta);
                }
            }),
        };
        let (own, theirs) = (domain.clone(), self.hooks.on_task_terminate.clone());
        self.tokio.on_task_terminate(move |meta| {
            crate::poll::hooks::ended(&own, meta);
            tell(theirs.as_ref(), meta);
        });
        if let Some(theirs) = self.hooks.on_task_spawn.clone() {
            self.tokio
                .on_task_spawn(move |meta| tell(Some(&theirs), meta));
        }
        if self.disable_lifo_slot {
            self.tokio.disable_lifo_slot();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::{Link, Runtime, Watch as _};

    const MS: Duration = Duration::from_millis(1);

    fn with_workers() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        builder.build().unwrap()
    }

    fn current_thread() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().link(Link::Watchdog).build().unwrap()
    }

    fn slot() -> usize {
        std::ptr::from_ref(handle::current().runtime).addr()
    }

    /// Runs the runtime in the middle of a watched poll, without entering it. A daemon has joined just before, and so the thread's slot
    /// is about to move. Returns whether it has moved in the poll, and the poll's mark has ended with it.
    async fn park_within_a_poll(domain: &Arc<Domain>, runtime: &Runtime) -> (bool, bool) {
        async {}.watched("hooks: claims a slot").await;
        let in_poll = handle::current().runtime.in_poll();
        let polls = async {
            let before = slot();
            domain.slots.share_for_tests();
            tokio::task::block_in_place(|| {
                runtime.as_ref().block_on(tokio::time::sleep(5 * MS));
            });
            slot() != before
        };
        let has_moved = polls.watched("hooks: parks within").await;
        (has_moved, handle::current().runtime.in_poll() == in_poll)
    }

    #[test]
    fn a_slot_stays_in_a_poll_in_which_another_runtime_parks() {
        let (runtime, within) = (with_workers(), Arc::new(current_thread()));
        let domain = runtime.domain().clone();
        // The test has it as well: a runtime must not be dropped in a task.
        let inner = within.clone();
        let polled = async move { park_within_a_poll(&domain, &inner).await };
        let polled = runtime.handle().spawn(polled);
        assert_eq!(runtime.block_on(polled).unwrap(), (false, true));
    }

    /// The runtime's blocking threads belong to it, and one of them may run it.
    #[test]
    fn a_slot_stays_in_a_poll_in_which_its_own_runtime_parks() {
        let runtime = Arc::new(current_thread());
        let (done, is_done) = mpsc::channel();
        let within = runtime.clone();
        drop(runtime.handle().spawn_blocking(move || {
            let polled = pin!(park_within_a_poll(within.domain(), &within))
                .poll(&mut Context::from_waker(Waker::noop()));
            // Not the last one, on a thread for which the runtime's end would wait.
            drop(within);
            done.send(polled).unwrap();
        }));
        let polled = is_done.recv_timeout(10_000 * MS).unwrap();
        assert_eq!(polled, std::task::Poll::Ready((false, true)));
    }

    /// Nothing would remove it: the runtime whose task it is forgets the task when it ends.
    #[cfg(tokio_unstable)]
    #[test]
    fn a_task_leaves_no_record_in_the_runtime_on_whose_thread_it_was_polled() {
        let (runtime, within) = (with_workers(), current_thread());
        let polled = runtime.handle().spawn_blocking(move || {
            let task = || tokio::spawn(async { std::thread::sleep(20 * MS) });
            within.as_ref().block_on(async { task().await.unwrap() });
            // With a slot, which a watched future claims.
            within.as_ref().block_on(async {
                async {}.watched("hooks: claims a slot there").await;
                task().await.unwrap();
            });
        });
        runtime.block_on(polled).unwrap();
        assert_eq!(runtime.domain().records.len(), 0);
    }
}
