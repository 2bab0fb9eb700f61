//! The captor: decides for its caller which polls have their stacks taken, and when.
//!
//! It takes the stack of a stalled poll once, when the caller first shows it. From then on it only writes the poll's duration,
//! at each call of [`tend`](Captor::tend), to a word that its group reads. While there is no such poll, `tend` reads two empty
//! lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::groups::{Record, Shared};
use crate::source::{self, Ask, Begun};
use crate::{NoStack, StallKind};
use morpheus_system::asleep::ThreadStat;
use morpheus_system::clock::SECOND_NS;

/// The rate of stacks, and the burst above it: a storm of stalls must not be one for the caller. Stalls beyond that are
/// counted. `cargo bench -p morpheus-bench --bench capture` shows the cost of one.
const CAPTURES_A_SECOND: u64 = 50;
const CAPTURES_AT_ONCE: u64 = 32;
/// The time in which a thread that was asked has to answer. It answers when it gets the CPU.
const ANSWER_NS: u64 = 200_000_000;
/// Tries with a thread that moves while its stack is copied.
const TRIES: u32 = 5;

/// A poll that has been stalled for a while.
#[derive(Clone, Copy, Debug)]
pub struct Long<P> {
    /// The identity of the poll: different for each, and the same as long as it is stalled.
    pub place: P,
    /// Its thread, as the kernel numbers it.
    pub tid: u32,
    /// The caller's number of its label; `None` when it has none.
    pub label: Option<u32>,
    /// When it began: nanoseconds of the clock that [`Captor::tend`] is told.
    pub since_ns: u64,
}

/// What a thread does whose stack is not to be had.
pub(crate) fn kind_of(tid: u32) -> StallKind {
    match ThreadStat::open(tid).and_then(|stat| stat.is_asleep()) {
        Some(true) => StallKind::Blocked,
        _ => StallKind::Computing,
    }
}

/// How long a poll has been stalled; the captor writes, the group reads.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub(crate) ns: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// A long poll that has not ended.
struct Open<P> {
    long: Long<P>,
    standing: Arc<Standing>,
    search: Search,
}

enum Search {
    /// The stack is still to be taken, with this many tries left.
    Again(u32),
    Asked {
        ask: Ask,
        until_ns: u64,
    },
    /// Its record has gone to the groups.
    Done,
}

/// Follows stalled polls from the first that is seen of them to their end. `P` identifies a poll.
pub struct Captor<P> {
    shared: Arc<Shared>,
    is_on: bool,
    open: Vec<Open<P>>,
    allowance: u64,
    allowance_at_ns: u64,
}

impl<P: Copy + PartialEq> Captor<P> {
    /// Follows none yet. If it is not on, no stack is taken, and the groups say so ([`NoStack::Off`]).
    #[must_use]
    pub fn new(shared: Arc<Shared>, is_on: bool) -> Captor<P> {
        Captor {
            shared,
            is_on,
            open: Vec::new(),
            allowance: CAPTURES_AT_ONCE,
            allowance_at_ns: 0,
        }
    }

    /// Whether a poll is being followed.
    #[must_use]
    pub fn follows(&self, place: P) -> bool {
        self.open.iter().any(|open| open.long.place == place)
    }

    /// Follows those that are known, and looks at new ones. `is_same` says whether a poll is still stalled; `now_ns` is the
    /// time in nanoseconds, by any clock that goes on steadily.
    ///
    /// It does not wait for a thread: the answer of one that is asked is seen at a later call. So the caller comes back every
    /// few milliseconds while there are stalled polls.
    pub fn tend(&mut self, now_ns: u64, new: &[Long<P>], is_same: impl Fn(P) -> bool) {
        if self.open.is_empty() && new.is_empty() {
            return;
        }
        let (shared, is_on) = (&self.shared, self.is_on);
        self.open.retain_mut(|open| {
            let same = is_same(open.long.place);
            open.tend(now_ns, same, is_on, shared, &is_same);
            same
        });
        for &long in new {
            if !self.may_look(now_ns) {
                self.shared.count_not_captured();
                continue;
            }
            let mut open = Open {
                long,
                standing: Arc::default(),
                search: Search::Again(TRIES),
            };
            open.tend(now_ns, true, is_on, &self.shared, &is_same);
            self.open.push(open);
        }
    }

    fn may_look(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.allowance_at_ns);
        let earned = passed_ns / (SECOND_NS / CAPTURES_A_SECOND);
        if earned > 0 {
            self.allowance = (self.allowance + earned).min(CAPTURES_AT_ONCE);
            self.allowance_at_ns = now_ns;
        }
        let may = self.allowance > 0;
        self.allowance -= u64::from(may);
        may
    }
}

/// Ends the stalls that it still follows.
impl<P> Drop for Captor<P> {
    fn drop(&mut self) {
        for mut open in std::mem::take(&mut self.open) {
            open.end(&self.shared);
        }
    }
}

impl<P: Copy> Open<P> {
    fn tend(
        &mut self,
        now_ns: u64,
        same: bool,
        is_on: bool,
        shared: &Arc<Shared>,
        is_same: impl Fn(P) -> bool,
    ) {
        if !same {
            return self.end(shared);
        }
        // Relaxed, both words: a statistic, and they order nothing.
        self.standing
            .ns
            .store(now_ns.saturating_sub(self.long.since_ns), Ordering::Relaxed);
        match &mut self.search {
            Search::Done => {}
            Search::Again(_) if !is_on => {
                let kind = kind_of(self.long.tid);
                self.record(kind, Err(NoStack::Off), shared);
            }
            Search::Again(tries) => {
                let place = self.long.place;
                match source::begin(self.long.tid, || is_same(place)) {
                    Begun::Copied(raw) => self.record(StallKind::Blocked, Ok(raw), shared),
                    Begun::Asked(ask) => {
                        self.search = Search::Asked {
                            ask,
                            until_ns: now_ns + ANSWER_NS,
                        };
                    }
                    Begun::Failed(kind, why) => self.record(kind, Err(why), shared),
                    Begun::Moved if *tries > 0 => *tries -= 1,
                    Begun::Moved => self.record(StallKind::Blocked, Err(NoStack::Over), shared),
                }
            }
            Search::Asked { ask, until_ns } => match ask.answer() {
                Some(Ok(raw)) => self.record(StallKind::Computing, Ok(raw), shared),
                Some(Err(why)) => self.record(StallKind::Computing, Err(why), shared),
                None if now_ns >= *until_ns => {
                    self.record(StallKind::Computing, Err(NoStack::NoAnswer), shared);
                }
                None => {}
            },
        }
    }
}

impl<P> Open<P> {
    /// Ends the record of a poll that is over. An answer that comes later is dropped.
    fn end(&mut self, shared: &Arc<Shared>) {
        match self.search {
            Search::Done => {}
            Search::Again(_) => self.record(StallKind::Blocked, Err(NoStack::Over), shared),
            Search::Asked { .. } => self.record(StallKind::Computing, Err(NoStack::Over), shared),
        }
        self.standing.is_over.store(true, Ordering::Relaxed);
    }

    fn record(
        &mut self,
        kind: StallKind,
        found: Result<source::Raw, NoStack>,
        shared: &Arc<Shared>,
    ) {
        self.search = Search::Done;
        shared.take(Record {
            label: self.long.label,
            kind,
            standing: self.standing.clone(),
            found,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups;

    fn long(slot: usize) -> Long<(usize, u64)> {
        Long {
            place: (slot, 1),
            tid: morpheus_system::threads::own_tid(),
            label: None,
            since_ns: 0,
        }
    }

    #[test]
    fn a_storm_is_counted_and_not_followed() {
        let shared = groups::testing::shared();
        let mut captor = Captor::new(shared.clone(), false);
        let many: Vec<Long<_>> = (0..1000).map(long).collect();
        captor.tend(SECOND_NS, &many, |_| true);
        assert_eq!(captor.open.len() as u64, CAPTURES_AT_ONCE);
        let stalls = shared.stalls();
        assert_eq!(stalls.not_captured, 1000 - CAPTURES_AT_ONCE);
        assert_eq!(
            stalls.groups.iter().map(|group| group.count).sum::<u64>(),
            CAPTURES_AT_ONCE
        );
        captor.tend(2 * SECOND_NS, &many[..1], |_| false);
        assert_eq!(captor.open.len(), 1);
    }

    #[test]
    fn a_poll_is_counted_once_and_its_duration_grows() {
        let shared = groups::testing::shared();
        let mut captor = Captor::new(shared.clone(), false);
        captor.tend(10, &[long(3)], |_| true);
        assert!(captor.follows((3, 1)) && !captor.follows((3, 3)));
        for now_ns in [20, 30, 40] {
            captor.tend(now_ns, &[], |_| true);
            let group = shared.stalls().groups.remove(0);
            assert_eq!(
                (group.count, group.longest.as_nanos()),
                (1, u128::from(now_ns))
            );
        }
        captor.tend(50, &[], |_| false);
        assert!(captor.open.is_empty());
        let group = shared.stalls().groups.remove(0);
        assert_eq!((group.count, group.longest.as_nanos()), (1, 40));
        assert_eq!(group.no_stack, Some(NoStack::Off));
    }
}
