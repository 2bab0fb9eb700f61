//! In place of `os/`: the questions that the public API asks of the system.

#[path = "../os/limitation.rs"]
pub(crate) mod limitation;
#[path = "../os/slice.rs"]
pub mod slice;

pub(crate) mod sched_attr {
    /// How a thread is scheduled, which these systems do not tell.
    #[derive(Debug)]
    pub(crate) enum SchedAttr {}

    impl SchedAttr {
        pub(crate) fn of_current_thread() -> Option<SchedAttr> {
            None
        }

        pub(crate) fn slice(&self) -> Option<u64> {
            match *self {}
        }

        pub(crate) fn set_slice(self, _ns: u64) -> bool {
            match self {}
        }
    }
}

pub(crate) mod clock {
    use std::time::Duration;

    /// Nothing is timed, and no age grows.
    pub(crate) fn now_ns() -> u64 {
        0
    }

    pub(crate) fn nanos(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }
}

pub(crate) mod quota {
    /// CPUs that the process may use, as tokio counts them.
    pub(crate) fn cpus_paid_for() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

pub(crate) mod threads {
    /// All of them: tokio finds out.
    pub(crate) fn available(wanted: usize, _stack_size: Option<usize>) -> usize {
        wanted
    }
}

pub(crate) mod asleep {
    /// None are kept.
    pub(crate) fn are_descriptors_scarce() -> bool {
        false
    }
}

pub(crate) mod sleeper {
    /// None is needed.
    pub(crate) fn is_barrier_refused() -> bool {
        false
    }
}
