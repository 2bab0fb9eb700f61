//! Polls whose worker is handed over, counted: the runtime's drivers end after them.
//!
//! Tokio ends its drivers when it has back the core of every worker. A worker that polls a task keeps its core until the poll is over, so
//! that a timer or a socket in it works to the end. A thread that has handed its core over keeps none: tokio would end the drivers
//! under its poll, and a timer there panics. So a runtime that hands over has one worker more, and one is always held
//! ([`Spares`](crate::act::spare)). When the runtime ends, this one stays where it is, with its core, until no such poll is under way
//! ([`HandedOver::wait`] at the end of its hold). Meanwhile the other workers drop the runtime's tasks, as tokio has it. It cannot be one of
//! those: a poll may wait for what another task keeps, and the worker that waits for the poll might be the one to drop that task.
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

use morpheus_system::lock::lock;

#[derive(Debug, Default)]
struct State {
    polls: usize,
    is_closed: bool,
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
        state.polls += usize::from(!state.is_closed);
        !state.is_closed
    }

    /// Ends what [`begin`](Self::begin) began.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.polls -= 1;
        if state.is_closed && state.polls == 0 {
            self.over.notify_all();
        }
    }

    /// Lets no more polls begin.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
    }

    /// Waits until no poll is under way, after [`close`](Self::close). Before it returns at once.
    pub(crate) fn wait(&self) {
        let state = lock(&self.state);
        let is_under_way = |state: &mut State| state.is_closed && state.polls > 0;
        let over = self.over.wait_while(state, is_under_way);
        drop(over.unwrap_or_else(PoisonError::into_inner));
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
    fn while_the_runtime_goes_on_nothing_waits_for_its_polls() {
        let polls = HandedOver::default();
        assert!(polls.begin());
        polls.wait();
    }
}
