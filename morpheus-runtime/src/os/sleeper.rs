//! How the controller sleeps truly, and who wakes it.
//!
//! While anything is busy the controller samples by the clock. Once everything has been quiet for a
//! while it sleeps without a timeout, so that an idle runtime has no wakeups at all; the next worker
//! that unparks, or the next watched poll, wakes it. For those that is one load.
//!
//! That load must not miss a controller that is just falling asleep: the worker writes its sequence word
//! and then reads `asleep`, the controller writes `asleep` and then reads the words. Each needs a full
//! barrier between its two steps; the controller's `membarrier(2)` supplies both, so that the worker's
//! side costs nothing (proof and model: `morpheus-common/src/PROTOCOL.md`, "Falling asleep"). Where the
//! kernel has no membarrier the sleep gets a timeout instead, and the metrics say so.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence};
use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

/// Longest sleep where the barrier is missing.
const WITHOUT_BARRIER: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    woken: Mutex<bool>,
    changed: Condvar,
    stop: AtomicBool,
}

impl Sleeper {
    /// For the stand-in of threads without a slot: a flag that is never set.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.asleep
    }

    /// Whether the controller sleeps at this moment, for who asks.
    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: it orders nothing.
        self.asleep.load(Ordering::Relaxed)
    }

    /// The worker's side, after it wrote its sequence word.
    #[inline]
    pub(crate) fn is_needed(asleep: &AtomicBool) -> bool {
        // Keeps the compiler from moving the load before the caller's store; the CPU is kept from it by
        // the controller's membarrier.
        compiler_fence(Ordering::SeqCst);
        // Relaxed: pairs with the store in `sleep_while`, ordered by the barrier there.
        asleep.load(Ordering::Relaxed)
    }

    /// Wakes the controller if it sleeps. Returns whether it did.
    #[cold]
    pub(crate) fn wake(&self) -> bool {
        let sleeps = self.asleep.swap(false, Ordering::AcqRel);
        if sleeps {
            *self
                .woken
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
            self.changed.notify_one();
        }
        sleeps
    }

    /// Sleeps until woken, unless `still_quiet`, asked after the barrier, says no.
    ///
    /// `elsewhere` sleeps in place of this, until woken or for another reason that the caller has; whoever
    /// wakes the controller must wake that, too.
    pub(crate) fn sleep_while(
        &self,
        still_quiet: impl FnOnce() -> bool,
        elsewhere: Option<impl FnOnce()>,
    ) {
        *self
            .woken
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = false;
        // Relaxed: the membarrier below orders it before the reads of `still_quiet`, and after every
        // worker's store whose load of `asleep` did not see it.
        self.asleep.store(true, Ordering::Relaxed);
        let timeout = (!heavy_barrier()).then_some(WITHOUT_BARRIER);
        if !still_quiet() || self.stops() {
            self.asleep.store(false, Ordering::Relaxed);
            return;
        }
        if let (Some(elsewhere), None) = (elsewhere, timeout) {
            elsewhere();
            self.asleep.store(false, Ordering::Relaxed);
            return;
        }
        let woken = self
            .woken
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // A timeout ends the sleep even when nobody woke it; the controller looks for itself then.
        match timeout {
            None => drop(self.changed.wait_while(woken, |woken| !*woken)),
            Some(timeout) => {
                drop(
                    self.changed
                        .wait_timeout_while(woken, timeout, |woken| !*woken),
                );
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps until [`stop`](Self::stop), and wakes for nothing else.
    pub(crate) fn sleep_until_stopped(&self) {
        // No worker is to wake this thread.
        self.asleep.store(false, Ordering::Relaxed);
        let woken = self
            .woken
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(self.changed.wait_while(woken, |_| !self.stops()));
    }

    /// Ends the controller at its next turn, and wakes it for that.
    pub(crate) fn stop(&self) {
        // SeqCst with the swap in `wake`: a controller that falls asleep now either sees `stop` in
        // `sleep_while` or has set `asleep` and is woken.
        self.stop.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        let _ = self.wake();
        // For `sleep_until_stopped`. Under the lock: a thread there either sees `stop` or waits by now.
        let _woken = self
            .woken
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        self.changed.notify_all();
    }

    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration (Linux 4.14, `linux/membarrier.h`).
const PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_long = 1 << 4;

fn membarrier(command: libc::c_long) -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

const UNKNOWN: u8 = 0;
const WORKS: u8 = 1;
const REFUSED: u8 = 2;
/// Whether membarrier works, once somebody tried.
static BARRIER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// A full barrier on every CPU that runs a thread of this process; false where the kernel has none, or
/// it is not registered yet.
fn heavy_barrier() -> bool {
    BARRIER.load(Ordering::Relaxed) == WORKS && membarrier(PRIVATE_EXPEDITED)
}

/// Whether the kernel refused the barrier.
pub(crate) fn is_barrier_refused() -> bool {
    BARRIER.load(Ordering::Relaxed) == REFUSED
}

/// Registers the process for the barrier, once, before a runtime starts its threads: with one thread that
/// is immediate. With more the kernel waits for a grace period, which takes seconds on a busy machine, so
/// that is left to a thread of its own, and until it is done the controller sleeps with a timeout.
pub(crate) fn register_barrier() {
    static ONCE: Once = Once::new();
    fn register() {
        let works = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        BARRIER.store(if works { WORKS } else { REFUSED }, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        if threads == 1 {
            register();
        } else {
            let started = std::thread::Builder::new()
                .name("morpheus-start".into())
                .spawn(register);
            if started.is_err() {
                register();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn wakes_and_stops() {
        let sleeper = Arc::new(Sleeper::default());
        let thread = std::thread::spawn({
            let sleeper = sleeper.clone();
            move || {
                let mut turns = 0;
                while !sleeper.stops() {
                    sleeper.sleep_while(|| true, None::<fn()>);
                    turns += 1;
                }
                turns
            }
        });
        for _ in 0..100 {
            while !Sleeper::is_needed(sleeper.flag()) {
                std::thread::yield_now();
            }
            sleeper.wake();
        }
        sleeper.stop();
        assert!(thread.join().unwrap() >= 100);
    }

    #[test]
    fn sleeps_until_stopped() {
        let sleeper = Arc::new(Sleeper::default());
        let thread = std::thread::spawn({
            let sleeper = sleeper.clone();
            move || sleeper.sleep_until_stopped()
        });
        for _ in 0..100 {
            assert!(!sleeper.wake(), "it wakes for nothing else");
        }
        sleeper.stop();
        thread.join().unwrap();
        sleeper.sleep_until_stopped();
    }

    #[test]
    fn does_not_sleep_when_something_moved() {
        Sleeper::default().sleep_while(|| false, None::<fn()>);
    }
}
