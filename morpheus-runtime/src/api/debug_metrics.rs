//! A snapshot of the figures behind those of [`Metrics`](crate::Metrics).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::Domain;
use crate::report::counters::LatencySummary;
use morpheus_system::clock;

/// The figures behind [`Metrics`](crate::Metrics), reached as [`Metrics::debug`](crate::Metrics::debug): for
/// bug reports and for Morpheus's own tests. Fields come and go with any release. (Feature `metrics`.)
///
/// Counts are since the runtime began.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DebugMetrics {
    /// Stalled watched polls that a spare took over from.
    pub takeovers_watched: u64,
    /// Spares released because the canary task was late.
    pub takeovers_canary: u64,
    /// Spares released because the kernel side reported that a worker slept in a poll while work waited. A watched poll
    /// counts here and, once it is stalled, in [`takeovers_watched`](Self::takeovers_watched).
    pub takeovers_kernel: u64,
    /// Spares released to make or enlarge the reserve, which also grows with workers that sleep in unwatched
    /// polls. They are not counted in [`Metrics::takeovers`](crate::Metrics::takeovers).
    pub takeovers_reserve: u64,
    /// Spares held again because releasing them had not helped.
    pub taken_back: u64,
    /// Spares held again, for any reason.
    pub holds: u64,
    /// The maximum number of spares that were released at once.
    pub spares_peak: usize,
    /// Spares that were asked for and could not be started.
    pub spares_unavailable: usize,
    /// Polls whose task was throttled.
    pub throttles: u64,
    /// Tasks that were rated slow.
    pub slow_tasks: u64,
    /// Tasks that were rated CPU hogs.
    pub hog_tasks: u64,
    /// No-op tasks injected to get the I/O driver served.
    pub pokes: u64,
    /// Canary tasks injected.
    pub canaries: u64,
    /// Handoff polls at this moment.
    pub handoffs_now: usize,
    /// The maximum number of handoff polls at once.
    pub handoffs_peak: usize,
    /// The latency from an event in the kernel until the controller read it, in nanoseconds. Empty with the
    /// watchdog alone.
    pub detection_latency: LatencySummary,
    /// Events that the kernel side sent.
    pub link_events: u64,
    /// The number of times that the runtime joined a daemon.
    pub links_joined: u64,
    /// Threads that the kernel side demoted until their poll ended.
    pub kernel_demotions: u64,
    /// Threads that the kernel side throttled.
    pub kernel_throttles: u64,
    /// Workers in unwatched polls that the runtime reported to the kernel side as hogs.
    pub hogs_marked: u64,
    /// Polls of CPU hogs whose threads were confined to a part of the CPUs, since the start. Each counts again where it was
    /// released meanwhile.
    pub hogs_confined: u64,
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
    /// The number of times that the thread that emits the stall events restarted after a panic of its own.
    pub reporter_restarts: u64,
    /// The number of times that the thread that keeps the link to a daemon restarted after a panic.
    pub joiner_restarts: u64,
    /// Stall events on which the subscriber panicked.
    pub subscriber_panics: u64,
}

impl DebugMetrics {
    pub(crate) fn of(domain: &Domain) -> DebugMetrics {
        let counters = &domain.counters;
        // Relaxed: statistics order nothing.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (handoffs_now, handoffs_peak) = domain.permits.handoffs();
        DebugMetrics {
            takeovers_watched: counters.takeovers_watched.get(),
            takeovers_canary: counters.takeovers_canary.get(),
            takeovers_kernel: counters.takeovers_kernel.get(),
            takeovers_reserve: counters.takeovers_reserve.get(),
            taken_back: counters.taken_back.get(),
            holds: counters.holds.get(),
            spares_peak: counters.spares_peak.get() as usize,
            spares_unavailable: domain.settings.spares_unavailable,
            throttles: counters.throttles.get(),
            slow_tasks: counters.slow_tasks.get(),
            hog_tasks: counters.hog_tasks.get(),
            pokes: counters.pokes.get(),
            canaries: counters.canaries.get(),
            handoffs_now,
            handoffs_peak,
            detection_latency: counters.detection_latency.summary(),
            link_events: get(&domain.link.events),
            links_joined: get(&domain.link.joined),
            kernel_demotions: counters.kernel_demotions.get(),
            kernel_throttles: counters.kernel_throttles.get(),
            hogs_marked: counters.hogs_marked.get(),
            hogs_confined: counters.hogs_confined.get(),
            controller_cpu_ns: counters.controller_cpu_ns.get(),
            samples: counters.samples.get(),
            sample_age_ns: clock::now_ns().saturating_sub(counters.last_sample_ns.get()),
            controller_sleeps: domain.sleeper.is_asleep(),
            sleeps: counters.sleeps.get(),
            controller_restarts: counters.controller_restarts.get(),
            reporter_restarts: domain.reports.restarts(),
            joiner_restarts: counters.joiner_restarts.get(),
            subscriber_panics: domain.reports.subscriber_panics(),
        }
    }
}
