//! Innocent tasks that poll for a short while and yield, for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::workload::Via;
use crate::executor::Executor;
use crate::work;

/// A counter with a cache line of its own: tasks on different CPUs must not slow one another down.
#[derive(Default)]
#[repr(align(128))]
struct Polls(AtomicU64);

/// The tasks.
pub struct Busy(Vec<Arc<Polls>>);

impl Busy {
    /// Starts `tasks` of them, each computing so many iterations in a poll.
    pub fn start<E: Executor>(executor: &E, via: Via, tasks: usize, iterations: u64) -> Self {
        let all = (0..tasks).map(|_| Arc::<Polls>::default()).collect();
        for polls in &all {
            let polls: Arc<Polls> = Arc::clone(polls);
            executor.spawn(via.into(), async move {
                loop {
                    work::compute(iterations);
                    polls.0.fetch_add(1, Relaxed);
                    E::yield_now().await;
                }
            });
        }
        Self(all)
    }

    /// Polls of all tasks so far.
    pub fn polls(&self) -> u64 {
        self.0.iter().map(|polls| polls.0.load(Relaxed)).sum()
    }
}
