//! The series behind the stable ones, which [`Metrics::publish_debug`] exports. (Feature `metrics`.)
//!
//! Their names begin with `morpheus_debug_`. They come and go with any release, as the fields of
//! [`DebugMetrics`](crate::DebugMetrics) do. `dashboards/morpheus-debug.json` shows all of them.

use ::metrics::Unit;

use crate::api::export::{Distribution, Series, counts, gauges, seconds};
use crate::api::metrics::Metrics;
use morpheus_system::clock;

const fn nanoseconds<S>(name: &'static str, help: &'static str, get: fn(&S) -> u64) -> Series<S> {
    Series {
        unit: Unit::Nanoseconds,
        ..counts(name, help, get)
    }
}

/// The series of each runtime: the figures of [`DebugMetrics`](crate::DebugMetrics), and tokio's, corrected for
/// held spares.
pub(super) static OF_A_RUNTIME: &[Series<Metrics>] = &[
    gauges(
        "morpheus_debug_active_workers",
        "Active workers: those that always are, and released spares",
        |metrics| metrics.active_workers() as f64,
    ),
    gauges(
        "morpheus_debug_spares_peak",
        "The maximum number of spares that were released at once",
        |metrics| metrics.debug.spares_peak as f64,
    ),
    gauges(
        "morpheus_debug_spares_unavailable",
        "Spares that were asked for and could not be started",
        |metrics| metrics.debug.spares_unavailable as f64,
    ),
    counts(
        "morpheus_debug_takeovers_watched_total",
        "Stalled watched polls that a spare took over from",
        |metrics| metrics.debug.takeovers_watched,
    ),
    counts(
        "morpheus_debug_takeovers_canary_total",
        "Spares released because the canary task was late",
        |metrics| metrics.debug.takeovers_canary,
    ),
    counts(
        "morpheus_debug_takeovers_kernel_total",
        "Spares released because the kernel side reported that a worker slept in a poll while work waited",
        |metrics| metrics.debug.takeovers_kernel,
    ),
    counts(
        "morpheus_debug_takeovers_reserve_total",
        "Spares released to make or enlarge the reserve",
        |metrics| metrics.debug.takeovers_reserve,
    ),
    counts(
        "morpheus_debug_taken_back_total",
        "Spares held again because releasing them had not helped",
        |metrics| metrics.debug.taken_back,
    ),
    counts(
        "morpheus_debug_holds_total",
        "Spares held again, for any reason",
        |metrics| metrics.debug.holds,
    ),
    counts(
        "morpheus_debug_throttles_total",
        "Polls whose task was throttled",
        |metrics| metrics.debug.throttles,
    ),
    counts(
        "morpheus_debug_kernel_demotions_total",
        "Threads that the kernel side demoted until their poll ended",
        |metrics| metrics.debug.kernel_demotions,
    ),
    counts(
        "morpheus_debug_kernel_throttles_total",
        "Threads that the kernel side throttled",
        |metrics| metrics.debug.kernel_throttles,
    ),
    counts(
        "morpheus_debug_hogs_marked_total",
        "Workers in unwatched polls that the runtime reported to the kernel side as hogs",
        |metrics| metrics.debug.hogs_marked,
    ),
    counts(
        "morpheus_debug_hogs_confined_total",
        "Polls of CPU hogs whose threads were confined to half of the CPUs",
        |metrics| metrics.debug.hogs_confined,
    ),
    counts(
        "morpheus_debug_slow_tasks_total",
        "Tasks that were rated slow",
        |metrics| metrics.debug.slow_tasks,
    ),
    counts(
        "morpheus_debug_hog_tasks_total",
        "Tasks that were rated CPU hogs",
        |metrics| metrics.debug.hog_tasks,
    ),
    gauges("morpheus_debug_handoffs", "Handoff polls", |metrics| {
        metrics.debug.handoffs_now as f64
    }),
    gauges(
        "morpheus_debug_handoffs_peak",
        "The maximum number of handoff polls at once",
        |metrics| metrics.debug.handoffs_peak as f64,
    ),
    counts(
        "morpheus_debug_canaries_total",
        "Canary tasks injected",
        |metrics| metrics.debug.canaries,
    ),
    counts(
        "morpheus_debug_pokes_total",
        "No-op tasks injected to get the I/O driver served",
        |metrics| metrics.debug.pokes,
    ),
    counts(
        "morpheus_debug_link_events_total",
        "Events that the kernel side sent",
        |metrics| metrics.debug.link_events,
    ),
    counts(
        "morpheus_debug_links_joined_total",
        "Times that the runtime joined a daemon",
        |metrics| metrics.debug.links_joined,
    ),
    nanoseconds(
        "morpheus_debug_controller_cpu_nanoseconds_total",
        "CPU time of the controller",
        |metrics| metrics.debug.controller_cpu_ns,
    ),
    counts(
        "morpheus_debug_controller_samples_total",
        "Samples of the controller",
        |metrics| metrics.debug.samples,
    ),
    Series {
        unit: Unit::Seconds,
        ..gauges(
            "morpheus_debug_controller_sample_age_seconds",
            "Age of the controller's last sample; 0 while it sleeps because the runtime is idle",
            |metrics| match metrics.debug.controller_sleeps {
                true => 0.0,
                false => seconds(metrics.debug.sample_age_ns),
            },
        )
    },
    counts(
        "morpheus_debug_controller_restarts_total",
        "Times that the controller's thread restarted after a panic",
        |metrics| metrics.debug.controller_restarts,
    ),
    counts(
        "morpheus_debug_reporter_restarts_total",
        "Times that the thread that emits the stall events restarted after a panic of its own",
        |metrics| metrics.debug.reporter_restarts,
    ),
    counts(
        "morpheus_debug_joiner_restarts_total",
        "Times that the thread that keeps the link to a daemon restarted after a panic",
        |metrics| metrics.debug.joiner_restarts,
    ),
    counts(
        "morpheus_debug_subscriber_panics_total",
        "Events on which the subscriber panicked",
        |metrics| metrics.debug.subscriber_panics,
    ),
    counts(
        "morpheus_debug_controller_sleeps_total",
        "Times that the controller slept without a timeout",
        |metrics| metrics.debug.sleeps,
    ),
    gauges(
        "morpheus_debug_alive_tasks",
        "Tasks that have not ended: tokio's count without the hold tasks of spares",
        |metrics| metrics.num_alive_tasks() as f64,
    ),
    gauges(
        "morpheus_debug_queue_depth",
        "Tasks that wait in tokio's global queue",
        |metrics| metrics.global_queue_depth() as f64,
    ),
    nanoseconds(
        "morpheus_debug_busy_nanoseconds_total",
        "Time that workers spent on anything but waiting: tokio's count without the time held as spares",
        |metrics| clock::nanos(metrics.total_busy_duration()),
    ),
    counts(
        "morpheus_debug_parks_total",
        "Times that workers parked",
        |metrics| metrics.total_park_count(),
    ),
];

pub(super) static DISTRIBUTIONS: &[Distribution] = &[Distribution {
    name: "morpheus_debug_detection_latency_seconds",
    count_name: "morpheus_debug_detection_latency_count_total",
    help: "Latency from an event in the kernel until the controller read it",
    get: |metrics| metrics.debug.detection_latency,
}];
