//! Types that a Morpheus runtime and its kernel side share.
//!
//! - [`abi`]: the memory that both sides map, generated from `include/morpheus_abi.h`.
//! - [`slot`]: the same memory as atomics, with the operations of the protocol.
//! - [`broker`]: the messages by which an application gets that memory.
//! - [`ladder`]: decides when a stalled poll is asked to yield, taken over, demoted, throttled; pure
//!   functions.
//! - [`hand_over`]: hands a buffer to a signal handler.
//! - [`directory`]: where a tool outside of the process finds slots and the names of labels.
//!
//! `src/PROTOCOL.md` has the protocol, the writer of each word, and the proof that every memory ordering
//! suffices. `tests/loom.rs` checks it.
#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod broker;
pub mod directory;
pub mod hand_over;
pub mod ladder;
pub mod slot;
mod sync;
