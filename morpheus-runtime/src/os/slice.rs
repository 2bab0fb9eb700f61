//! Short EEVDF slices: how long a thread runs before the kernel looks whether another should.
//!
//! A worker with a short slice has an early virtual deadline, so that the kernel lets it run before a
//! hog when it wakes. Any thread may shorten its own slice (`sched_setattr`, `sched_runtime`, Linux
//! 6.12); before that, and where a seccomp filter refuses the call, nothing changes and
//! [`set_current`] says so.
//!
//! Children do not inherit the slice: with it the thread gets `SCHED_FLAG_RESET_ON_FORK`, and the kernel
//! gives each process and thread that it starts the default, however it starts it. Only a thread with
//! `CAP_SYS_NICE` could clear that flag again, so it stays, and every later call passes it.
//!
//! The flag would also take a negative niceness and utilization clamps from the children. A thread that has
//! either keeps the kernel's slice.

use std::cell::Cell;

/// The slice of a worker, in nanoseconds: a fifteenth of the usual 3 ms. Shorter ones cost context
/// switches without improving the tail.
pub const WORKER_SLICE_NS: u64 = 200_000;

/// The slice of a thread that polls a slow task in place, in nanoseconds. Shorter than the workers',
/// because longer ones made the tail of those worse.
pub(crate) const IN_PLACE_SLICE_NS: u64 = 100_000;

/// What the kernel reports as the upper utilization clamp of a thread that has none; 0 without clamps.
const NO_CLAMP: u32 = 1024;

/// `struct sched_attr`. Its first version is [`ATTR_SIZE`] bytes; a kernel that knows no more leaves the rest.
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

/// How much of it is set: clamps stay as they are.
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

    /// Whether the thread's children inherit more than the slice that the flag would take from them.
    fn passes_on_more(&self) -> bool {
        self.sched_nice < 0
            || crate::os::nice::is_own_negative()
            || self.sched_util_min != 0
            || !matches!(self.sched_util_max, 0 | NO_CLAMP)
    }
}

/// The slice of the calling thread in nanoseconds; `None` where the kernel does not tell (before 6.12),
/// or where the thread is not in the fair class.
#[must_use]
pub fn current() -> Option<u64> {
    SchedAttr::of_current_thread()?.slice()
}

/// Gives the calling thread a slice of `ns` nanoseconds (the kernel clamps to 0.1–100 ms).
///
/// Returns whether the kernel took it. Threads and processes that the thread starts get the kernel's default
/// (`SCHED_FLAG_RESET_ON_FORK`). These threads keep what they have: one in a real-time or deadline class, and
/// one with a negative niceness or with utilization clamps, which its children would lose.
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

/// What a thread of a runtime has.
#[derive(Clone, Copy)]
enum State {
    /// Its own slice.
    Own,
    /// A worker's, which the kernel refused to give it: it is not asked again.
    Refused,
    /// A worker's; before that this one, in nanoseconds.
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

/// Gives the calling thread the slice back that it had before [`become_worker`].
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
