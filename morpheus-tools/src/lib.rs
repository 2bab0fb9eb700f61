//! The tools beside Morpheus's daemon, and the format in which the daemon says what it does.
//!
//! They ask the daemon `scx_morpheus` at its socket and need neither its BPF programs nor libbpf: a build takes a Rust
//! toolchain alone. The daemon itself depends on this crate for the format, and has the tools as its commands.
//!
//! - [`status`]: whether a daemon answers. [`stats`]: the numbers it hands out, as JSON; [`socket`] has the kind of socket
//!   that both are asked at.
//! - [`reading`]: those numbers as types, with the names of [`tier`] and the buckets of [`histogram`]. [`telemetry`]: rates,
//!   percentiles and the line of `--stats` and `--monitor`.
//! - [`prometheus`]: a reading in Prometheus's text format.
//! - [`history`]: readings over time, in a file of fixed size.
//! - [`top`]: the same in a terminal.
//! - [`probe`]: how late a sleeping thread wakes up; needs no daemon.
//! - [`signals`]: being told to stop.
#![warn(missing_docs)]

pub mod histogram;
pub mod history;
pub mod probe;
pub mod prometheus;
pub mod reading;
pub mod signals;
pub mod socket;
pub mod stats;
pub mod status;
pub mod telemetry;
pub mod tier;
pub mod top;
