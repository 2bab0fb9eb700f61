//! Actions: spares that are held and released, permits for slow tasks, wakes that hold up nobody.

pub(crate) mod permit;
pub(crate) mod spare;
pub(crate) mod wake;
