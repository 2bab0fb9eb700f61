//! A tokio that no task can starve.
//!
//! A task may compute for 200 ms inside one `poll`, or block in a system call there. The other tasks of the same
//! runtime run on meanwhile, most of them within a millisecond. That needs no cooperation from the task, no change
//! in the library that spawned it, no root and no special kernel. It has limits:
//!
//! - It holds on Linux, and on a multi-thread runtime.
//! - It holds for as many stalled tasks at once as there are spares ([`Builder::max_spares`]). If more are stalled,
//!   work waits until one of their polls ends. Watched tasks that are known to be slow do not count
//!   ([`Builder::max_handoffs`]).
//! - It makes no CPU time: hogs that compute share the CPUs with the other tasks.
//! - A task that an unknown hog woke last waits for that poll (*one hole*, below).
//!
//! Keep your tokio program, and change the names of tokio's attributes `main` and `test`, and of its module `runtime`:
//!
//! ```
//! #[morpheus_runtime::main]
//! async fn main() {
//!     // This task blocks its worker for 50 ms …
//!     let hog = tokio::spawn(async { std::thread::sleep(std::time::Duration::from_millis(50)) });
//!     // … and the other tasks go on.
//!     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
//!     hog.await.unwrap();
//! }
//! ```
//!
//! The executor is stock tokio with `workers + max_spares` worker threads, and one more unless
//! [`max_handoffs`](Builder::max_handoffs) is 0. All but the workers are held. A controller thread detects work that waits while no worker serves it, and releases spares until the work is
//! served. It releases none while no worker is stalled, and holds the released spares again afterwards.
//!
//! # Ways to watch tasks
//!
//! | what | how | named as | asked to yield | handed off |
//! |---|---|---|---|---|
//! | every task, of whatever library | nothing to do: the canary task, and tokio's counters | "not watched" | no | no |
//! | tasks that you spawn | [`spawn`], or [`task::Builder`] | the place, or a name | yes | yes |
//! | a part of another task; `JoinSet`, `LocalSet` | [`watch`](watch()), [`.watched("name")`](Watch::watched), [`.watched_as(&name)`](Watch::watched_as), [`task::Builder::watch`] | the place, or the name | yes | yes |
//! | handlers of axum, tonic, and every tower service | `.layer(tower::WatchLayer::new())` (feature `tower`) | the method and the first segment of the path, or the method and the route (`by_route`) | yes | yes |
//! | handlers of hyper | the same, through `hyper_util`'s `TowerToHyperService` | the same | yes | yes |
//! | every task, of whatever library | `RUSTFLAGS="--cfg tokio_unstable"`, and nothing else ([`Builder::watch_every_task`]) | the place that spawned it | yes | yes |
//! | the future of `block_on`, closures of `spawn_blocking` | need not be: nothing queues behind them | | | |
//! | tasks of a current-thread runtime, and the future of its `block_on` | by the same, but for the first row | the place, or the name | yes | no |
//!
//! On a multi-thread runtime a spare takes the work that waits behind any of them. *Asked to yield* means
//! that [`checkpoint()`] and [`checkpoint_sync`] yield when the controller asks. *Handed off* means that the
//! worker hands off its core before it polls a task that is rated slow, or whose label is. Then nothing
//! queues behind the poll, and a few of these polls run at a time. Where several of these rows watch one stalled poll, it counts once, for the
//! innermost.
//!
//! A current-thread runtime ([`Builder::new_current_thread`]) has no second thread for its tasks. Its watched
//! polls are asked to yield and reported, and nothing takes over from them.
//!
//! **Only the canary task sees** a poll that no row but the first covers. Without the flag, that is all that
//! libraries do in tasks of their own: accepting, TLS, parsing, and streaming a body after the handler has
//! answered. The canary task is a no-op that must run in time. If it is late (at the first sample after two
//! fifths of the [budget](Builder::budget)), work waits and no worker serves it, and the controller releases a spare. The canary task does not tell
//! which task is slow. So the report says "not watched", no task is asked to yield or remembered, and the
//! next poll of that kind stalls a worker again.
//!
//! **One hole.** A hog that is not yet rated may wake a task and then compute on in the same poll. The task
//! that it woke *last* sits in the worker's LIFO slot. Tokio lets no other worker steal from that slot, so
//! the task waits until the poll ends. From the second time on, the worker of a watched hog hands off its
//! core with the slot. A [`checkpoint()`] or [`checkpoint_sync`] that is asked to yield flushes the slot at
//! once. With `--cfg tokio_unstable`, [`Builder::disable_lifo_slot`] does without the slot.
//!
//! **Protection needs Linux.** On other systems the same API passes through to tokio, so that a program builds and runs
//! there: nothing is watched, asked to yield, taken over or reported. [`Limitation::Protection`] in [`Metrics`] and
//! [`ActiveLink::None`] say so.
//!
//! # Naming the slow task
//!
//! Stall reports are [`tracing`] events under `morpheus::stall`. A thread of their own emits them, which
//! starts with the first event: install a global subscriber. A subscriber that is slow, blocks or panics
//! loses events and delays nothing else. `MORPHEUS_SUMMARY=1` prints a table of labels when the process
//! exits, with the lines in which polls were stalled. [`Runtime::stalls`] returns these to the program.
//!
//! [`Runtime::metrics`] and [`Metrics::current`] have the counters. Feature `metrics` publishes the counters,
//! and the labels that were ever stalled, to the `metrics` crate, under the names that
//! `dashboards/morpheus.json` shows in Grafana.
//!
//! # Cargo features
//!
//! | feature | what it adds |
//! |---|---|
//! | `stacks` (default) | stall reports with the stack of the stalled thread |
//! | `tower` | a layer that watches the handlers of every tower service |
//! | `metrics` | [`Metrics`] for the recorder of the `metrics` crate |
//! | `strip` | `strip!`, `strips` and `StripMine`: loops that pass a checkpoint about every 50 µs |
//! | `test-util` | tokio's `test-util`, and `Builder::start_paused` |
//! | `unstable-ablation` | for benchmarks; no stability promise: `Builder::without` leaves a mechanism out, the module `slice` sets the time slice of a thread |
#![warn(missing_docs)]
// On docs.rs, which builds with nightly, each item names the cargo feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(target_os = "linux", not(morpheus_passthrough))),
    allow(dead_code, reason = "shared parts have functions for Linux alone")
)]

// The attributes expand to paths of this name, also inside this crate's own tests.
extern crate self as morpheus_runtime;

/// Compiles and runs the program in the README.
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
mod observe;
#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
mod passthrough;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod poll;
mod report;
mod settings;

#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
use passthrough::{act, control, domain, poll};

pub use api::attributes::{main, test};
pub use api::builder::{BuildError, Builder, Policy};
pub use api::checkpoint::{checkpoint, checkpoint_sync, yield_requested};
pub use api::critical::{Critical, CriticalSection, critical, critical_section};
#[cfg(feature = "metrics")]
pub use api::debug_metrics::DebugMetrics;
pub use api::metrics::Metrics;
pub use api::runtime::{Health, Leftover, Runtime, ShutdownReport};
#[doc(hidden)]
#[cfg(all(
    feature = "unstable-ablation",
    target_os = "linux",
    not(morpheus_passthrough)
))]
pub use api::single_step;
#[cfg(feature = "strip")]
pub use api::strip::{self, StripMine, strips};
pub use api::task::{self, spawn};
#[cfg(feature = "tower")]
pub use api::tower;
pub use api::watch::{Watch, Watched, watch};

/// All of `tokio::runtime`, with Morpheus's [`Builder`] and [`Runtime`] in place of tokio's: `use
/// tokio::runtime` becomes `use morpheus_runtime::runtime`.
///
/// Spares have cores, and an index each: [`worker_index`](self::runtime::worker_index) is less than
/// `runtime.handle().metrics().num_workers()`, and may be more than `runtime.metrics().num_workers()`, which counts
/// the workers without spares.
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
    // The two below have names of their own here, which hide tokio's.
    pub use tokio::runtime::*;

    pub use crate::api::builder::Builder;
    pub use crate::api::runtime::Runtime;
}

pub use morpheus_link::{ActiveLink, Link, LinkError};
pub use morpheus_stacks::{Frame, NoStack, StallGroup, StallKind, Stalls};
#[cfg(feature = "unstable-ablation")]
pub use morpheus_system::slice;
pub use report::counters::LatencySummary;
#[cfg(feature = "unstable-ablation")]
pub use settings::ablation::{Mechanism, UnknownMechanism};
pub use settings::limitation::Limitation;
