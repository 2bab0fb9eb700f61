//! The settings that the measuring threads request from the kernel for themselves.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;

/// The slice that probe and client threads take: shorter than any runtime's, so that beside hogs the
/// kernel runs them when their time has come and the figure is the runtime's delay, not the probe's.
pub const PROBE_SLICE: Duration = Duration::from_micros(100);

/// Makes the calling thread wake up on time: timer slack 1 ns (the default is 50 µs) and a short slice.
///
/// Both are inherited by threads that it starts, so call it only in threads that start none.
pub fn precise() {
    set_timer_slack(1);
    morpheus_system::slice::set_current(PROBE_SLICE.as_nanos() as u64);
}

/// Starts a thread.
///
/// # Errors
/// When the kernel has no room for one more.
pub fn start<T: Send + 'static>(
    life: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    let started = std::thread::Builder::new().spawn(life);
    started.map_err(|error| format!("cannot start a thread: {error}"))
}

/// Waits for a thread's result.
///
/// # Errors
/// When it panicked, of which it has said more itself.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, String> {
    thread.join().map_err(|_| "a thread panicked".into())
}

/// The kernel's number of the calling thread.
#[inline]
pub fn id() -> libc::pid_t {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Names the calling thread, of which the kernel keeps 15 bytes: schedulers that learn by name tell it from others.
pub fn name_current(name: &CStr) {
    // SAFETY: PR_SET_NAME reads a string with its end, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Gives a thread this priority, -20 to 19; 0 is the calling thread. Returns whether it has it: below what it had, root
/// alone may, and the thread may be gone.
pub fn set_nice(tid: libc::id_t, nice: libc::c_int) -> bool {
    // SAFETY: setpriority takes numbers alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) == 0 }
}

/// By how much the kernel may delay the calling thread's timers to let them end together; 0 puts back what the
/// thread began with. Real-time threads have none, whatever is set.
pub fn set_timer_slack(ns: libc::c_ulong) {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, 0, 0, 0) };
}

/// Keeps the kernel from putting this process and its children together from huge pages while it runs: its thread for
/// that (`khugepaged`, at the lowest priority) holds the lock of their memory, and beside hogs does not get to run for
/// half a second. That says nothing about a runtime.
pub fn without_huge_pages() {
    // SAFETY: PR_SET_THP_DISABLE takes a number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// The timer slack of the calling thread.
pub fn timer_slack_ns() -> u64 {
    // SAFETY: PR_GET_TIMERSLACK takes no argument and only returns a number.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u64::try_from(slack).unwrap_or(0)
}

/// Asks the kernel to kill this process when the thread that started it ends: a helper process must not
/// outlive a benchmark that was killed.
pub fn die_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Tells threads to stop when it is dropped.
#[derive(Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        // Relaxed: nothing else is told by it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The content of a mutex under which no code panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics under it")
}

/// Whether this process has a thread of this name.
pub fn exists(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task");
    threads.into_iter().flatten().flatten().any(|thread| {
        let own = std::fs::read_to_string(thread.path().join("comm"));
        own.is_ok_and(|own| own.trim_end() == name)
    })
}

/// How often the threads of this process have gone to sleep of their own accord so far.
///
/// Each such sleep ends in a wakeup, so in an idle process the difference of two readings is the number
/// of wakeups. The calling thread is left out.
pub fn voluntary_sleeps() -> u64 {
    let own = id().to_string();
    let threads = std::fs::read_dir("/proc/self/task");
    let threads = threads.into_iter().flatten().flatten();
    threads
        .filter(|thread| thread.file_name().to_str() != Some(&own))
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .filter_map(|status| number_in(&status, VOLUNTARY_SWITCHES))
        .sum()
}

/// How a thread's status calls the times that it has left its CPU of its own accord.
pub const VOLUNTARY_SWITCHES: &str = "voluntary_ctxt_switches:";

/// The number behind `name` in a thread's status.
pub fn number_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_by_its_name_while_it_lives() {
        let name = "named-for-a-test";
        let kept = &name[..15];
        assert!(!exists(kept));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                name_current(c"named-for-a-test");
                assert!(exists(kept), "the kernel keeps 15 bytes");
            });
        });
    }
}
