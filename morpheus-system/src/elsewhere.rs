//! In place of the files for Linux: the questions that the runtime's public API asks of the system.

/// How a thread is scheduled.
pub(crate) mod sched_attr {
    /// The thread ID of the calling thread.
    pub(crate) const CALLING_THREAD: u32 = 0;

    /// These systems do not tell.
    #[derive(Debug)]
    pub(crate) enum SchedAttr {}

    impl SchedAttr {
        pub(crate) fn of_current_thread() -> Option<SchedAttr> {
            None
        }

        pub(crate) fn of(_tid: u32) -> Option<SchedAttr> {
            None
        }

        pub(crate) fn slice(&self) -> Option<u64> {
            match *self {}
        }

        pub(crate) fn set_slice(self, _tid: u32, _ns: u64) -> bool {
            match self {}
        }
    }
}

/// Clocks. Nothing is timed, and no age grows.
pub mod clock {
    use std::time::Duration;

    /// Monotonic time in nanoseconds: always 0.
    #[must_use]
    pub fn now_ns() -> u64 {
        0
    }

    /// A duration in nanoseconds; the largest number for a longer one.
    #[must_use]
    pub fn nanos(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// CPU quotas.
pub mod quota {
    /// CPUs that the process may use, as tokio counts them.
    #[must_use]
    pub fn cpus_paid_for() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// The number of threads.
pub mod threads {
    /// All that are wanted: tokio finds out.
    #[must_use]
    pub fn available(wanted: usize, _stack_size: Option<usize>) -> usize {
        wanted
    }
}

/// Thread states.
pub mod asleep {
    /// False: none of these files are kept.
    #[must_use]
    pub fn are_descriptors_scarce() -> bool {
        false
    }
}

/// Sleeps without a timeout.
pub mod sleeper {
    /// False: no barrier is needed.
    #[must_use]
    pub fn is_barrier_refused() -> bool {
        false
    }
}
