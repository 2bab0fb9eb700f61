//! Short EEVDF slices: how long a thread runs before the kernel considers another thread.
//!
//! A worker with a short slice has an early virtual deadline, so the kernel runs it before a hog when it
//! wakes. Any thread may shorten its own slice (`sched_setattr`, `sched_runtime`, Linux 6.12). Before that
//! version, and where a seccomp filter refuses the call or would kill for it, nothing changes and [`set_current`] returns false.
//!
//! Children do not inherit the slice. With it the thread gets `SCHED_FLAG_RESET_ON_FORK`, and the kernel
//! gives the default to each process and thread that it starts, by whichever call. Only a thread with
//! `CAP_SYS_NICE` could clear that flag again. So the flag stays, and every later call passes it.
//!
//! The flag would also take a negative niceness and utilization clamps from the children. A thread that has
//! either keeps the kernel's slice.
//!
//! Outside of Linux there are no slices: [`current`] has none to tell, and [`set_current`] says false.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sched_attr::{CALLING_THREAD, SchedAttr};

/// The slice of a worker, in nanoseconds: the kernel's are 0.7 ms on one CPU, 1.4 on two, and 2.8 to 3 on eight and more. Twice as
/// much makes the workers' wakes a quarter later at p99 (`starvation --hogs 20 --hog-via spawn`).
pub const WORKER_SLICE_NS: u64 = 200_000;

/// The slice of a CPU hog that polls without its core, in nanoseconds. The kernel lets a thread that wakes with a shorter slice run
/// before it at once, so that threads with the kernel's slice do too: those of the pool that take a core. It is longer than what any
/// kernel gives. Beside four such hogs `/ping` had a p99 of 9.6 to 10 ms with the kernel's slices, and 4.6 to 4.8 with this
/// (`service --only morpheus+flag --connections shared`).
const HOG_SLICE_NS: u64 = 20_000_000;

/// What the kernel takes for its own slice.
const KERNELS_SLICE: u64 = 0;

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
/// let _took = morpheus_system::slice::set_current(morpheus_system::slice::WORKER_SLICE_NS);
/// ```
pub fn set_current(ns: u64) -> bool {
    replace_current(ns).is_some()
}

/// Does the same as [`set_current`], and returns the previous slice in nanoseconds; `None` if the kernel did not take the new one.
fn replace_current(ns: u64) -> Option<u64> {
    let attr = SchedAttr::of_current_thread()?;
    let before = attr.slice()?;
    attr.set_slice(CALLING_THREAD, ns).then_some(before)
}

/// The slice of a thread of this process in nanoseconds; `None` as for [`current`], and where there is no such thread.
#[must_use]
pub fn of(tid: u32) -> Option<u64> {
    SchedAttr::of(tid)?.slice()
}

/// Counts what [`lengthen_workers`] and [`lengthen_hogs`] did in this process. Release after the slice was set, and Acquire in [`renew_worker`]: a thread
/// that has not seen the number of its own change yet asks when it next parks.
static LENGTHENED: AtomicU32 = AtomicU32::new(0);

/// Gives another thread of this process the kernel's slice, if it has a worker's or a hog's. Each thread that calls [`renew_worker`]
/// afterwards looks whether it was the one.
///
/// The other attributes are set to what they were a moment before. So nothing else may change them at the same time.
pub fn lengthen_workers(tid: u32) {
    lengthen(tid, &[WORKER_SLICE_NS, HOG_SLICE_NS], KERNELS_SLICE);
}

/// Gives another thread of this process a hog's slice, if it has a worker's, as [`lengthen_workers`] does with the kernel's.
///
/// The poll may end meanwhile, and the thread restore its own slice before this one is set. `has_ended` tells that afterwards: the
/// thread then has the kernel's slice.
pub fn lengthen_hogs(tid: u32, has_ended: impl FnOnce() -> bool) {
    lengthen(tid, &[WORKER_SLICE_NS], HOG_SLICE_NS);
    if has_ended() {
        lengthen(tid, &[HOG_SLICE_NS], KERNELS_SLICE);
    }
}

fn lengthen(tid: u32, from_ns: &[u64], to_ns: u64) {
    let is_lengthened = SchedAttr::of(tid).is_some_and(|attr| {
        let is_ours = attr.slice().is_some_and(|slice| from_ns.contains(&slice));
        is_ours && attr.set_slice(tid, to_ns)
    });
    if is_lengthened {
        LENGTHENED.fetch_add(1, Ordering::Release);
    }
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
    /// [`LENGTHENED`] when the thread last looked whether it was the one.
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// Whether [`become_worker`] would ask the kernel: the thread has its own slice, and was not refused another one.
#[inline]
#[must_use]
pub fn is_own() -> bool {
    matches!(STATE.get(), State::Own)
}

/// Whether the calling thread has a worker's slice from [`become_worker`].
#[inline]
#[must_use]
pub fn is_workers() -> bool {
    matches!(STATE.get(), State::Worker(_))
}

/// Gives the calling thread a worker's slice unless it has one. Returns false at the first refusal only.
#[inline]
pub fn become_worker() -> bool {
    !is_own() || take_workers_slice()
}

fn take_workers_slice() -> bool {
    let own = replace_current(WORKER_SLICE_NS).map(|own_ns| match own_ns {
        // That of a poll that ended just when it was lengthened.
        HOG_SLICE_NS => KERNELS_SLICE,
        own_ns => own_ns,
    });
    STATE.set(own.map_or(State::Refused, State::Worker));
    own.is_some()
}

/// Gives the calling thread a worker's slice anew, if it had one and another thread has lengthened it.
#[inline]
pub fn renew_worker() {
    let lengthened = LENGTHENED.load(Ordering::Acquire);
    if lengthened != SEEN.replace(lengthened) {
        renew_lengthened();
    }
}

#[cold]
fn renew_lengthened() {
    if is_workers() && current() != Some(WORKER_SLICE_NS) {
        set_current(WORKER_SLICE_NS);
    }
}

/// Restores the slice that the calling thread had before [`become_worker`].
pub fn leave_worker() {
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
    fn a_workers_slice_is_lengthened_and_renewed() {
        std::thread::spawn(|| {
            let Some(before) = current() else { return };
            if become_worker() {
                let tid = crate::threads::own_tid();
                let lengthen = move || lengthen_workers(tid);
                std::thread::spawn(lengthen).join().unwrap();
                assert_eq!((current(), of(tid)), (Some(before), Some(before)));
                renew_worker();
                assert_eq!(current(), Some(WORKER_SLICE_NS));
                let goes_on = || false;
                lengthen_hogs(tid, goes_on);
                assert_eq!(current(), Some(HOG_SLICE_NS));
                renew_worker();
                assert_eq!(current(), Some(WORKER_SLICE_NS));
                lengthen_hogs(tid, goes_on);
                lengthen_workers(tid);
                assert_eq!(current(), Some(before), "it has lost its core");
                lengthen_hogs(tid, goes_on);
                assert_eq!(current(), Some(before), "only a worker's is replaced");
                set_current(WORKER_SLICE_NS);
                lengthen_hogs(tid, || true);
                assert_eq!(current(), Some(before), "its poll has ended");
                leave_worker();
                renew_worker();
                assert_eq!(current(), Some(before));
            }
        })
        .join()
        .unwrap();
    }

    /// Another thread lengthened it when its poll had just ended.
    #[test]
    fn a_hogs_slice_is_no_threads_own() {
        std::thread::spawn(|| {
            let Some(before) = current() else { return };
            if set_current(HOG_SLICE_NS) && become_worker() {
                leave_worker();
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
                assert!(is_workers());
                assert!(become_worker());
                leave_worker();
                assert!(!is_workers());
                assert_eq!(current(), Some(before));
            }
        })
        .join()
        .unwrap();
    }
}
