//! Innocent tasks that poll for a short while and yield, until the run is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::workload::Via;
use crate::executor::Executor;
use crate::work;

/// The tasks.
pub struct Busy {
    /// Each on a cache line of its own: tasks on different CPUs must not slow one another down.
    all: Vec<Arc<CachePadded<AtomicU64>>>,
    stop: Arc<AtomicBool>,
}

impl Busy {
    /// Starts `tasks` of them, each computing this many iterations in a poll.
    pub fn start<E: Executor>(executor: &E, via: Via, tasks: usize, iterations: u64) -> Self {
        let all: Vec<Arc<CachePadded<AtomicU64>>> = (0..tasks).map(|_| Arc::default()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        for polls in &all {
            let (polls, stop) = (polls.clone(), stop.clone());
            executor.spawn(via.into(), async move {
                while !stop.load(Relaxed) {
                    work::compute(iterations);
                    polls.fetch_add(1, Relaxed);
                    E::yield_now().await;
                }
            });
        }
        Self { all, stop }
    }

    /// Polls of all tasks so far.
    pub fn polls(&self) -> u64 {
        self.all.iter().map(|polls| polls.load(Relaxed)).sum()
    }

    /// Ends them, so that hogs may end their polls in peace.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}
