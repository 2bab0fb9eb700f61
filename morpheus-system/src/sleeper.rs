//! How the controller sleeps without a timeout, and how a worker wakes it.
//!
//! While a worker is busy the controller samples by the clock. Once all workers have been quiet for a while
//! it sleeps without a timeout, so that an idle runtime has no wakeups at all. The next worker that unparks,
//! or the next watched poll, wakes it. The check costs them one load.
//!
//! That load must not miss a controller that is just falling asleep. The worker writes its sequence word and
//! then reads `asleep`; the controller writes `asleep` and then reads the words. Each needs a full barrier
//! between its two steps. The controller's `membarrier(2)` supplies both, so that the worker's side costs
//! nothing (proof and model: `morpheus-common/src/PROTOCOL.md`, "Falling asleep"). Where the kernel has no
//! membarrier the sleep gets a timeout instead, and the metrics say so.

use crate::lock::lock;
use crate::threads;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence};
use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

/// The longest sleep where the barrier is missing.
const WITHOUT_BARRIER: Duration = Duration::from_millis(20);

/// The controller's sleep, and the flag that tells others of it.
#[derive(Debug, Default)]
pub struct Sleeper {
    asleep: AtomicBool,
    woken: Mutex<bool>,
    changed: Condvar,
    stop: AtomicBool,
}

impl Sleeper {
    /// The flag that slot handles refer to, for [`is_needed`](Self::is_needed).
    pub fn flag(&self) -> &AtomicBool {
        &self.asleep
    }

    /// Whether the controller sleeps at this moment, as a hint for metrics and tests.
    pub fn is_asleep(&self) -> bool {
        // Relaxed: it orders nothing.
        self.asleep.load(Ordering::Relaxed)
    }

    /// Whether the controller must be woken. A worker asks it after it wrote its sequence word.
    #[inline]
    pub fn is_needed(asleep: &AtomicBool) -> bool {
        // Keeps the compiler from moving the load before the caller's store. The controller's membarrier
        // keeps the CPU from it.
        compiler_fence(Ordering::SeqCst);
        // Relaxed: pairs with the store in `sleep_while`, ordered by the barrier there.
        asleep.load(Ordering::Relaxed)
    }

    /// Wakes the controller if it sleeps. Returns whether it slept.
    #[cold]
    pub fn wake(&self) -> bool {
        let sleeps = self.asleep.swap(false, Ordering::AcqRel);
        if sleeps {
            *lock(&self.woken) = true;
            self.changed.notify_one();
        }
        sleeps
    }

    /// Sleeps until woken, unless `still_quiet`, called after the barrier, returns false.
    ///
    /// `elsewhere` replaces the sleep on the condition variable. It returns when the controller is woken, or
    /// for a reason of the caller's. A thread that wakes the controller must then wake `elsewhere` too.
    pub fn sleep_while(
        &self,
        still_quiet: impl FnOnce() -> bool,
        elsewhere: Option<impl FnOnce()>,
    ) {
        *lock(&self.woken) = false;
        // Relaxed: the membarrier below orders it before the reads of `still_quiet`, and after every worker's
        // store whose load of `asleep` did not see it.
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
        let woken = lock(&self.woken);
        // A timeout ends the sleep even without a wake; the controller then samples.
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
    pub fn sleep_until_stopped(&self) {
        // Relaxed, and no partner is needed: no worker has to wake this thread.
        self.asleep.store(false, Ordering::Relaxed);
        let woken = lock(&self.woken);
        drop(self.changed.wait_while(woken, |_| !self.stops()));
    }

    /// Ends the controller's loop at its next iteration, and wakes it for that.
    pub fn stop(&self) {
        // SeqCst, with the fence: pairs with the barrier in `sleep_while`. A controller that falls asleep now
        // either sees `stop` there, or has set `asleep`, and the swap in `wake` sees that.
        self.stop.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        let _ = self.wake();
        // For `sleep_until_stopped`. Under the lock: a thread there either sees `stop` or already waits.
        let _woken = lock(&self.woken);
        self.changed.notify_all();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn stops(&self) -> bool {
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
/// Whether membarrier works: [`UNKNOWN`], [`WORKS`] or [`REFUSED`].
static BARRIER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Executes a full barrier on every CPU that runs a thread of this process. Returns false where the kernel
/// has none, or the process is not registered yet.
fn heavy_barrier() -> bool {
    BARRIER.load(Ordering::Relaxed) == WORKS && membarrier(PRIVATE_EXPEDITED)
}

/// Whether the kernel refused the barrier.
pub fn is_barrier_refused() -> bool {
    BARRIER.load(Ordering::Relaxed) == REFUSED
}

/// Registers the process for the barrier, once, before a runtime starts its threads. With a single thread
/// that is immediate. With more the kernel waits for a grace period, which takes seconds on a busy machine.
/// Then a thread of its own registers, and until it is done the controller sleeps with a timeout.
pub fn register_barrier() {
    static ONCE: Once = Once::new();
    fn register() {
        let works = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        BARRIER.store(if works { WORKS } else { REFUSED }, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        let count = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        if count == 1 {
            register();
        } else {
            let thread = std::thread::Builder::new().name("morpheus-start".into());
            if threads::start(thread, register).is_err() {
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
                let mut wakes = 0;
                while !sleeper.stops() {
                    sleeper.sleep_while(|| true, None::<fn()>);
                    wakes += 1;
                }
                wakes
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
            assert!(!sleeper.wake(), "only `stop` ends the sleep");
        }
        sleeper.stop();
        thread.join().unwrap();
        sleeper.sleep_until_stopped();
    }

    #[test]
    fn does_not_sleep_when_a_word_has_changed() {
        Sleeper::default().sleep_while(|| false, None::<fn()>);
    }
}
