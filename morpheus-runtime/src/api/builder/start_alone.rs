//! In place of `start.rs`, where there is no Linux: starts tokio's runtime alone, with what was set, and no spares.

use std::sync::Arc;

use morpheus_link::{Link, LinkError};

use super::{BuildError, Builder};
use crate::api::current;
use crate::api::runtime::Runtime;
use crate::domain::Domain;
use crate::settings::Settings;
use crate::settings::limitation::Limitation;

impl Builder {
    pub(super) fn start(&mut self) -> Result<Runtime, BuildError> {
        let settings = self.settings()?;
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
        let tokio = self.build_tokio(settings.workers, self.blocking_threads())?;
        let domain = Arc::new(Domain::new(settings));
        let _ = domain.runtime.set(tokio.handle().id());
        current::register(&domain);
        Ok(Runtime::from_parts(tokio, domain))
    }

    /// The application's hooks, as they are.
    fn set_own_hooks(&mut self) {
        if let Some(hook) = self.hooks.on_start.clone() {
            self.tokio.on_thread_start(move || hook());
        }
        if let Some(hook) = self.hooks.on_stop.clone() {
            self.tokio.on_thread_stop(move || hook());
        }
        if let Some(hook) = self.hooks.on_park.clone() {
            self.tokio.on_thread_park(move || hook());
        }
        if let Some(hook) = self.hooks.on_unpark.clone() {
            self.tokio.on_thread_unpark(move || hook());
        }
        #[cfg(tokio_unstable)]
        {
            if let Some(hook) = self.hooks.on_task_spawn.clone() {
                self.tokio.on_task_spawn(move |meta| hook(meta));
            }
            if let Some(hook) = self.hooks.on_before_task_poll.clone() {
                self.tokio.on_before_task_poll(move |meta| hook(meta));
            }
            if let Some(hook) = self.hooks.on_after_task_poll.clone() {
                self.tokio.on_after_task_poll(move |meta| hook(meta));
            }
            if let Some(hook) = self.hooks.on_task_terminate.clone() {
                self.tokio.on_task_terminate(move |meta| hook(meta));
            }
            if self.disable_lifo_slot {
                self.tokio.disable_lifo_slot();
            }
        }
    }
}
