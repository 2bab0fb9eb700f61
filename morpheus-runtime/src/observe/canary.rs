//! The canary: a no-op task that must run within the budget.
//!
//! It needs nothing from the tasks, so it covers every library: if a task that was just injected does not run, work
//! waits and no worker serves it, whatever the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use crate::domain::Domain;
use crate::report::own;
use morpheus_system::{clock, threads};

/// The canary tasks of a runtime, of which one at most is out.
#[derive(Debug)]
pub(crate) struct Canary {
    domain: Arc<Domain>,
    late_after_ns: u64,
    number: u64,
    sent_ns: u64,
    /// The number of the last one that ran.
    returned: Arc<AtomicU64>,
    was_late: bool,
    /// The time of the last answer to lateness, so that there is one answer in `late_after_ns`.
    answered_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum CanaryState {
    /// None is out; the last one came in time, or there was none yet.
    Idle,
    /// None is out; the last one was late. Returned once.
    Back,
    /// One is out, and has time.
    Out,
    /// One is out for this time; returned again after as long once more.
    Late { by_ns: u64 },
}

impl Canary {
    pub(crate) fn new(domain: Arc<Domain>) -> Canary {
        Canary {
            // The first sample after that time finds it late: a whole sample is a budget.
            late_after_ns: domain.settings.budget_ns * 2 / 5,
            domain,
            number: 0,
            sent_ns: 0,
            was_late: false,
            returned: Arc::new(AtomicU64::new(0)),
            answered_ns: 0,
        }
    }

    pub(crate) fn state(&mut self, now_ns: u64) -> CanaryState {
        // Acquire: pairs with the Release in the canary's task. Nothing else is read, but a reader of
        // this code need not check that.
        if self.returned.load(Ordering::Acquire) == self.number {
            return if std::mem::take(&mut self.was_late) {
                CanaryState::Back
            } else {
                CanaryState::Idle
            };
        }
        if now_ns.saturating_sub(self.sent_ns.max(self.answered_ns)) < self.late_after_ns {
            return CanaryState::Out;
        }
        self.answered_ns = now_ns;
        self.was_late = true;
        CanaryState::Late {
            by_ns: now_ns - self.sent_ns,
        }
    }

    /// Injects the next one. Only when none is out.
    pub(crate) fn send(&mut self, now_ns: u64, handle: &Handle) {
        self.number += 1;
        self.sent_ns = now_ns;
        let (returned, number) = (self.returned.clone(), self.number);
        let domain = self.domain.clone();
        own::spawn(handle, async move {
            let late_ns = clock::now_ns().saturating_sub(now_ns);
            domain.counters.canary_lateness.record(late_ns);
            // A worker that never parks names its thread nowhere else.
            domain.note_core_thread(threads::own_tid());
            returned.store(number, Ordering::Release);
        });
        self.domain.counters.canaries.add(1);
    }
}
