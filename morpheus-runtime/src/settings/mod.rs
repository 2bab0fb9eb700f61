//! Settings: the builder's decisions, in the units that the controller and the workers use.

use morpheus_common::ladder::Policy;

pub(crate) mod limitation;
pub(crate) mod mechanism;

use limitation::Limitation;
use mechanism::Mechanisms;

/// The default time that a poll may take, in nanoseconds.
pub(crate) const DEFAULT_BUDGET_NS: u64 = 1_000_000;
/// The default time that a poll has to answer a request to yield, in nanoseconds.
pub(crate) const DEFAULT_GRACE_NS: u64 = 1_000_000;
/// The default age at which the stack of a stalled poll is taken, in nanoseconds.
pub(crate) const DEFAULT_REPORT_AFTER_NS: u64 = 10_000_000;
/// Tokio's own default of its event interval, in polls.
pub(crate) const DEFAULT_EVENT_INTERVAL: u32 = 61;

/// The builder's decisions.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) spares: usize,
    /// Spares asked for and not started, because the system gives no more threads.
    pub(crate) spares_unavailable: usize,
    pub(crate) reserve: usize,
    /// The reserve while the runtime is healthy: no stall for long.
    pub(crate) reserve_when_calm: usize,
    pub(crate) reserve_in_trouble: usize,
    pub(crate) budget_ns: u64,
    pub(crate) grace_ns: u64,
    pub(crate) policy: Policy,
    pub(crate) demotable: bool,
    pub(crate) nice_hogs: bool,
    pub(crate) max_handoffs: usize,
    pub(crate) slots: usize,
    /// Polls between two signs of life of a tokio core.
    pub(crate) event_interval: u64,
    pub(crate) report_after_ns: u64,
    /// Features asked for that this build of tokio lacks.
    pub(crate) refused: Vec<Limitation>,
    pub(crate) confine_to_quota: bool,
    /// Whether this is a current-thread runtime: a thread belongs to its domain while it is in `block_on`.
    pub(crate) is_current_thread: bool,
    pub(crate) mechanisms: Mechanisms,
}

impl Settings {
    /// How long a core may give no sign of life, in nanoseconds, although no poll is longer than the budget.
    pub(crate) fn signs_within_ns(&self) -> u64 {
        self.event_interval.saturating_mul(self.budget_ns)
    }
}
