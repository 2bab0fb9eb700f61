//! The application's end of the control block that a Morpheus runtime and its kernel side share.
//!
//! A thread writes what it does into a *slot* (`morpheus-common` has the words and the protocol). The slots lie in this
//! process's own memory, where the runtime's controller reads them. With a daemon (`scx_morpheus`) they move into memory
//! that the kernel side reads. It then reports at once what the controller would find at its next sample.
//!
//! ```text
//! handle     the calling thread's slot, in about a nanosecond
//! directory  tells tools outside of the process which thread has which slot, and the names of labels
//! table      all slots of a runtime; moves each to the memory where it should be
//! area       that memory; fork keeps children out of what is shared
//! presence   waits until a daemon's socket appears
//! client     connects, sends Hello, maps the reply (area, ring)
//! joiner     a thread: shares the area with the table and binds each thread that moves there, until the daemon or
//!            the runtime ends
//! events     the controller's end: events, sleeping workers, the heartbeat
//! ring       the memory that events come in
//! state      what the joiner, the controller and the workers tell each other
//! ```
//!
//! An application uses `morpheus-runtime`. This crate is a part of it, and promises nothing to others. On other systems
//! than Linux it has [`choice`] alone.
#![warn(missing_docs)]
#![cfg_attr(
    not(all(target_os = "linux", not(morpheus_passthrough))),
    allow(dead_code, reason = "shared parts have functions for Linux alone")
)]

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod area;
pub mod choice;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod client;
pub mod directory;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod events;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod fork;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod handle;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod joiner;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod presence;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod ring;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod state;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod table;

pub use choice::{ActiveLink, Link, LinkError};
