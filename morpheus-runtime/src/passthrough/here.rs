//! In place of `control/here.rs`: nothing is watched on the calling thread.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::domain::Domain;
use super::poll::state::WatchState;

/// A thread in `block_on` is no other than before.
pub(crate) fn enter(_domain: &Arc<Domain>) {}

#[inline]
pub(crate) fn poll<F: Future>(
    future: Pin<&mut F>,
    _state: &mut WatchState,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    future.poll(cx)
}

/// Nothing asks.
#[inline]
pub(crate) fn is_requested() -> bool {
    false
}

#[inline]
pub(crate) fn checkpoint() -> bool {
    false
}

/// A section is not counted: nothing slows its task down, in it or outside.
pub(crate) fn enter_critical() -> bool {
    false
}

pub(crate) fn leave_critical() {}
