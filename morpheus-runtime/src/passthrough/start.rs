//! Starting tokio's runtime alone, for the builder, of which this is a module: with what was set there, and no spares.

use std::sync::Arc;

use super::{
    BuildError, Builder, DEFAULT_BLOCKING_THREADS, Domain, Link, LinkError, Runtime, current,
};
use crate::settings::Settings;
use crate::settings::limitation::Limitation;

impl Builder {
    pub(super) fn start(&mut self) -> Result<Runtime, BuildError> {
        let settings = if self.is_current_thread {
            self.settings_of_current_thread()?
        } else {
            self.settings()?
        };
        if self.link == Link::Required {
            return Err(LinkError::Unsupported.into());
        }
        let mut refused = vec![Limitation::Protection];
        refused.extend(settings.refused.iter().copied());
        let settings = Settings {
            spares: 0,
            spares_unavailable: 0,
            reserve: 0,
            refused,
            ..settings
        };
        self.set_own_hooks();
        if let Some(bytes) = self.thread_stack_size {
            self.tokio.thread_stack_size(bytes);
        }
        if !self.is_current_thread {
            self.tokio.worker_threads(settings.workers);
        }
        let name = self.thread_name.clone();
        let tokio = self
            .tokio
            .max_blocking_threads(
                self.max_blocking_threads
                    .unwrap_or(DEFAULT_BLOCKING_THREADS),
            )
            .thread_name_fn(move || name())
            .build()?;
        let domain = Arc::new(Domain::new(settings));
        let _ = domain.runtime.set(tokio.handle().id());
        current::register(&domain);
        Ok(Runtime::from_parts(tokio, domain))
    }

    /// The application's hooks, as they are.
    fn set_own_hooks(&mut self) {
        if let Some(hook) = self.on_start.clone() {
            self.tokio.on_thread_start(move || hook());
        }
        if let Some(hook) = self.on_stop.clone() {
            self.tokio.on_thread_stop(move || hook());
        }
        if let Some(hook) = self.on_park.clone() {
            self.tokio.on_thread_park(move || hook());
        }
        if let Some(hook) = self.on_unpark.clone() {
            self.tokio.on_thread_unpark(move || hook());
        }
        #[cfg(tokio_unstable)]
        {
            if let Some(hook) = self.on_before_task_poll.clone() {
                self.tokio.on_before_task_poll(move |meta| hook(meta));
            }
            if let Some(hook) = self.on_after_task_poll.clone() {
                self.tokio.on_after_task_poll(move |meta| hook(meta));
            }
            if self.disable_lifo_slot {
                self.tokio.disable_lifo_slot();
            }
        }
    }
}
