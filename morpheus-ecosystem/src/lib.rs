//! The libraries that people build on, as published and unchanged, on the Morpheus runtime.
//!
//! One file in `tests` for each. The first kind of test does real work through the library on a runtime of ours and
//! checks what comes out. The second puts hogs into its handlers and asks what a neighbour notices ([`neighbour()`]): on
//! tokio, with as many workers, it waits for them; here it must be answered while they are still in their polls.
//! `docs/src/libraries.md` has the table that these tests print.
//!
//! Here is what the tests share: hogs that can be held ([`hog`]), the two runtimes and who stands outside of them
//! ([`stage`]), certificates ([`tls`]), a Redis of one's own ([`redis_server`]), and what is in `Cargo.lock`
//! ([`version`]).
#![warn(missing_docs)]

pub mod hog;
pub mod neighbour;
#[cfg(feature = "redis")]
pub mod redis_server;
pub mod stage;
#[cfg(feature = "tls")]
pub mod tls;
pub mod version;

use std::time::Duration;

pub use hog::Hogs;
pub use neighbour::{Scene, neighbour};
pub use stage::Stage;

/// Workers of each runtime under test.
pub const WORKERS: usize = 2;

/// Longer than anything here takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `future`, or a panic when it takes longer than [`PATIENCE`]: a test that hangs says so.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn in_time<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("{at}: not done within {PATIENCE:?}"),
        }
    }
}
