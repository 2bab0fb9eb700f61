//! A snapshot of the counters, with tokio's own metrics corrected for held spares.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::RuntimeMetrics;

use crate::api::current;
use crate::domain::Domain;
use crate::report::counters::LatencySummary;
use crate::settings::limitation::Limitation;
use morpheus_system::{asleep, clock, sleeper};

/// The counters of a runtime; see [`Runtime::metrics`](crate::Runtime::metrics). Counts and sums are since
/// the runtime began, unless a field says otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Workers that are always active. It is 1 for a current-thread runtime: the thread in `block_on`.
    pub workers: usize,
    /// Tasks that have not ended: tokio's count without the hold tasks of spares.
    pub alive_tasks: usize,
    /// Tasks that wait in tokio's global queue.
    pub queue_depth: usize,
    /// Time that all workers together spent on anything but waiting, in nanoseconds: tokio's count without
    /// the time for which they were held as spares. It grows when a worker parks, or has had
    /// [`event_interval`](crate::Builder::event_interval) polls.
    pub busy_ns: u64,
    /// The number of times that workers parked.
    pub parks: u64,
    /// Watched polls that were asked to yield.
    pub requests: u64,
    /// Spares released because a worker was stalled or the canary task late: the sum of the next three.
    pub takeovers: u64,
    /// Stalled watched polls that a spare took over from.
    pub takeovers_watched: u64,
    /// Spares released because the canary task was late.
    pub takeovers_canary: u64,
    /// Spares released because the kernel side reported that a worker slept in a poll while work waited.
    pub takeovers_kernel: u64,
    /// Spares released to make or enlarge the reserve, which also grows with workers that sleep in unwatched
    /// polls.
    pub takeovers_reserve: u64,
    /// Spares held again because releasing them had not helped.
    pub taken_back: u64,
    /// Spares held again, for any reason.
    pub holds: u64,
    /// All spares, held and released.
    pub spares: usize,
    /// Spares that are released at this moment.
    pub spares_released: usize,
    /// The maximum number of spares that were released at once.
    pub spares_peak: usize,
    /// Spares that were asked for and could not be started.
    pub spares_unavailable: usize,
    /// The number of times that the last spare was active while more were needed.
    pub spares_exhausted: u64,
    /// Polls that were demoted: they used 5 ms of CPU.
    pub demotions: u64,
    /// Polls whose task was throttled.
    pub throttles: u64,
    /// Tasks that were rated slow.
    pub slow_tasks: u64,
    /// Tasks that were rated CPU hogs.
    pub hog_tasks: u64,
    /// Slow tasks that wait for a permit at this moment.
    pub permits_waiting: usize,
    /// No-op tasks injected to get the I/O driver served.
    pub pokes: u64,
    /// Canary tasks injected.
    pub canaries: u64,
    /// Handoff polls at this moment.
    pub handoffs_now: usize,
    /// The maximum number of handoff polls at once.
    pub handoffs_peak: usize,
    /// All handoff polls.
    pub handoff_polls: u64,
    /// Slow tasks that were polled inline for lack of a thread.
    pub handoffs_refused: u64,
    /// The latency from the release of a spare until it runs.
    pub takeover_latency: LatencySummary,
    /// The latency from an event in the kernel until the controller read it. Empty with the watchdog alone.
    pub detection_latency: LatencySummary,
    /// Events that the kernel side sent.
    pub link_events: u64,
    /// The number of times that the runtime joined a daemon.
    pub links_joined: u64,
    /// The number of times that a daemon ended or stopped responding.
    pub links_lost: u64,
    /// Threads that the kernel side demoted until their poll ended.
    pub kernel_demotions: u64,
    /// Threads that the kernel side throttled.
    pub kernel_throttles: u64,
    /// Workers in unwatched polls that the runtime reported to the kernel side as hogs.
    pub hogs_marked: u64,
    /// The latency from the injection of a canary task until it runs.
    pub canary_lateness: LatencySummary,
    /// CPU time of the controller, in nanoseconds.
    pub controller_cpu_ns: u64,
    /// The number of the controller's samples.
    pub samples: u64,
    /// Age of the controller's last sample, in nanoseconds; before the first sample, the age of the runtime.
    /// It is up to a few milliseconds, and grows while [`controller_sleeps`](Self::controller_sleeps).
    /// Otherwise a larger age means that the controller had no CPU, or is off.
    pub sample_age_ns: u64,
    /// Whether the controller sleeps at this moment, because the runtime is idle.
    pub controller_sleeps: bool,
    /// The number of times that the controller slept without a timeout.
    pub sleeps: u64,
    /// The number of times that the controller's thread restarted after a panic.
    pub controller_restarts: u64,
    /// Whether the controller is off for good: it panicked again within a minute of its third restart. Then
    /// every spare is released, nothing is watched, and the runtime is tokio's with that many workers.
    pub controller_off: bool,
    /// The number of times that the thread that emits the stall events restarted after a panic of its own.
    pub reporter_restarts: u64,
    /// The number of times that the thread that keeps the link to a daemon restarted after a panic.
    pub joiner_restarts: u64,
    /// Events that were dropped because the subscriber was too slow or blocked.
    pub reports_dropped: u64,
    /// Events on which the subscriber panicked.
    pub subscriber_panics: u64,
    /// The features that the runtime would use and does not have.
    pub limitations: Vec<Limitation>,
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

    /// Tasks that have not ended: [`alive_tasks`](Self::alive_tasks) under the name that tokio's metrics use.
    ///
    /// These are the tasks of the application and its libraries, and sometimes the canary task of the
    /// controller. The hold tasks of spares do not count.
    #[must_use]
    pub fn num_alive_tasks(&self) -> usize {
        self.alive_tasks
    }

    /// Tasks that wait in tokio's global queue: [`queue_depth`](Self::queue_depth) under the name that
    /// tokio's metrics use.
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

    /// Tokio's own metrics of the runtime, in which held spares count as workers, as tasks, and as busy.
    /// These are corrected for held spares: [`active_workers`](Self::active_workers),
    /// [`alive_tasks`](Self::alive_tasks), [`busy_ns`](Self::busy_ns).
    #[must_use]
    pub fn tokio(&self) -> &RuntimeMetrics {
        &self.tokio
    }

    pub(crate) fn of(domain: &Domain, tokio: RuntimeMetrics) -> Metrics {
        let counters = &domain.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (handoffs_now, handoffs_peak) = domain.permits.handoffs();
        let takeovers_watched = get(&counters.takeovers_watched);
        let takeovers_canary = get(&counters.takeovers_canary);
        let takeovers_kernel = get(&counters.takeovers_kernel);
        let cores = 0..tokio.num_workers();
        Metrics {
            workers: domain.settings.workers,
            alive_tasks: tokio
                .num_alive_tasks()
                .saturating_sub(domain.spares.hold_tasks()),
            queue_depth: tokio.global_queue_depth(),
            busy_ns: cores
                .clone()
                .map(|core| busy_ns(domain, &tokio, core))
                .sum(),
            parks: cores.map(|core| tokio.worker_park_count(core)).sum(),
            requests: get(&counters.requests),
            takeovers: takeovers_watched + takeovers_canary + takeovers_kernel,
            takeovers_watched,
            takeovers_canary,
            takeovers_kernel,
            takeovers_reserve: get(&counters.takeovers_reserve),
            taken_back: get(&counters.taken_back),
            holds: get(&counters.holds),
            spares: domain.spares.total(),
            spares_released: domain.spares.active(),
            spares_peak: counters.spares_peak.load(Ordering::Relaxed),
            spares_unavailable: domain.settings.spares_unavailable,
            spares_exhausted: get(&counters.spares_exhausted),
            demotions: get(&counters.demotions),
            throttles: get(&counters.throttles),
            slow_tasks: get(&counters.slow_tasks),
            hog_tasks: get(&counters.hog_tasks),
            permits_waiting: domain.permits.waiting(),
            pokes: get(&counters.pokes),
            canaries: get(&counters.canaries),
            handoffs_now,
            handoffs_peak,
            handoff_polls: get(&counters.handoff_polls),
            handoffs_refused: get(&counters.handoffs_refused),
            takeover_latency: counters.takeover_latency.summary(),
            detection_latency: counters.detection_latency.summary(),
            link_events: get(&domain.link.events),
            links_joined: get(&domain.link.joined),
            links_lost: get(&domain.link.lost),
            kernel_demotions: get(&counters.kernel_demotions),
            kernel_throttles: get(&counters.kernel_throttles),
            hogs_marked: get(&counters.hogs_marked),
            canary_lateness: counters.canary_lateness.summary(),
            controller_cpu_ns: get(&counters.controller_cpu_ns),
            samples: get(&counters.samples),
            sample_age_ns: clock::now_ns().saturating_sub(get(&counters.last_sample_ns)),
            controller_sleeps: domain.sleeper.is_asleep(),
            sleeps: get(&counters.sleeps),
            controller_restarts: get(&counters.controller_restarts),
            controller_off: counters.controller_off.load(Ordering::Relaxed),
            reporter_restarts: domain.reports.restarts(),
            joiner_restarts: get(&counters.joiner_restarts),
            reports_dropped: domain.reports.dropped(),
            subscriber_panics: domain.reports.subscriber_panics(),
            limitations: limitations(domain),
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
    let states = domain
        .counters
        .thread_states_missing
        .load(Ordering::Relaxed);
    let slices = domain.counters.slices_refused.load(Ordering::Relaxed);
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
