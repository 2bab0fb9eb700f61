//! The captor: decides for the controller which polls have their stacks taken, and when.
//!
//! It takes the stack of a stalled poll once, after `report_after`. From then on it only writes the poll's duration, at each
//! sample, to a word that its group reads. While no poll is stalled that long, `tend` reads two empty lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::groups::{Record, Shared};
use super::source::{self, Ask, Begun};
use super::{NoStack, StallKind};
use morpheus_system::asleep::ThreadStat;
use morpheus_system::clock::SECOND_NS;

/// The rate of stacks, and the burst above it: a storm of stalls must not be one for the controller. Stalls beyond that are
/// counted. `cargo bench -p morpheus-bench --bench capture` shows the cost of one.
const CAPTURES_A_SECOND: u64 = 50;
const CAPTURES_AT_ONCE: u64 = 32;
/// The time in which a thread that was asked has to answer. It answers when it gets the CPU.
const ANSWER_NS: u64 = 200_000_000;
/// Tries with a thread that moves while its stack is copied.
const TRIES: u32 = 5;

/// Identifies a stalled poll: a watched one by its slot and number, one that is not watched by its core and the last sign
/// of life of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A watched poll: slot and `poll_seq`.
    Slot(usize, u64),
    /// A poll that is not watched: core, and its last sign of life.
    Core(usize, u64),
}

/// A poll that has been stalled for `report_after`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long {
    pub(crate) place: Place,
    pub(crate) tid: u32,
    /// `None` when it is not watched.
    pub(crate) label: Option<u32>,
    pub(crate) since_ns: u64,
}

/// How long a poll has stood; the controller writes, the group reads.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub(crate) ns: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// A long poll that has not ended.
struct Open {
    long: Long,
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

pub(crate) struct Captor {
    shared: Arc<Shared>,
    is_on: bool,
    open: Vec<Open>,
    allowance: u64,
    allowance_at_ns: u64,
}

impl Captor {
    pub(crate) fn new(shared: Arc<Shared>, is_on: bool) -> Captor {
        Captor {
            shared,
            is_on,
            open: Vec::new(),
            allowance: CAPTURES_AT_ONCE,
            allowance_at_ns: 0,
        }
    }

    /// Whether a poll is being followed.
    pub(crate) fn follows(&self, place: Place) -> bool {
        self.open.iter().any(|open| open.long.place == place)
    }

    /// Follows those that are known, and looks at new ones. `is_same` says whether a poll still stands.
    pub(crate) fn tend(&mut self, now_ns: u64, new: &[Long], is_same: impl Fn(Place) -> bool) {
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

impl Drop for Captor {
    fn drop(&mut self) {
        for mut open in std::mem::take(&mut self.open) {
            open.end(&self.shared);
        }
    }
}

impl Open {
    fn tend(
        &mut self,
        now_ns: u64,
        same: bool,
        is_on: bool,
        shared: &Arc<Shared>,
        is_same: impl Fn(Place) -> bool,
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
                let asleep = ThreadStat::open(self.long.tid).and_then(|stat| stat.is_asleep());
                let kind = match asleep {
                    Some(true) => StallKind::Blocked,
                    _ => StallKind::Computing,
                };
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

    fn long(seat: usize) -> Long {
        Long {
            place: Place::Slot(seat, 1),
            tid: morpheus_system::threads::own_tid(),
            label: None,
            since_ns: 0,
        }
    }

    #[test]
    fn a_storm_is_counted_and_not_followed() {
        let shared = Arc::new(Shared::default());
        let mut captor = Captor::new(shared.clone(), false);
        let many: Vec<Long> = (0..1000).map(long).collect();
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
        let shared = Arc::new(Shared::default());
        let mut captor = Captor::new(shared.clone(), false);
        captor.tend(10, &[long(3)], |_| true);
        assert!(captor.follows(Place::Slot(3, 1)) && !captor.follows(Place::Slot(3, 3)));
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
