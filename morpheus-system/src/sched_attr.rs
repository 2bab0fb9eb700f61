//! How the kernel schedules a thread: the calls below [`slice`](crate::slice).

use std::io;

use crate::seccomp::Call;

/// The upper utilization clamp that the kernel reports for a thread without one; 0 without clamps.
const NO_CLAMP: u32 = 1024;

/// `struct sched_attr`. Its first version is [`ATTR_SIZE`] bytes; a kernel that knows no more leaves the rest.
#[repr(C)]
#[derive(Default)]
pub struct SchedAttr {
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

/// The thread ID of the calling thread, to these calls.
pub const CALLING_THREAD: u32 = 0;

/// How much of it is set: clamps stay as they are.
const ATTR_SIZE: u32 = 48;

impl SchedAttr {
    pub fn of_current_thread() -> Option<SchedAttr> {
        SchedAttr::of(CALLING_THREAD)
    }

    pub fn of(tid: u32) -> Option<SchedAttr> {
        let mut attr = SchedAttr::default();
        let size = size_of_val(&attr);
        // SAFETY: `attr` is writable for `size` bytes; a thread that is gone gives ESRCH.
        let failed =
            unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) } != 0;
        (!failed).then_some(attr)
    }

    pub fn slice(&self) -> Option<u64> {
        let fair = matches!(
            self.sched_policy as i32,
            libc::SCHED_OTHER | libc::SCHED_BATCH
        );
        (fair && self.sched_runtime != 0).then_some(self.sched_runtime)
    }

    /// Whether the thread's children inherit more than the slice that the flag would take from them.
    fn passes_on_more(&self) -> bool {
        self.sched_nice < 0
            || crate::nice::is_own_negative()
            || self.sched_util_min != 0
            || !matches!(self.sched_util_max, 0 | NO_CLAMP)
    }

    /// Whether the kernel took a slice of `ns` nanoseconds for a thread, whose attributes these are. 0 is the kernel's slice.
    pub fn set_slice(mut self, tid: u32, ns: u64) -> bool {
        if self.slice().is_none() || self.passes_on_more() || !Call::SetAttributes.is_allowed() {
            return false;
        }
        self.size = ATTR_SIZE;
        self.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        self.sched_runtime = ns;
        // SAFETY: `self` is readable for `self.size` bytes; policy and nice are what the kernel reported.
        let is_taken =
            unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const self, 0) == 0 };
        // Another thread may have rights that this one has not.
        let is_own = tid == CALLING_THREAD;
        if !is_taken && is_own && self.is_refused_to_all(&io::Error::last_os_error()) {
            Call::SetAttributes.note_refusal();
        }
        is_taken
    }

    /// Whether this error concerns the call and not these attributes: a niceness that another thread has raised meanwhile is also
    /// refused.
    fn is_refused_to_all(&self, error: &io::Error) -> bool {
        let is_refusal = matches!(
            error.raw_os_error(),
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS)
        );
        let same = |now: SchedAttr| now.sched_nice == self.sched_nice;
        is_refusal && SchedAttr::of_current_thread().is_some_and(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::{WORKER_SLICE_NS, set_current};

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
}
