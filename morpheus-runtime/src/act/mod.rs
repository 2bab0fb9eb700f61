//! Actions: requests to yield, spares that are held and released, permits for slow tasks, wakes that hold up no worker.

pub(crate) mod permit;
pub(crate) mod spare;
pub(crate) mod verdict;
pub(crate) mod wake;
