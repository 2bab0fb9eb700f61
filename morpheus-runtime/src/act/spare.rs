//! Spare workers: held in a poll, and released when other workers are stalled.
//!
//! A spare is an ordinary tokio worker that runs the poll of a *hold task*, blocked on a condition variable. After
//! its release it steals queued tasks, or parks in tokio's idle set. It is held in a poll and not in a park hook,
//! because a worker that blocks in a hook may carry tokio's searching token, and then tokio wakes no worker.
//!
//! The protocol (proved in `morpheus-common/src/PROTOCOL.md`, "Holding and releasing") counts three things. `pending`
//! hold tasks are queued, `held` workers block in one, and `releases` is the number of tickets. A release adds a
//! ticket, and a held or pending spare takes it. So a release is not lost while a hold task still waits in a queue.
//!
//! There can be one worker more than spares. Then one is always held until the runtime ends: the *keeper*, which is
//! not the same worker at all times. The last to leave a hold at the end is told so
//! ([`HandedOver`](crate::act::handed_over) says what for).
//!
//! **Invariants:** `releases + kept ≤ held + pending`, so a spare takes every ticket; and once `kept` workers are held,
//! `held ≥ kept` until the end, because a worker takes a ticket only where more are held.

use std::sync::{Condvar, Mutex};

use morpheus_system::clock;
use morpheus_system::lock::lock;

#[derive(Debug, Default)]
struct State {
    held: usize,
    pending: usize,
    releases: usize,
    /// Time of the last release, in nanoseconds, for the takeover latency.
    released_at_ns: u64,
    closed: bool,
}

impl State {
    /// The number of workers that are held or about to be, and not released.
    fn inactive(&self) -> usize {
        if self.closed {
            // All held spares leave their holds at once, and no new hold blocks.
            return 0;
        }
        self.held + self.pending - self.releases
    }
}

/// The reason for which a hold ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum HoldEnd {
    /// Released. The worker ran again this many nanoseconds after the release.
    Released { after_ns: u64 },
    /// The runtime shuts down.
    Closed {
        /// The worker was held then, and the others that were have left before it.
        is_last: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Spares {
    total: usize,
    /// Workers in addition to `total` of which as many stay held.
    kept: usize,
    /// No code of the application runs under this lock, so the state is consistent after a panic.
    state: Mutex<State>,
    changed: Condvar,
}

impl Spares {
    /// For `total` spares, and `kept` workers more that stay held.
    pub(crate) fn new(total: usize, kept: usize) -> Spares {
        Spares {
            total,
            kept,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of active spares: released, and not announced for a hold again.
    pub(crate) fn active(&self) -> usize {
        let inactive = lock(&self.state).inactive();
        (self.total + self.kept)
            .saturating_sub(inactive)
            .min(self.total)
    }

    /// Returns the number of spares that are held now, without the worker that stays so.
    #[cfg(any(test, feature = "unstable-ablation"))]
    pub(crate) fn held(&self) -> usize {
        lock(&self.state).held.saturating_sub(self.kept)
    }

    /// Returns the number of hold tasks that hold a spare or are about to.
    pub(crate) fn hold_tasks(&self) -> usize {
        let state = lock(&self.state);
        state.held + state.pending
    }

    /// Whether each worker that may be held is held now.
    pub(crate) fn are_all_held(&self) -> bool {
        lock(&self.state).held >= self.total + self.kept
    }

    /// Announces one more hold task, which the caller injects. Returns false if every worker that may be held is held
    /// or about to be, or the runtime shuts down.
    #[must_use]
    pub(crate) fn announce_hold(&self) -> bool {
        let mut state = lock(&self.state);
        if state.closed || state.inactive() >= self.total + self.kept {
            return false;
        }
        state.pending += 1;
        true
    }

    /// Blocks the calling worker until it is released. This is the body of a hold task.
    pub(crate) fn hold(&self) -> HoldEnd {
        let mut state = lock(&self.state);
        state.pending = state.pending.saturating_sub(1);
        state.held += 1;
        let was_held = !state.closed;
        while !(state.closed || state.releases > 0 && state.held > self.kept) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.held -= 1;
        if state.closed {
            // One that has just come leaves under the lock under which it came, so `held` does not count it here.
            return HoldEnd::Closed {
                is_last: was_held && state.held == 0,
            };
        }
        state.releases -= 1;
        HoldEnd::Released {
            after_ns: clock::now_ns().saturating_sub(state.released_at_ns),
        }
    }

    /// Releases one spare. Returns false if all of them are active.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        let mut state = lock(&self.state);
        if state.closed || state.inactive() <= self.kept {
            return false;
        }
        state.releases += 1;
        state.released_at_ns = clock::now_ns();
        // Not under the lock. A spare that preempts the thread that wakes it would find the lock taken, and sleep
        // until that thread runs again: some milliseconds later if CPU hogs run.
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Releases all spares permanently, including hold tasks that have not begun yet. Must be called before tokio's
    /// own shutdown, which waits for every worker.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        // The tickets are void: all spares leave now, without one.
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
        let spares = Spares::new(1, 0);
        assert!(spares.announce_hold());
        assert_eq!(spares.active(), 0);
        assert!(spares.release());
        assert_eq!(spares.active(), 1);
        assert!(!spares.release(), "all spares are active");
        assert!(matches!(spares.hold(), HoldEnd::Released { .. }));
        assert_eq!(spares.active(), 1);
    }

    #[test]
    fn no_more_holds_than_spares() {
        let spares = Spares::new(1, 0);
        assert!(spares.announce_hold());
        assert!(!spares.announce_hold());
    }

    fn held(spares: &Spares) -> usize {
        lock(&spares.state).held
    }

    fn hold_on_a_thread(spares: &Arc<Spares>) -> std::thread::JoinHandle<HoldEnd> {
        assert!(spares.announce_hold());
        let held = held(spares);
        let holding = std::thread::spawn({
            let spares = spares.clone();
            move || spares.hold()
        });
        while held == self::held(spares) {
            std::thread::yield_now();
        }
        holding
    }

    #[test]
    fn close_frees_the_held_and_those_that_come_later() {
        let spares = Arc::new(Spares::new(3, 0));
        let holding = [hold_on_a_thread(&spares), hold_on_a_thread(&spares)];
        assert!(spares.announce_hold());
        spares.close();
        assert_eq!(spares.active(), 3);
        let ends = holding.map(|thread| thread.join().unwrap());
        for is_last in [false, true] {
            assert!(ends.contains(&HoldEnd::Closed { is_last }), "{ends:?}");
        }
        assert_eq!(spares.hold(), HoldEnd::Closed { is_last: false });
        assert!(!spares.release());
        assert!(!spares.announce_hold());
    }

    #[test]
    fn one_more_than_the_spares_stays_held() {
        let spares = Arc::new(Spares::new(1, 1));
        let first = hold_on_a_thread(&spares);
        assert!(
            !spares.are_all_held() && !spares.release(),
            "it is no spare"
        );
        // The one that comes takes the ticket, or the first does, and one stays.
        assert!(spares.announce_hold());
        assert!(spares.release());
        assert_eq!((spares.active(), held(&spares)), (1, 1));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(held(&spares), 1, "it leaves only when the other has come");
        assert!(matches!(spares.hold(), HoldEnd::Released { .. }));
        assert!(!spares.release());
        assert!(!first.is_finished());
        spares.close();
        let end = first.join().unwrap();
        assert_eq!(end, HoldEnd::Closed { is_last: true });
    }
}
