//! The controller and the joiner: the threads that observe, decide and act.

pub(crate) mod confiner;
pub(crate) mod controller;
pub(crate) mod daemon;
pub(crate) mod here;
pub(crate) mod hogs;
mod host;
pub(crate) mod life;
pub(crate) mod plain;
pub(crate) mod watchdog;
pub(crate) mod workers;
