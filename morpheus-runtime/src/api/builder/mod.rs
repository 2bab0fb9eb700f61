//! Building a runtime: tokio's multi-thread scheduler with held spares and a controller, or its
//! current-thread scheduler with a controller alone.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use morpheus_common::ladder::Policy;
use morpheus_link::Link;
use morpheus_system::clock;

use crate::api::runtime::Runtime;
use crate::settings::Settings;
#[cfg(feature = "unstable-ablation")]
use crate::settings::ablation::Mechanism;

mod error;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
mod hooks;
mod resolve;
#[cfg_attr(
    not(all(target_os = "linux", not(morpheus_passthrough))),
    path = "start_alone.rs"
)]
mod start;

pub use error::BuildError;

/// The minimum stack of a runtime's threads, in bytes. The controller is one of them: in a debug build
/// `the_controller_needs_no_more_than_the_smallest_stack` (`tests/builder.rs`) passes with 32 KiB and not
/// with 24.
const LEAST_STACK: usize = 64 << 10;
/// The longest budget, grace or age, in nanoseconds: no poll takes an hour, and a longer time could overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

type Hook = Arc<dyn Fn() + Send + Sync>;
type ThreadName = Arc<dyn Fn() -> String + Send + Sync>;
#[cfg(tokio_unstable)]
type TaskHook = Arc<dyn Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync>;

/// The application's hooks.
#[derive(Clone, Default)]
struct Hooks {
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
    on_park: Option<Hook>,
    on_unpark: Option<Hook>,
    #[cfg(tokio_unstable)]
    on_task_spawn: Option<TaskHook>,
    #[cfg(tokio_unstable)]
    on_before_task_poll: Option<TaskHook>,
    #[cfg(tokio_unstable)]
    on_after_task_poll: Option<TaskHook>,
    #[cfg(tokio_unstable)]
    on_task_terminate: Option<TaskHook>,
}

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
    /// The decisions so far; [`resolve`] completes them.
    settings: Settings,
    worker_threads: Option<usize>,
    max_spares: Option<usize>,
    reserve: Option<usize>,
    link: Link,
    link_socket: Option<PathBuf>,
    /// `None` unless the application set it.
    max_blocking_threads: Option<usize>,
    thread_name: ThreadName,
    /// `None` unless the application set it.
    thread_stack_size: Option<usize>,
    /// `None` unless the application set it: then every task is watched where tokio was built for it.
    watch_every_task: Option<bool>,
    disable_lifo_slot: bool,
    hooks: Hooks,
    tokio: tokio::runtime::Builder,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("worker_threads", &self.worker_threads)
            .field("max_spares", &self.max_spares)
            .field("budget_ns", &self.settings.budget_ns)
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// A builder for a runtime of several threads. The defaults: one worker for each CPU (fewer under a CPU
    /// quota), `max(32, 2 × workers)` spares (`max(4, workers)` where every task is watched), a budget of 1 ms,
    /// a grace of 1 ms, [`Policy::Demote`]; I/O and time enabled.
    #[must_use]
    pub fn new_multi_thread() -> Builder {
        Builder::over(tokio::runtime::Builder::new_multi_thread(), false)
    }

    /// A builder for a runtime whose tasks run on the thread that is in [`Runtime::block_on`], as tokio's.
    /// The defaults: a budget of 1 ms; I/O and time enabled.
    ///
    /// Watched polls are asked to yield once they have used up the budget, and are reported with their stack.
    /// Nothing takes over from them, because no other thread runs tasks, and unwatched polls are not
    /// reported. So these options have no effect: [`worker_threads`](Self::worker_threads),
    /// [`max_spares`](Self::max_spares), [`reserve`](Self::reserve), [`max_handoffs`](Self::max_handoffs),
    /// [`confine_to_quota`](Self::confine_to_quota) and [`disable_lifo_slot`](Self::disable_lifo_slot). The
    /// runtime joins no daemon, and with [`Link::Required`] it is not built. The calling thread keeps its
    /// slice and its CPUs.
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
            settings: Settings {
                is_current_thread,
                ..Settings::default()
            },
            worker_threads: None,
            max_spares: None,
            reserve: None,
            link: Link::default(),
            link_socket: None,
            max_blocking_threads: None,
            thread_name: Arc::new(|| "morpheus-worker".into()),
            thread_stack_size: None,
            watch_every_task: None,
            disable_lifo_slot: false,
            hooks: Hooks::default(),
            tokio,
        }
    }

    /// The number of workers that are always active. Default: the variable `TOKIO_WORKER_THREADS`, as tokio's; without
    /// it the CPUs that affinity and quota leave. A current-thread runtime has none.
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

    /// The number of spares: workers that are held until others are stalled. Default: `max(32, 2 × workers)`;
    /// `max(4, workers)` where [every task is watched](Self::watch_every_task), because slow tasks are handed off there and a
    /// spare only serves during a first long poll. More spares cover more tasks that are stalled at once, and
    /// cost tasks that share channels and locks a part of their rate. Each is a thread (about 13 KiB resident).
    /// More than a hundred slow down tokio's work stealing, and let that many unwatched hogs run at once. With 0
    /// nothing takes over from a stalled worker.
    pub fn max_spares(&mut self, max_spares: usize) -> &mut Self {
        self.max_spares = Some(max_spares);
        self
    }

    /// The number of spares that are active before one is needed, so that the next takeover has no delay. The
    /// reserve grows by itself under pressure.
    ///
    /// Default: 1 for ten seconds after a stall, and 0 while the runtime is quiet, which it is after these. Each
    /// worker beyond the number of CPUs slows down tasks that sleep and wake often. The first takeover after a quiet
    /// time comes up to 4 ms later. A number that is set here applies in quiet times too, and with 0 the reserve does
    /// not grow.
    pub fn reserve(&mut self, reserve: usize) -> &mut Self {
        self.reserve = Some(reserve);
        self
    }

    /// The time that a watched poll may take (default 1 ms). A queued task may wait for two fifths of it while
    /// no worker serves it. The controller samples every 1 to 4 ms while anything is busy: every millisecond, unless
    /// nothing was stalled for ten seconds, a worker is parked and no watched poll is under way (4 ms), or 64 or more
    /// watched polls are under way (2 to 4 ms). So a time ends at the first sample that finds it exceeded.
    pub fn budget(&mut self, budget: Duration) -> &mut Self {
        self.settings.budget_ns = nanos(budget);
        self
    }

    /// The CPU time that a poll has to answer a request to yield, before a spare takes over from its worker
    /// (default 1 ms).
    pub fn grace(&mut self, grace: Duration) -> &mut Self {
        self.settings.grace_ns = nanos(grace);
        self
    }

    /// The time for which a watched poll may be stalled before its stack is taken, for [`Runtime::stalls`]
    /// and the summary (default 10 ms). Unwatched polls are found after 100 ms, or after as many budgets as
    /// [`event_interval`](Self::event_interval) says if that is longer.
    pub fn report_after(&mut self, report_after: Duration) -> &mut Self {
        self.settings.report_after_ns = nanos(report_after);
        self
    }

    /// The last step that the escalation may take (default [`Policy::Demote`]).
    ///
    /// [`Policy::Observe`] is a dry run. There are no spares; threads keep their slices and CPUs; no poll is
    /// asked to yield, is handed off or waits. Stall events name what the default policy would have done. The
    /// runtime then still adds to tokio what it observes with: the controller's thread and the one that reports; the
    /// canary task, a no-op by which the controller sees whether workers serve; hooks of threads, and with `--cfg
    /// tokio_unstable` of tasks; the marks of watched polls. The stack of a stalled thread is taken too (feature
    /// `stacks`), for which a thread that computes gets a signal. Unless the link is [`Link::Watchdog`], the runtime
    /// joins a daemon where there is one.
    pub fn policy(&mut self, policy: Policy) -> &mut Self {
        self.settings.policy = policy;
        self
    }

    /// The source of events about stalled workers (default [`Link::Auto`]: a daemon's link where there is
    /// one, beside the watchdog).
    pub fn link(&mut self, link: Link) -> &mut Self {
        self.link = link;
        self
    }

    /// The socket of the daemon (default: the value of `MORPHEUS_SOCKET`, else `/run/morpheus/broker.sock`).
    pub fn link_socket(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.link_socket = Some(path.into());
        self
    }

    /// Whether tasks may be demoted unless they set [`demotable`](crate::task::Builder::demotable) themselves
    /// (default true).
    pub fn demotable(&mut self, demotable: bool) -> &mut Self {
        self.settings.demotable = demotable;
        self
    }

    /// Lowers the thread of a demoted poll by `nice` 10 until the poll ends, where the process may raise it
    /// again (default false: it gives CPU time to other processes too).
    pub fn nice_hogs(&mut self, nice_hogs: bool) -> &mut Self {
        self.settings.nice_hogs = nice_hogs;
        self
    }

    /// Whether threads that compute are confined to a part of the CPUs while they are at least as many as CPUs (default true). Workers
    /// then find a CPU; without it each shares one with many hogs.
    ///
    /// Code that counts CPUs on a confined thread counts those of the part (`std::thread::available_parallelism`, and pools of threads
    /// that are as large). Where tasks that compute start such pools, set their sizes, or switch this off.
    pub fn confine_hogs(&mut self, confine: bool) -> &mut Self {
        self.settings.confine_hogs = confine;
        self
    }

    /// Confines the runtime's threads, blocking ones included, to the number of CPUs that a CPU quota (a
    /// container's limit) pays for: rounded down, at least one (default false). Without a quota it does nothing.
    ///
    /// This trades CPU time for latency. Hogs on more CPUs than that use up the bandwidth of a period
    /// (usually 100 ms) before its end, and then the kernel throttles every thread for the rest. On fewer
    /// CPUs they alternate with the workers, and the part of the quota above a whole CPU stays unused: of
    /// 1.9 CPUs the runtime can use one. Without the option the runtime can use all of them, as tokio does. A
    /// spare is then released only for a poll that has computed for 10 ms or sleeps, and not for a late
    /// canary task alone, because one thread more makes the throttling longer.
    ///
    /// The CPUs are chosen at random among those of the thread that builds the runtime, so that two containers
    /// rarely get the same. An affinity that is set later wins: once the runtime's threads, or the thread
    /// that starts others, have another affinity (`taskset -ap`, a cpuset), new threads keep what they
    /// inherit.
    ///
    /// Threads and processes that a task starts inherit the CPUs, as they inherit any affinity. A child that
    /// needs more sets its own (`sched_setaffinity`, `taskset`).
    pub fn confine_to_quota(&mut self, confine: bool) -> &mut Self {
        self.settings.confine_to_quota = confine;
        self
    }

    /// The number of blocking calls (`spawn_blocking`, files) that run at once, as in tokio (default 512).
    ///
    /// A number that is set here holds: the application can have that many at once, and no more. It costs
    /// handoffs. A handoff poll occupies a thread of tokio's pool, and the pool reserves no threads for the
    /// application. So with a number set here slow tasks are polled inline on their workers, as with
    /// [`max_handoffs(0)`](Self::max_handoffs), and spares take over from them
    /// ([`handoffs_refused`](crate::Metrics::handoffs_refused) counts these polls). By default the threads
    /// for handoff polls come on top.
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

    /// The number of slow tasks that are handed off at once, those asleep included; each occupies a thread
    /// (default 512; 2048 with `--cfg tokio_unstable`, where tasks that wait for their turn count too, see
    /// [`watch_every_task`](Self::watch_every_task)). Beyond that, slow tasks are polled inline. With
    /// [`max_blocking_threads`](Self::max_blocking_threads) set they always are, whatever is set here.
    ///
    /// Unless it is 0, the runtime has one thread more, which does nothing until the runtime ends, and then waits for these polls before
    /// timers and I/O end. Where the system has no thread for it, no task is handed off.
    pub fn max_handoffs(&mut self, polls: usize) -> &mut Self {
        self.settings.max_handoffs = polls;
        self
    }

    /// The number of polls after which a worker checks the I/O driver and the timers, as in tokio (default
    /// 61). Set it here and not through [`tokio`](Self::tokio): each check is a worker's sign of life, and
    /// the controller must know the interval.
    ///
    /// # Panics
    ///
    /// With 0, as tokio does.
    #[track_caller]
    pub fn event_interval(&mut self, polls: u32) -> &mut Self {
        self.tokio.event_interval(polls);
        self.settings.event_interval = u64::from(polls);
        self
    }

    /// The number of tasks that a worker takes from its own queue before it takes one from the global queue,
    /// as in tokio. By default tokio adapts it to the length of polls.
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

    /// A function that returns the name of each thread of the runtime, as in tokio. Spares, and one thread
    /// for the controller, are threads of the runtime too: a number that counts calls exceeds the number of
    /// workers.
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

    /// Whether the clock of tokio's timers starts paused, as in tokio. When no task can run, it jumps to the
    /// next timer at once. Budgets and reports go by real time. (Only with the cargo feature `test-util`.)
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

    /// The stack of each thread of the runtime, in bytes: workers, spares, and blocking threads. Default: the
    /// standard library's (2 MiB, or the value of `RUST_MIN_STACK`).
    ///
    /// The controller runs on such a thread too, and needs less than 64 KiB: a smaller number is raised to
    /// 64 KiB. Hooks of threads run on the stack of the thread that calls them.
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.thread_stack_size = Some(bytes.max(LEAST_STACK));
        self
    }

    /// The time that an idle blocking thread waits for the next call before it ends, as in tokio (default
    /// 10 s).
    pub fn thread_keep_alive(&mut self, time: Duration) -> &mut Self {
        self.tokio.thread_keep_alive(time);
        self
    }

    /// A function that each thread of the runtime calls when it starts: workers, spares, blocking threads, and the
    /// controller's. A current-thread runtime has no threads of tokio's but blocking ones, and its controller's calls no
    /// hook.
    pub fn on_thread_start(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.hooks.on_start = Some(Arc::new(hook));
        self
    }

    /// A function that each thread of the runtime calls when it ends.
    pub fn on_thread_stop(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.hooks.on_stop = Some(Arc::new(hook));
        self
    }

    /// A function that a worker calls before it parks. It must not block: a worker that blocks there can
    /// leave all workers asleep (tokio's rule).
    pub fn on_thread_park(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.hooks.on_park = Some(Arc::new(hook));
        self
    }

    /// A function that a worker calls after it unparked.
    pub fn on_thread_unpark(&mut self, hook: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.hooks.on_unpark = Some(Arc::new(hook));
        self
    }

    /// Whether every task is watched under the place that spawned it, those of libraries included. Such tasks
    /// are sampled, asked to yield, taken over from and reported, and handed off once they are known to be slow.
    ///
    /// A task that waits for a permit then occupies a thread; [`max_handoffs`](Self::max_handoffs) bounds these
    /// threads. A task that the application watches itself ([`watch`](crate::watch())) waits without one.
    ///
    /// This needs tokio's task hooks, which exist with `RUSTFLAGS="--cfg tokio_unstable"`; then it is the
    /// default. Without them the option has no effect, and
    /// [`Limitation::TaskHooks`](crate::Limitation::TaskHooks) reports that.
    pub fn watch_every_task(&mut self, watch: bool) -> &mut Self {
        self.watch_every_task = Some(watch);
        self
    }

    /// Disables tokio's LIFO slot (default: enabled). A task that a hog woke last waits there until that poll
    /// ends, and no other worker can steal it. Without the slot, messages between two tasks take longer.
    ///
    /// This needs `RUSTFLAGS="--cfg tokio_unstable"`. Without that the option has no effect, and
    /// [`Limitation::LifoSwitch`](crate::Limitation::LifoSwitch) reports that.
    pub fn disable_lifo_slot(&mut self, disable: bool) -> &mut Self {
        self.disable_lifo_slot = disable;
        self
    }

    /// A function that tokio calls when a task is spawned, as in tokio, but for tasks of Morpheus's own. (Only with
    /// `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_task_spawn(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.hooks.on_task_spawn = Some(Arc::new(hook));
        self
    }

    /// A function that tokio calls before each poll of a task. Set it here and not through
    /// [`tokio`](Self::tokio), because Morpheus uses that hook too. (Only with `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_before_task_poll(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.hooks.on_before_task_poll = Some(Arc::new(hook));
        self
    }

    /// A function that tokio calls after each poll of a task. (Only with `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_after_task_poll(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.hooks.on_after_task_poll = Some(Arc::new(hook));
        self
    }

    /// A function that tokio calls when a task ends, as in tokio. Set it here and not through
    /// [`tokio`](Self::tokio), because Morpheus uses that hook too. (Only with `--cfg tokio_unstable`.)
    #[cfg(tokio_unstable)]
    pub fn on_task_terminate(
        &mut self,
        hook: impl Fn(&tokio::runtime::TaskMeta<'_>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.hooks.on_task_terminate = Some(Arc::new(hook));
        self
    }

    /// The most events that the I/O driver takes at once, as in tokio (default 1,024).
    ///
    /// # Panics
    ///
    /// On 0, as in tokio.
    #[track_caller]
    pub fn max_io_events_per_tick(&mut self, events: usize) -> &mut Self {
        self.tokio.max_io_events_per_tick(events);
        self
    }

    /// The same for a worker that is busy with tasks, as in tokio (default: as
    /// [`max_io_events_per_tick`](Self::max_io_events_per_tick)).
    ///
    /// # Panics
    ///
    /// On 0, as in tokio.
    #[track_caller]
    pub fn max_io_events_per_busy_tick(&mut self, events: usize) -> &mut Self {
        self.tokio.max_io_events_per_busy_tick(events);
        self
    }

    /// Sets any other option of tokio's builder. This builder sets its own options afterwards, and they win:
    /// worker and blocking threads, their names, the hooks of threads, of polls, and of a task's end. For
    /// [`event_interval`](Self::event_interval) and [`thread_stack_size`](Self::thread_stack_size) use this
    /// builder's methods.
    ///
    /// Tokio's unstable `enable_alt_timer` is not for a runtime with spares: timers then belong to a core, and those of a
    /// spare wait until it is released again.
    ///
    /// ```
    /// let runtime = morpheus_runtime::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .tokio(|tokio| {
    ///         tokio.enable_time();
    ///     })
    ///     .build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tokio(&mut self, options: impl FnOnce(&mut tokio::runtime::Builder)) -> &mut Self {
        options(&mut self.tokio);
        self
    }

    /// Switches a mechanism off, to measure its gain. (Feature `unstable-ablation`: for benchmarks; no
    /// stability promise.)
    #[cfg(feature = "unstable-ablation")]
    pub fn without(&mut self, mechanism: Mechanism) -> &mut Self {
        self.settings.mechanisms.switch_off(mechanism);
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

    /// Starts the runtime, or returns the reason as a [`BuildError`].
    ///
    /// # Errors
    ///
    /// On invalid numbers, and when the system does not give what is needed. Too few threads for all spares
    /// is no error: the runtime has fewer spares, and [`Metrics`](crate::Metrics) report that.
    pub fn try_build(&mut self) -> Result<Runtime, BuildError> {
        self.start()
    }
}

fn nanos(time: Duration) -> u64 {
    clock::nanos(time).min(LONGEST_NS)
}
