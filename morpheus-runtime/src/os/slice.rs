//! Short EEVDF slices: how long a thread runs before the kernel considers another thread.
//!
//! A worker with a short slice has an early virtual deadline, so the kernel runs it before a hog when it
//! wakes. Any thread may shorten its own slice (`sched_setattr`, `sched_runtime`, Linux 6.12). Before that
//! version, and where a seccomp filter refuses the call, nothing changes and [`set_current`] returns false.
//!
//! Children do not inherit the slice. With it the thread gets `SCHED_FLAG_RESET_ON_FORK`, and the kernel
//! gives the default to each process and thread that it starts, by whichever call. Only a thread with
//! `CAP_SYS_NICE` could clear that flag again. So the flag stays, and every later call passes it.
//!
//! The flag would also take a negative niceness and utilization clamps from the children. A thread that has
//! either keeps the kernel's slice.

use std::cell::Cell;

/// The slice of a worker, in nanoseconds: a fifteenth of the kernel's usual 3 ms. A shorter one costs context
/// switches without improving the tail latency.
pub const WORKER_SLICE_NS: u64 = 200_000;

/// The slice of a thread in a handoff poll, in nanoseconds. It is shorter than a worker's: a longer one makes
/// the tail latency of the workers worse.
pub(crate) const HANDOFF_SLICE_NS: u64 = 100_000;

/// The upper utilization clamp that the kernel reports for a thread without clamps. A kernel built without
/// clamps reports 0.
const NO_CLAMP: u32 = 1024;

/// `struct sched_attr` (Linux, `sched/types.h`). Its first version is [`ATTR_SIZE`] bytes; a kernel that
/// knows no more leaves the rest as it is.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    sched_policy: u32,
    sched_flags: u64,
    sched_nice: i32,
    sched_priority: u32,
    sched_runtime: u64,
    sched_deadline: u64,
    sched_period: u64,
    sched_util_min: u32,
    sched_util_max: u32,
}

/// The size passed to `sched_setattr`, in bytes: it leaves the clamps as they are.
const ATTR_SIZE: u32 = 48;

impl SchedAttr {
    fn of_current_thread() -> Option<SchedAttr> {
        let mut attr = SchedAttr::default();
        let size = size_of_val(&attr);
        // SAFETY: `attr` is writable for `size` bytes; 0 is this thread.
        let failed =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) } != 0;
        (!failed).then_some(attr)
    }

    fn slice(&self) -> Option<u64> {
        let fair = matches!(
            self.sched_policy as i32,
            libc::SCHED_OTHER | libc::SCHED_BATCH
        );
        (fair && self.sched_runtime != 0).then_some(self.sched_runtime)
    }

    /// Whether the thread's children inherit a niceness or clamps that the flag would take from them.
    fn passes_on_more(&self) -> bool {
        self.sched_nice < 0
            || crate::os::nice::is_own_negative()
            || self.sched_util_min != 0
            || !matches!(self.sched_util_max, 0 | NO_CLAMP)
    }
}

/// The slice of the calling thread in nanoseconds. `None` where the kernel does not report it (before Linux
/// 6.12), or where the thread is not in the fair class.
#[must_use]
pub fn current() -> Option<u64> {
    SchedAttr::of_current_thread()?.slice()
}

/// Gives the calling thread a slice of `ns` nanoseconds (the kernel clamps it to 0.1–100 ms).
///
/// Returns whether the kernel took it. Threads and processes that the thread starts get the kernel's default
/// (`SCHED_FLAG_RESET_ON_FORK`). A thread in a real-time or deadline class keeps its slice. So does a thread
/// with a negative niceness or utilization clamps, which its children would lose.
///
/// ```
/// // Needs no rights; false on a kernel before 6.12.
/// let _took = morpheus_runtime::slice::set_current(morpheus_runtime::slice::WORKER_SLICE_NS);
/// ```
pub fn set_current(ns: u64) -> bool {
    let Some(mut attr) = SchedAttr::of_current_thread() else {
        return false;
    };
    if attr.slice().is_none() || attr.passes_on_more() {
        return false;
    }
    attr.size = ATTR_SIZE;
    attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attr.sched_runtime = ns;
    // SAFETY: `attr` is readable for `attr.size` bytes; policy and nice are what the kernel reported.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
}

/// The slice that this module has given to a thread.
#[derive(Clone, Copy)]
enum State {
    /// The thread's own slice.
    Own,
    /// The kernel refused a worker's slice, and is not asked again.
    Refused,
    /// A worker's slice; the value is the previous slice in nanoseconds.
    Worker(u64),
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Own) };
}

/// Gives the calling thread a worker's slice unless it has one. Returns false at the first refusal only.
pub(crate) fn become_worker() -> bool {
    if !matches!(STATE.get(), State::Own) {
        return true;
    }
    let own = current();
    let state = match own {
        Some(own) if set_current(WORKER_SLICE_NS) => State::Worker(own),
        _ => State::Refused,
    };
    STATE.set(state);
    matches!(state, State::Worker(_))
}

/// Restores the slice that the calling thread had before [`become_worker`].
pub(crate) fn leave_worker() {
    if let State::Worker(own) = STATE.get() {
        set_current(own);
        STATE.set(State::Own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_was_taken_can_be_read_back() {
        std::thread::spawn(|| {
            let Some(before) = current() else { return };
            if set_current(WORKER_SLICE_NS) {
                assert_eq!(current(), Some(WORKER_SLICE_NS));
                assert!(set_current(before));
                assert_eq!(current(), Some(before));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn niceness_survives() {
        std::thread::spawn(|| {
            // SAFETY: changes the calling thread only.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) }, 0);
            set_current(WORKER_SLICE_NS);
            assert_eq!(SchedAttr::of_current_thread().unwrap().sched_nice, 3);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_worker_goes_back_to_its_own_slice() {
        std::thread::spawn(|| {
            let Some(before) = current() else { return };
            if become_worker() {
                assert_eq!(current(), Some(WORKER_SLICE_NS));
                assert!(become_worker());
                leave_worker();
                assert_eq!(current(), Some(before));
            }
        })
        .join()
        .unwrap();
    }
}
