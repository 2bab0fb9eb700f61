//! A tokio that no task can starve.
//!
//! A task that computes for 200 ms inside one `poll`, or blocks in a system call there, costs the other
//! tasks of the same runtime nothing that they can notice. It needs no cooperation from that task, no
//! change in the libraries that spawned it, no root and no special kernel. Keep your tokio program, and
//! change one line:
//!
//! ```
//! #[morpheus_runtime::main]
//! async fn main() {
//!     // Somebody computes for ever so long, on a task of his own …
//!     let hog = tokio::spawn(async { std::thread::sleep(std::time::Duration::from_millis(50)) });
//!     // … and everybody else goes on.
//!     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
//!     hog.await.unwrap();
//! }
//! ```
//!
//! The executor is stock tokio with `workers + max_spares` worker threads, of which the spares are held
//! back. A controller thread notices that work waits and nobody serves it, and releases spares until it
//! is served; nothing is added while nobody is stalled, and what was added is taken back.
//!
//! # What is watched, and how
//!
//! | what | how | named as | asked to yield | handed off |
//! |---|---|---|---|---|
//! | every task, of whatever library | nothing to do: the canary, and tokio's counters | "not watched" | no | no |
//! | tasks that you spawn | [`spawn`], or [`task::Builder`] | the place, or a name | yes | yes |
//! | a part of somebody else's task; `JoinSet`, `LocalSet` | [`watch`](watch()), [`.watched("name")`](Watch::watched), [`.watched_as(&name)`](Watch::watched_as), [`task::Builder::watch`] | the place, or the name | yes | yes |
//! | handlers of axum, tonic, and every tower service | `.layer(tower::WatchLayer::new())` (feature `tower`) | the route | yes | yes |
//! | handlers of hyper | the same, through `hyper_util`'s `TowerToHyperService` | the path | yes | yes |
//! | every task, of whatever library | `RUSTFLAGS="--cfg tokio_unstable"`, and nothing else ([`Builder::watch_every_task`]) | the place that spawned it | yes | no |
//! | the future of `block_on`, closures of `spawn_blocking` | need not be: nothing queues behind them | | | |
//! | tasks of a current-thread runtime, and the future of its `block_on` | by the same, but for the first row | the place, or the name | yes | no |
//!
//! All of them are worked around: a spare takes the waiting work. *Asked to yield* is what [`checkpoint()`] and
//! [`checkpoint_sync`] answer. *Handed off* is what happens to tasks and labels that are known to be slow: nothing
//! queues behind them any more, and a few of them run at a time. That takes the future itself; a hook around its
//! poll cannot do it. A stalled poll that several of these watch counts once, for the innermost.
//!
//! A current-thread runtime ([`Builder::new_current_thread`]) has no second thread for its tasks: what is watched there is
//! asked to yield and reported, and nothing takes over from it.
//!
//! **What the canary alone sees** is what no row but the first covers: without the flag, whatever libraries do in tasks
//! of their own, such as accepting, TLS, parsing, and streaming a body after the handler has answered. The canary is
//! a no-op that must run within the [budget](Builder::budget). It tells that work waits and nobody serves it, and
//! a spare is released; it does not tell who it was. So the report says "not watched", nobody is asked or
//! remembered, and the next poll of that kind takes a worker again.
//!
//! **One hole.** A task that an unknown hog woke *last*, before it computed on in the same poll, sits in
//! its worker's LIFO slot, which tokio lets nobody steal from, and waits for that poll. From the second
//! time on a watched hog is handed off and the slot handed over; a [`checkpoint()`] or
//! [`checkpoint_sync`] that is asked to yield hands it over at once; with `--cfg tokio_unstable`
//! [`Builder::disable_lifo_slot`] does without the slot.
//!
//! **Protection needs Linux.** On other systems the same API passes through to tokio, so that a program builds and runs
//! there: nothing is watched, asked to yield, taken over or reported. [`Limitation::Protection`] in [`Metrics`] and
//! [`ActiveLink::None`] say so.
//!
//! # Telling who it was
//!
//! Stall reports are [`tracing`] events under `morpheus::stall`. They come from a thread of their own, which starts with the
//! first: install a global subscriber. One that is slow, blocks or panics loses events and holds up nothing else. `MORPHEUS_SUMMARY=1` prints a table of labels when the process exits, and
//! the lines in which polls were stalled; [`Runtime::stalls`] gives these to the program.
//!
//! [`Runtime::metrics`] and [`Metrics::current`] have the counters; feature `metrics` publishes them, and the labels that
//! were ever stalled, to the `metrics` crate, under the names that `dashboards/morpheus.json` shows in Grafana.
#![warn(missing_docs)]
// Which cargo feature an item needs stands beside it on docs.rs, which builds with nightly.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(target_os = "linux", not(morpheus_passthrough))),
    allow(dead_code, reason = "shared parts have functions for Linux alone")
)]

// For the attributes' expansion inside this crate's own tests.
extern crate self as morpheus_runtime;

/// The program in the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod act;
mod api;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod control;
mod decide;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod domain;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod link;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod observe;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod os;
#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
mod passthrough;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod poll;
mod report;
mod settings;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod slot;

#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
use passthrough::{act, control, domain, link, os, poll};

pub use api::builder::{BuildError, Builder, Policy};
pub use api::checkpoint::{checkpoint, checkpoint_sync, yield_requested};
pub use api::critical::{Critical, CriticalSection, critical, critical_section};
pub use api::metrics::Metrics;
pub use api::runtime::{Health, Leftover, Runtime, ShutdownReport};
#[doc(hidden)]
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub use api::single_step;
pub use api::strip::{self, StripMine, strips};
pub use api::task::{self, spawn};
#[cfg(feature = "tower")]
pub use api::tower;
pub use api::watch::{Watch, Watched, watch};

/// What a program uses of `tokio::runtime`, with Morpheus's [`Builder`] and [`Runtime`]: `use tokio::runtime` becomes
/// `use morpheus_runtime::runtime`.
///
/// ```
/// use morpheus_runtime::runtime::{self, Handle, Runtime};
///
/// fn server() -> std::io::Result<Runtime> {
///     runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
/// }
///
/// let here = server()?.block_on(async { Handle::current().runtime_flavor() });
/// assert_eq!(here, runtime::RuntimeFlavor::MultiThread);
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod runtime {
    #[cfg(tokio_unstable)]
    pub use tokio::runtime::TaskMeta;
    pub use tokio::runtime::{
        EnterGuard, Handle, Id, RuntimeFlavor, RuntimeMetrics, TryCurrentError, worker_index,
    };

    pub use crate::api::builder::Builder;
    pub use crate::api::runtime::Runtime;
}

pub use link::{ActiveLink, Link, LinkError};
pub use morpheus_macros::{main, test};
pub use os::limitation::Limitation;
pub use os::slice;
pub use report::counters::LatencySummary;
pub use report::stacks::{Frame, NoStack, StallGroup, StallKind, Stalls};
pub use settings::mechanism::{Mechanism, UnknownMechanism};
