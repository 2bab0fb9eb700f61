//! The facilities of the system that a Morpheus runtime and its tools use, a file for each. Nothing here knows of tasks, workers or
//! runtimes.
//!
//! An application uses `morpheus-runtime`. This crate is a part of it, and promises nothing to others.
//!
//! On other systems than Linux the questions that the runtime's public API asks have the answers of a system that
//! offers nothing.
#![warn(missing_docs)]
#![cfg_attr(
    not(all(target_os = "linux", not(morpheus_passthrough))),
    allow(dead_code, reason = "shared parts have functions for Linux alone")
)]

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod affinity;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod asleep;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod clock;
#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod family;
pub mod lock;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod nice;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod quota;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod run_delay;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod sched_attr;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod seccomp;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod signals;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod slack;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod sleeper;
pub mod slice;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod steal;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod supervise;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod threads;

#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
use elsewhere::sched_attr;
#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
pub use elsewhere::{asleep, clock, quota, sleeper, threads};
