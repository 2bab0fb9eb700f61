//! The clocks that the controller reads. The hot path of a poll calls nothing here.

use std::time::Duration;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid, writable timespec for the whole call; the kernel checks the clock id.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64)
}

/// Monotonic time in nanoseconds.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists on every Linux")
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time that thread `tid` of this process has used, in nanoseconds; `None` once it is gone.
///
/// The clock id is computed as `pthread_getcpuclockid(3)` does: the thread id inverted and shifted by three,
/// with the bits for "per thread" and "scheduler's clock" (Linux, `posix-timers.h`).
pub fn cpu_ns_of(tid: u32) -> Option<u64> {
    const PER_THREAD_SCHED: libc::clockid_t = 6;
    read((!(tid as libc::clockid_t) << 3) | PER_THREAD_SCHED)
}

/// A duration in nanoseconds; the largest number for a longer one.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_clock_of_a_thread_is_the_same_from_inside_and_outside() {
        let tid = crate::threads::own_tid();
        let before = own_cpu_ns();
        let seen = cpu_ns_of(tid).expect("own thread is alive");
        let after = own_cpu_ns();
        assert!((before..=after).contains(&seen));
    }

    #[test]
    fn a_thread_that_is_gone_has_no_clock() {
        let tid = std::thread::spawn(crate::threads::own_tid).join().unwrap();
        // The id may remain valid for a moment after join returned.
        for _ in 0..1000 {
            if cpu_ns_of(tid).is_none() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("thread {tid} still has a CPU clock");
    }
}
