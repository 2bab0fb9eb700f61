//! Settings: the builder's decisions, in the units that the controller and the workers use.

use morpheus_common::ladder::Policy;

#[cfg(feature = "unstable-ablation")]
pub(crate) mod ablation;
pub(crate) mod limitation;
pub(crate) mod mechanism;

use limitation::Limitation;
use mechanism::Mechanisms;

/// The default limit of handoff polls: tokio's default for blocking calls, because each stalled task that
/// sleeps needs a thread. A task that a hook hands off has a thread also while it waits for a permit, so the limit is higher
/// there: the hook of the next one would wait on a worker, and all workers stand.
const DEFAULT_HANDOFFS: usize = if cfg!(tokio_unstable) { 2_048 } else { 512 };
/// Tokio's own default of threads for blocking calls.
pub(crate) const DEFAULT_BLOCKING_THREADS: usize = 512;
/// Tokio's own default of its event interval, in polls.
pub(crate) const DEFAULT_EVENT_INTERVAL: u64 = 61;

/// The number of threads in tokio's blocking pool: for the application, for handoff polls, and for the controller.
pub(crate) fn pool_threads(blocking_threads: usize, handoffs: usize) -> usize {
    blocking_threads
        .saturating_add(handoffs)
        .saturating_add(1)
        // Tokio adds the workers to it.
        .min(usize::MAX / 2)
}

/// The builder's decisions.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) spares: usize,
    /// Spares asked for and not started, because the system gives no more threads.
    pub(crate) spares_unavailable: usize,
    /// Workers in addition, of which as many are held until the runtime ends; 0 where no poll is handed over.
    pub(crate) kept: usize,
    pub(crate) reserve: usize,
    /// The reserve while the runtime is healthy: no stall for long.
    pub(crate) reserve_when_healthy: usize,
    pub(crate) reserve_under_pressure: usize,
    /// The time that a poll may take.
    pub(crate) budget_ns: u64,
    /// The time that a poll has to answer a request to yield.
    pub(crate) grace_ns: u64,
    pub(crate) policy: Policy,
    pub(crate) demotable: bool,
    pub(crate) nice_hogs: bool,
    pub(crate) max_handoffs: usize,
    pub(crate) slots: usize,
    /// Polls between two signs of life of a tokio core.
    pub(crate) event_interval: u64,
    /// The age at which the stack of a stalled poll is taken.
    pub(crate) report_after_ns: u64,
    /// Features asked for that this build of tokio lacks.
    pub(crate) refused: Vec<Limitation>,
    pub(crate) confine_hogs: bool,
    pub(crate) confine_to_quota: bool,
    /// Whether this is a current-thread runtime: a thread belongs to its domain while it is in `block_on`.
    pub(crate) is_current_thread: bool,
    pub(crate) mechanisms: Mechanisms,
}

impl Default for Settings {
    /// The defaults of a builder, before it knows the machine: one thread, and no spares.
    fn default() -> Settings {
        Settings {
            workers: 1,
            spares: 0,
            spares_unavailable: 0,
            kept: 0,
            reserve: 0,
            reserve_when_healthy: 0,
            reserve_under_pressure: 0,
            budget_ns: 1_000_000,
            grace_ns: 1_000_000,
            policy: Policy::Demote,
            demotable: true,
            nice_hogs: false,
            max_handoffs: DEFAULT_HANDOFFS,
            slots: 0,
            event_interval: DEFAULT_EVENT_INTERVAL,
            report_after_ns: 10_000_000,
            refused: Vec::new(),
            confine_hogs: true,
            confine_to_quota: false,
            is_current_thread: false,
            mechanisms: Mechanisms::default(),
        }
    }
}

impl Settings {
    /// All workers, as tokio counts them.
    pub(crate) fn cores(&self) -> usize {
        self.workers + self.spares + self.kept
    }

    /// How long a core may give no sign of life, in nanoseconds, although no poll is longer than the budget.
    pub(crate) fn signs_within_ns(&self) -> u64 {
        self.event_interval.saturating_mul(self.budget_ns)
    }
}
