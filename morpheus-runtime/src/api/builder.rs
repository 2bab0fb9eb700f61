//! Building a runtime: tokio's multi-thread scheduler with spare workers, held, and a controller; or its current-thread
//! scheduler, with a controller alone.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::api::current;
use crate::api::runtime::Runtime;
use crate::domain::Domain;
use crate::link::{Link, LinkError};
use crate::os::limitation::Limitation;
use crate::os::threads;
use crate::os::{clock, quota};
use crate::settings::mechanism::{Mechanism, Mechanisms};
use crate::settings::{
    DEFAULT_BUDGET_NS, DEFAULT_EVENT_INTERVAL, DEFAULT_GRACE_NS, DEFAULT_REPORT_AFTER_NS, Settings,
};
pub use morpheus_common::ladder::Policy;

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
use {
    crate::control::{controller, joiner},
    crate::os::sleeper,
    crate::poll::{hold, own_slot},
    crate::report::summary,
    crate::slot::handle,
    morpheus_common::slot::SlotFlag,
    std::panic::{AssertUnwindSafe, catch_unwind},
    std::sync::atomic::Ordering,
};

/// `Builder::start` of tokio alone.
#[cfg(not(all(target_os = "linux", not(morpheus_passthrough))))]
#[path = "../passthrough/start.rs"]
mod start;

/// Spares that a runtime has at the least by default; see `max_spares`.
const MIN_DEFAULT_SPARES: usize = 32;
/// For a while after anything was stalled.
const DEFAULT_RESERVE: usize = 1;
/// Under pressure, so many spares per CPU are in reserve. Beside two hogs, 64 tasks of 20 µs polls had a
/// twelfth more polls a second with six than with four, for they share the CPU with the hogs by threads;
/// with one, a third as many.
const RESERVE_UNDER_PRESSURE_PER_CPU: usize = 6;
/// Threads for handoff polls, as many as tokio's default for blocking calls: each stalled task that sleeps
/// needs one.
const DEFAULT_IN_PLACE: usize = 512;
/// The smallest stack that threads of a runtime get. The controller is one of them: in a debug build
/// `the_controller_needs_no_more_than_the_smallest_stack` (`tests/builder.rs`) passes with 32 KiB and not with 24.
const LEAST_STACK: usize = 64 << 10;
/// Tokio's own default.
const DEFAULT_BLOCKING_THREADS: usize = 512;
/// Threads on which something may be watched at once on a current-thread runtime: those in `block_on`, and blocking ones.
const CURRENT_THREAD_SEATS: usize = 128;
/// Tokio counts idle workers in 16 bits, and more threads than this are a mistake anyway.
const MAX_WORKERS: usize = 4096;

/// A budget or grace of this long is never over; longer ones would only overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

type Hook = Arc<dyn Fn() + Send + Sync>;
type ThreadName = Arc<dyn Fn() -> String + Send + Sync>;
#[cfg(tokio_unstable)]
type TaskHook = Arc<dyn Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync>;

/// Builds a [`Runtime`]: tokio's builder, by name and method, with options of Morpheus's beside tokio's.
///
/// Protection needs Linux. On other systems the runtime is tokio's alone, with the workers, threads and hooks that are set
/// here, without spares and without a controller; [`Limitation::Protection`](crate::Limitation::Protection) says so. The other
/// options of Morpheus's change nothing there. Numbers that make no sense are the same errors as on Linux, and with
/// [`Link::Required`] no runtime is built.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = morpheus_runtime::Builder::new_multi_thread()
///     .worker_threads(2)
///     .max_spares(8)
///     .budget(Duration::from_millis(2))
///     .thread_name("server")
///     .build()?;
/// assert_eq!(runtime.block_on(async { 1 + 1 }), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Builder {
    is_current_thread: bool,
    worker_threads: Option<usize>,
    max_spares: Option<usize>,
    reserve: Option<usize>,
    budget: Duration,
    grace: Duration,
    report_after: Duration,
    policy: Policy,
    link: Link,
    link_socket: Option<PathBuf>,
    demotable: bool,
    nice_hogs: bool,
    confine_to_quota: bool,
    /// Only where the application set it.
    max_blocking_threads: Option<usize>,
    max_handoffs: usize,
    event_interval: u32,
    thread_name: ThreadName,
    /// Only where the application set it.
    thread_stack_size: Option<usize>,
    mechanisms: Mechanisms,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
    on_park: Option<Hook>,
    on_unpark: Option<Hook>,
    /// Where nothing was said, what tokio was built for.
    watch_every_task: Option<bool>,
    disable_lifo_slot: bool,
    #[cfg(tokio_unstable)]
    on_before_task_poll: Option<TaskHook>,
    #[cfg(tokio_unstable)]
    on_after_task_poll: Option<TaskHook>,
    tokio: tokio::runtime::Builder,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("worker_threads", &self.worker_threads)
            .field("max_spares", &self.max_spares)
            .field("budget", &self.budget)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Why a runtime could not be built. Nothing is left behind.
///
/// [`Builder::build`] gives it in an [`io::Error`](std::io::Error), as tokio's does, [`Builder::try_build`] as it is.
///
/// ```
/// use morpheus_runtime::{BuildError, Builder};
///
/// let error = Builder::new_multi_thread().worker_threads(0).build().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
/// assert!(matches!(inner, Some(BuildError::NoWorkers)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `worker_threads(0)`.
    #[error("worker_threads must be at least 1")]
    NoWorkers,
    /// More threads than make sense.
    #[error("{asked} workers and spares are more than the {max} that a runtime may have")]
    TooManyWorkers {
        /// Workers and spares together.
        asked: usize,
        /// How many there may be.
        max: usize,
    },
    /// `budget(Duration::ZERO)`.
    #[error("budget must not be zero: it is how long a poll may take")]
    NoBudget,
    /// A reserve that the spares cannot supply.
    #[error("a reserve of {reserve} cannot come out of {max_spares} spares: raise max_spares")]
    ReserveTooLarge {
        /// The reserve asked for.
        reserve: usize,
        /// The spares there would be.
        max_spares: usize,
    },
    /// The system gives too few threads even without spares.
    #[error(
        "the system gives {available} more threads, and {needed} are needed: raise the process limit \
         (ulimit -u, pids.max) or ask for fewer workers"
    )]
    TooFewThreads {
        /// Threads that could be had.
        available: usize,
        /// Workers, the controller, and nothing else.
        needed: usize,
    },
    /// [`Link::Required`], and there is no link to a daemon.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// [`Link::Required`] for a current-thread runtime, which joins no daemon.
    #[error(
        "a current-thread runtime joins no daemon: build a multi-thread one, or ask for Link::Auto"
    )]
    LinkOnOneThread,
    /// Tokio could not be started, for instance for want of file descriptors.
    #[error("tokio could not be started: {0}")]
    Tokio(#[from] std::io::Error),
}

/// Tokio's own error stays as it is, with the system's number where it has one. Around every other [`BuildError`] there is a
/// kind: `InvalidInput` for numbers that make no sense, `QuotaExceeded` for threads that the system does not give, and for
/// a link `NotFound` without a daemon, `PermissionDenied` from one that refuses or is not believed, `Unsupported` outside of
/// Linux.
impl From<BuildError> for std::io::Error {
    fn from(error: BuildError) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match error {
            BuildError::Tokio(error) => return error,
            BuildError::NoWorkers
            | BuildError::TooManyWorkers { .. }
            | BuildError::NoBudget
            | BuildError::LinkOnOneThread
            | BuildError::ReserveTooLarge { .. } => ErrorKind::InvalidInput,
            BuildError::TooFewThreads { .. } => ErrorKind::QuotaExceeded,
            BuildError::Link(LinkError::Absent { .. }) => ErrorKind::NotFound,
            BuildError::Link(LinkError::Refused { .. } | LinkError::Stranger { .. }) => {
                ErrorKind::PermissionDenied
            }
            BuildError::Link(LinkError::Unsupported) => ErrorKind::Unsupported,
            BuildError::Link(LinkError::Failed { ref source, .. }) => source.kind(),
        };
        std::io::Error::new(kind, error)
    }
}

impl Builder {
    /// A runtime of several threads. The defaults: a worker per CPU (fewer under a CPU quota), `max(32, 2 × workers)`
    /// spares, a budget of 1 ms and as much grace, [`Policy::Demote`]; I/O and time enabled.
    #[must_use]
    pub fn new_multi_thread() -> Builder {
        Builder::over(tokio::runtime::Builder::new_multi_thread(), false)
    }

    /// A runtime whose tasks run on the thread that is in [`Runtime::block_on`], as tokio's. The defaults: a budget of 1 ms;
    /// I/O and time enabled.
    ///
    /// What is watched there is asked to yield once its budget is used up, and reported with its stack. Nothing takes over
    /// from it, since there is no other thread for tasks, and unwatched polls go unreported. So these options have no effect:
    /// [`worker_threads`](Self::worker_threads), [`max_spares`](Self::max_spares), [`reserve`](Self::reserve),
    /// [`max_handoffs`](Self::max_handoffs), [`confine_to_quota`](Self::confine_to_quota) and
    /// [`disable_lifo_slot`](Self::disable_lifo_slot). The runtime joins no daemon, and with [`Link::Required`] it is not
    /// built. The calling thread keeps its slice and its CPUs.
    ///
    /// ```
    /// use morpheus_runtime::{Builder, Watch as _};
    ///
    /// let runtime = Builder::new_current_thread().enable_all().build()?;
    /// let yielded = runtime.block_on(async {
    ///     let work = async {
    ///         while !morpheus_runtime::checkpoint_sync() {} // computes until it is asked to yield
    ///         "asked"
    ///     };
    ///     tokio::spawn(work.watched("a loop")).await
    /// });
    /// assert_eq!(yielded?, "asked");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn new_current_thread() -> Builder {
        Builder::over(tokio::runtime::Builder::new_current_thread(), true)
    }

    fn over(mut tokio: tokio::runtime::Builder, is_current_thread: bool) -> Builder {
        tokio.enable_all();
        Builder {
            is_current_thread,
            worker_threads: None,
            max_spares: None,
            reserve: None,
            budget: Duration::from_nanos(DEFAULT_BUDGET_NS),
            grace: Duration::from_nanos(DEFAULT_GRACE_NS),
            report_after: Duration::from_nanos(DEFAULT_REPORT_AFTER_NS),
            policy: Policy::Demote,
            link: Link::default(),
            link_socket: None,
            demotable: true,
            nice_hogs: false,
            confine_to_quota: false,
            max_blocking_threads: None,
            max_handoffs: DEFAULT_IN_PLACE,
            event_interval: DEFAULT_EVENT_INTERVAL,
            thread_name: Arc::new(|| "morpheus-worker".into()),
            thread_stack_size: None,
            mechanisms: Mechanisms::default(),
            on_start: None,
            on_stop: None,
            on_park: None,
            on_unpark: None,
            watch_every_task: None,
            disable_lifo_slot: false,
            #[cfg(tokio_unstable)]
            on_before_task_poll: None,
            #[cfg(tokio_unstable)]
            on_after_task_poll: None,
            tokio,
        }
    }

    /// Workers that are always active. Default: the CPUs that affinity and quota leave. A current-thread runtime has none.
    ///
    /// Tokio panics on 0; this builder reports [`BuildError::NoWorkers`].
    pub fn worker_threads(&mut self, threads: usize) -> &mut Self {
        self.worker_threads = Some(threads);
        self
    }

    /// Does nothing: I/O and time are always enabled. For programs that were written for tokio's builder.
    pub fn enable_all(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: I/O is always enabled. For programs that were written for tokio's builder.
    pub fn enable_io(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: time is always enabled. For programs that were written for tokio's builder.
    pub fn enable_time(&mut self) -> &mut Self {
        self
    }

    /// Spares: workers that are held until others are stalled. Default: `max(32, 2 × workers)`. Each is a
    /// thread (about 14 KB resident); more than a hundred slow tokio's stealing down, and let as many
    /// unwatched hogs run at once. With 0 nothing is ever taken over.
    pub fn max_spares(&mut self, max_spares: usize) -> &mut Self {
        self.max_spares = Some(max_spares);
        self
    }

    /// Spares that are active before one is needed, so that the next takeover has no delay. It grows by itself under
    /// pressure. Default: 1 for ten seconds after anything was stalled, and none on a good day, for each worker more than
    /// there are CPUs costs those that sleep and wake often; the first takeover after such a time comes up to four
    /// milliseconds later. A number that is set here stays, and with 0 it does not grow.
    pub fn reserve(&mut self, reserve: usize) -> &mut Self {
        self.reserve = Some(reserve);
        self
    }

    /// How long a poll may take, and a task wait that nobody serves (default 1 ms). The controller looks
    /// once a millisecond, so that shorter budgets end at the first look that finds them over.
    pub fn budget(&mut self, budget: Duration) -> &mut Self {
        self.budget = budget;
        self
    }

    /// How long a poll that was asked to yield has time to, before its worker is replaced (default 1 ms
    /// of its CPU time).
    pub fn grace(&mut self, grace: Duration) -> &mut Self {
        self.grace = grace;
        self
    }

    /// How long a watched poll may be stalled before its stack is taken, for [`Runtime::stalls`] and the summary
    /// (default 10 ms). Polls that nobody watches are found after 100 ms.
    pub fn report_after(&mut self, report_after: Duration) -> &mut Self {
        self.report_after = report_after;
        self
    }

    /// How far the escalation may go (default [`Policy::Demote`]).
    ///
    /// [`Policy::Observe`] is a dry run. There are no spares; threads keep the slices and CPUs that they have; no poll
    /// is asked to yield, is handed off or waits. Stall events say what the default policy would have done. What the
    /// runtime adds to tokio then is the controller's thread, and the no-op task by which that finds out whether workers
    /// serve ([`Mechanism::Canary`]).
    pub fn policy(&mut self, policy: Policy) -> &mut Self {
        self.policy = policy;
        self
    }

    /// Where the controller learns of stalled workers: a daemon's link is used where there is one
    /// (default [`Link::Auto`]).
    pub fn link(&mut self, link: Link) -> &mut Self {
        self.link = link;
        self
    }

    /// Where the daemon listens (default: what `MORPHEUS_SOCKET` says, else `/run/morpheus/broker.sock`).
    pub fn link_socket(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.link_socket = Some(path.into());
        self
    }

    /// Whether tasks may be demoted unless they say otherwise (default true).
    pub fn demotable(&mut self, demotable: bool) -> &mut Self {
        self.demotable = demotable;
        self
    }

    /// Lowers the thread of a demoted poll by `nice` 10 until the poll ends, where the process may raise
    /// it again (default false: it hands CPU time to other processes too).
    pub fn nice_hogs(&mut self, nice_hogs: bool) -> &mut Self {
        self.nice_hogs = nice_hogs;
        self
    }

    /// Under a CPU quota (a container's limit), confines the runtime's threads, blocking ones included, to as many CPUs as
    /// the quota pays for, rounded down, at least one (default false). Without a quota it does nothing.
    ///
    /// This trades CPU time for latency. Hogs on more CPUs than that use up a period's quota before its end (usually 100
    /// ms), and the kernel then stops every thread for the rest. On fewer CPUs they take turns with the workers, and the
    /// part of the quota above a whole CPU stays unused: of 1.9 CPUs the runtime can use one. Without the option it can
    /// use all of them, as tokio does; then a spare goes only to the aid of a poll that has computed for 10 ms or sleeps, and
    /// not whenever the workers are late, because one thread more makes the stop longer.
    ///
    /// The CPUs are chosen at random among those that the thread that builds the runtime may use, so that two containers
    /// rarely get the same. An affinity that is set later wins: threads that start afterwards keep what they inherit, once
    /// the runtime's threads or the thread that starts them have another one (`taskset -ap`, a cpuset).
    ///
    /// Threads and processes that a task starts inherit the CPUs, as they inherit any affinity. A child that needs more
    /// sets its own (`sched_setaffinity`, `taskset`).
    pub fn confine_to_quota(&mut self, confine: bool) -> &mut Self {
        self.confine_to_quota = confine;
        self
    }

    /// Blocking calls (`spawn_blocking`, files) that run at once, as in tokio (default 512).
    ///
    /// A number that is set here holds: the application can have that many at once, and no more. It costs handoffs. A slow
    /// task that is polled after its worker handed its core off keeps a thread of tokio's pool, which has no part for the
    /// application alone. So with a number set here slow tasks are polled inline on their workers, as with
    /// [`max_handoffs(0)`](Self::max_handoffs), and spares take over from them
    /// ([`handoffs_refused`](crate::Metrics::handoffs_refused) counts these polls). By default the threads for handoffs come
    /// on top.
    ///
    /// # Panics
    ///
    /// On 0, as in tokio.
    #[track_caller]
    pub fn max_blocking_threads(&mut self, threads: usize) -> &mut Self {
        assert!(threads > 0, "Max blocking threads cannot be set to 0");
        self.max_blocking_threads = Some(threads);
        self
    }

    /// Slow tasks that are handed off at once, those asleep included; each has a thread while it lasts (default 512). Beyond
    /// that they are polled inline, like any task, and so they are with
    /// [`max_blocking_threads`](Self::max_blocking_threads) set, whatever is set here.
    pub fn max_handoffs(&mut self, polls: usize) -> &mut Self {
        self.max_handoffs = polls;
        self
    }

    /// Polls of a worker between two looks at the I/O driver and the timers, as in tokio (default 61). Set here, and not
    /// by [`tokio`](Self::tokio): with each of these looks a worker gives a sign of life, and the controller goes by
    /// how often that is.
    ///
    /// # Panics
    ///
    /// With 0, as tokio does.
    #[track_caller]
    pub fn event_interval(&mut self, polls: u32) -> &mut Self {
        self.tokio.event_interval(polls);
        self.event_interval = polls;
        self
    }

    /// Tasks that a worker takes from its own queue between two looks at the queue for all workers, as in tokio. By default
    /// tokio adapts it to how long polls take.
    ///
    /// # Panics
    ///
    /// On 0, as in tokio.
    #[track_caller]
    pub fn global_queue_interval(&mut self, tasks: u32) -> &mut Self {
        self.tokio.global_queue_interval(tasks);
        self
    }

    /// The name of the runtime's threads (default `morpheus-worker`).
    pub fn thread_name(&mut self, name: impl Into<String>) -> &mut Self {
        let name = name.into();
        self.thread_name_fn(move || name.clone())
    }

    /// Called for the name of each thread of the runtime, as in tokio. Spares, and one thread for the controller, are threads
    /// of the runtime too: a number that counts calls goes beyond the workers.
    pub fn thread_name_fn(
        &mut self,
        name: impl Fn() -> String + Send + Sync + 'static,
    ) -> &mut Self {
        self.thread_name = Arc::new(name);
        self
    }

    /// The name of the runtime, as in tokio.
    ///
    /// # Panics
    ///
    /// On an empty name, as in tokio.
    #[track_caller]
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.tokio.name(name);
        self
    }

    /// Whether the clock of tokio's timers starts paused, as in tokio. It then goes on when no task has anything to do, to the
    /// next timer at once. Budgets and reports go by the real time. (Only with the cargo feature `test-util`.)
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let runtime = morpheus_runtime::Builder::new_current_thread()
    ///     .start_paused(true)
    ///     .build()?;
    /// let began = Instant::now();
    /// runtime.block_on(async { tokio::time::sleep(Duration::from_secs(3600)).await });
    /// assert!(began.elapsed() < Duration::from_secs(60));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// `build` panics on a multi-thread runtime, as tokio's does.
    #[cfg(feature = "test-util")]
    pub fn start_paused(&mut self, paused: bool) -> &mut Self {
        self.tokio.start_paused(paused);
        self
    }

    /// The stack of each thread of the runtime, in bytes: workers, spares, and the threads of blocking calls. Default: that
    /// of the standard library (2 MiB, or what `RUST_MIN_STACK` says).
    ///
    /// The controller runs on such a thread too, and needs less than 64 KiB: what is set below that is raised to it. Hooks
    /// of threads have the stack of the thread that they are called on.
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.thread_stack_size = Some(bytes.max(LEAST_STACK));
        self
    }

    /// How long a thread for blocking calls waits for the next call before it ends, as in tokio (default 10 s).
    pub fn thread_keep_alive(&mut self, time: Duration) -> &mut Self {
        self.tokio.thread_keep_alive(time);
        self
    }

    /// Called on each thread of the runtime when it starts, the controller's and blocking ones included.
    pub fn on_thread_start(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.on_start = Some(Arc::new(hook));
        self
    }

    /// Called on each thread of the runtime when it ends.
    pub fn on_thread_stop(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.on_stop = Some(Arc::new(hook));
        self
    }

    /// Called on a worker before it parks. It must not block: a worker that blocks there can leave
    /// everybody asleep (tokio's rule).
    pub fn on_thread_park(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.on_park = Some(Arc::new(hook));
        self
    }

    /// Called on a worker after it unparked.
    pub fn on_thread_unpark(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.on_unpark = Some(Arc::new(hook));
        self
    }

    /// Whether every task is watched, under the place that spawned it, libraries' ones included: seen, asked to
    /// yield, worked around and reported, but not handed off, for which it takes a [`watch`](crate::watch()).
    ///
    /// That needs tokio's task hooks, which are there with `RUSTFLAGS="--cfg tokio_unstable"`; then it is the default.
    /// Asked for without them, nothing changes, and [`Limitation::TaskHooks`](crate::Limitation::TaskHooks) says so.
    pub fn watch_every_task(&mut self, watch: bool) -> &mut Self {
        self.watch_every_task = Some(watch);
        self
    }

    /// Switches tokio's LIFO slot off (default: on). A task that a hog woke last waits there until that poll ends,
    /// and nobody can steal it; without the slot messages between two tasks take longer.
    ///
    /// That needs `RUSTFLAGS="--cfg tokio_unstable"`. Without, nothing changes, and
    /// [`Limitation::LifoSwitch`](crate::Limitation::LifoSwitch) says so.
    pub fn disable_lifo_slot(&mut self, disable: bool) -> &mut Self {
        self.disable_lifo_slot = disable;
        self
    }

    /// Called before each poll of a task, as in tokio; set here, and not by [`tokio`](Self::tokio), because Morpheus
    /// uses that hook too. (Only with `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_before_task_poll(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_before_task_poll = Some(Arc::new(hook));
        self
    }

    /// Called after each poll of a task, as in tokio. (Only with `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_after_task_poll(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_after_task_poll = Some(Arc::new(hook));
        self
    }

    /// Every other option of tokio's builder. What this builder sets itself (worker and blocking
    /// threads, their name, the hooks of threads and of polls) is set after this and wins. For
    /// [`event_interval`](Self::event_interval) and [`thread_stack_size`](Self::thread_stack_size) use the builder's own.
    ///
    /// ```
    /// let runtime = morpheus_runtime::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .tokio(|tokio| {
    ///         tokio.max_io_events_per_tick(256);
    ///     })
    ///     .build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tokio(&mut self, options: impl FnOnce(&mut tokio::runtime::Builder)) -> &mut Self {
        options(&mut self.tokio);
        self
    }

    /// Switches a mechanism off, to measure what it buys.
    pub fn without(&mut self, mechanism: Mechanism) -> &mut Self {
        self.mechanisms.switch_off(mechanism);
        self
    }

    /// Starts the runtime. As tokio's builder, this one can be used again.
    ///
    /// # Errors
    ///
    /// Those of [`try_build`](Self::try_build), each in an `io::Error`: see [`BuildError`].
    pub fn build(&mut self) -> std::io::Result<Runtime> {
        Ok(self.try_build()?)
    }

    /// Starts the runtime, and says in a type of its own why it cannot.
    ///
    /// # Errors
    ///
    /// On numbers that make no sense, and when the system does not give what is needed. Too few threads
    /// for all spares is no error: there are fewer, and [`Metrics`](crate::Metrics) say so.
    pub fn try_build(&mut self) -> Result<Runtime, BuildError> {
        self.start()
    }
}

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
impl Builder {
    fn start(&mut self) -> Result<Runtime, BuildError> {
        summary::at_exit();
        sleeper::register_barrier();
        if self.is_current_thread {
            return self.build_current_thread();
        }
        let settings = self.settings()?;
        let threads = settings.workers + settings.spares;
        let domain = Arc::new(Domain::new(settings));
        self.set_hooks(&domain);
        let pool_threads = self.pool_threads();
        let name = self.thread_name.clone();
        if let Some(bytes) = self.thread_stack_size {
            self.tokio.thread_stack_size(bytes);
        }
        let tokio = self
            .tokio
            .worker_threads(threads)
            .max_blocking_threads(pool_threads)
            .thread_name_fn(move || name())
            .build()?;
        let handle = tokio.handle().clone();
        let _ = domain.runtime.set(handle.id());
        current::register(&domain);
        for _ in 0..domain.settings.spares {
            hold::ask_for_one(&domain, &handle);
        }
        let runtime = Runtime::from_parts(tokio, domain.clone());
        if let Some(report) = self.spares_report(&domain) {
            tracing::warn!(target: "morpheus::stall", "{report}");
        }
        wait_until_held(&domain);
        // Release: pairs with the Acquire in `hold`; before the first task of the application.
        domain.has_tasks.store(true, Ordering::Release);
        controller::prepare(&domain);
        // Tokio panics where no thread can be had: somebody took the one that was there a moment ago.
        let start = || {
            let (domain, own) = (domain.clone(), handle.clone());
            drop(handle.spawn_blocking(move || controller::serve(&domain, Some(own))));
        };
        if catch_unwind(AssertUnwindSafe(start)).is_err() {
            return Err(BuildError::TooFewThreads {
                available: threads,
                needed: threads + 1,
            });
        }
        joiner::start(&domain, self.link, self.link_socket.clone())?;
        Ok(runtime)
    }

    /// A domain without workers, whose controller has a thread of its own: a blocking thread would count as one, and a
    /// paused clock waits for those.
    fn build_current_thread(&mut self) -> Result<Runtime, BuildError> {
        let domain = Arc::new(Domain::without_workers(self.settings_of_current_thread()?));
        self.set_hooks_of_current_thread(&domain);
        let name = self.thread_name.clone();
        if let Some(bytes) = self.thread_stack_size {
            self.tokio.thread_stack_size(bytes);
        }
        let tokio = self
            .tokio
            .max_blocking_threads(
                self.max_blocking_threads
                    .unwrap_or(DEFAULT_BLOCKING_THREADS),
            )
            .thread_name_fn(move || name())
            .build()?;
        let _ = domain.runtime.set(tokio.handle().id());
        current::register(&domain);
        controller::prepare(&domain);
        let controller = controller::start(&domain);
        Ok(Runtime::from_parts(tokio, domain).with_controller(controller))
    }
}

impl Builder {
    fn settings_of_current_thread(&self) -> Result<Settings, BuildError> {
        if self.worker_threads == Some(0) {
            return Err(BuildError::NoWorkers);
        }
        if self.budget.is_zero() {
            return Err(BuildError::NoBudget);
        }
        // A daemon sees no more of one thread than the watchdog does, and that thread would be bound and let go with each
        // `block_on`.
        if self.link == Link::Required {
            return Err(BuildError::LinkOnOneThread);
        }
        Ok(Settings {
            workers: 1,
            spares: 0,
            spares_unavailable: 0,
            reserve: 0,
            reserve_when_calm: 0,
            reserve_in_trouble: 0,
            budget_ns: clock::nanos(self.budget).min(LONGEST_NS),
            grace_ns: clock::nanos(self.grace).min(LONGEST_NS),
            policy: self.policy,
            demotable: self.demotable,
            nice_hogs: self.nice_hogs && !self.observes(),
            max_handoffs: 0,
            slots: CURRENT_THREAD_SEATS,
            event_interval: u64::from(self.event_interval),
            report_after_ns: clock::nanos(self.report_after).min(LONGEST_NS),
            refused: self.refused(),
            confine_to_quota: false,
            is_current_thread: true,
            mechanisms: match self.observes() {
                true => self.mechanisms.that_observe(),
                false => self.mechanisms,
            },
        })
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        let workers = self.worker_threads.unwrap_or_else(quota::cpus_paid_for);
        if workers == 0 {
            return Err(BuildError::NoWorkers);
        }
        if self.budget.is_zero() {
            return Err(BuildError::NoBudget);
        }
        let wanted = match self.max_spares {
            _ if self.observes() => 0,
            Some(spares) => spares,
            None => MIN_DEFAULT_SPARES.max(workers.saturating_mul(2)),
        };
        let mechanisms = match self.observes() {
            true => self.mechanisms.that_observe(),
            false => self.mechanisms,
        };
        let asked = workers.saturating_add(wanted);
        if asked > MAX_WORKERS {
            return Err(BuildError::TooManyWorkers {
                asked,
                max: MAX_WORKERS,
            });
        }
        let takeover = mechanisms.takeover && wanted > 0;
        let reserve = if mechanisms.reserve && takeover {
            self.reserve.unwrap_or(DEFAULT_RESERVE)
        } else {
            0
        };
        // The default of one asks for nothing of somebody who wants no spares.
        if reserve > wanted {
            return Err(BuildError::ReserveTooLarge {
                reserve,
                max_spares: wanted,
            });
        }
        // When tokio cannot start a worker it panics half-way, and in that waits for ever for those that it
        // started: so it is found out before.
        let available = threads::available(asked + 1, self.thread_stack_size);
        let needed = workers + 1;
        if available < needed {
            return Err(BuildError::TooFewThreads { available, needed });
        }
        let spares = wanted.min(available - needed);
        let under_pressure = RESERVE_UNDER_PRESSURE_PER_CPU * quota::cpus_paid_for();
        Ok(Settings {
            workers,
            spares,
            spares_unavailable: wanted - spares,
            reserve,
            reserve_when_calm: self.reserve.map_or(0, |_| reserve),
            reserve_in_trouble: if reserve > 0 {
                under_pressure.max(reserve)
            } else {
                0
            },
            budget_ns: clock::nanos(self.budget).min(LONGEST_NS),
            grace_ns: clock::nanos(self.grace).min(LONGEST_NS),
            policy: self.policy,
            demotable: self.demotable,
            nice_hogs: self.nice_hogs && !self.observes(),
            max_handoffs: self.handoffs(),
            slots: (workers + spares)
                .saturating_add(self.pool_threads())
                .min(MAX_WORKERS),
            event_interval: u64::from(self.event_interval),
            report_after_ns: clock::nanos(self.report_after).min(LONGEST_NS),
            refused: self.refused(),
            confine_to_quota: self.confine_to_quota && !self.observes(),
            is_current_thread: false,
            mechanisms,
        })
    }

    /// Whether the runtime only looks and reports.
    fn observes(&self) -> bool {
        self.policy == Policy::Observe
    }

    /// Slow tasks that may be handed off at once. None with a limit on blocking threads: a handoff takes one of tokio's
    /// pool for as long as the poll lasts, and nothing can keep that thread from being the one that a call waits for.
    fn handoffs(&self) -> usize {
        match self.max_blocking_threads {
            Some(_) => 0,
            None if self.observes() => 0,
            None => self.max_handoffs,
        }
    }

    /// Threads of tokio's blocking pool: the application's, those for handoffs, the controller's.
    fn pool_threads(&self) -> usize {
        self.max_blocking_threads
            .unwrap_or(DEFAULT_BLOCKING_THREADS)
            .saturating_add(self.handoffs())
            .saturating_add(1)
            // Tokio adds the workers to it.
            .min(usize::MAX / 2)
    }
}

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
impl Builder {
    fn spares_report(&self, domain: &Domain) -> Option<String> {
        let missing = domain.settings.spares_unavailable;
        (missing > 0).then(|| {
            format!(
                "the system gives threads for {} spares only, {missing} fewer than asked for: raise the \
                 process limit (ulimit -u, pids.max)",
                domain.settings.spares
            )
        })
    }

    /// Chains the application's hooks with ours.
    fn set_hooks(&mut self, domain: &Arc<Domain>) {
        let call = |hook: &Option<Hook>| {
            if let Some(hook) = hook {
                hook();
            }
        };
        let (ours, theirs) = (domain.clone(), self.on_start.clone());
        self.tokio.on_thread_start(move || {
            ours.place_thread();
            own_slot::belongs_to(ours.clone());
            call(&theirs);
        });
        let theirs = self.on_stop.clone();
        self.tokio.on_thread_stop(move || call(&theirs));
        let (own, theirs) = (domain.clone(), self.on_park.clone());
        self.tokio.on_thread_park(move || {
            // In this order: theirs may take long, and then the worker is not parked yet.
            call(&theirs);
            if let Some(slot) = own_slot::claim() {
                // One that had lost its core, and has another.
                own.shorten_slice();
                slot.runtime.park();
            }
        });
        let (back, theirs) = (domain.clone(), self.on_unpark.clone());
        self.tokio.on_thread_unpark(move || {
            let slot = handle::current();
            if slot.is_taken() {
                slot.runtime.unpark();
                // Marked for a poll that is over.
                if slot.runtime.has_flag(SlotFlag::Hog) {
                    slot.runtime.clear_flag(SlotFlag::Hog);
                }
                let slot = own_slot::settled(slot);
                // Relaxed: this thread's own word.
                back.note_core_thread(slot.runtime.tid.load(Ordering::Relaxed));
                own_slot::notice(slot);
            }
            call(&theirs);
        });
        #[cfg(tokio_unstable)]
        self.set_task_hooks();
    }

    /// The same for a current-thread runtime. Its parks wake no controller: there is nothing to be seen before a watched poll
    /// begins, which does.
    fn set_hooks_of_current_thread(&mut self, domain: &Arc<Domain>) {
        let call = |hook: &Option<Hook>| {
            if let Some(hook) = hook {
                hook();
            }
        };
        let (ours, theirs) = (domain.clone(), self.on_start.clone());
        self.tokio.on_thread_start(move || {
            own_slot::belongs_to(ours.clone());
            call(&theirs);
        });
        let theirs = self.on_stop.clone();
        self.tokio.on_thread_stop(move || call(&theirs));
        let theirs = self.on_park.clone();
        self.tokio.on_thread_park(move || {
            call(&theirs);
            let slot = handle::current();
            if slot.is_taken() {
                slot.runtime.park();
            }
        });
        let theirs = self.on_unpark.clone();
        self.tokio.on_thread_unpark(move || {
            let slot = handle::current();
            if slot.is_taken() {
                slot.runtime.unpark();
                let _ = own_slot::settled(slot);
            }
            call(&theirs);
        });
        #[cfg(tokio_unstable)]
        self.set_task_hooks();
    }

    /// The application's around ours: its own time is no part of the poll. Set anew for each runtime, because
    /// tokio's builder forgets nothing.
    #[cfg(tokio_unstable)]
    fn set_task_hooks(&mut self) {
        let watch = self.watch_every_task.unwrap_or(true) && self.mechanisms.watch;
        let theirs = self.on_before_task_poll.clone();
        self.tokio.on_before_task_poll(move |meta| {
            if let Some(theirs) = &theirs {
                theirs(meta);
            }
            if watch {
                crate::poll::hooks::before_poll(meta);
            }
        });
        let theirs = self.on_after_task_poll.clone();
        self.tokio.on_after_task_poll(move |meta| {
            if watch {
                crate::poll::hooks::after_poll(meta);
            }
            if let Some(theirs) = &theirs {
                theirs(meta);
            }
        });
        if self.disable_lifo_slot {
            self.tokio.disable_lifo_slot();
        }
    }
}

impl Builder {
    /// What was asked for, and takes an unstable tokio.
    fn refused(&self) -> Vec<Limitation> {
        let asked = [
            (self.watch_every_task == Some(true), Limitation::TaskHooks),
            (self.disable_lifo_slot, Limitation::LifoSwitch),
        ];
        let refused = asked.into_iter().filter(|_| !cfg!(tokio_unstable));
        refused
            .filter_map(|(asked, what)| asked.then_some(what))
            .collect()
    }
}

/// Waits until every spare sits in its hold, so that the application's first tasks meet the workers they
/// asked for. Bounded: on a machine that is that busy, the rest get there on the way.
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
fn wait_until_held(domain: &Domain) {
    let until_ns = clock::now_ns() + 200_000_000;
    while domain.spares.held() < domain.spares.total() && clock::now_ns() < until_ns {
        std::thread::sleep(Duration::from_micros(50));
    }
}
