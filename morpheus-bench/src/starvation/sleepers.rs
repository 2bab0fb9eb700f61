//! The timer probe: tasks that sleep until absolute times and measure how late they wake up.
//!
//! A sleeper's times lie one period apart whether it is late or not, so each period that it misses is one
//! sample: the histogram is free of coordinated omission. Times that are missed at the end count with
//! their age.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use morpheus_harness::histogram::Latencies;
use morpheus_harness::thread::lock;

use crate::begin::Begin;
use crate::executor::{Executor, Spawn};

/// Histograms that the sleepers share. Up to this many sleepers have one each, so that none ever waits for
/// another's lock; beyond, a histogram each would take too much memory.
const SHARDS: usize = 64;

struct Shared {
    /// `None` when the counting is over.
    shards: Vec<Mutex<Option<Latencies>>>,
    /// Per sleeper its next time, in nanoseconds after `epoch`. Written under its shard's lock.
    next: Vec<AtomicU64>,
    epoch: Instant,
    begin: Begin,
    period: Duration,
}

/// The sleeping tasks.
pub struct Sleepers(Arc<Shared>);

impl Sleepers {
    /// Starts `count` sleepers, spread over the period. Times before `begin` do not count. Each calls
    /// `woken` whenever it wakes up, late or not.
    #[track_caller]
    pub fn start<E: Executor>(
        executor: &E,
        how: Spawn,
        count: usize,
        period: Duration,
        begin: Begin,
        woken: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let step = period.as_nanos() as u64;
        let shared = Arc::new(Shared {
            shards: (0..count.clamp(1, SHARDS))
                .map(|_| Mutex::new(Some(Latencies::default())))
                .collect(),
            next: (0..count as u64)
                .map(|i| AtomicU64::new(step + step * i / count as u64))
                .collect(),
            epoch: Instant::now(),
            begin,
            period,
        });
        for i in 0..count {
            let (own, woken) = (shared.clone(), woken.clone());
            executor.spawn(how, async move {
                loop {
                    E::sleep_until(own.due(i)).await;
                    if !own.record(i) {
                        return;
                    }
                    woken();
                }
            });
        }
        Self(shared)
    }

    /// Ends the counting at `end`. Times that did not come by then are pending.
    pub fn close(&self, end: Instant) -> Latencies {
        let shared = &*self.0;
        let mut late = Latencies::default();
        let from = shared.begin.from().unwrap_or(end);
        for shard in &shared.shards {
            let mut shard = lock(shard);
            shard.take().iter().for_each(|own| late.add(own));
        }
        for i in 0..shared.next.len() {
            let mut due = shared.due(i).max(from);
            while due < end {
                late.record_pending(end - due);
                due += shared.period;
            }
        }
        late
    }
}

impl Shared {
    fn due(&self, sleeper: usize) -> Instant {
        self.epoch + Duration::from_nanos(self.next[sleeper].load(Relaxed))
    }

    /// Counts every time that the sleeper has missed, and moves it on to the next that is to come; false
    /// when the counting is over.
    ///
    /// All in one poll: by sleeping until times that are over, tokio's coop budget would end the poll
    /// after 128 of them, and a hog gets in between.
    fn record(&self, sleeper: usize) -> bool {
        let shard = &self.shards[sleeper % self.shards.len()];
        let mut shard = lock(shard);
        let Some(late) = &mut *shard else {
            return false;
        };
        let (now, step) = (Instant::now(), self.period.as_nanos() as u64);
        let mut due = self.due(sleeper);
        while due <= now {
            if self.begin.counts(due) {
                late.record(now - due);
            }
            self.next[sleeper].fetch_add(step, Relaxed);
            due += self.period;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::tokio::Tokio;

    #[test]
    fn every_missed_period_counts() {
        let (tokio, _runtime) = Tokio::build(crate::executor::Runtime::TOKIO, 1).unwrap();
        tokio.spawn(Spawn::Plain, async {
            std::thread::sleep(Duration::from_millis(300));
        });
        std::thread::sleep(Duration::from_millis(20));
        let period = Duration::from_millis(1);
        let begin = Begin::at(Instant::now());
        let sleepers = Sleepers::start(&tokio, Spawn::Plain, 4, period, begin, || ());
        std::thread::sleep(Duration::from_millis(100));
        let late = sleepers.close(Instant::now()).summary();
        assert!(late.pending > 0 && late.pending <= late.n);
        assert!((300..=500).contains(&late.n), "{late:?}");
        assert!(late.p50.unwrap() > 30_000_000);
    }
}
