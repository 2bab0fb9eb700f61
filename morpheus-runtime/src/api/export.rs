//! Export of the counters under stable names, to the recorder that the application has installed for the
//! `metrics` crate (Prometheus, statsd, …). (Feature `metrics`.)
//!
//! The names and their meaning are stable. `dashboards/morpheus.json` shows all of them, and a test compares
//! the two.

use std::sync::atomic::{AtomicU64, Ordering};

use ::metrics::{Label as Tag, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::api::metrics::Metrics;
use crate::report::counters::LatencySummary;
use crate::report::label::{self, Label, Totals};

/// One time series: its name, its meaning, and its value.
struct Series<S> {
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: Value<S>,
}

enum Value<S> {
    /// A value that never falls.
    Counter(fn(&S) -> u64),
    Gauge(fn(&S) -> f64),
}

const fn counts<S>(name: &'static str, help: &'static str, get: fn(&S) -> u64) -> Series<S> {
    Series {
        name,
        unit: Unit::Count,
        help,
        value: Value::Counter(get),
    }
}

const fn nanoseconds<S>(name: &'static str, help: &'static str, get: fn(&S) -> u64) -> Series<S> {
    Series {
        unit: Unit::Nanoseconds,
        ..counts(name, help, get)
    }
}

const fn gauges<S>(name: &'static str, help: &'static str, get: fn(&S) -> f64) -> Series<S> {
    Series {
        name,
        unit: Unit::Count,
        help,
        value: Value::Gauge(get),
    }
}

/// The series of each runtime.
static OF_A_RUNTIME: &[Series<Metrics>] = &[
    gauges(
        "morpheus_workers",
        "Workers that are always active",
        |metrics| metrics.workers as f64,
    ),
    gauges(
        "morpheus_active_workers",
        "Active workers: those that always are, and released spares",
        |metrics| metrics.active_workers() as f64,
    ),
    gauges(
        "morpheus_spares",
        "All spares, held and released",
        |metrics| metrics.spares as f64,
    ),
    gauges(
        "morpheus_spares_released",
        "Spares that are released",
        |metrics| metrics.spares_released as f64,
    ),
    gauges(
        "morpheus_spares_peak",
        "The maximum number of spares that were released at once",
        |metrics| metrics.spares_peak as f64,
    ),
    gauges(
        "morpheus_spares_unavailable",
        "Spares that were asked for and could not be started",
        |metrics| metrics.spares_unavailable as f64,
    ),
    counts(
        "morpheus_spares_exhausted_total",
        "Times that the last spare was active while more were needed",
        |metrics| metrics.spares_exhausted,
    ),
    counts(
        "morpheus_requests_total",
        "Watched polls that were asked to yield",
        |metrics| metrics.requests,
    ),
    counts(
        "morpheus_takeovers_watched_total",
        "Stalled watched polls that a spare took over from",
        |metrics| metrics.takeovers_watched,
    ),
    counts(
        "morpheus_takeovers_canary_total",
        "Spares released because the canary task was late",
        |metrics| metrics.takeovers_canary,
    ),
    counts(
        "morpheus_takeovers_kernel_total",
        "Spares released because the kernel side reported that a worker slept in a poll while work waited",
        |metrics| metrics.takeovers_kernel,
    ),
    counts(
        "morpheus_takeovers_reserve_total",
        "Spares released to make or enlarge the reserve",
        |metrics| metrics.takeovers_reserve,
    ),
    counts(
        "morpheus_taken_back_total",
        "Spares held again because releasing them had not helped",
        |metrics| metrics.taken_back,
    ),
    counts(
        "morpheus_holds_total",
        "Spares held again, for any reason",
        |metrics| metrics.holds,
    ),
    counts(
        "morpheus_demotions_total",
        "Polls that were demoted: they used 5 ms of CPU",
        |metrics| metrics.demotions,
    ),
    counts(
        "morpheus_throttles_total",
        "Polls whose task was throttled",
        |metrics| metrics.throttles,
    ),
    counts(
        "morpheus_kernel_demotions_total",
        "Threads that the kernel side demoted until their poll ended",
        |metrics| metrics.kernel_demotions,
    ),
    counts(
        "morpheus_kernel_throttles_total",
        "Threads that the kernel side throttled",
        |metrics| metrics.kernel_throttles,
    ),
    counts(
        "morpheus_hogs_marked_total",
        "Workers in unwatched polls that the runtime reported to the kernel side as hogs",
        |metrics| metrics.hogs_marked,
    ),
    counts(
        "morpheus_slow_tasks_total",
        "Tasks that were rated slow",
        |metrics| metrics.slow_tasks,
    ),
    counts(
        "morpheus_hog_tasks_total",
        "Tasks that were rated CPU hogs",
        |metrics| metrics.hog_tasks,
    ),
    gauges(
        "morpheus_permits_waiting",
        "Slow tasks that wait for a permit",
        |metrics| metrics.permits_waiting as f64,
    ),
    gauges("morpheus_handoffs", "Handoff polls", |metrics| {
        metrics.handoffs_now as f64
    }),
    gauges(
        "morpheus_handoffs_peak",
        "The maximum number of handoff polls at once",
        |metrics| metrics.handoffs_peak as f64,
    ),
    counts(
        "morpheus_handoff_polls_total",
        "All handoff polls",
        |metrics| metrics.handoff_polls,
    ),
    counts(
        "morpheus_handoffs_refused_total",
        "Slow tasks that were polled inline for lack of a thread",
        |metrics| metrics.handoffs_refused,
    ),
    counts(
        "morpheus_canaries_total",
        "Canary tasks injected",
        |metrics| metrics.canaries,
    ),
    counts(
        "morpheus_pokes_total",
        "No-op tasks injected to get the I/O driver served",
        |metrics| metrics.pokes,
    ),
    counts(
        "morpheus_link_events_total",
        "Events that the kernel side sent",
        |metrics| metrics.link_events,
    ),
    counts(
        "morpheus_links_joined_total",
        "Times that the runtime joined a daemon",
        |metrics| metrics.links_joined,
    ),
    counts(
        "morpheus_links_lost_total",
        "Times that a daemon ended or stopped responding",
        |metrics| metrics.links_lost,
    ),
    gauges(
        "morpheus_limitations",
        "Features that the runtime would use and does not have",
        |metrics| metrics.limitations.len() as f64,
    ),
    nanoseconds(
        "morpheus_controller_cpu_nanoseconds_total",
        "CPU time of the controller",
        |metrics| metrics.controller_cpu_ns,
    ),
    counts(
        "morpheus_controller_samples_total",
        "Samples of the controller",
        |metrics| metrics.samples,
    ),
    Series {
        unit: Unit::Seconds,
        ..gauges(
            "morpheus_controller_sample_age_seconds",
            "Age of the controller's last sample; 0 while it sleeps because the runtime is idle",
            |metrics| match metrics.controller_sleeps {
                true => 0.0,
                false => seconds(metrics.sample_age_ns),
            },
        )
    },
    counts(
        "morpheus_controller_restarts_total",
        "Times that the controller's thread restarted after a panic",
        |metrics| metrics.controller_restarts,
    ),
    gauges(
        "morpheus_controller_off",
        "1 when the controller is off for good after too many panics: nothing is watched any more",
        |metrics| f64::from(u8::from(metrics.controller_off)),
    ),
    counts(
        "morpheus_reporter_restarts_total",
        "Times that the thread that emits the stall events restarted after a panic of its own",
        |metrics| metrics.reporter_restarts,
    ),
    counts(
        "morpheus_joiner_restarts_total",
        "Times that the thread that keeps the link to a daemon restarted after a panic",
        |metrics| metrics.joiner_restarts,
    ),
    counts(
        "morpheus_reports_dropped_total",
        "Events that were dropped because the subscriber was too slow or blocked",
        |metrics| metrics.reports_dropped,
    ),
    counts(
        "morpheus_subscriber_panics_total",
        "Events on which the subscriber panicked",
        |metrics| metrics.subscriber_panics,
    ),
    counts(
        "morpheus_controller_sleeps_total",
        "Times that the controller slept without a timeout",
        |metrics| metrics.sleeps,
    ),
    gauges(
        "morpheus_alive_tasks",
        "Tasks that have not ended: tokio's count without the hold tasks of spares",
        |metrics| metrics.alive_tasks as f64,
    ),
    gauges(
        "morpheus_queue_depth",
        "Tasks that wait in tokio's global queue",
        |metrics| metrics.queue_depth as f64,
    ),
    nanoseconds(
        "morpheus_busy_nanoseconds_total",
        "Time that workers spent on anything but waiting: tokio's count without the time held as spares",
        |metrics| metrics.busy_ns,
    ),
    counts(
        "morpheus_parks_total",
        "Times that workers parked",
        |metrics| metrics.parks,
    ),
];

/// A distribution: three quantiles since the runtime began, and the number of values.
struct Distribution {
    name: &'static str,
    count_name: &'static str,
    help: &'static str,
    get: fn(&Metrics) -> LatencySummary,
}

static DISTRIBUTIONS: &[Distribution] = &[
    Distribution {
        name: "morpheus_takeover_latency_seconds",
        count_name: "morpheus_takeover_latency_count_total",
        help: "Latency from the release of a spare until it runs",
        get: |metrics| metrics.takeover_latency,
    },
    Distribution {
        name: "morpheus_detection_latency_seconds",
        count_name: "morpheus_detection_latency_count_total",
        help: "Latency from an event in the kernel until the controller read it",
        get: |metrics| metrics.detection_latency,
    },
    Distribution {
        name: "morpheus_canary_lateness_seconds",
        count_name: "morpheus_canary_lateness_count_total",
        help: "Latency from the injection of a canary task until it runs",
        get: |metrics| metrics.canary_lateness,
    },
];

fn get(total: &AtomicU64) -> u64 {
    // Relaxed: a statistic.
    total.load(Ordering::Relaxed)
}

/// The series of each label that had a stalled poll. A label belongs to the process, so these are totals of
/// all runtimes.
static OF_A_LABEL: &[Series<Totals>] = &[
    counts(
        "morpheus_label_polls_total",
        "Polls under the label, counted in lots",
        |totals| get(&totals.polls).max(get(&totals.stalled_polls)),
    ),
    counts(
        "morpheus_label_stalled_polls_total",
        "Stalled polls under the label",
        |totals| get(&totals.stalled_polls),
    ),
    counts(
        "morpheus_label_blocked_polls_total",
        "Stalled polls under the label that slept in the kernel",
        |totals| get(&totals.stalled_blocked),
    ),
    counts(
        "morpheus_label_hog_polls_total",
        "Polls under the label that used 5 ms of CPU",
        |totals| get(&totals.hog_polls),
    ),
    Series {
        unit: Unit::Seconds,
        ..gauges(
            "morpheus_label_longest_poll_seconds",
            "The longest poll under the label",
            |totals| seconds(get(&totals.longest_ns)),
        )
    },
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl<S> Series<S> {
    fn describe(&self) {
        match self.value {
            Value::Counter(_) => describe_counter!(self.name, self.unit, self.help),
            Value::Gauge(_) => describe_gauge!(self.name, self.unit, self.help),
        }
    }

    fn publish(&self, source: &S, tags: Vec<Tag>) {
        match self.value {
            Value::Counter(value) => counter!(self.name, tags).absolute(value(source)),
            Value::Gauge(value) => gauge!(self.name, tags).set(value(source)),
        }
    }
}

impl Distribution {
    fn describe(&self) {
        describe_gauge!(self.name, Unit::Seconds, self.help);
        describe_counter!(self.count_name, Unit::Count, self.help);
    }

    fn publish(&self, metrics: &Metrics, tags: &[Tag]) {
        let summary = (self.get)(metrics);
        for (quantile, ns) in [
            ("0.5", summary.p50_ns),
            ("0.99", summary.p99_ns),
            ("1", summary.max_ns),
        ] {
            let quantile = Tag::from_static_parts("quantile", quantile);
            let tags: Vec<Tag> = tags.iter().cloned().chain([quantile]).collect();
            gauge!(self.name, tags).set(seconds(ns));
        }
        counter!(self.count_name, tags.to_vec()).absolute(summary.count);
    }
}

fn describe() {
    OF_A_RUNTIME.iter().for_each(Series::describe);
    OF_A_LABEL.iter().for_each(Series::describe);
    DISTRIBUTIONS.iter().for_each(Distribution::describe);
}

impl Metrics {
    /// Passes the counters to the recorder that is installed for the `metrics` crate, under the names that
    /// `dashboards/morpheus.json` shows in Grafana. (Feature `metrics`.)
    ///
    /// The runtime publishes nothing by itself, so that it can sleep while it is idle. Call this before your
    /// exporter answers, or, for an exporter that pushes, whenever it pushes.
    ///
    /// ```
    /// # use morpheus_runtime::Metrics;
    /// # fn render() -> String { String::new() } // that of the exporter's handle
    /// // The handler of `/metrics`.
    /// async fn show() -> String {
    ///     if let Some(metrics) = Metrics::current() {
    ///         metrics.publish();
    ///     }
    ///     render()
    /// }
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() { show().await; }
    /// ```
    ///
    /// Labels that had a stalled poll have five series each; the others have none. They are totals of all
    /// runtimes of the process.
    pub fn publish(&self) {
        self.publish_with(&[]);
    }

    /// Publishes the counters of one of several runtimes, with the label `runtime` set to its name.
    pub fn publish_as(&self, runtime: &str) {
        self.publish_with(&[Tag::new("runtime", runtime.to_owned())]);
    }

    fn publish_with(&self, tags: &[Tag]) {
        // Each time: a recorder may be installed later.
        describe();
        for series in OF_A_RUNTIME {
            series.publish(self, tags.to_vec());
        }
        for distribution in DISTRIBUTIONS {
            distribution.publish(self, tags);
        }
        let has_stalled = |label: &&Label| get(&label.totals.stalled_polls) > 0;
        for label in label::all().filter(has_stalled) {
            let tag = Tag::new("label", label.origin().to_string());
            for series in OF_A_LABEL {
                series.publish(&label.totals, vec![tag.clone()]);
            }
        }
    }
}
