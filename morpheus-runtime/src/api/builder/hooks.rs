//! Tokio's hooks, with the application's around them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::SlotFlag;
use morpheus_link::handle;

use super::{Builder, Hook};
use crate::domain::Domain;
use crate::poll::own_slot;

fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        hook();
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
                false => Some(handle::current()).filter(|slot| slot.is_taken()),
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
            let slot = handle::current();
            if slot.is_taken() {
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

    /// Sets the task hooks. The application's run outside of Morpheus's, so that their time is no part of the
    /// poll. They are set anew for each runtime, because tokio's builder keeps the previous ones.
    #[cfg(tokio_unstable)]
    fn set_task_hooks(&mut self, domain: &Arc<Domain>) {
        use crate::poll::hooks::{after_poll, before_poll};
        let watch = self.watches_every_task();
        // Without a check where the application has none: they run around every poll.
        match self.hooks.on_before_task_poll.clone() {
            None if watch => self.tokio.on_before_task_poll(before_poll),
            theirs => self.tokio.on_before_task_poll(move |meta| {
                theirs.iter().for_each(|theirs| theirs(meta));
                if watch {
                    before_poll(meta);
                }
            }),
        };
        match self.hooks.on_after_task_poll.clone() {
            None if watch => self.tokio.on_after_task_poll(after_poll),
            theirs => self.tokio.on_after_task_poll(move |meta| {
                if watch {
                    after_poll(meta);
                }
                theirs.iter().for_each(|theirs| theirs(meta));
            }),
        };
        let (own, theirs) = (domain.clone(), self.hooks.on_task_terminate.clone());
        self.tokio.on_task_terminate(move |meta| {
            crate::poll::hooks::ended(&own, meta);
            theirs.iter().for_each(|theirs| theirs(meta));
        });
        if self.disable_lifo_slot {
            self.tokio.disable_lifo_slot();
        }
    }
}
