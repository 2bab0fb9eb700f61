//! The queue of tasks that wait for a permit of one class.
//!
//! Thousands may wait, and each of them may leave at any time: all clients of a slow service time out together. The queue is looked
//! at under the lock for which every poll that begins or ends waits, at each sample and each time that a permit is given back. So every
//! operation takes logarithmic time at most, also where no waiter may start, and where those in front are not due.

use std::collections::{BTreeMap, BTreeSet};

/// The place of a waiter, which it keeps as long as it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// In the order of arrival, over all classes.
    pub(crate) number: u64,
    /// Short polls that an untried task had; 0 for others. It stands behind those that had fewer, and is served from the end.
    pub(crate) short_polls: u8,
    /// The poll will probably sleep.
    pub(crate) sleeps: bool,
    /// Earliest time of a grant, in nanoseconds: the bandwidth of a throttled task is capped.
    pub(crate) not_before_ns: u64,
}

impl Ticket {
    fn turn(&self) -> Turn {
        (self.short_polls, self.number)
    }
}

/// The order of a queue: short polls, then arrival.
type Turn = (u8, u64);

#[derive(Debug)]
pub(crate) struct Queue<W> {
    /// By their numbers, and so in the order of arrival.
    waiters: BTreeMap<u64, (Ticket, W)>,
    /// Those whose time has come.
    due: BTreeSet<Turn>,
    /// Of these, the ones that will sleep.
    sleepers: BTreeSet<Turn>,
    /// Those whose time has not come, by that time.
    throttled: BTreeSet<(u64, Turn)>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue {
            waiters: BTreeMap::new(),
            due: BTreeSet::new(),
            sleepers: BTreeSet::new(),
            throttled: BTreeSet::new(),
        }
    }
}

impl<W> Queue<W> {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Every waiter, in the order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &W> {
        self.waiters.values().map(|(_, waiter)| waiter)
    }

    /// Adds a waiter, which is not due before [`end_throttles`](Self::end_throttles) is called with its time.
    pub(crate) fn insert(&mut self, ticket: Ticket, waiter: W) {
        self.throttled.insert((ticket.not_before_ns, ticket.turn()));
        self.waiters.insert(ticket.number, (ticket, waiter));
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<W> {
        let (ticket, waiter) = self.waiters.remove(&number)?;
        let turn = ticket.turn();
        if self.due.remove(&turn) {
            self.sleepers.remove(&turn);
        } else {
            self.throttled.remove(&(ticket.not_before_ns, turn));
        }
        Some(waiter)
    }

    /// Makes the waiters due whose time has come.
    pub(crate) fn end_throttles(&mut self, now_ns: u64) {
        while let Some(&(not_before_ns, turn)) = self.throttled.first()
            && not_before_ns <= now_ns
        {
            self.throttled.pop_first();
            self.due.insert(turn);
            if self.waiters[&turn.1].0.sleeps {
                self.sleepers.insert(turn);
            }
        }
    }

    /// The first one that is due.
    pub(crate) fn first(&self) -> Option<&W> {
        self.at(self.due.first())
    }

    /// The last one that is due.
    pub(crate) fn last(&self) -> Option<&W> {
        self.at(self.due.last())
    }

    /// The first one that is due and will sleep.
    pub(crate) fn first_sleeper(&self) -> Option<&W> {
        self.at(self.sleepers.first())
    }

    /// The last one that is due and will sleep.
    pub(crate) fn last_sleeper(&self) -> Option<&W> {
        self.at(self.sleepers.last())
    }

    /// The one that came first, due or not.
    pub(crate) fn oldest(&self) -> Option<&W> {
        self.iter().next()
    }

    fn at(&self, turn: Option<&Turn>) -> Option<&W> {
        let (_, number) = turn?;
        self.waiters.get(number).map(|(_, waiter)| waiter)
    }
}
