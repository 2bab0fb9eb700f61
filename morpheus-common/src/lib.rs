//! What a Morpheus runtime and its kernel side share.
//!
//! - [`abi`]: the memory that both sides map, made from `include/morpheus_abi.h`.
//! - [`slot`]: the same memory as atomics, with the operations that the protocol consists of.
//! - [`broker`]: the messages by which an application gets that memory.
//! - [`ladder`]: when a stalled poll is asked to yield, taken over, demoted, throttled; pure
//!   functions.
//! - [`hand_over`]: how a buffer is handed to a signal handler.
//!
//! The protocol, who writes which word, and why every memory ordering suffices is in
//! `src/PROTOCOL.md`; `tests/loom.rs` checks it.
#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod broker;
pub mod hand_over;
pub mod ladder;
pub mod slot;
mod sync;
