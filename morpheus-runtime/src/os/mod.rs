//! System facilities, one file each. Nothing here knows of tasks, workers or runtimes.

pub(crate) mod asleep;
pub(crate) mod clock;
pub(crate) mod limitation;
pub(crate) mod nice;
pub(crate) mod quota;
pub(crate) mod sched_attr;
pub(crate) mod slack;
pub(crate) mod sleeper;
pub mod slice;
pub(crate) mod supervise;
pub(crate) mod threads;
