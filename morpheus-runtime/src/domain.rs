//! A domain: everything that the workers, the tasks and the controller of one runtime share.
//!
//! There is one for each [`Runtime`](crate::Runtime). One more in each process serves threads of other
//! runtimes on which a future is watched. It has no spares and no canary task, but a controller that makes
//! requests and verdicts, and reports. The domain of a current-thread runtime is like that one, with the
//! settings of its own builder. A thread belongs to it while it is in the runtime's `block_on` (`enter` in
//! `poll/own_slot.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use morpheus_common::ladder::Policy;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::act::cores::CoreTable;
use crate::act::handed_over::HandedOver;
use crate::act::permit::{self, Permits};
use crate::act::relief::Relief;
use crate::act::spare::Spares;
use crate::act::wake::Wake;
use crate::decide::history::Histories;
use crate::report::counters::Counters;
use crate::report::stacks;
use crate::report::thread::Reports;
use crate::settings::Settings;
use morpheus_link::ActiveLink;
use morpheus_link::state::State;
use morpheus_link::table::Table;
use morpheus_system::quota::{self, Mask};
use morpheus_system::sleeper::Sleeper;
use morpheus_system::slice;
use morpheus_system::{clock, nice};

/// A number of panics that a test injects.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Fault(std::sync::atomic::AtomicUsize);

#[cfg(test)]
impl Fault {
    pub(crate) fn arm(&self, panics: usize) {
        self.0.store(panics, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::SeqCst) > 0
    }

    /// Panics as often as it was armed for.
    pub(crate) fn strike(&self) {
        use std::sync::atomic::Ordering::SeqCst;
        let armed = self
            .0
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        assert!(armed.is_err(), "a fault, on purpose");
    }
}

/// Panics that a test injects.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) controller: Fault,
    pub(crate) joiner: Fault,
}

pub(crate) struct Domain {
    pub(crate) settings: Settings,
    /// The tokio runtime that the domain belongs to, once that is built.
    pub(crate) runtime: OnceLock<tokio::runtime::Id>,
    pub(crate) slots: Table,
    /// Threads of the tokio runtime that have begun and not ended. A thread without a slot counts as well.
    pub(crate) threads: AtomicUsize,
    #[cfg(tokio_unstable)]
    pub(crate) thread_ids: morpheus_system::threads::Ids,
    /// The records of tasks that the hooks watch.
    #[cfg(tokio_unstable)]
    pub(crate) records: crate::decide::records::Records,
    pub(crate) spares: Spares,
    pub(crate) relief: Relief,
    pub(crate) permits: Arc<Permits>,
    pub(crate) handed_over: HandedOver,
    /// How polls of each label went on this runtime.
    pub(crate) histories: Histories,
    pub(crate) cores: CoreTable,
    /// Whether the application has the runtime: from then on its tasks may be queued on any worker.
    pub(crate) has_tasks: AtomicBool,
    /// Whether only the last spare is left: slow tasks then wait rather than take a worker.
    pub(crate) spares_scarce: AtomicBool,
    /// Until then no core is offered: no thread of the pool took the last one (`poll/hooked_handoff.rs`).
    #[cfg(tokio_unstable)]
    pub(crate) offers_again_ns: std::sync::atomic::AtomicU64,
    /// Whether slow tasks are lowered by `nice`: it was asked for, and the process may raise them again. Cleared where it could not.
    pub(crate) can_nice: AtomicBool,
    /// The niceness of the thread that built the runtime, where hogs are lowered.
    niceness: Option<i32>,
    pub(crate) sleeper: Sleeper,
    pub(crate) link: State,
    /// The controller's thread id; 0 until it runs.
    pub(crate) controller_tid: AtomicU32,
    pub(crate) counters: Counters,
    pub(crate) reports: Reports,
    #[cfg(test)]
    pub(crate) faults: Faults,
    /// The stacks of stalled polls.
    pub(crate) stacks: Arc<morpheus_stacks::groups::Shared>,
    pub(crate) mask: Option<Mask>,
    /// The blocking pools of plain tokio runtimes: when each was last asked for a thread (monotonic
    /// nanoseconds), and whether it has one. `None` where the domain has workers of its own; `Some` for
    /// threads of other runtimes and for a current-thread runtime.
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
                more_untried: 0,
                long: usize::MAX,
                in_handoff: settings.max_handoffs,
            }
        };
        Domain {
            runtime: OnceLock::new(),
            slots: Table::new(settings.slots),
            threads: AtomicUsize::new(0),
            #[cfg(tokio_unstable)]
            thread_ids: morpheus_system::threads::Ids::default(),
            #[cfg(tokio_unstable)]
            records: Default::default(),
            spares: Spares::new(settings.spares, settings.kept),
            relief: Relief::default(),
            permits: Arc::new(Permits::new(limits)),
            handed_over: HandedOver::default(),
            histories: Histories::default(),
            cores: CoreTable::new(settings.cores()),
            has_tasks: AtomicBool::new(false),
            spares_scarce: AtomicBool::new(false),
            #[cfg(tokio_unstable)]
            offers_again_ns: std::sync::atomic::AtomicU64::new(0),
            can_nice: AtomicBool::new(false),
            niceness: settings.nice_hogs.then(nice::of_current),
            sleeper: Sleeper::default(),
            link: State::default(),
            controller_tid: AtomicU32::new(0),
            counters: Counters::new(clock::now_ns()),
            reports: Reports::default(),
            #[cfg(test)]
            faults: Faults::default(),
            stacks: stacks::shared(),
            mask: settings.confine_to_quota.then(Mask::for_quota).flatten(),
            warm_pools: None,
            settings,
        }
    }

    /// Makes a domain without workers, for threads of other runtimes or for a current-thread runtime. These
    /// threads keep their slices.
    pub(crate) fn without_workers(settings: Settings) -> Domain {
        Domain {
            warm_pools: Some(Mutex::default()),
            ..Domain::new(settings)
        }
    }

    /// Keeps a thread that starts on the CPUs that the quota pays for, if the application asked for that.
    pub(crate) fn place_thread(&self) {
        if let Some(mask) = &self.mask {
            // Relaxed: a number; that thread's affinity is asked of the kernel.
            mask.apply_to_current(self.controller_tid.load(Ordering::Relaxed));
        }
    }

    /// Takes from a thread that starts the niceness that it may have inherited: a poll that was lowered may start it.
    pub(crate) fn raise_thread(&self) {
        if let Some(niceness) = self.niceness {
            nice::become_again(niceness);
        }
    }

    /// Gives the calling thread a worker's slice, if it has a core of this runtime and its own slice, or one that was lengthened.
    pub(crate) fn shorten_slice(&self) {
        // The first of these is one load, and a worker comes here each time it parks.
        let may = slice::is_own() && self.has_workers() && self.settings.mechanisms.slice;
        if may && self.handle_of_worker().is_some() && !slice::become_worker() {
            self.counters.slices_refused.add(1);
        }
        slice::renew_worker();
    }

    /// The handle of this runtime, or of any on a domain without workers, if the calling thread is a worker of it and has entered no
    /// other one. A current-thread runtime that a thread of a pool runs has a worker index as well.
    pub(crate) fn handle_of_worker(&self) -> Option<Handle> {
        tokio::runtime::worker_index()?;
        let handle = Handle::try_current().ok()?;
        let is_own = self.runtime.get().is_none_or(|own| *own == handle.id());
        (is_own && handle.runtime_flavor() == RuntimeFlavor::MultiThread).then_some(handle)
    }

    /// Whether there can be workers that take over from a stalled one.
    pub(crate) fn has_workers(&self) -> bool {
        self.warm_pools.is_none()
    }

    /// Whether the controller only observes and reports.
    pub(crate) fn observes(&self) -> bool {
        self.settings.policy == Policy::Observe
    }

    /// Wakes the controller if it sleeps, be it on its condition variable or on a link's ring.
    pub(crate) fn wake_controller(&self) {
        if self.sleeper.wake() {
            self.link.wake_controller();
        }
    }

    /// Records the calling thread as the thread of the core that it has: after a park, after a hold, or in a
    /// canary task.
    pub(crate) fn note_core_thread(&self, tid: u32) {
        self.shorten_slice();
        let core = tokio::runtime::worker_index();
        if let Some(before) = core.and_then(|core| self.cores.note_thread(core, tid)) {
            self.lost_core(before);
        }
    }

    /// Gives a thread that has lost its core the kernel's slice: it is in the application's own `block_in_place`, or back in the pool for
    /// blocking calls. (One that hands its core off through Morpheus does that itself.) If it has got another core, it renews its
    /// slice when it parks.
    #[cold]
    fn lost_core(&self, tid: u32) {
        if self.may_lengthen_slices() {
            slice::lengthen_workers(tid);
        }
    }

    /// Whether threads may be given the kernel's slices by another thread. Not where threads are lowered by `nice`: one that is raised
    /// at the same time would be lowered again. A scheduler of ours has its own slices.
    pub(crate) fn may_lengthen_slices(&self) -> bool {
        // Relaxed: see `note_irreversible_nice`.
        let may_lower = self.can_nice.load(Ordering::Relaxed);
        self.settings.mechanisms.slice && !may_lower && self.link.active() != ActiveLink::Scheduler
    }

    /// Goes on without a controller, so that nothing waits for one.
    ///
    /// It releases every spare for good and ends a daemon's link. No poll waits for a permit or is handed off
    /// any more. The runtime goes on as tokio with that many workers. Returns the wakes to make.
    pub(crate) fn go_on_without_controller(&self) -> Vec<Wake> {
        // Relaxed, both: a statistic; and a hint, which `permits.close` makes pointless.
        self.counters.controller_off.store(true, Ordering::Relaxed);
        self.spares_scarce.store(false, Ordering::Relaxed);
        self.spares.close();
        self.link.stop();
        self.permits.close()
    }

    /// Lowers no more threads: one could not be raised again. The process may have dropped the right since it was tried.
    pub(crate) fn note_irreversible_nice(&self) {
        // Relaxed: a sample that does not see it yet lowers its threads once more.
        self.can_nice.store(false, Ordering::Relaxed);
    }

    /// Whether threads are to be lowered, and may not be.
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
