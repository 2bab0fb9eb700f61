//! One label, hogs and innocents: every tenth poll under it is a hog's.
//!
//! The innocents poll by the clock, and every ninth of their polls lets one hog poll. They are slow enough
//! that the workers can just do the hogs' work, else hogs would lag behind and be fewer than one in ten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use morpheus_harness::histogram::Latencies;
use tokio::sync::Semaphore;

use super::hog::Hogs;
use super::sleepers::Sleepers;
use super::workload::{Via, Workload};
use crate::begin::Begin;
use crate::executor::{Executor, Spawn};
use crate::work;

/// Innocent polls to one of a hog.
const INNOCENT: u64 = 9;

/// The innocents.
pub struct Mix {
    sleepers: Sleepers,
    polls: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
}

impl Mix {
    /// Starts innocents and hogs under one label (or, via plain spawn, under none).
    pub fn start<E: Executor>(
        executor: &E,
        workload: &Workload,
        hogs: &Hogs,
        iterations: u64,
        begin: Begin,
    ) -> Self {
        let how = match workload.hog_via {
            Via::Spawn => Spawn::Labelled("mixed"),
            Via::TokioSpawn => Spawn::Plain,
        };
        let turns = Arc::new(Semaphore::new(0));
        let polls = Arc::new(AtomicU64::new(0));
        for (hog, herd) in hogs.each() {
            let (living, turns) = (herd.living(), turns.clone());
            executor.spawn(how, async move {
                let _living = living;
                let mut stuck = false;
                while !herd.stopped() {
                    // No poll but those that stall: a hog waits its turn where it can, and yields
                    // only if the next turn is there already.
                    match turns.try_acquire() {
                        Ok(turn) => {
                            turn.forget();
                            if stuck {
                                E::yield_now().await;
                            }
                        }
                        Err(_) => match turns.acquire().await {
                            Ok(turn) => turn.forget(),
                            Err(_) => return,
                        },
                    }
                    hog.stick(|| ());
                    stuck = true;
                }
            });
        }
        let (count, period) = pace(workload);
        let woken = {
            let (polls, turns) = (polls.clone(), turns.clone());
            move || {
                work::compute(iterations);
                if polls.fetch_add(1, Relaxed) % INNOCENT == INNOCENT - 1 {
                    turns.add_permits(1);
                }
            }
        };
        let sleepers = Sleepers::start(executor, how, count, period, begin, woken);
        Self {
            sleepers,
            polls,
            turns,
        }
    }

    /// Innocent polls so far.
    pub fn polls(&self) -> u64 {
        self.polls.load(Relaxed)
    }

    /// Ends the counting at `end`: how late the innocents were. Hogs that wait for a turn end too.
    pub fn close(&self, end: Instant) -> Latencies {
        self.turns.close();
        self.sleepers.close(end)
    }
}

/// How many innocents there are, and the period of each.
fn pace(workload: &Workload) -> (usize, Duration) {
    let count = match workload.busy {
        0 => INNOCENT as usize * workload.hogs.max(1),
        busy => busy,
    };
    // This many hogs can stall workers at a time without waiting for one another.
    let at_once = workload.hogs.min(workload.workers).max(1) as f64;
    let period = workload
        .hog_time()
        .mul_f64(count as f64 / (INNOCENT as f64 * at_once));
    (count, period.max(workload.period()))
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    #[test]
    fn one_poll_in_ten_is_a_hogs() {
        let workload = workload();
        let (count, period) = pace(&workload);
        let innocent = count as f64 / period.as_secs_f64();
        let hogs = workload.workers as f64 / workload.hog_time().as_secs_f64();
        assert!((innocent / hogs - 9.0).abs() < 1e-6);
    }
}
