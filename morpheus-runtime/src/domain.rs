//! A domain: everything that the workers, the tasks and the controller of one runtime share.
//!
//! There is one per [`Runtime`](crate::Runtime), and one more per process for threads of other runtimes
//! on which something is watched: that one has no spares and no canary, but a controller that asks,
//! judges and reports all the same. So has that of a current-thread runtime, with the settings of its own builder; a thread
//! belongs to it while it is in the runtime's `block_on` (`enter` in `poll/own_slot.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use morpheus_common::ladder::Policy;

use crate::act::permit::{self, Permits};
use crate::act::spare::Spares;
use crate::act::wake::Wake;
use crate::decide::history::Histories;
use crate::link;
use crate::os::clock;
use crate::os::quota::{self, Mask};
use crate::os::sleeper::Sleeper;
use crate::os::slice;
use crate::report::counters::Counters;
use crate::report::stacks;
use crate::report::thread::Reports;
use crate::settings::Settings;
use crate::slot::cores::CoreTable;
use crate::slot::table::Table;

/// Panics that a test makes.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) controller: crate::os::supervise::Fault,
    pub(crate) joiner: crate::os::supervise::Fault,
}

pub(crate) struct Domain {
    pub(crate) settings: Settings,
    /// The tokio runtime it belongs to, once that is built.
    pub(crate) runtime: OnceLock<tokio::runtime::Id>,
    pub(crate) slots: Table,
    #[cfg(tokio_unstable)]
    pub(crate) thread_ids: crate::os::threads::Ids,
    pub(crate) spares: Spares,
    pub(crate) permits: Arc<Permits>,
    /// How polls of each label went here.
    pub(crate) histories: Histories,
    pub(crate) cores: CoreTable,
    /// The application has the runtime: its tasks may wait anywhere in it.
    pub(crate) has_tasks: AtomicBool,
    /// Only the last spare is left: slow tasks wait rather than take a worker.
    pub(crate) spares_scarce: AtomicBool,
    /// Whether slow tasks are lowered by `nice`: asked for, and the process may raise them again.
    pub(crate) can_nice: AtomicBool,
    pub(crate) sleeper: Sleeper,
    pub(crate) link: link::State,
    /// The controller's thread; 0 until it runs.
    pub(crate) controller_tid: AtomicU32,
    pub(crate) counters: Counters,
    pub(crate) reports: Reports,
    #[cfg(test)]
    pub(crate) faults: Faults,
    /// Where polls were stalled.
    pub(crate) stacks: Arc<stacks::groups::Shared>,
    pub(crate) mask: Option<Mask>,
    /// Only where there are no workers: for threads of other runtimes, and for a current-thread runtime. When each runtime that
    /// such a thread is a worker of was last asked for a blocking thread, and whether it has one.
    pub(crate) warm_pools: Option<Mutex<HashMap<tokio::runtime::Id, (u64, bool)>>>,
}

impl Domain {
    pub(crate) fn new(settings: Settings) -> Domain {
        let cpus = quota::cpus_paid_for();
        let limits = if settings.mechanisms.permits {
            permit::Limits::for_cpus(cpus, settings.max_handoffs)
        } else {
            permit::Limits {
                running: usize::MAX,
                hogs: usize::MAX,
                in_handoff: settings.max_handoffs,
            }
        };
        Domain {
            runtime: OnceLock::new(),
            slots: Table::new(settings.slots),
            #[cfg(tokio_unstable)]
            thread_ids: crate::os::threads::Ids::default(),
            spares: Spares::new(settings.spares),
            permits: Arc::new(Permits::new(limits)),
            histories: Histories::default(),
            cores: CoreTable::new(settings.workers + settings.spares),
            has_tasks: AtomicBool::new(false),
            spares_scarce: AtomicBool::new(false),
            can_nice: AtomicBool::new(false),
            sleeper: Sleeper::default(),
            link: link::State::default(),
            controller_tid: AtomicU32::new(0),
            counters: Counters::new(clock::now_ns()),
            reports: Reports::default(),
            #[cfg(test)]
            faults: Faults::default(),
            stacks: Arc::default(),
            mask: settings.confine_to_quota.then(Mask::for_quota).flatten(),
            warm_pools: None,
            settings,
        }
    }

    /// For threads that are nobody's workers, or another runtime's: they keep the slices that they have.
    pub(crate) fn without_workers(settings: Settings) -> Domain {
        Domain {
            warm_pools: Some(Mutex::default()),
            ..Domain::new(settings)
        }
    }

    /// For a thread that starts: keeps it on the CPUs that the quota pays for, if the application wants that.
    pub(crate) fn place_thread(&self) {
        if let Some(mask) = &self.mask {
            // Relaxed: a number; that thread's affinity is asked of the kernel.
            mask.apply_to_current(self.controller_tid.load(Ordering::Relaxed));
        }
    }

    /// For a thread that has a core of this runtime: gives it a worker's slice, unless it has one.
    pub(crate) fn shorten_slice(&self) {
        if self.warm_pools.is_none()
            && self.settings.mechanisms.slice
            && tokio::runtime::worker_index().is_some()
            && !slice::become_worker()
        {
            self.counters.slices_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there can be workers to take over from one that is stalled.
    pub(crate) fn has_workers(&self) -> bool {
        self.warm_pools.is_none()
    }

    /// Whether the controller only looks and reports.
    pub(crate) fn observes(&self) -> bool {
        self.settings.policy == Policy::Observe
    }

    /// Wakes the controller if it sleeps, wherever.
    pub(crate) fn wake_controller(&self) {
        if self.sleeper.wake() {
            self.link.wake_controller();
        }
    }

    /// For a thread that has a core, and says so: back from a park or a hold, or with a canary.
    pub(crate) fn note_core_thread(&self, tid: u32) {
        self.shorten_slice();
        if let Some(core) = tokio::runtime::worker_index() {
            self.cores.note_thread(core, tid);
        }
    }

    /// Goes on without a controller, so that nothing waits for one: every spare is released for good, no poll waits for
    /// a permit or is handed off any more, and a daemon's link ends. What is left is tokio with that many workers.
    ///
    /// Returns the wakes to make.
    pub(crate) fn go_on_without_controller(&self) -> Vec<Wake> {
        // Relaxed, both: a statistic; and a hint, which `permits.close` makes pointless.
        self.counters.controller_off.store(true, Ordering::Relaxed);
        self.spares_scarce.store(false, Ordering::Relaxed);
        self.spares.close();
        self.link.stop();
        self.permits.close()
    }

    pub(crate) fn nice_refused(&self) -> bool {
        self.settings.nice_hogs && !self.can_nice.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("settings", &self.settings)
            .field("spares", &self.spares)
            .finish_non_exhaustive()
    }
}
