//! Tests spans of tracing: a task keeps its own, whichever worker polls it and whichever tasks that worker also has.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use morpheus_ecosystem::{PATIENCE, Scene, in_time, neighbour};
use tracing::field::{Field, Visit};
use tracing::{Event, Instrument as _, Subscriber, info, info_span, instrument, span};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, registry};

/// An event, with the spans around it from the outermost on.
#[derive(Clone, Debug)]
struct Seen {
    target: &'static str,
    fields: BTreeMap<&'static str, String>,
    spans: Vec<String>,
}

/// The events that this process's subscriber has seen.
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

struct Recorder;

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, new: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        new.record(&mut fields);
        let span = context.span(id).expect("it is new");
        let values: Vec<_> = fields.0.into_values().collect();
        let text = format!("{} {}", span.name(), values.join(" "));
        span.extensions_mut().insert(text);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = context.event_scope(event).into_iter();
        let spans = spans.flat_map(|scope| scope.from_root());
        let spans = spans.filter_map(|span| span.extensions().get::<String>().cloned());
        let seen = Seen {
            target: event.metadata().target(),
            fields: fields.0,
            spans: spans.collect(),
        };
        SEEN.lock().unwrap().push(seen);
    }
}

/// Makes the recorder the process's subscriber: the stall reports come from a thread of the runtime.
fn record() {
    static ONCE: OnceLock<()> = OnceLock::new();
    let ours = tracing_subscriber::filter::filter_fn(|metadata| {
        let target = metadata.target();
        target.starts_with(module_path!()) || target == "morpheus::stall"
    });
    ONCE.get_or_init(|| registry().with(Recorder.with_filter(ours)).init());
}

fn seen_with(field: &str, value: &str) -> Vec<Seen> {
    let seen = SEEN.lock().unwrap();
    let seen = seen.iter();
    let these = seen.filter(|seen| {
        seen.fields
            .get(field)
            .is_some_and(|text| text.contains(value))
    });
    these.cloned().collect()
}

#[instrument]
async fn step(number: u32) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    info!(kind = "step", number);
    tokio::task::yield_now().await;
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_follow_their_tasks() {
    record();
    let tasks: Vec<_> = (0..100_u32)
        .map(|number| {
            let request = async move {
                for _ in 0..3 {
                    step(number).await;
                }
            };
            // Some of them are watched as well.
            let request = request.instrument(info_span!("request", number));
            match number % 2 {
                0 => tokio::spawn(request),
                _ => morpheus_runtime::spawn(request),
            }
        })
        .collect();
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let steps = seen_with("kind", "step");
    assert_eq!(steps.len(), 300);
    for step in steps {
        let number = &step.fields["number"];
        let around = [format!("request {number}"), format!("step {number}")];
        assert_eq!(step.spans, around, "{step:?}");
    }
}

/// A stalled poll is an event beside the application's own.
#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_is_an_event() {
    record();
    let hog = async {
        let last_resort = Instant::now() + PATIENCE;
        while seen_with("label", "tracing's hog").is_empty() && Instant::now() < last_resort {
            std::thread::sleep(Duration::from_millis(1));
        }
        info!(kind = "after the stall");
    };
    let hog = hog.instrument(info_span!("stalling", number = 1));
    let hog = morpheus_runtime::task::Builder::new()
        .label("tracing's hog")
        .spawn(hog);
    hog.await.unwrap();
    assert_eq!(
        seen_with("kind", "after the stall")[0].spans,
        ["stalling 1"]
    );
    let stall = &seen_with("label", "tracing's hog")[0];
    assert_eq!(stall.target, "morpheus::stall");
    assert_eq!(stall.fields["message"], "a task holds up its worker");
}

#[test]
fn a_neighbour_of_hogs() {
    record();
    let does = "spans of 100 tasks across workers, watched and not; a stall as an event";
    neighbour("tracing", does, async |stage| {
        let hogs = stage.hogs.clone();
        let hog = move || {
            let hogs = hogs.clone();
            let hog = async move {
                hogs.hog().await;
                info!(kind = "hog");
            };
            hog.instrument(info_span!("hogging", number = 2))
        };
        let ping = || async { info!(kind = "ping") }.instrument(info_span!("ping", number = 3));
        Scene::of_tasks(&stage, hog, ping)
    });
    let [hogs, pings] = [("hog", "hogging 2"), ("ping", "ping 3")].map(|(kind, span)| {
        let seen = seen_with("kind", kind);
        assert!(seen.iter().all(|seen| seen.spans == [span]), "{seen:?}");
        seen.len()
    });
    assert!(hogs > 0 && pings > 0, "{hogs} {pings}");
}
