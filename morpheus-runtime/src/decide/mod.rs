//! Decisions: staff the spares, rate tasks and labels, choose the stalls that become events. No clocks, no threads.

pub(crate) mod case;
pub(crate) mod confinement;
pub(crate) mod history;
pub(crate) mod pace;
pub(crate) mod rating;
#[cfg(tokio_unstable)]
pub(crate) mod records;
pub(crate) mod reporting;
pub(crate) mod staffing;
