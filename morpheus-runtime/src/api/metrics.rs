//! A snapshot of the figures that an operator acts on, with tokio's own metrics corrected for held spares.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::RuntimeMetrics;

use crate::api::current;
#[cfg(feature = "metrics")]
use crate::api::debug_metrics::DebugMetrics;
use crate::domain::Domain;
use crate::report::counters::LatencySummary;
use crate::settings::limitation::Limitation;
use morpheus_system::{asleep, clock, sleeper};

/// The figures of a runtime that an operator acts on; see [`Runtime::metrics`](crate::Runtime::metrics). Each
/// field says its unit, and what to do about it.
///
/// Counts are since the runtime began and never fall: alert on their rates. With the feature `metrics`,
/// `debug` has the figures behind these.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Workers that are always active. It is 1 for a current-thread runtime: the thread in `block_on`. Set
    /// [`worker_threads`](crate::Builder::worker_threads) if it is not the number of CPUs that the service
    /// may use.
    pub workers: usize,
    /// Spare workers, held and released. If it is below [`max_spares`](crate::Builder::max_spares), the
    /// system gave fewer threads: raise the process limit (`ulimit -u`, `pids.max`).
    pub spares: usize,
    /// Spare workers that are released at this moment. If it stays near [`spares`](Self::spares), watch the
    /// tasks that the stall report names, or raise [`max_spares`](crate::Builder::max_spares), before
    /// [`spares_exhausted`](Self::spares_exhausted) grows.
    pub spares_released: usize,
    /// The number of times that more spares were needed than there are; shortages less than a second apart count as
    /// one. Raise
    /// [`max_spares`](crate::Builder::max_spares), or find the label in the stall report and mend or watch
    /// the task.
    pub spares_exhausted: u64,
    /// Stalled watched polls that were taken over, and spares released because the canary task was late or the
    /// kernel told of a worker that blocks; with a daemon one poll may count twice. The runtime has done its
    /// part; if the rate is more than you accept, find the label in the stall report. Where that is "not
    /// watched", watch the handlers first.
    pub takeovers: u64,
    /// Watched polls that were asked to yield at the end of the budget, or at half of it where the label is
    /// slow. Put checkpoints into the loops that the stall report names, or raise
    /// [`budget`](crate::Builder::budget) if such polls are normal.
    pub requests: u64,
    /// Hog polls: watched polls that used 5 ms of CPU, may be demoted, and were in no critical section. With
    /// [`nice_hogs`](crate::Builder::nice_hogs) or the scheduler of the kernel side their threads get less of
    /// the CPU. Move such work to `spawn_blocking`, or put checkpoints into it. A task that must not lose the
    /// CPU gets [`demotable(false)`](crate::task::Builder::demotable).
    pub demotions: u64,
    /// Handoff polls: polls of slow tasks, before which the worker handed off its core. They delay no other
    /// task. If it stays 0 while the stall report names slow watched tasks, allow handoffs
    /// ([`max_handoffs`](crate::Builder::max_handoffs), [`Handoff`](crate::task::Handoff)).
    pub handoff_polls: u64,
    /// Polls of slow tasks that ran inline for lack of a thread, and so stalled a worker. Raise
    /// [`max_handoffs`](crate::Builder::max_handoffs), or leave out
    /// [`max_blocking_threads`](crate::Builder::max_blocking_threads).
    pub handoffs_refused: u64,
    /// Slow tasks that wait for a permit at this moment. If they stay many, more CPU time is asked for than
    /// there is: put checkpoints into the hogs, give the process more CPUs, or exempt a task that must not
    /// wait with [`Handoff::Never`](crate::task::Handoff::Never).
    pub permits_waiting: usize,
    /// The latency from the release of a spare until it runs, in nanoseconds. If its p99 is more than your
    /// service may take, threads wait for a CPU: watch the hogs, so that a few of them run at a time, give
    /// the process more CPUs, or run the scheduler of the kernel side.
    pub takeover_latency: LatencySummary,
    /// The latency from the injection of a canary task until it runs, in nanoseconds: the time that a new task
    /// waits. If its p99 is more than your service may take, look at
    /// [`spares_exhausted`](Self::spares_exhausted) first, then at the CPUs and at the CPU quota
    /// ([`confine_to_quota`](crate::Builder::confine_to_quota)).
    pub canary_lateness: LatencySummary,
    /// The number of times that a daemon of the kernel side ended or stopped responding. The runtime goes on
    /// with its own watchdog: look at the daemon's log, and start the daemon again.
    pub links_lost: u64,
    /// Stall events that were dropped, because the subscriber was too slow or blocked. Give it a writer that
    /// does not block, or a filter that lets fewer events through.
    pub reports_dropped: u64,
    /// Whether the controller is off for good: it panicked again within a minute of its third restart. Then
    /// every spare is released, nothing is watched, and the runtime is tokio's with that many workers.
    /// Restart the process, and report the panics that the log has.
    pub controller_off: bool,
    /// The features that the runtime would use and does not have. Each [`Limitation`] says what is missing:
    /// grant it, or accept its effect.
    pub limitations: Vec<Limitation>,
    /// The figures behind these: for bug reports. Its fields come and go with any release. (Feature `metrics`.)
    #[cfg(feature = "metrics")]
    pub debug: DebugMetrics,
    alive_tasks: usize,
    queue_depth: usize,
    busy_ns: u64,
    parks: u64,
    tokio: RuntimeMetrics,
}

impl Metrics {
    /// The counters of the current runtime, for instance for a handler that shows them. `None` outside a
    /// runtime, and on a runtime that is not Morpheus's.
    ///
    /// ```
    /// # #[morpheus_runtime::main(worker_threads = 2, max_spares = 4)]
    /// # async fn main() {
    /// let metrics = morpheus_runtime::Metrics::current().expect("on a runtime of Morpheus's");
    /// assert_eq!(metrics.workers, 2);
    /// # }
    /// ```
    #[must_use]
    pub fn current() -> Option<Metrics> {
        let (handle, domain) = current::of_current()?;
        Some(Metrics::of(&domain, handle.metrics()))
    }

    /// The number of workers that the runtime was built with: [`workers`](Self::workers) under the name that
    /// tokio's metrics use. Spares do not count, released or not.
    #[must_use]
    pub fn num_workers(&self) -> usize {
        self.workers
    }

    /// Tasks that have not ended, under the name that tokio's metrics use.
    ///
    /// These are the tasks of the application and its libraries, and sometimes the canary task of the
    /// controller. The hold tasks of spares do not count.
    #[must_use]
    pub fn num_alive_tasks(&self) -> usize {
        self.alive_tasks
    }

    /// Tasks that wait in tokio's global queue, under the name that tokio's metrics use.
    ///
    /// A no-op of the controller's and a hold task also count while they wait there.
    #[must_use]
    pub fn global_queue_depth(&self) -> usize {
        self.queue_depth
    }

    /// Active workers at this moment: those that always are, and released spares.
    #[must_use]
    pub fn active_workers(&self) -> usize {
        self.workers + self.spares_released
    }

    /// Time that all workers together spent on anything but waiting: the sum of tokio's
    /// `worker_total_busy_duration`, without the time for which workers were held as spares. It grows when a
    /// worker parks, or has had [`event_interval`](crate::Builder::event_interval) polls.
    #[must_use]
    pub fn total_busy_duration(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }

    /// The number of times that workers parked: the sum of tokio's `worker_park_count`.
    #[must_use]
    pub fn total_park_count(&self) -> u64 {
        self.parks
    }

    /// Tokio's own metrics of the runtime, in which held spares count as workers, as tasks, and as busy.
    /// These are corrected for held spares: [`active_workers`](Self::active_workers),
    /// [`num_alive_tasks`](Self::num_alive_tasks), [`total_busy_duration`](Self::total_busy_duration).
    #[must_use]
    pub fn tokio(&self) -> &RuntimeMetrics {
        &self.tokio
    }

    pub(crate) fn of(domain: &Domain, tokio: RuntimeMetrics) -> Metrics {
        let counters = &domain.counters;
        let cores = 0..tokio.num_workers();
        Metrics {
            workers: domain.settings.workers,
            spares: domain.spares.total(),
            spares_released: domain.spares.active(),
            spares_exhausted: counters.spares_exhausted.get(),
            takeovers: counters.takeovers_watched.get()
                + counters.takeovers_canary.get()
                + counters.takeovers_kernel.get(),
            requests: counters.requests.get(),
            demotions: counters.demotions.get(),
            handoff_polls: counters.handoff_polls.get(),
            handoffs_refused: counters.handoffs_refused.get(),
            permits_waiting: domain.permits.waiting(),
            takeover_latency: counters.takeover_latency.summary(),
            canary_lateness: counters.canary_lateness.summary(),
            links_lost: domain.link.lost.load(Ordering::Relaxed),
            reports_dropped: domain.reports.dropped(),
            controller_off: counters.controller_off.load(Ordering::Relaxed),
            limitations: limitations(domain),
            #[cfg(feature = "metrics")]
            debug: DebugMetrics::of(domain),
            alive_tasks: tokio
                .num_alive_tasks()
                .saturating_sub(domain.spares.hold_tasks()),
            queue_depth: tokio.global_queue_depth(),
            busy_ns: cores
                .clone()
                .map(|core| busy_ns(domain, &tokio, core))
                .sum(),
            parks: cores.map(|core| tokio.worker_park_count(core)).sum(),
            tokio,
        }
    }
}

/// The busy time of a core in nanoseconds without its holds, which tokio counts as long polls.
fn busy_ns(domain: &Domain, tokio: &RuntimeMetrics, core: usize) -> u64 {
    let held_ns = domain.cores.held_ns(core);
    clock::nanos(tokio.worker_total_busy_duration(core)).saturating_sub(held_ns)
}

fn limitations(domain: &Domain) -> Vec<Limitation> {
    let states = domain.counters.thread_states_missing.get();
    let slices = domain.counters.slices_refused.get();
    [
        (slices > 0, Limitation::ShortSlices),
        (states > 0, Limitation::ThreadStates),
        (asleep::are_descriptors_scarce(), Limitation::Descriptors),
        (sleeper::is_barrier_refused(), Limitation::Membarrier),
        (domain.settings.spares_unavailable > 0, Limitation::Spares),
        (domain.slots.refused() > 0, Limitation::Slots),
        (domain.nice_refused(), Limitation::ReversibleNice),
    ]
    .into_iter()
    .filter_map(|(applies, limitation)| applies.then_some(limitation))
    .chain(domain.settings.refused.iter().copied())
    .collect()
}
