//! Spare workers: held in a poll, released when others are stalled.
//!
//! A spare is an ordinary tokio worker that sits in the poll of a *hold task*, blocked on a condition
//! variable. Released, it steals what waits, or parks in tokio's idle set. It is held in a poll and not
//! in a park hook, because a worker that blocks in a hook may carry tokio's searching token, and then
//! nobody is ever woken.
//!
//! The protocol (proved in `morpheus-common/src/PROTOCOL.md`, "Holding and releasing"): `pending` hold
//! tasks are under way, `held` workers sit in one, and `releases` of these may leave. A release is a
//! ticket: whoever is pending or held takes it, so that none is lost while a hold task still waits in a
//! queue.
//!
//! **Invariant:** `releases ≤ held + pending`, so every ticket finds a taker.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::os::clock;

#[derive(Debug, Default)]
struct State {
    held: usize,
    pending: usize,
    releases: usize,
    /// When the ticket that waits longest was given, for the takeover latency.
    released_at_ns: u64,
    closed: bool,
}

impl State {
    fn out_of_play(&self) -> usize {
        if self.closed {
            // Each leaves its hold at once, and those that have not begun do not begin.
            return 0;
        }
        self.held + self.pending - self.releases
    }
}

/// How a hold ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum HoldEnd {
    /// Released; it took this many nanoseconds from the release until the worker ran.
    Released { after_ns: u64 },
    /// The runtime is going away.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Spares {
    total: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Spares {
    pub(crate) fn new(total: usize) -> Spares {
        Spares {
            total,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of the application runs under this lock, so a poisoned one is still consistent.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Spares that are active: released and not asked back.
    pub(crate) fn active(&self) -> usize {
        self.total - self.lock().out_of_play().min(self.total)
    }

    /// Workers that sit in a hold at this moment.
    pub(crate) fn held(&self) -> usize {
        self.lock().held
    }

    /// Tasks that hold a spare, or are about to.
    pub(crate) fn hold_tasks(&self) -> usize {
        let state = self.lock();
        state.held + state.pending
    }

    /// Announces one more hold task. The caller injects it.
    /// False when every spare is held already or the runtime is going away.
    #[must_use]
    pub(crate) fn announce_hold(&self) -> bool {
        let mut state = self.lock();
        if state.closed || state.out_of_play() >= self.total {
            return false;
        }
        state.pending += 1;
        true
    }

    /// The body of a hold task: blocks the calling worker until it is released.
    pub(crate) fn hold(&self) -> HoldEnd {
        let mut state = self.lock();
        state.pending = state.pending.saturating_sub(1);
        state.held += 1;
        while state.releases == 0 && !state.closed {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.held -= 1;
        if state.closed {
            return HoldEnd::Closed;
        }
        state.releases -= 1;
        HoldEnd::Released {
            after_ns: clock::now_ns().saturating_sub(state.released_at_ns),
        }
    }

    /// Lets one spare go; false when all of them are active.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        let mut state = self.lock();
        if state.closed || state.out_of_play() == 0 {
            return false;
        }
        state.releases += 1;
        state.released_at_ns = clock::now_ns();
        // Not under the lock: a spare that takes the CPU from the one who wakes it would find it taken, and
        // sleep on until the waker has its next turn, beside hogs some milliseconds later.
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Frees everybody, for ever: also hold tasks that have not begun yet. Must come before tokio's own
    /// shutdown, which waits for every worker.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        // Tickets that nobody took yet: all leave now, without one.
        state.releases = 0;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_release_before_the_hold_begins_is_not_lost() {
        let spares = Spares::new(1);
        assert!(spares.announce_hold());
        assert_eq!(spares.active(), 0);
        assert!(spares.release());
        assert_eq!(spares.active(), 1);
        assert!(!spares.release(), "nobody is left to release");
        assert!(matches!(spares.hold(), HoldEnd::Released { .. }));
        assert_eq!(spares.active(), 1);
    }

    #[test]
    fn no_more_holds_than_spares() {
        let spares = Spares::new(1);
        assert!(spares.announce_hold());
        assert!(!spares.announce_hold());
    }

    #[test]
    fn close_frees_the_held_and_those_that_come_later() {
        let spares = Arc::new(Spares::new(2));
        assert!(spares.announce_hold() && spares.announce_hold());
        let held = std::thread::spawn({
            let spares = spares.clone();
            move || spares.hold()
        });
        while spares.held() == 0 {
            std::thread::yield_now();
        }
        spares.close();
        assert_eq!(spares.active(), 2);
        assert_eq!(held.join().unwrap(), HoldEnd::Closed);
        assert_eq!(spares.hold(), HoldEnd::Closed);
        assert!(!spares.release());
        assert!(!spares.announce_hold());
    }
}
