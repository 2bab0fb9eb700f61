//! The attributes. Their code is in `morpheus-macros`, which cannot use a runtime in its examples: cargo would build tokio and
//! this crate a second time, for the compiler's own platform.

/// Runs an `async fn` on a Morpheus runtime, in place of `#[tokio::main]`: where a task stalls its worker, a spare takes
/// over, for up to [`max_spares`](crate::Builder::max_spares) stalled tasks at once.
///
/// ```
/// #[morpheus_runtime::main]
/// async fn main() {
///     let answer = morpheus_runtime::spawn(async { 6 * 7 }).await.unwrap();
///     assert_eq!(answer, 42);
/// }
/// ```
///
/// This is short for a plain `fn main` with this body:
///
/// ```
/// async fn body() {
///     let answer = morpheus_runtime::spawn(async { 6 * 7 }).await.unwrap();
///     assert_eq!(answer, 42);
/// }
///
/// morpheus_runtime::Builder::new_multi_thread()
///     .build()
///     .expect("morpheus: the runtime could not be started")
///     .block_on(body());
/// ```
///
/// # Options
///
/// The options are those of `#[tokio::main]`, but for `flavor = "local"` and `unhandled_panic`, and some of
/// Morpheus's. Each names a method of
/// [`Builder`](crate::Builder). An option that is left out keeps the builder's default.
///
/// | option | unit | sets |
/// |---|---|---|
/// | `flavor = "multi_thread"`, `"current_thread"` | | [`Builder::new_multi_thread`](crate::Builder::new_multi_thread), the default, or [`Builder::new_current_thread`](crate::Builder::new_current_thread) |
/// | `worker_threads = N` | threads, at least 1 | [`Builder::worker_threads`](crate::Builder::worker_threads): the number of threads that run tasks in parallel, while no poll is stalled |
/// | `start_paused = BOOL` | | [`Builder::start_paused`](crate::Builder::start_paused), with the cargo feature `test-util` of `morpheus-runtime` |
/// | `name = "text"` | | [`Builder::name`](crate::Builder::name) |
/// | `max_spares = N` | threads | [`Builder::max_spares`](crate::Builder::max_spares): the number of spares that may take over from stalled workers |
/// | `reserve = N` | threads | [`Builder::reserve`](crate::Builder::reserve): the number of spares that are active before a worker is stalled |
/// | `budget_us = N` | microseconds | [`Builder::budget`](crate::Builder::budget): the time that a poll may take before it is asked to yield |
/// | `grace_us = N` | microseconds | [`Builder::grace`](crate::Builder::grace): the time that a poll then has to yield |
/// | `report_after_us = N` | microseconds | [`Builder::report_after`](crate::Builder::report_after): the time for which a poll may be stalled before its stack is taken |
/// | `crate = "path"` | | the path of `morpheus_runtime`, when it is renamed or re-exported |
///
/// A number is an integer literal. For anything else (a policy, a link, hooks), use the builder. `worker_threads`,
/// `max_spares` and `reserve` need the flavor `multi_thread`, and `start_paused` needs `current_thread`.
///
/// ```
/// #[morpheus_runtime::main(worker_threads = 2, max_spares = 8, budget_us = 1_000, grace_us = 1_000)]
/// async fn main() -> Result<(), std::num::ParseIntError> {
///     let parsed: u32 = "42".parse()?;
///     assert_eq!(parsed, 42);
///     Ok(())
/// }
/// ```
///
/// ```
/// mod prelude {
///     pub mod no_starvation {
///         pub use morpheus_runtime::*;
///     }
/// }
///
/// #[prelude::no_starvation::main(crate = "crate::prelude::no_starvation")]
/// async fn main() {}
/// ```
///
/// # Functions that it accepts
///
/// It accepts an `async fn` of any name; all but `main` may take arguments, be generic, or be a method. The
/// function keeps its attributes, its visibility and its return type. Attributes below this one see the
/// rewritten function, which is no longer `async`.
///
/// ```
/// #[morpheus_runtime::main(flavor = "current_thread")]
/// async fn add(one: u32, other: &u32) -> u32 {
///     one + other
/// }
///
/// assert_eq!(add(1, &2), 3);
/// ```
///
/// # Panics
///
/// The function panics with `morpheus: the runtime could not be started: …` when the builder reports an error.
#[doc(inline)]
pub use morpheus_macros::main;

/// Turns an `async fn` into a test that runs on a Morpheus runtime of its own.
///
/// ```
/// #[morpheus_runtime::test]
/// async fn adds_up() {
///     let answer = morpheus_runtime::spawn(async { 6 * 7 }).await.unwrap();
///     assert_eq!(answer, 42);
/// }
///
/// #[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
/// #[should_panic(expected = "never mind")]
/// async fn gives_up() {
///     panic!("never mind");
/// }
/// ```
///
/// The options are those of [`main`]. As under `#[tokio::test]`, the default flavor is
/// `current_thread`. With the flavor `multi_thread` the default of `max_spares` is 4, because many tests run
/// at a time. `#[ignore]`, `#[should_panic]` and a `Result` as return type work as for any test. `#[test]` is
/// not needed beside it.
///
/// # Panics
///
/// The test panics with `morpheus: the runtime could not be started: …` when the builder reports an error.
#[doc(inline)]
pub use morpheus_macros::test;
