//! Tests of published libraries, unchanged, on the Morpheus runtime.
//!
//! Each file in `tests` tests one library. The first kind of test does real work through the library on a
//! Morpheus runtime and checks the result. The second kind puts hogs into its handlers and measures a
//! neighbour's request ([`neighbour()`]). On tokio with the same number of workers the neighbour waits for
//! the hogs. On Morpheus it must have its answer while they are still in their polls. `docs/src/libraries.md` has the
//! table that these tests print.
//!
//! This library has what the tests share: hogs that can be held ([`hog`]), the two runtimes and a runtime
//! outside of them ([`stage`]), certificates ([`tls`]), a Redis server ([`redis_server`]), and the versions
//! in `Cargo.lock` ([`version`]).
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

/// A time limit that no step of a test exceeds, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the output of `future`.
///
/// # Panics
///
/// When `future` takes longer than [`PATIENCE`], so that a test that hangs fails with a message.
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
