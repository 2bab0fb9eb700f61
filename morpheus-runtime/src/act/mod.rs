//! Actions of the controller: requests to yield, spares that are held and released, permits for slow tasks, and wakes.

pub(crate) mod confined;
pub(crate) mod cores;
pub(crate) mod handed_over;
pub(crate) mod permit;
pub(crate) mod queue;
pub(crate) mod relief;
pub(crate) mod spare;
pub(crate) mod verdict;
pub(crate) mod wake;
