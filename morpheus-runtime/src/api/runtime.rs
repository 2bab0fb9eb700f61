//! The runtime: tokio's, with a controller beside it, and an orderly shutdown.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use morpheus_common::slot::RuntimeSlot;
use tokio::runtime::{EnterGuard, Handle};
use tokio::task::JoinHandle;

use crate::act::wake::Wake;
use crate::api::builder::Builder;
use crate::api::metrics::Metrics;
use crate::api::task;
use crate::control::here;
use crate::domain::Domain;
use crate::report::label;
use morpheus_link::ActiveLink;
use morpheus_stacks::Stalls;
use morpheus_system::clock;

/// A request to yield puts the runtime into [`Health::UnderPressure`] for this time, in nanoseconds.
const UNDER_PRESSURE_FOR_NS: u64 = 1_000_000_000;

/// The loss of a daemon puts the runtime into [`Health::DaemonLost`] for this time, in nanoseconds.
const DAEMON_LOST_FOR_NS: u64 = 1_000_000_000;

/// The end of a runtime waits up to this time for events that the subscriber has not received yet.
const REPORTS_WITHIN: Duration = Duration::from_millis(100);

/// The condition of a runtime in the last second; see [`Runtime::health`].
///
/// It goes by the watched tasks that were asked to yield. A stall of an unwatched task does not change it:
/// [`Metrics`](crate::Metrics) count those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// No task was asked to yield in the last second.
    Healthy,
    /// Tasks were asked to yield in the last second.
    UnderPressure,
    /// The daemon ended or stopped responding in the last second, and only the watchdog is left.
    DaemonLost,
}

/// Tokio's runtime with held spare workers and a controller. On a multi-thread runtime the other tasks run on while up to
/// [`Builder::max_spares`] tasks are stalled.
///
/// All of tokio works on it, because it is tokio: `spawn`, `JoinSet`, `spawn_blocking`, `block_in_place`,
/// `LocalSet`, `net`, `time`, `fs`, `process`, `signal`, `sync`. Dropping it shuts it down as tokio does: the
/// drop waits for polls and blocking calls under way. It panics in async code, as tokio's does: use
/// [`shutdown_background`](Runtime::shutdown_background) there.
///
/// A current-thread runtime ([`Builder::new_current_thread`]) has one thread for its tasks, and nothing can
/// take over from it. Its watched polls are asked to yield, and reported with their stack.
pub struct Runtime {
    /// Never moved out of this struct while spares are held: dropping it then would wait for ever.
    tokio: Option<tokio::runtime::Runtime>,
    domain: Arc<Domain>,
    /// The controller's thread, where that is not one of tokio's.
    controller: Option<thread::JoinHandle<()>>,
    /// The process that has built the runtime.
    process: u32,
}

/// For libraries that take tokio's runtime by reference: benchmarks (`criterion`), `LocalSet::block_on`, the `wrap` of
/// `tokio_util`. Tasks that are spawned there are as any others. What [`Runtime::block_on`] does besides is left out:
/// checkpoints and watched polls of that future, on a current-thread runtime those of all tasks.
///
/// ```
/// let runtime = morpheus_runtime::Builder::new_multi_thread().worker_threads(1).build()?;
/// let local = tokio::task::LocalSet::new();
/// assert_eq!(local.block_on(runtime.as_ref(), async { 1 + 1 }), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
impl AsRef<tokio::runtime::Runtime> for Runtime {
    fn as_ref(&self) -> &tokio::runtime::Runtime {
        self.tokio()
    }
}

// As tokio's: a panic in `block_on` or in a task leaves the runtime usable.
impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

/// A poll that was still under way when [`Runtime::shutdown_and_report`] gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The label of the watched task.
    pub label: String,
    /// The kernel's number of the thread that polls it, as in `/proc/self/task`.
    pub tid: u32,
}

/// The polls and workers that did not end before a shutdown gave up. Empty outside of Linux, where
/// no poll is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Watched polls that did not end in time. Their threads go on until the polls end.
    pub left: Vec<Leftover>,
    /// The number of threads that did not end in time and are in no watched poll: in polls of other tasks, or in blocking calls.
    pub unwatched: usize,
}

impl Runtime {
    /// Builds a multi-thread runtime with the defaults of [`Builder::new_multi_thread`].
    ///
    /// # Errors
    ///
    /// Those of [`Builder::build`].
    pub fn new() -> std::io::Result<Runtime> {
        Builder::new_multi_thread().build()
    }

    pub(crate) fn from_parts(tokio: tokio::runtime::Runtime, domain: Arc<Domain>) -> Runtime {
        Runtime {
            tokio: Some(tokio),
            domain,
            controller: None,
            process: std::process::id(),
        }
    }

    /// Adds a controller's thread, which ends with the runtime.
    pub(crate) fn with_controller(mut self, controller: Option<thread::JoinHandle<()>>) -> Runtime {
        self.controller = controller;
        self
    }

    #[cfg(any(test, feature = "unstable-ablation"))]
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    fn tokio(&self) -> &tokio::runtime::Runtime {
        self.tokio
            .as_ref()
            .expect("taken only by the functions that consume the runtime")
    }

    /// Runs a future on the calling thread until it is done, as tokio's `block_on` does. The future itself
    /// runs on no worker, so no task can queue behind it.
    ///
    /// A current-thread runtime runs its tasks on this thread meanwhile, and they wait for each poll of the
    /// future. So watch the future there too ([`Watch::watched`](crate::Watch::watched)).
    ///
    /// # Panics
    ///
    /// Inside another runtime's worker or `block_on`, with tokio's message ("Cannot start a runtime from
    /// within a runtime"): use `spawn`, or `block_in_place` around it.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let is_current_thread = self.domain.settings.is_current_thread;
        let _entered = is_current_thread.then(|| here::enter(&self.domain));
        self.tokio().block_on(future)
    }

    /// Spawns a watched task, with the place of this call as its label.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::Builder::new().spawn_on(future, self.handle())
    }

    /// Runs a function on a thread for blocking calls, as tokio's `spawn_blocking` does.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, function: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.handle().spawn_blocking(function)
    }

    /// Tokio's own handle. The runtime takes over from tasks spawned through it like from any other, and
    /// reports them as "not watched".
    ///
    /// Tokio's `Handle::metrics()` does not know of spares: its `num_workers` counts all of them, its
    /// `num_alive_tasks` and busy times count the held ones. Its `global_queue_depth` can be 0 where tasks
    /// would wait in tokio, because a spare has taken them. Export [`metrics`](Self::metrics) instead, which
    /// has these names too.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.tokio().handle()
    }

    /// Makes this runtime the current one of the calling thread.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.tokio().enter()
    }

    /// The runtime's counters, and tokio's metrics without the held spares, which
    /// [`handle`](Self::handle)`().metrics()` counts as workers and tasks.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.domain, self.handle().metrics())
    }

    /// The lines in which polls were stalled for [`Builder::report_after`] or longer, by label, with counts
    /// and durations. It looks up symbol names, so the first call may take a second in a large program.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = morpheus_runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let slow = runtime.spawn(async { std::thread::sleep(Duration::from_millis(60)) });
    /// runtime.block_on(slow).unwrap();
    /// for group in runtime.stalls().groups {
    ///     if let Some(line) = group.culprit() {
    ///         println!("{} polls of {} were {} in {line}", group.count, group.label, group.kind);
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stalls(&self) -> Stalls {
        self.domain.stacks.stalls()
    }

    /// The link that is in use at this moment.
    #[must_use]
    pub fn link(&self) -> ActiveLink {
        self.domain.link.active()
    }

    /// The condition of the runtime at this moment.
    #[must_use]
    pub fn health(&self) -> Health {
        let now_ns = clock::now_ns();
        let silent_ns = self.domain.link.silent_ns.load(Ordering::Relaxed);
        if silent_ns != 0 && now_ns.saturating_sub(silent_ns) < DAEMON_LOST_FOR_NS {
            return Health::DaemonLost;
        }
        let last_ns = self.domain.counters.last_request_ns.get();
        if last_ns != 0 && now_ns.saturating_sub(last_ns) < UNDER_PRESSURE_FOR_NS {
            Health::UnderPressure
        } else {
            Health::Healthy
        }
    }

    /// Shuts down, waiting at most `timeout` for polls and blocking calls under way. Each watched poll that
    /// is left is an event under `morpheus::stall`. Afterwards it waits for up to 100 ms for the last events.
    ///
    /// # Panics
    ///
    /// In async code, unless `timeout` is zero, as tokio's does.
    pub fn shutdown_timeout(self, timeout: Duration) {
        let _report = self.shutdown_and_report(timeout);
    }

    /// Shuts down as [`shutdown_timeout`](Self::shutdown_timeout) does, and returns the polls that were left.
    ///
    /// # Panics
    ///
    /// As [`shutdown_timeout`](Self::shutdown_timeout) does.
    pub fn shutdown_and_report(mut self, timeout: Duration) -> ShutdownReport {
        self.close();
        let tokio = self.tokio.take().expect("shut down once");
        tokio.shutdown_timeout(timeout);
        self.end();
        let report = self.leftovers();
        for left in &report.left {
            tracing::warn!(target: "morpheus::stall", label = %left.label, tid = left.tid, "still running after shutdown");
        }
        report
    }

    /// Shuts down without waiting for anything.
    pub fn shutdown_background(mut self) {
        self.close();
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
            self.free_waiting();
        }
    }

    /// The threads that did not end. One that polls a watched task has a slot, others perhaps not.
    fn leftovers(&self) -> ShutdownReport {
        let slots = &self.domain.slots;
        let has_thread = |slot: &&RuntimeSlot| slot.tid.load(Ordering::Acquire) != 0;
        let left: Vec<Leftover> = slots
            .runtimes()
            .filter(has_thread)
            .filter(|slot| slot.observe_poll() % 2 == 1)
            .map(|slot| Leftover {
                label: label::by_id(slot.label.load(Ordering::Relaxed))
                    .map_or_else(|| "?".to_owned(), |label| label.origin().to_string()),
                tid: slot.tid.load(Ordering::Acquire),
            })
            .collect();
        // Relaxed: tokio's shutdown has waited for the threads that ended.
        let threads = self.domain.threads.load(Ordering::Relaxed);
        ShutdownReport {
            unwatched: threads.saturating_sub(left.len()),
            left,
        }
    }

    /// Ends the rest after tokio's shutdown: waits for the controller, and up to [`REPORTS_WITHIN`] for the
    /// last events.
    fn end(&mut self) {
        if let Some(controller) = self.controller.take() {
            // It was asked to stop, and does so at its next iteration. Its panics are caught there.
            // A forked child does not have that thread, and would wait for it for ever.
            match self.process == std::process::id() {
                true => drop(controller.join()),
                false => std::mem::forget(controller),
            }
        }
        self.domain.reports.close(REPORTS_WITHIN);
        self.free_waiting();
    }

    /// Wakes futures that wait for a permit of this runtime on another runtime. It is called after tokio has
    /// begun its shutdown: this runtime's own tasks are not polled for that any more.
    fn free_waiting(&self) {
        let woken = self.domain.permits.close();
        woken.into_iter().for_each(Wake::here);
    }

    /// Releases the spares and ends the controller. It is called before tokio's shutdown, which waits for
    /// both.
    fn close(&self) {
        // Before the spares: the last of those that are held waits for the polls that were handed over.
        self.domain.handed_over.close();
        self.domain.spares.close();
        #[cfg(tokio_unstable)]
        self.domain
            .permits
            .free_threads()
            .into_iter()
            .for_each(Wake::here);
        self.domain.sleeper.stop();
        self.domain.link.wake_controller();
        self.domain.link.stop();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.close();
        if let Some(tokio) = self.tokio.take() {
            // The drop panics in async code, as tokio's does. Then `end` is not reached.
            drop(tokio);
            self.end();
        }
    }
}
