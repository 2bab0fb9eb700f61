//! Export of the counters under stable names, to the recorder that the application has installed for the
//! `metrics` crate (Prometheus, statsd, …). (Feature `metrics`.)
//!
//! The names and their meaning are stable. `dashboards/morpheus.json` shows all of them, and a test compares
//! the two. The series behind them ([`export_debug`](super::export_debug)) are exported when asked for.

use ::metrics::{Label as Tag, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::api::export_debug;
use crate::api::metrics::Metrics;
use crate::report::counters::LatencySummary;
use crate::report::label::{self, Label, Totals};

/// One time series: its name, its meaning, and its value.
pub(super) struct Series<S> {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) value: Value<S>,
}

pub(super) enum Value<S> {
    /// A value that never falls.
    Counter(fn(&S) -> u64),
    Gauge(fn(&S) -> f64),
}

pub(super) const fn counts<S>(
    name: &'static str,
    help: &'static str,
    get: fn(&S) -> u64,
) -> Series<S> {
    Series {
        name,
        unit: Unit::Count,
        help,
        value: Value::Counter(get),
    }
}

pub(super) const fn gauges<S>(
    name: &'static str,
    help: &'static str,
    get: fn(&S) -> f64,
) -> Series<S> {
    Series {
        name,
        unit: Unit::Count,
        help,
        value: Value::Gauge(get),
    }
}

/// The series of each runtime: the figures that an operator acts on.
static OF_A_RUNTIME: &[Series<Metrics>] = &[
    gauges(
        "morpheus_workers",
        "Workers that are always active",
        |metrics| metrics.workers as f64,
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
    counts(
        "morpheus_spares_exhausted_total",
        "Times that more spares were needed than there are",
        |metrics| metrics.spares_exhausted,
    ),
    counts(
        "morpheus_takeovers_total",
        "Spares released because a worker was stalled or the canary task late",
        |metrics| metrics.takeovers,
    ),
    counts(
        "morpheus_requests_total",
        "Watched polls that were asked to yield",
        |metrics| metrics.requests,
    ),
    counts(
        "morpheus_demotions_total",
        "Hog polls: watched polls that used 5 ms of CPU",
        |metrics| metrics.demotions,
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
    gauges(
        "morpheus_permits_waiting",
        "Slow tasks that wait for a permit",
        |metrics| metrics.permits_waiting as f64,
    ),
    counts(
        "morpheus_links_lost_total",
        "Times that a daemon ended or stopped responding",
        |metrics| metrics.links_lost,
    ),
    counts(
        "morpheus_reports_dropped_total",
        "Events that were dropped because the subscriber was too slow or blocked",
        |metrics| metrics.reports_dropped,
    ),
    gauges(
        "morpheus_controller_off",
        "1 when the controller is off for good after too many panics: nothing is watched any more",
        |metrics| f64::from(u8::from(metrics.controller_off)),
    ),
    gauges(
        "morpheus_limitations",
        "Features that the runtime would use and does not have",
        |metrics| metrics.limitations.len() as f64,
    ),
];

/// A distribution: three quantiles since the runtime began, and the number of values.
pub(super) struct Distribution {
    pub(super) name: &'static str,
    pub(super) count_name: &'static str,
    pub(super) help: &'static str,
    pub(super) get: fn(&Metrics) -> LatencySummary,
}

static DISTRIBUTIONS: &[Distribution] = &[
    Distribution {
        name: "morpheus_takeover_latency_seconds",
        count_name: "morpheus_takeover_latency_count_total",
        help: "Latency from the release of a spare until it runs",
        get: |metrics| metrics.takeover_latency,
    },
    Distribution {
        name: "morpheus_canary_lateness_seconds",
        count_name: "morpheus_canary_lateness_count_total",
        help: "Latency from the injection of a canary task until it runs",
        get: |metrics| metrics.canary_lateness,
    },
];

/// The series of each label that had a stalled poll. A label belongs to the process, so these are totals of
/// all runtimes.
static OF_A_LABEL: &[Series<Totals>] = &[
    counts(
        "morpheus_label_polls_total",
        "Polls under the label, counted in lots",
        |totals| totals.polls.get().max(totals.stalled_polls.get()),
    ),
    counts(
        "morpheus_label_stalled_polls_total",
        "Stalled polls under the label",
        |totals| totals.stalled_polls.get(),
    ),
    counts(
        "morpheus_label_blocked_polls_total",
        "Stalled polls under the label that slept in the kernel",
        |totals| totals.stalled_blocked.get(),
    ),
    counts(
        "morpheus_label_hog_polls_total",
        "Polls under the label that used 5 ms of CPU",
        |totals| totals.hog_polls.get(),
    ),
    Series {
        unit: Unit::Seconds,
        ..gauges(
            "morpheus_label_longest_poll_seconds",
            "The longest poll under the label",
            |totals| seconds(totals.longest_ns.get()),
        )
    },
];

pub(super) fn seconds(ns: u64) -> f64 {
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

/// Describes and publishes the figures of a runtime. Each time both: a recorder may be installed later.
fn publish_runtime(
    metrics: &Metrics,
    series: &[Series<Metrics>],
    distributions: &[Distribution],
    tags: &[Tag],
) {
    for series in series {
        series.describe();
        series.publish(metrics, tags.to_vec());
    }
    for distribution in distributions {
        distribution.describe();
        distribution.publish(metrics, tags);
    }
}

/// Describes and publishes the totals of each label that had a stalled poll.
fn publish_labels() {
    OF_A_LABEL.iter().for_each(Series::describe);
    let has_stalled = |label: &&Label| label.totals.stalled_polls.get() > 0;
    for label in label::all().filter(has_stalled) {
        let tag = Tag::new("label", label.origin().to_string());
        for series in OF_A_LABEL {
            series.publish(&label.totals, vec![tag.clone()]);
        }
    }
}

/// The label that tells several runtimes apart.
fn named(runtime: &str) -> [Tag; 1] {
    [Tag::new("runtime", runtime.to_owned())]
}

impl Metrics {
    /// Passes the figures that an operator acts on to the recorder that is installed for the `metrics` crate,
    /// under the names that `dashboards/morpheus.json` shows in Grafana. (Feature `metrics`.)
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

    /// Publishes the figures of one of several runtimes, with the label `runtime` set to its name.
    pub fn publish_as(&self, runtime: &str) {
        self.publish_with(&named(runtime));
    }

    /// Publishes the figures behind those of [`publish`](Self::publish), which this does not publish again:
    /// [`debug`](Self::debug), and tokio's, corrected for held spares. (Feature `metrics`.)
    ///
    /// Their names begin with `morpheus_debug_`, and come and go with any release. Publish them where you
    /// follow up a fault; `dashboards/morpheus-debug.json` shows them in Grafana.
    ///
    /// ```
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// let metrics = morpheus_runtime::Metrics::current().expect("on a runtime of Morpheus's");
    /// metrics.publish();
    /// metrics.publish_debug();
    /// # }
    /// ```
    pub fn publish_debug(&self) {
        self.publish_debug_with(&[]);
    }

    /// Publishes the figures behind those of one of several runtimes, with the label `runtime` set to its
    /// name.
    pub fn publish_debug_as(&self, runtime: &str) {
        self.publish_debug_with(&named(runtime));
    }

    fn publish_with(&self, tags: &[Tag]) {
        publish_runtime(self, OF_A_RUNTIME, DISTRIBUTIONS, tags);
        publish_labels();
    }

    fn publish_debug_with(&self, tags: &[Tag]) {
        publish_runtime(
            self,
            export_debug::OF_A_RUNTIME,
            export_debug::DISTRIBUTIONS,
            tags,
        );
    }
}
