//! The wake probe: a thread outside of the runtime wakes a waiting task, by the clock.
//!
//! The thread never waits for the task: every wake is one message with its time in an unbounded channel.
//! A task that does not get to run finds them all waiting, and those that it has not received by the end
//! count with their age. So a runtime that stalls cannot look good by having few samples.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use morpheus_harness::clock;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::settle::Settle;
use morpheus_harness::thread::{self, lock};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::begin::Begin;
use crate::executor::{Executor, Spawn};
use crate::pace::Pace;

#[derive(Clone, Copy)]
struct Stamp {
    intended: Instant,
    sent: Instant,
}

/// The latencies and counts of a mailbox.
#[derive(Default)]
pub struct Wakes {
    /// From the moment of the wake. Wakes not served at the end are pending, in both.
    pub wake: Latencies,
    /// From the moment at which it was meant to be.
    pub intended: Latencies,
}

#[derive(Default)]
struct State {
    wakes: Wakes,
    served: usize,
    closed: bool,
    /// Of the wakes before the beginning.
    settle: Option<Settle>,
}

/// A task that waits for messages, and what was sent to it.
pub struct Mailbox {
    sender: UnboundedSender<Stamp>,
    /// Outside of the runtime only the sender and the counting thread lock it, inside only the sender.
    sent: Mutex<Vec<Stamp>>,
    /// Only the task locks it, until the end: no thread waits for it while a run lasts.
    state: Mutex<State>,
    begin: Begin,
    settled: AtomicBool,
}

impl Mailbox {
    /// Starts the waiting task. A wake that is due before `begin` does not count.
    pub fn start<E: Executor>(executor: &E, begin: Begin) -> Arc<Self> {
        Self::start_settling(executor, begin, None)
    }

    /// The same, and shows the latencies before the beginning to `settle`.
    pub fn start_settling<E: Executor>(
        executor: &E,
        begin: Begin,
        settle: Option<Settle>,
    ) -> Arc<Self> {
        let (sender, mut receiver) = unbounded_channel::<Stamp>();
        let mailbox = Arc::new(Self {
            sender,
            sent: Mutex::default(),
            state: Mutex::new(State {
                settle,
                ..State::default()
            }),
            begin,
            settled: AtomicBool::new(false),
        });
        let own = mailbox.clone();
        executor.spawn(Spawn::Plain, async move {
            while let Some(first) = receiver.recv().await {
                own.serve(first, Instant::now());
                // All that wait, in this poll: by `recv` tokio's coop budget would end the poll after 128,
                // and a hog gets in between. It is the task's delay that is measured, not the budget.
                while let Ok(next) = receiver.try_recv() {
                    own.serve(next, Instant::now());
                }
            }
        });
        mailbox
    }

    fn serve(&self, stamp: Stamp, now: Instant) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.served += 1;
        let waited = now - stamp.sent;
        if self.begin.counts(stamp.intended) {
            state.wakes.wake.record(waited);
            state.wakes.intended.record(now - stamp.intended);
        } else if let Some(settle) = &mut state.settle {
            let settled = settle.feed(waited.as_nanos() as f64);
            self.settled.store(settled, Relaxed);
        }
    }

    /// Wakes the task.
    pub fn wake(&self, intended: Instant) {
        let sent = Instant::now();
        let stamp = Stamp { intended, sent };
        lock(&self.sent).push(stamp);
        // Fails only when the runtime has dropped the task; the wake is unserved then.
        let _ = self.sender.send(stamp);
    }

    /// Whether the latencies before the beginning have settled.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Relaxed)
    }

    /// Wakes so far that count, served or not.
    pub fn sent(&self) -> u64 {
        let sent = lock(&self.sent);
        let before = sent.partition_point(|stamp| !self.begin.counts(stamp.intended));
        (sent.len() - before) as u64
    }

    /// Ends the counting at `end`.
    pub fn close(&self, end: Instant) -> Wakes {
        let mut state = lock(&self.state);
        state.closed = true;
        let mut wakes = std::mem::take(&mut state.wakes);
        let sent = lock(&self.sent);
        for stamp in &sent[state.served..] {
            if self.begin.counts(stamp.intended) && stamp.sent <= end {
                let late = end.saturating_duration_since(stamp.intended);
                wakes.wake.record_pending(end - stamp.sent);
                wakes.intended.record_pending(late);
            }
        }
        wakes
    }
}

/// Calls `wake` with every deadline from a precise thread of its own, until told to end.
pub struct Clockwork {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Clockwork {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        period: Duration,
        mut wake: impl FnMut(Instant) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let builder = std::thread::Builder::new().name("wake-probe".into());
        let thread = builder.spawn(move || {
            thread::precise();
            let start = Instant::now();
            let mut pace = Pace::every(0, period.as_nanos() as u64);
            while !told.load(Relaxed) {
                let deadline = start + Duration::from_nanos(pace.take());
                clock::sleep_until(deadline);
                wake(deadline);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after its next wake.
    pub fn stop(self) {
        self.stop.store(true, Relaxed);
        // A panic of the probe was printed; what it sent until then still counts.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::tokio::Tokio;

    #[test]
    fn unserved_wakes_count_with_their_age() {
        let (tokio, _runtime) = Tokio::build(crate::executor::Runtime::TOKIO, 1).unwrap();
        let stuck = |_: ()| std::thread::sleep(Duration::from_millis(200));
        tokio.spawn(Spawn::Plain, async move { stuck(()) });
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        let mailbox = Mailbox::start(&tokio, Begin::at(start));
        mailbox.wake(start);
        std::thread::sleep(Duration::from_millis(50));
        let wakes = mailbox.close(Instant::now());
        let summary = wakes.wake.summary();
        assert_eq!((summary.pending, summary.n), (1, 1));
        assert!(summary.max.unwrap() > 40_000_000);
    }
}
