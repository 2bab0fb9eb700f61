//! Clocks: the CPU time of a thread or process, the monotonic clock as a number, sleeping until a time.

use std::io;
use std::time::{Duration, Instant};

#[inline]
fn read(id: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that outlives the call; an unknown clock id is an error, not UB.
    if unsafe { libc::clock_gettime(id, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The CPU time that the calling thread has used (`CLOCK_THREAD_CPUTIME_ID`).
#[inline]
pub fn thread_cpu() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The CPU time that the fastest of several tries takes: whatever disturbs a measurement only makes it slower.
pub fn fastest<T>(tries: usize, mut work: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let begun = thread_cpu();
        work();
        thread_cpu() - begun
    };
    (0..tries).map(once).min().unwrap_or_default()
}

/// The CPU time that all threads of process `pid` have used.
///
/// # Errors
/// When there is no such process (any more).
pub fn cpu_of_process(pid: u32) -> io::Result<Duration> {
    let mut id = 0;
    // SAFETY: `id` is a valid place for the clock id for the whole call.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut id) } {
        0 => read(id),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds: the same number in every process of this machine, which
/// [`Instant`] does not give.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or_default().as_nanos() as u64
}

/// Waits until something is so, and looks after each `pause`. Whether it came to be so within `bound`.
pub fn within(bound: Duration, pause: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= bound {
            return false;
        }
        std::thread::sleep(pause);
    }
    true
}

/// Sleeps until `at`, or not at all when that has passed.
#[inline]
pub fn sleep_until(at: Instant) {
    let left = at.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_stands_still_while_asleep() {
        let before = thread_cpu();
        std::thread::sleep(Duration::from_millis(30));
        assert!(thread_cpu() - before < Duration::from_millis(20));
    }

    #[test]
    fn own_process_has_a_cpu_clock_and_a_missing_one_has_none() {
        assert!(cpu_of_process(std::process::id()).unwrap() > Duration::ZERO);
        assert!(cpu_of_process(1 << 23).is_err());
    }
}
