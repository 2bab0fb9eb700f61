//! In place of `domain.rs`: what a runtime has beside tokio's, which is nothing. Each part answers as an empty one would.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use morpheus_common::slot::RuntimeSlot;

use super::act::wake::Wake;
use crate::report::counters::Counters;
use crate::settings::Settings;
use morpheus_link::ActiveLink;

pub(crate) struct Domain {
    pub(crate) settings: Settings,
    /// The tokio runtime it belongs to, once that is built.
    pub(crate) runtime: OnceLock<tokio::runtime::Id>,
    /// None of them ever counts.
    pub(crate) counters: Counters,
    pub(crate) slots: Slots,
    /// None is counted.
    pub(crate) threads: AtomicUsize,
    pub(crate) handed_over: HandedOver,
    pub(crate) spares: Spares,
    pub(crate) permits: Permits,
    pub(crate) cores: Cores,
    pub(crate) sleeper: Sleeper,
    pub(crate) reports: Reports,
    pub(crate) stacks: Stacks,
    pub(crate) link: Link,
}

impl Domain {
    pub(crate) fn new(settings: Settings) -> Domain {
        Domain {
            settings,
            runtime: OnceLock::new(),
            counters: Counters::default(),
            slots: Slots,
            threads: AtomicUsize::new(0),
            handed_over: HandedOver,
            spares: Spares,
            permits: Permits,
            cores: Cores,
            sleeper: Sleeper,
            reports: Reports,
            stacks: Stacks,
            link: Link::default(),
        }
    }

    /// Lowering a slow task is part of the protection, which is missing as a whole.
    pub(crate) fn nice_refused(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Slots;

impl Slots {
    pub(crate) fn refused(&self) -> u64 {
        0
    }

    pub(crate) fn runtimes(&self) -> impl Iterator<Item = &RuntimeSlot> {
        std::iter::empty()
    }
}

/// No poll is handed over.
pub(crate) struct HandedOver;

impl HandedOver {
    pub(crate) fn close(&self) {}
}

pub(crate) struct Spares;

impl Spares {
    pub(crate) fn hold_tasks(&self) -> usize {
        0
    }

    pub(crate) fn total(&self) -> usize {
        0
    }

    pub(crate) fn active(&self) -> usize {
        0
    }

    pub(crate) fn close(&self) {}
}

pub(crate) struct Permits;

impl Permits {
    /// Returns how many handoff polls run now, and the most that ran at once so far.
    pub(crate) fn handoffs(&self) -> (usize, usize) {
        (0, 0)
    }

    pub(crate) fn waiting(&self) -> usize {
        0
    }

    pub(crate) fn close(&self) -> Vec<Wake> {
        Vec::new()
    }

    #[cfg(tokio_unstable)]
    pub(crate) fn free_threads(&self) -> Vec<Wake> {
        Vec::new()
    }
}

pub(crate) struct Cores;

impl Cores {
    pub(crate) fn held_ns(&self, _core: usize) -> u64 {
        0
    }
}

/// Of a controller that is not there.
pub(crate) struct Sleeper;

impl Sleeper {
    pub(crate) fn is_asleep(&self) -> bool {
        false
    }

    pub(crate) fn stop(&self) {}
}

pub(crate) struct Reports;

impl Reports {
    pub(crate) fn restarts(&self) -> u64 {
        0
    }

    pub(crate) fn dropped(&self) -> u64 {
        0
    }

    pub(crate) fn subscriber_panics(&self) -> u64 {
        0
    }

    pub(crate) fn close(&self, _at_most: Duration) {}
}

pub(crate) struct Stacks;

impl Stacks {
    pub(crate) fn stalls(&self) -> morpheus_stacks::Stalls {
        Default::default()
    }
}

#[derive(Default)]
pub(crate) struct Link {
    pub(crate) joined: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) silent_ns: AtomicU64,
    pub(crate) events: AtomicU64,
}

impl Link {
    pub(crate) fn active(&self) -> ActiveLink {
        ActiveLink::None
    }

    pub(crate) fn wake_controller(&self) {}

    pub(crate) fn stop(&self) {}
}
