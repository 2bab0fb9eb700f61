//! Reports: labels, counters, the events for the application's subscriber, stacks, and the summary at exit.

pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod label;
pub(crate) mod names;
pub(crate) mod own;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) mod stacks;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) mod summary;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) mod thread;
