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
//!
//! Outside of Linux there are no slices: [`current`] has none to tell, and [`set_current`] says false.

use std::cell::Cell;

use crate::os::sched_attr::SchedAttr;

/// The slice of a worker, in nanoseconds: a fifteenth of the usual 3 ms. Shorter ones cost context
/// switches without improving the tail.
pub const WORKER_SLICE_NS: u64 = 200_000;

/// The slice of a thread that polls a slow task in place, in nanoseconds. Shorter than the workers',
/// because longer ones made the tail of those worse.
pub(crate) const IN_PLACE_SLICE_NS: u64 = 100_000;

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
    SchedAttr::of_current_thread().is_some_and(|attr| attr.set_slice(ns))
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
