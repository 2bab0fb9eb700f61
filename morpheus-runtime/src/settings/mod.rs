//! Settings: what the builder decided, in the units that the controller and the workers use.

use morpheus_common::ladder::Policy;

use crate::os::limitation::Limitation;

pub(crate) mod mechanism;

use mechanism::Mechanisms;

/// How long a poll may take, in nanoseconds.
pub(crate) const DEFAULT_BUDGET_NS: u64 = 1_000_000;
/// How long a poll that was asked to yield has time to, in nanoseconds.
pub(crate) const DEFAULT_GRACE_NS: u64 = 1_000_000;
/// How long a poll is stalled before its stack is taken, in nanoseconds.
pub(crate) const DEFAULT_REPORT_AFTER_NS: u64 = 10_000_000;
/// Tokio's own default.
pub(crate) const DEFAULT_EVENT_INTERVAL: u32 = 61;

/// What the builder decided.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) spares: usize,
    /// Spares asked for but not had, because the system gives no more threads.
    pub(crate) spares_unavailable: usize,
    pub(crate) reserve: usize,
    /// Where nothing has been stalled for long.
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
    /// What was asked for, and tokio was not built for.
    pub(crate) refused: Vec<Limitation>,
    pub(crate) confine_to_quota: bool,
    /// Of a current-thread runtime: a thread belongs to the domain while it is in `block_on`.
    pub(crate) is_current_thread: bool,
    pub(crate) mechanisms: Mechanisms,
}

impl Settings {
    /// Time without a sign of life of a core in which no poll needs to be longer than the budget.
    pub(crate) fn signs_within_ns(&self) -> u64 {
        self.event_interval.saturating_mul(self.budget_ns)
    }
}
