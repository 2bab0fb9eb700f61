//! Actions: hold and release spares, limit concurrent slow tasks, call wakers.

pub(crate) mod permit;
pub(crate) mod spare;
pub(crate) mod wake;
