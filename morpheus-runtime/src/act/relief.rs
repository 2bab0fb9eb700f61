//! Relief at the I/O driver: while workers stall, a worker that leaves the driver wakes another one.
//!
//! One parked worker has the driver and serves all sockets and timers. It leaves when an event comes, and tokio wakes no other
//! worker for a single task. If that task computes, the sockets wait until the controller has noticed. So another worker is
//! woken at once, and parks at the driver.
//!
//! Tokio does not say who has the driver: it is the first that parks while it is free, and a worker that parks does not
//! know whether the one before has left. A wrong guess costs a wake-up, or leaves the driver to the controller.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::runtime::Handle;

use crate::report::own;

/// Every access is Relaxed and pairs with nothing: these are guesses.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    is_wanted: AtomicBool,
    /// The thread that probably is at the driver; 0 if there is none.
    at_driver: AtomicU32,
}

impl Relief {
    /// Whether workers are relieved. The controller alone says so, at each sample; it writes only what changes, because workers
    /// read the same cache line whenever they park.
    pub(crate) fn want(&self, is_wanted: bool) {
        if self.is_wanted.load(Ordering::Relaxed) != is_wanted {
            self.is_wanted.store(is_wanted, Ordering::Relaxed);
            self.at_driver.store(0, Ordering::Relaxed);
        }
    }

    /// Called by a worker that is about to park.
    #[inline]
    pub(crate) fn parks(&self, tid: u32) {
        if self.is_wanted.load(Ordering::Relaxed) {
            let relaxed = Ordering::Relaxed;
            let _ = self.at_driver.compare_exchange(0, tid, relaxed, relaxed);
        }
    }

    /// Called by a worker that has unparked. A no-op task that is spawned there wakes a parked worker, if there is one.
    #[inline]
    pub(crate) fn unparked(&self, tid: u32) {
        if self.is_wanted.load(Ordering::Relaxed) && self.at_driver.load(Ordering::Relaxed) == tid {
            self.at_driver.store(0, Ordering::Relaxed);
            if let Ok(handle) = Handle::try_current() {
                own::spawn(&handle, async {});
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use morpheus_system::threads::own_tid;
    use morpheus_testing::wait_for;

    use super::*;

    /// Whether a timer fires on two workers while the one that had the driver is in a long poll.
    fn is_driver_served(relief: &Arc<Relief>) -> bool {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let parks = relief.clone();
        let unparked = relief.clone();
        builder
            .worker_threads(2)
            .enable_time()
            .on_thread_park(move || parks.parks(own_tid()))
            .on_thread_unpark(move || unparked.unparked(own_tid()));
        let runtime = builder.build().unwrap();
        let metrics = runtime.handle().metrics();
        let (go_on, until) = mpsc::channel::<()>();
        let (stuck, is_stuck) = mpsc::channel();
        let (fires, fired) = mpsc::channel();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stuck.send(()).unwrap();
            let _ = until.recv();
        });
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let _ = fires.send(());
        });
        wait_for("idle workers", || {
            (0..2).all(|core| metrics.worker_park_unpark_count(core) % 2 == 1)
        });
        is_stuck.recv().unwrap();
        let is_served = fired.recv_timeout(Duration::from_millis(400)).is_ok();
        drop(go_on);
        is_served
    }

    #[test]
    fn a_worker_that_leaves_the_driver_for_a_long_poll_is_relieved() {
        let relief = Arc::new(Relief::default());
        assert!(!is_driver_served(&relief), "the control");
        relief.want(true);
        // The guess at who has the driver may be wrong.
        let is_served = (0..5).any(|_| is_driver_served(&relief));
        assert!(is_served);
    }
}
