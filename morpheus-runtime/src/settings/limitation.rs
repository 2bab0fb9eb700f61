//! Limitations: features that the runtime would use and does not have.

use std::fmt;

/// A feature that the runtime would use, and that the system or this build of tokio does not offer. Each
/// variant says what the runtime does without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limitation {
    /// The system is not Linux, and protection needs Linux: the runtime is tokio's, without spares and without a controller.
    /// Nothing is watched, reported or taken over.
    Protection,
    /// Threads keep the kernel's slice, so wake-ups beside hogs take longer. The kernel takes no slices
    /// (before Linux 6.12, or where a seccomp filter refuses `sched_setattr`), or the threads have a negative
    /// niceness or utilization clamps, which children would lose together with the slice.
    ShortSlices,
    /// The state of a thread could not be read, because `/proc` is not mounted or the process had used up its
    /// descriptors. A watched poll then counts as blocked once it has been stalled for 50 ms; before that the
    /// canary task detects it.
    ThreadStates,
    /// The process may have fewer than 256 descriptors (`RLIMIT_NOFILE`). The runtime keeps fewer of its own
    /// open between two samples, which costs the controller CPU time.
    Descriptors,
    /// No `membarrier` (before Linux 4.14, or refused): an idle runtime wakes fifty times a second.
    Membarrier,
    /// There are fewer spares than asked for, because the system gives no more threads.
    Spares,
    /// There were more threads at once than slots in the table: some threads are not watched.
    Slots,
    /// Slow tasks are not lowered by `nice` although it was asked for: the process may not raise them again. A process that drops that
    /// right later has it from the first thread that could not be raised; that one stays lowered.
    ReversibleNice,
    /// [`Builder::watch_every_task`](crate::Builder::watch_every_task) has no effect, because tokio was built
    /// without `--cfg tokio_unstable`.
    TaskHooks,
    /// [`Builder::disable_lifo_slot`](crate::Builder::disable_lifo_slot) has no effect, because tokio was
    /// built without `--cfg tokio_unstable`.
    LifoSwitch,
}

impl fmt::Display for Limitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limitation::Protection => "protection from stalled polls (Linux)",
            Limitation::ShortSlices => {
                "short slices (Linux 6.12, sched_setattr allowed, no negative niceness)"
            }
            Limitation::ThreadStates => "thread states (/proc mounted, a descriptor to read it)",
            Limitation::Descriptors => "descriptors to keep (RLIMIT_NOFILE of 256 or more)",
            Limitation::Membarrier => "membarrier (Linux 4.14, allowed)",
            Limitation::Spares => "threads for all spares (raise the process limit)",
            Limitation::Slots => "slots for all threads",
            Limitation::ReversibleNice => {
                "the right to raise niceness again (RLIMIT_NICE or CAP_SYS_NICE)"
            }
            Limitation::TaskHooks => {
                "tokio's task hooks, to watch every task (RUSTFLAGS=\"--cfg tokio_unstable\")"
            }
            Limitation::LifoSwitch => {
                "tokio's switch for the LIFO slot (RUSTFLAGS=\"--cfg tokio_unstable\")"
            }
        })
    }
}
