//! Polls whose worker is handed over, counted: the runtime's drivers end after them.
//!
//! Tokio ends its drivers when it has back the core of every worker. A worker that polls a task keeps its core until the poll is over, so
//! that a timer or a socket in it works to the end. A thread that has handed its core over keeps none: tokio would end the drivers
//! under its poll, and a timer there panics. So a runtime that hands over has one worker more, and one is always held
//! ([`Spares`](crate::act::spare)). When the runtime ends, this one stays where it is, with its core, until no such poll is under way
//! ([`HandedOver::wait`] at the end of its hold). Meanwhile the other workers drop the runtime's tasks, as tokio has it. It cannot be one of
//! those: a poll may wait for what another task keeps, and the worker that waits for the poll might be the one to drop that task.
//!
//! A poll may also wait for a timer or a socket: `block_in_place`, and `Handle::block_on` in it. The other workers have left, and this one
//! waits for the poll, so nothing turns the drivers, and the poll would wait for ever. On tokio such a poll has no core either, and its
//! wait ends with an error when the drivers end. So they end here, too, when no poll under way has used CPU time for two seconds ([`LOOKS`]).
//!
//! **Protocol.** All is under one lock. [`close`](HandedOver::close) sets `is_closed`, and the runtime then ends the holds. After
//! it no poll begins: [`begin`](HandedOver::begin) returns false, and the poll runs on its worker. So the count only falls, and
//! a wait that has seen zero is right for good.
//!
//! Holds also end when the controller fails for good. The runtime goes on then, and so do its polls: nothing is closed, and a wait is
//! none. No poll is handed over after that. One that was, and still goes on when the runtime ends, has no worker that waits for it.
//!
//! The drivers of a plain tokio runtime, on which no worker is held, end as tokio has it, also under such polls.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use morpheus_system::clock;
use morpheus_system::lock::lock;
use morpheus_system::threads::own_tid;

/// How often in a row the polls under way are seen asleep before the drivers of a runtime that ends do so, too. Longer than a poll
/// sleeps between two uses of a timer: it would panic at the second, and does not on tokio. Counted and not measured: the process may
/// be stopped meanwhile.
const LOOKS: u32 = 20;
const LOOKS_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    /// Their threads.
    polls: Vec<u32>,
    is_closed: bool,
}

/// Threads, and the CPU time that each has used: the same ones have slept since if it is the same.
fn used(tids: &[u32]) -> Vec<(u32, Option<u64>)> {
    let used = |&tid: &u32| (tid, clock::cpu_ns_of(tid));
    tids.iter().map(used).collect()
}

/// The polls of a runtime whose worker is handed over.
#[derive(Debug, Default)]
pub(crate) struct HandedOver {
    /// No code of the application runs under this lock.
    state: Mutex<State>,
    over: Condvar,
}

impl HandedOver {
    /// Counts a poll that is about to hand its worker over. Returns false if the runtime ends: the poll keeps its worker.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.polls.push(own_tid());
        }
        !state.is_closed
    }

    /// Ends what [`begin`](Self::begin) began, on the same thread.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        let own = own_tid();
        if let Some(index) = state.polls.iter().rposition(|&tid| tid == own) {
            state.polls.swap_remove(index);
        }
        if state.is_closed && state.polls.is_empty() {
            self.over.notify_all();
        }
    }

    /// Lets no more polls begin.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
    }

    /// Waits until no poll is under way, or all that are sleep, after [`close`](Self::close). Before it returns at once.
    pub(crate) fn wait(&self) {
        let is_under_way = |state: &mut State| state.is_closed && !state.polls.is_empty();
        let (mut before, mut asleep) = (Vec::new(), 0);
        loop {
            let state = lock(&self.state);
            let waited = self
                .over
                .wait_timeout_while(state, LOOKS_EVERY, is_under_way);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !is_under_way(&mut state) {
                return;
            }
            let now = used(&state.polls);
            drop(state);
            asleep = if now == before { asleep + 1 } else { 0 };
            before = now;
            if asleep == LOOKS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_end_waits_for_the_polls_that_have_begun() {
        let polls = HandedOver::default();
        let is_over = AtomicBool::new(false);
        assert!(polls.begin() && polls.begin());
        std::thread::scope(|scope| {
            polls.close();
            assert!(!polls.begin(), "none begins any more");
            scope.spawn(|| {
                polls.wait();
                assert!(is_over.load(Ordering::SeqCst));
            });
            polls.end();
            std::thread::sleep(std::time::Duration::from_millis(20));
            is_over.store(true, Ordering::SeqCst);
            polls.end();
        });
        // A wait that comes later is short.
        polls.wait();
    }

    #[test]
    fn polls_that_sleep_are_not_waited_for_for_ever() {
        let polls = HandedOver::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            assert!(polls.begin());
            polls.close();
            let waiting = scope.spawn(|| {
                polls.wait();
                is_over.store(true, Ordering::SeqCst);
            });
            // While it computes it is waited for, however long that takes.
            let begun = std::time::Instant::now();
            while begun.elapsed() < LOOKS * LOOKS_EVERY + LOOKS_EVERY * 5 {
                std::hint::spin_loop();
            }
            assert!(!is_over.load(Ordering::SeqCst));
            waiting.join().unwrap();
        });
        polls.end();
        assert!(lock(&polls.state).polls.is_empty());
    }

    #[test]
    fn while_the_runtime_goes_on_nothing_waits_for_its_polls() {
        let polls = HandedOver::default();
        assert!(polls.begin());
        polls.wait();
    }
}
