//! Around one poll: its mark in the slot, the handoff of a slow task, the hold of a spare, tokio's task
//! hooks.

#[cfg(test)]
mod forked;
pub(crate) mod handoff;
pub(crate) mod hold;
#[cfg(tokio_unstable)]
pub(crate) mod hooked_handoff;
#[cfg(tokio_unstable)]
pub(crate) mod hooks;
pub(crate) mod known;
#[cfg(tokio_unstable)]
pub(crate) mod labels;
pub(crate) mod mark;
pub(crate) mod own_slot;
pub(crate) mod own_verdict;
#[cfg(tokio_unstable)]
pub(crate) mod short_polls;
pub(crate) mod state;
