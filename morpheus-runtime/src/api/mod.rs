//! The public API: what applications use.

pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod checkpoint;
pub(crate) mod critical;
pub(crate) mod current;
#[cfg(feature = "metrics")]
pub(crate) mod debug_metrics;
#[cfg(feature = "metrics")]
pub(crate) mod export;
#[cfg(feature = "metrics")]
pub(crate) mod export_debug;
pub(crate) mod metrics;
pub(crate) mod runtime;
#[doc(hidden)]
#[cfg(all(
    feature = "unstable-ablation",
    target_os = "linux",
    not(morpheus_passthrough)
))]
pub mod single_step;
#[cfg(feature = "strip")]
pub mod strip;
pub mod task;
#[cfg(feature = "tower")]
pub mod tower;
pub(crate) mod watch;
