//! The reporter: the thread that passes events to the application's subscriber, which may panic or block.
//!
//! Each runtime has a reporter of its own, so that a subscriber that blocks for ever in an event of one runtime costs
//! the others nothing. It starts with the first report, and sleeps between reports. Senders put a report into a
//! bounded queue and continue. If the queue is full, the report is counted and dropped.
//!
//! The application does not know the thread, so it takes no signals ([`threads::start`]). Threads and processes that the subscriber
//! starts there inherit that.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::report::counters::Counter;
use crate::report::event::{Report, Thread};
use morpheus_system::lock::lock;
use morpheus_system::supervise::{dismiss, supervise};
use morpheus_system::threads;

/// Most reports that wait. A label has one event a second, so this is a second's worth of this many labels.
const QUEUE: usize = 256;

/// The sending end of a runtime's reporter, with its counters.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    queue: Mutex<Queue>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
enum Queue {
    #[default]
    NotStarted,
    Open(Sender<Report>),
    /// The runtime has ended.
    Closed,
}

/// Shared with the thread; outlives the runtime if the subscriber blocks.
#[derive(Debug, Default)]
struct Shared {
    dropped: Counter,
    subscriber_panics: Counter,
    restarts: Counter,
    is_running: Mutex<bool>,
    ended: Condvar,
}

impl Reports {
    /// Hands a report over. Never waits for the subscriber.
    pub(crate) fn send(&self, report: Report) {
        let mut queue = lock(&self.queue);
        if matches!(*queue, Queue::NotStarted)
            && let Some(sender) = start(&self.shared)
        {
            *queue = Queue::Open(sender);
        }
        let sent = match &*queue {
            Queue::Open(sender) => sender.try_send(report).is_ok(),
            Queue::NotStarted | Queue::Closed => false,
        };
        if !sent {
            self.shared.dropped.add(1);
        }
    }

    /// Refuses further reports, and waits up to `at_most` until those in the queue have been emitted.
    pub(crate) fn close(&self, at_most: Duration) {
        if !matches!(
            std::mem::replace(&mut *lock(&self.queue), Queue::Closed),
            Queue::Open(_)
        ) {
            return;
        }
        let is_running = lock(&self.shared.is_running);
        let _ = self
            .shared
            .ended
            .wait_timeout_while(is_running, at_most, |is_running| *is_running);
    }

    /// Returns how many reports found the queue full, or no thread.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.get()
    }

    /// Returns how many reports the subscriber panicked on.
    #[cfg(feature = "metrics")]
    pub(crate) fn subscriber_panics(&self) -> u64 {
        self.shared.subscriber_panics.get()
    }

    /// Returns how often the thread restarted after a panic of its own.
    #[cfg(feature = "metrics")]
    pub(crate) fn restarts(&self) -> u64 {
        self.shared.restarts.get()
    }
}

/// Starts the thread; `None` if the system refuses one.
fn start(shared: &Arc<Shared>) -> Option<Sender<Report>> {
    let (sender, receiver) = bounded(QUEUE);
    *lock(&shared.is_running) = true;
    let ours = shared.clone();
    let thread = std::thread::Builder::new().name("morpheus-report".into());
    let started = threads::start(thread, move || {
        let _ended = Ended(&ours);
        serve(receiver, &ours);
    });
    if started.is_err() {
        *lock(&shared.is_running) = false;
        return None;
    }
    Some(sender)
}

struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_running) = false;
        self.0.ended.notify_all();
    }
}

/// Emits reports until the runtime ends and the queue is empty.
fn serve(receiver: Receiver<Report>, shared: &Shared) {
    let subscriber = Subscriber {
        shared,
        is_reported: Cell::new(false),
    };
    let own_panic = Cell::new(None);
    let returned = supervise(
        || {
            if let Some(report) = own_panic.take() {
                subscriber.emit(&report);
            }
            for report in &receiver {
                #[cfg(test)]
                assert!(!matches!(report, Report::Fault), "a fault, on purpose");
                subscriber.emit(&report);
            }
        },
        |text, restarts| {
            shared.restarts.add(usize::from(restarts));
            own_panic.set(Some(Report::Panicked {
                thread: Thread::Reporter,
                text: text.to_owned(),
                restarts,
            }));
        },
    );
    if !returned && let Some(report) = own_panic.take() {
        // The drop of the receiver ends the queue: reports are counted as dropped from now on.
        subscriber.emit(&report);
    }
}

/// The application's subscriber, as the reporter calls it.
struct Subscriber<'a> {
    shared: &'a Shared,
    /// Whether an event has reported that the subscriber panics.
    is_reported: Cell<bool>,
}

impl Subscriber<'_> {
    fn emit(&self, report: &Report) {
        let emitted = catch_unwind(AssertUnwindSafe(|| report.emit()));
        let panics = &self.shared.subscriber_panics;
        if let Err(panic) = emitted {
            panics.add(1);
            dismiss(panic);
            return;
        }
        let before = panics.get();
        if before > 0 && !self.is_reported.replace(true) {
            self.emit(&Report::SubscriberPanicked { reports: before });
        }
    }
}

/// The subscriber of this crate's unit tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::fmt::Write as _;
    use std::sync::{Mutex, Once};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    /// An event with this text makes the subscriber panic.
    pub(crate) const PANIC: &str = "the subscriber panics on this, on purpose";

    static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Keeps;

    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }

    impl tracing::Subscriber for Keeps {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target().starts_with("morpheus::")
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            assert!(!text.0.contains(PANIC), "{PANIC}");
            super::lock(&EVENTS).push(text.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    pub(crate) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Keeps).unwrap());
    }

    /// Returns how many events so far have all these words.
    pub(crate) fn count(words: &[&str]) -> usize {
        let events = super::lock(&EVENTS);
        let has_all = |event: &&String| words.iter().all(|word| event.contains(word));
        events.iter().filter(has_all).count()
    }
}

#[cfg(test)]
mod tests {
    use morpheus_testing::wait_for;

    use super::*;

    #[test]
    fn no_thread_before_the_first_report() {
        let reports = Reports::default();
        assert!(!*lock(&reports.shared.is_running));
        reports.close(Duration::from_secs(60));
        reports.send(Report::NoLink("too late".to_owned()));
        assert!(!*lock(&reports.shared.is_running));
        assert_eq!(reports.dropped(), 1);
    }

    #[test]
    fn the_thread_ends_with_the_runtime() {
        let reports = Reports::default();
        reports.send(Report::NoLink("a test".to_owned()));
        let shared = reports.shared.clone();
        assert!(*lock(&shared.is_running));
        drop(reports);
        wait_for("the thread ends", || !*lock(&shared.is_running));
        assert_eq!(shared.dropped.get(), 0);
    }

    #[test]
    fn a_reporter_that_panics_restarts_three_times() {
        let reports = Reports::default();
        for restarts in 1..=3 {
            reports.send(Report::Fault);
            wait_for("a restart", || reports.restarts() == restarts);
        }
        reports.send(Report::NoLink("still there".to_owned()));
        assert_eq!(reports.dropped(), 0);
        reports.send(Report::Fault);
        wait_for("the thread is given up", || {
            !*lock(&reports.shared.is_running)
        });
        reports.send(Report::NoLink("to no thread".to_owned()));
        assert_eq!((reports.dropped(), reports.restarts()), (1, 3));
    }

    #[test]
    fn panics_of_the_subscriber_are_counted_and_reported_once() {
        testing::install();
        let reports = Reports::default();
        let no_link = |text: &str| reports.send(Report::NoLink(text.to_owned()));
        no_link(testing::PANIC);
        no_link(testing::PANIC);
        wait_for("two panics", || reports.subscriber_panics() == 2);
        let emitted = || testing::count(&["ERROR", "the subscriber panicked", "reports=2"]);
        assert_eq!(emitted(), 0);
        for _ in 0..3 {
            no_link("and goes on");
        }
        wait_for("three events", || testing::count(&["and goes on"]) == 3);
        no_link(testing::PANIC);
        no_link("and on");
        wait_for("one more", || testing::count(&["and on"]) == 1);
        reports.close(Duration::from_secs(60));
        assert_eq!(
            (emitted(), reports.restarts(), reports.dropped()),
            (1, 0, 0)
        );
        assert_eq!(testing::count(&["ERROR", "the subscriber panicked"]), 1);
    }

    #[test]
    fn reports_that_find_the_queue_full_are_counted() {
        let reports = Reports::default();
        let (sender, receiver) = bounded(QUEUE);
        *lock(&reports.queue) = Queue::Open(sender);
        *lock(&reports.shared.is_running) = true;
        for _ in 0..QUEUE + 3 {
            reports.send(Report::NoLink("no reader".to_owned()));
        }
        assert_eq!((receiver.len(), reports.dropped()), (QUEUE, 3));
        // The queue has no reader, so the wait takes its full time.
        let began = std::time::Instant::now();
        reports.close(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
