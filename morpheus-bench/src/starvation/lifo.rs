//! The LIFO slot: a hog wakes a task and then stalls in the same poll.
//!
//! tokio puts the woken task next in line on the hog's own worker, where no other worker can fetch it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use morpheus_harness::histogram::Latencies;

use super::hog::Hogs;
use super::workload::Lifo as Known;
use crate::begin::Begin;
use crate::executor::{Executor, Spawn};
use crate::wake::Mailbox;

/// Between two polls that stall, so that the woken task waits again when it is woken.
const PAUSE: Duration = Duration::from_millis(5);

/// The woken tasks, one for each hog.
pub struct Lifo(Vec<Arc<Mailbox>>);

impl Lifo {
    /// Starts the hogs and those that they wake.
    pub fn start<E: Executor>(executor: &E, known: Known, hogs: &Hogs, begin: &Begin) -> Self {
        let how = match known {
            Known::Unknown => Spawn::Plain,
            Known::Known => Spawn::Watched,
            Known::Checkpoint => Spawn::NeverOffender,
        };
        let mut mailboxes = Vec::new();
        for (hog, herd) in hogs.each() {
            let mailbox = Mailbox::start(executor, begin.clone());
            let (woken, living) = (mailbox.clone(), herd.living());
            executor.spawn(how, async move {
                let _living = living;
                while !herd.stopped() {
                    woken.wake(Instant::now());
                    hog.stick(|| {
                        if known == Known::Checkpoint {
                            // Asked to yield or not, it goes on: the worst that can be done to the other.
                            let _ = morpheus_runtime::checkpoint_sync();
                        }
                    });
                    E::sleep_until(Instant::now() + PAUSE).await;
                }
            });
            mailboxes.push(mailbox);
        }
        Self(mailboxes)
    }

    /// Ends the counting at `end`: how long the woken tasks waited.
    pub fn close(&self, end: Instant) -> Latencies {
        let mut all = Latencies::default();
        for mailbox in &self.0 {
            all.add(&mailbox.close(end).wake);
        }
        all
    }
}
