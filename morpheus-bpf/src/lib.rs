// SPDX-License-Identifier: GPL-2.0-only
//! The kernel side of Morpheus.
//!
//! The daemon `scx_morpheus` loads BPF programs that read the control block of every connected application and see
//! what the application cannot: that a worker sleeps in the kernel in the middle of a poll, and how much CPU time a
//! poll has used. It tells the application through the area that is the kernel's, and through a ring of events.
//!
//! So far there is the **observer**: tracing programs only, on a kernel with BTF, and the kernel's own scheduler
//! schedules.
//!
//! ```text
//!  application ── Hello, Register ──► broker ──► session ──► observer ──► BPF programs
//!       │      ◄── two areas, ring ──                                        │
//!       └────────────── slots (shared memory), events ◄─────────────────────┘
//! ```
//!
//! - [`broker`]: the socket, the connections, the loop.
//! - [`session`]: what one connection may ask for and gets; knows no socket and no BPF.
//! - [`bucket`]: how often it may ask.
//! - [`peer`]: who is on the other side, and whether a thread is one of its.
//! - [`observer`]: the BPF programs, as something that is loaded, attached and called.
//! - `leases`: where BPF finds the areas of a lease.
//! - [`pressure`]: how busy the machine is, for the area's header.
//! - [`signals`]: being told to stop.
//! - [`check`], [`status`]: what the commands of these names print.
//!
//! # Invariants
//!
//! - What an application says is checked here or in the BPF programs, never believed: a process reaches its own slots
//!   and its own threads.
//! - A connection is a lease. When it closes, its maps and bindings go.
//! - What a peer can make the daemon hold is bounded: connections, slots, one message at a time.
#![warn(missing_docs)]

pub mod broker;
pub mod bucket;
pub mod check;
pub mod exit;
pub mod kernel;
pub mod observer;
pub mod peer;
pub mod pressure;
pub mod scheduler;
pub mod session;
pub mod signals;
pub mod stats;
pub mod status;

mod leases;
mod skeleton;
