//! The attributes `#[morpheus_runtime::main]` and `#[morpheus_runtime::test]`.
//!
//! Use them through `morpheus_runtime`, which re-exports both. This file is what the compiler calls;
//! `options` reads the words in the parentheses, `expand` rewrites the function.
#![warn(missing_docs)]

mod expand;
mod options;

use proc_macro::TokenStream;

use crate::expand::{Kind, expand};

/// Runs an `async fn` on a Morpheus runtime: change `#[tokio::main]` into this, and no task can starve the others.
///
/// ```
/// #[morpheus_runtime::main]
/// async fn main() {
///     let answer = morpheus_runtime::spawn(async { 6 * 7 }).await.unwrap();
///     assert_eq!(answer, 42);
/// }
/// ```
///
/// is short for a plain `fn main` with this in it:
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
/// Those of `#[tokio::main]`, and some of Morpheus's. Each names a method of `morpheus_runtime::Builder`, and one that is left
/// out keeps the builder's default.
///
/// | option | unit | what it sets |
/// |---|---|---|
/// | `flavor = "multi_thread"`, `"current_thread"` | | `Builder::new_multi_thread`, the default, or `Builder::new_current_thread` |
/// | `worker_threads = N` | threads, at least 1 | `Builder::worker_threads`: how many run tasks side by side |
/// | `start_paused = BOOL` | | `Builder::start_paused`, with the cargo feature `test-util` of `morpheus-runtime` |
/// | `name = "text"` | | `Builder::name` |
/// | `max_spares = N` | threads | `Builder::max_spares`: how many may take over from stuck workers |
/// | `reserve = N` | threads | `Builder::reserve`: how many stand ready before a worker is stuck |
/// | `budget_us = N` | microseconds | `Builder::budget`: how long one poll may take before it is asked to yield |
/// | `grace_us = N` | microseconds | `Builder::grace`: how long it has for that |
/// | `report_after_us = N` | microseconds | `Builder::report_after`: how long a poll may be stuck before its stack is taken |
/// | `crate = "path"` | | where `morpheus_runtime` is found, when it is renamed or re-exported |
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
///     pub use morpheus_runtime as no_starvation;
/// }
///
/// #[prelude::no_starvation::main(crate = "crate::prelude::no_starvation")]
/// async fn main() {}
/// ```
///
/// # What it may stand on
///
/// An `async fn` of any name; all but `main` may take arguments, be generic, or be a method. Its attributes, its visibility
/// and its return type stay. Attributes below this one see the rewritten function, which is no longer `async`.
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
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Main, options.into(), item.into()).into()
}

/// Makes a test of an `async fn`, and runs it on a Morpheus runtime of its own.
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
/// The options are those of `#[main]` (see there), but the flavor is `current_thread` unless said otherwise, as under
/// `#[tokio::test]`. With several threads `max_spares` is 4 unless said otherwise, because tests run many at a time.
/// `#[ignore]`, `#[should_panic]` and a `Result` as return type mean what they mean for
/// any test. There is no need for `#[test]` beside it.
///
/// # Panics
///
/// The test panics with `morpheus: the runtime could not be started: …` when the builder reports an error.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Test, options.into(), item.into()).into()
}
