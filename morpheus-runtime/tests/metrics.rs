//! Tests the series for the `metrics` crate: their names are those of the dashboard, their values those of the runtime,
//! and held spares are left out of tokio's.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Gate, MS, PATIENCE, alone, fresh_label, in_time, wait_for};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use morpheus_runtime::{Builder, Mechanism, Metrics, Runtime, Watch as _};

/// Keeps the last value of each series; a name tells a counter from a gauge.
#[derive(Default)]
struct Kept {
    values: Mutex<BTreeMap<String, Arc<Cell>>>,
    described: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Cell(AtomicU64);

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        unreachable!("totals are published as they are");
    }

    fn absolute(&self, value: u64) {
        self.0.store((value as f64).to_bits(), Ordering::SeqCst);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        unreachable!("as above");
    }

    fn decrement(&self, _: f64) {
        unreachable!("as above");
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::SeqCst);
    }
}

impl Kept {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let tags: Vec<String> = key
            .labels()
            .map(|tag| format!("{}={}", tag.key(), tag.value()))
            .collect();
        let series = format!("{} {}", key.name(), tags.join(","));
        let mut values = self.values.lock().unwrap();
        values
            .entry(series.trim_end().to_owned())
            .or_default()
            .clone()
    }

    /// Returns the value of a series, given as its name and, after a blank, its tags.
    fn value(&self, series: &str) -> Option<f64> {
        let values = self.values.lock().unwrap();
        let cell = values.get(series)?;
        Some(f64::from_bits(cell.0.load(Ordering::SeqCst)))
    }

    fn names(&self) -> BTreeSet<String> {
        let values = self.values.lock().unwrap();
        let name = |series: &String| series.split(' ').next().unwrap_or_default().to_owned();
        values.keys().map(name).collect()
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        assert!(!help.is_empty());
        self.described
            .lock()
            .unwrap()
            .insert(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe_counter(key, unit, help);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("{} is a histogram", key.as_str());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        assert!(key.name().ends_with("_total"), "{key}");
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        assert!(!key.name().ends_with("_total"), "{key}");
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key} is a histogram");
    }
}

fn published(metrics: &Metrics) -> Kept {
    recorded(|| metrics.publish())
}

/// Returns what `publish` passes to a recorder.
fn recorded(publish: impl FnOnce()) -> Kept {
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, publish);
    kept
}

fn runtime(workers: usize, spares: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(workers)
        .max_spares(spares)
        .reserve(1);
    builder.build().unwrap()
}

/// Makes a label known for a stalled poll.
fn get_stalled(runtime: &Runtime, label: &'static str) {
    let stalled = async { std::thread::sleep(100 * MS) };
    let task = runtime.handle().spawn(stalled.watched(label));
    runtime.block_on(in_time(task)).unwrap();
}

/// Returns all words in a text that are names of series of Morpheus.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    let ours = words.filter(|word| word.starts_with("morpheus_"));
    ours.map(str::to_owned).collect()
}

/// Checks that a dashboard shows all series of `kept`, and no other, in panels of different numbers.
fn assert_shown_by(name: &str, kept: &Kept) {
    let published = kept.names();
    assert_eq!(published, *kept.described.lock().unwrap());
    let path = format!("{}/../dashboards/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(!targets.is_empty() || panel["type"] == "row", "{panel}");
        for target in targets {
            let names = names_in(target["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{target}");
            shown.extend(names);
        }
    }
    assert_eq!(shown, published);
    // Also in the queries that fill its menus.
    let anywhere = names_in(&text);
    assert!(anywhere.is_subset(&published), "{anywhere:?}");
}

#[test]
fn the_dashboards_show_what_is_published_and_nothing_else() {
    let _alone = alone();
    let runtime = runtime(1, 4);
    get_stalled(&runtime, fresh_label("dashboard"));
    let metrics = runtime.metrics();
    let stable = published(&metrics);
    let debug = recorded(|| metrics.publish_debug());
    assert_shown_by("morpheus.json", &stable);
    assert_shown_by("morpheus-debug.json", &debug);
    assert!(stable.names().is_disjoint(&debug.names()));
    let of_runtime = |name: &&String| !name.contains("_label_") && !name.contains("_count_");
    let figures = stable.names().iter().filter(of_runtime).count();
    assert!(figures <= 16, "an operator reads these: {figures}");
}

/// The guide explains each figure that an operator reads, and no other.
#[test]
fn the_guide_explains_each_metric() {
    let _alone = alone();
    let runtime = runtime(1, 4);
    get_stalled(&runtime, fresh_label("guide"));
    let kept = published(&runtime.metrics());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let published = kept.names();
    let is_series = |name: &String| !["morpheus_runtime", "morpheus_debug_"].contains(&&**name);
    let explained: BTreeSet<String> = names_in(&text).into_iter().filter(is_series).collect();
    assert_eq!(explained, published);
}

#[test]
fn the_figures_are_the_runtime_s() {
    let _alone = alone();
    let label = fresh_label("figures");
    let runtime = runtime(2, 6);
    get_stalled(&runtime, label);
    let metrics = runtime.metrics();
    let kept = published(&metrics);
    assert_eq!(kept.value("morpheus_workers"), Some(2.0));
    assert_eq!(kept.value("morpheus_spares"), Some(6.0));
    let takeovers = kept.value("morpheus_takeovers_total").unwrap();
    assert_eq!(takeovers, metrics.takeovers as f64);
    assert!(takeovers >= 1.0);
    let debug = recorded(|| metrics.publish_debug());
    let active = debug.value("morpheus_debug_active_workers").unwrap();
    assert_eq!(active, metrics.active_workers() as f64);
    let watched = debug
        .value("morpheus_debug_takeovers_watched_total")
        .unwrap();
    assert_eq!(watched, metrics.debug.takeovers_watched as f64);
    assert!(watched >= 1.0);
    let longest = format!("morpheus_label_longest_poll_seconds label={label}");
    assert!(kept.value(&longest).unwrap() > 0.0);
    let median = "morpheus_canary_lateness_seconds quantile=0.5";
    assert!(kept.value(median).is_some());
}

#[test]
fn labels_that_were_never_stalled_have_no_series() {
    let _alone = alone();
    let label = fresh_label("harmless");
    let runtime = runtime(1, 4);
    let task = runtime.handle().spawn(async {}.watched(label));
    runtime.block_on(in_time(task)).unwrap();
    let kept = published(&runtime.metrics());
    let series = format!("morpheus_label_polls_total label={label}");
    assert_eq!(kept.value(&series), None);
}

#[test]
fn each_runtime_has_series_of_its_own() {
    let _alone = alone();
    let kept = Kept::default();
    for (workers, name) in [(1, "front"), (2, "back")] {
        let runtime = runtime(workers, 1);
        metrics::with_local_recorder(&kept, || runtime.metrics().publish_as(name));
    }
    assert_eq!(kept.value("morpheus_workers runtime=front"), Some(1.0));
    assert_eq!(kept.value("morpheus_workers runtime=back"), Some(2.0));
}

#[test]
fn a_task_finds_the_metrics_of_its_own_runtime() {
    let _alone = alone();
    assert!(Metrics::current().is_none());
    let (one, two) = (runtime(1, 1), runtime(2, 1));
    for (runtime, workers) in [(&one, 1), (&two, 2)] {
        let task = runtime.spawn(async { Metrics::current().map(|metrics| metrics.workers) });
        assert_eq!(runtime.block_on(in_time(task)).unwrap(), Some(workers));
        let here = runtime.block_on(async { Metrics::current().map(|metrics| metrics.workers) });
        assert_eq!(here, Some(workers));
    }
    let plain = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert!(plain.block_on(async { Metrics::current() }).is_none());
}

#[test]
fn held_spares_are_no_tasks_and_no_active_workers() {
    let _alone = alone();
    let runtime = runtime(2, 8);
    let gate = Arc::new(tokio::sync::Notify::new());
    let waiting = gate.clone();
    let task = runtime.spawn(async move { waiting.notified().await });
    // One spare is in reserve; the others are held, and tokio takes them for tasks and workers.
    let settled = || {
        let metrics = runtime.metrics();
        metrics.spares_released == 1 && metrics.num_alive_tasks() == 1
    };
    assert!(wait_for(PATIENCE, settled), "{:?}", runtime.metrics());
    let metrics = runtime.metrics();
    assert_eq!(metrics.active_workers(), 3);
    assert_eq!((metrics.num_workers(), metrics.num_alive_tasks()), (2, 1));
    // Two workers, eight spares, and the one that is held until the runtime ends.
    assert_eq!(metrics.tokio().num_workers(), 11);
    assert!(metrics.tokio().num_alive_tasks() > 1);
    // The metrics of tokio count them, as `Runtime::handle` warns.
    let from_tokio = runtime.handle().metrics();
    assert_eq!(from_tokio.num_workers(), 11);
    assert!(from_tokio.num_alive_tasks() > 1);
    gate.notify_one();
    runtime.block_on(in_time(task)).unwrap();
}

#[test]
fn tasks_that_wait_for_a_worker_count_as_in_tokio() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(0)
        .without(Mechanism::Canary)
        .without(Mechanism::Poke)
        .watch_every_task(false)
        .build()
        .unwrap();
    let gate = Gate::default();
    let (held, held_up) = (gate.clone(), Gate::default());
    let begun = held_up.clone();
    let blocker = runtime.handle().spawn(async move {
        begun.open();
        held.wait();
    });
    held_up.wait();
    let waiting: Vec<_> = (0..3).map(|_| runtime.handle().spawn(async {})).collect();
    let metrics = runtime.metrics();
    assert_eq!(metrics.global_queue_depth(), 3);
    assert_eq!((metrics.num_workers(), metrics.num_alive_tasks()), (1, 4));
    gate.open();
    for task in waiting.into_iter().chain([blocker]) {
        runtime.block_on(in_time(task)).unwrap();
    }
    assert_eq!(runtime.metrics().global_queue_depth(), 0);
}

#[test]
fn the_time_held_is_not_time_busy() {
    let _alone = alone();
    const HELD: Duration = Duration::from_millis(600);
    let runtime = runtime(1, 4);
    std::thread::sleep(HELD);
    // Stalled polls release all spares, and tokio learns how long the spares were held.
    let gate = Gate::default();
    for _ in 0..2 {
        let gate = gate.clone();
        runtime.handle().spawn(async move { gate.wait() });
    }
    let tokio_busy = || {
        let metrics = runtime.metrics();
        let tokio = metrics.tokio();
        let all = (0..tokio.num_workers()).map(|core| tokio.worker_total_busy_duration(core));
        all.sum::<Duration>()
    };
    assert!(
        wait_for(PATIENCE, || tokio_busy() >= 2 * HELD),
        "{:?}",
        tokio_busy()
    );
    gate.open();
    let busy = runtime.metrics().total_busy_duration();
    assert!(busy + HELD < tokio_busy(), "{busy:?} of {:?}", tokio_busy());
}
