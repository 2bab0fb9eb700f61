//! Short EEVDF slices: how long a thread runs before the kernel looks whether another should.
//!
//! A worker with a short slice has an early virtual deadline, so that the kernel lets it run before a
//! hog when it wakes. Any thread may shorten its own slice (`sched_setattr`, `sched_runtime`, Linux
//! 6.12); before that, and where a seccomp filter refuses the call, nothing changes and
//! [`set_current`] says so.

/// The slice of a worker, in nanoseconds: a fifteenth of the usual 3 ms. Shorter ones cost context
/// switches without improving the tail.
pub const WORKER_SLICE_NS: u64 = 200_000;

/// The slice of a thread that polls an offender in place, in nanoseconds. Shorter than the workers',
/// because longer ones made the tail of those worse.
pub(crate) const IN_PLACE_SLICE_NS: u64 = 100_000;

/// `struct sched_attr` as of its first version (48 bytes), which every kernel with the call accepts.
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
}

const ATTR_SIZE: u32 = size_of::<SchedAttr>() as u32;

fn get() -> Option<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: `attr` is writable for the `ATTR_SIZE` bytes that the kernel is told; 0 is this thread.
    let failed =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, ATTR_SIZE, 0) } != 0;
    (!failed).then_some(attr)
}

/// The slice of the calling thread in nanoseconds; `None` where the kernel does not tell (before 6.12),
/// or where the thread is not in the fair class.
#[must_use]
pub fn current() -> Option<u64> {
    let attr = get()?;
    let fair = matches!(
        attr.sched_policy as i32,
        libc::SCHED_OTHER | libc::SCHED_BATCH
    );
    (fair && attr.sched_runtime != 0).then_some(attr.sched_runtime)
}

/// Gives the calling thread a slice of `ns` nanoseconds (the kernel clamps to 0.1–100 ms).
///
/// Returns whether the kernel took it. A thread in a real-time or deadline class, whose place the
/// application chose itself, is left alone.
///
/// ```
/// // Needs no rights; false on a kernel before 6.12.
/// let _took = morpheus_runtime::slice::set_current(morpheus_runtime::slice::WORKER_SLICE_NS);
/// ```
pub fn set_current(ns: u64) -> bool {
    let Some(mut attr) = get() else { return false };
    if current().is_none() {
        return false;
    }
    attr.size = ATTR_SIZE;
    attr.sched_flags = 0;
    attr.sched_runtime = ns;
    // SAFETY: `attr` is readable for `attr.size` bytes; policy and nice are what the kernel reported.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
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
            assert_eq!(get().unwrap().sched_nice, 3);
        })
        .join()
        .unwrap();
    }
}
