//! Groups of stalls: by label, by the state of the thread, and by the application's frame.
//!
//! A record goes through three stages, each only when it is needed:
//!
//! 1. `Shared::take` puts a record into a queue; the captor calls it, and it costs a lock that no thread
//!    holds for long.
//! 2. *Digested*, its stack is walked, and addresses are left of it. The caller of `stalls` does this, or
//!    a thread for a moment when `DIGESTED_AT` records wait.
//! 3. *Folded*, addresses get names, and those with one application frame become one group. Only the
//!    caller of `stalls` does this, or a digest when `MOST_PLACES` are known.
//!
//! All is bounded: `MOST_WAITING` copies, `MOST_PLACES` places, `MOST_GROUPS` groups.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::captor::Standing;
use crate::owner::is_library;
use crate::source::{self, At, Raw, Reader};
use crate::{Frame, NoStack, StallGroup, StallKind, Stalls};
use morpheus_system::lock::lock;
use morpheus_system::{nice, threads};

/// A thread walks copies when this many wait: half a MiB.
const DIGESTED_AT: usize = 16;
/// Copies that wait, at most: 2 MiB. Beyond that records have no stack.
const MOST_WAITING: usize = 64;
/// Different stacks that are remembered between two foldings.
const MOST_PLACES: usize = 512;
/// Groups that are kept; what comes later is counted.
const MOST_GROUPS: usize = 256;

/// One stalled poll.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) label: Option<u32>,
    pub(crate) kind: StallKind,
    pub(crate) standing: Arc<Standing>,
    pub(crate) found: Result<Raw, NoStack>,
}

/// The stalls of one caller. A [`Captor`](crate::captor::Captor) puts them in, any thread reads them.
#[derive(Debug)]
pub struct Shared {
    /// Gives the caller's name of a label.
    name_of: fn(Option<u32>) -> String,
    /// The caller's action at the first stall.
    at_first: fn(&Arc<Shared>),
    waiting: Mutex<Vec<Record>>,
    /// Taken before `waiting`, where both are.
    digest: Mutex<Digest>,
    digesting: AtomicBool,
    not_captured: AtomicU64,
    had_first: OnceLock<()>,
}

/// Where a stack was: what two polls must have in common to be the same stall.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlaceKey {
    label: Option<u32>,
    kind: StallKind,
    stack: Result<Vec<u64>, NoStack>,
}

#[derive(Debug, Default)]
struct Digest {
    places: HashMap<PlaceKey, Known>,
    folded: HashMap<GroupKey, Folded>,
    other_groups: u64,
}

/// A place, and what was counted there since the last folding.
#[derive(Debug)]
struct Known {
    addresses: Vec<At>,
    times: Times,
    /// The group, once it was looked up. `Some(None)` is for those beyond the last.
    group: Option<Option<GroupKey>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    label: Option<u32>,
    kind: StallKind,
    /// The culprit, else the innermost frame; or why there is none.
    frame: Result<Option<Frame>, NoStack>,
}

#[derive(Debug)]
struct Folded {
    stack: Vec<Frame>,
    culprit: Option<usize>,
    times: Times,
}

/// How many, and how long. Those that have not ended still grow.
#[derive(Debug, Default)]
struct Times {
    count: u64,
    longest_ns: u64,
    total_ns: u64,
    open: Vec<Arc<Standing>>,
}

impl Times {
    fn add(&mut self, standing: Arc<Standing>) {
        self.count += 1;
        self.open.push(standing);
        self.settle();
    }

    /// Adds up those that are over.
    fn settle(&mut self) {
        let (longest_ns, total_ns) = (&mut self.longest_ns, &mut self.total_ns);
        self.open.retain(|standing| {
            let is_over = standing.is_over.load(Ordering::Relaxed);
            if is_over {
                let ns = standing.ns.load(Ordering::Relaxed);
                *longest_ns = (*longest_ns).max(ns);
                *total_ns = total_ns.saturating_add(ns);
            }
            !is_over
        });
    }

    fn merge(&mut self, other: Times) {
        self.count += other.count;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.open.extend(other.open);
    }

    /// The longest and all together, those still open included.
    fn read(&mut self) -> (u64, u64) {
        self.settle();
        self.open
            .iter()
            .map(|standing| standing.ns.load(Ordering::Relaxed))
            .fold((self.longest_ns, self.total_ns), |(longest, total), ns| {
                (longest.max(ns), total.saturating_add(ns))
            })
    }
}

impl Shared {
    /// No stalls yet.
    ///
    /// `name_of` names a label for [`stalls`](Shared::stalls), by the number that [`Long::label`](crate::captor::Long::label)
    /// has; a lock is held meanwhile, so it must not ask for stalls. `at_first` is called once, on the captor's thread, before
    /// the first stall is put in.
    #[must_use]
    pub fn new(name_of: fn(Option<u32>) -> String, at_first: fn(&Arc<Shared>)) -> Shared {
        Shared {
            name_of,
            at_first,
            waiting: Mutex::default(),
            digest: Mutex::default(),
            digesting: AtomicBool::new(false),
            not_captured: AtomicU64::new(0),
            had_first: OnceLock::new(),
        }
    }

    pub(crate) fn count_not_captured(&self) {
        self.not_captured.fetch_add(1, Ordering::Relaxed);
    }

    /// One more stalled poll; from the captor.
    pub(crate) fn take(self: &Arc<Shared>, mut record: Record) {
        if self.had_first.set(()).is_ok() {
            (self.at_first)(self);
        }
        let waiting = {
            let mut waiting = lock(&self.waiting);
            let copies = waiting.iter().filter(|record| record.found.is_ok()).count();
            if record.found.is_ok() && copies >= MOST_WAITING {
                record.found = Err(NoStack::TooMany);
            }
            if waiting.len() >= 16 * MOST_WAITING {
                return self.count_not_captured();
            }
            waiting.push(record);
            waiting.len()
        };
        // Relaxed: a thread that sees it late starts one more, which finds nothing to do.
        if waiting >= DIGESTED_AT && !self.digesting.swap(true, Ordering::Relaxed) {
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("morpheus-stacks".into());
            let started = threads::start(thread, move || {
                // A caller that waits for stacks can wait for the CPU.
                nice::lower_current();
                let mut digest = lock(&shared.digest);
                // Relaxed: see above. Before it walks, so that what comes from now on starts another thread; and with the
                // lock, for which therefore one thread waits at most.
                shared.digesting.store(false, Ordering::Relaxed);
                shared.digest(&mut digest);
            });
            if started.is_err() {
                // They wait for the next caller of `stalls`.
                self.digesting.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Walks what waits.
    fn digest(&self, digest: &mut Digest) {
        let records = std::mem::take(&mut *lock(&self.waiting));
        if records.is_empty() {
            return;
        }
        let mut reader = Reader::new();
        for record in records {
            let addresses = record.found.map(|raw| reader.walk(&raw));
            let key = PlaceKey {
                label: record.label,
                kind: record.kind,
                stack: addresses.as_deref().map(source::key).map_err(|why| *why),
            };
            if digest.places.len() >= MOST_PLACES && !digest.places.contains_key(&key) {
                digest.fold();
                digest.places.clear();
            }
            match digest.places.entry(key) {
                Entry::Occupied(mut known) => known.get_mut().times.add(record.standing),
                Entry::Vacant(place) => {
                    let mut times = Times::default();
                    times.add(record.standing);
                    place.insert(Known {
                        addresses: addresses.unwrap_or_default(),
                        times,
                        group: None,
                    });
                }
            }
        }
    }

    /// The groups, with names, those first that were stalled longest in all. Walks the stacks that wait and looks names up in
    /// the line tables of the program, which takes long the first time: not for a thread that must not block.
    #[must_use]
    pub fn stalls(&self) -> Stalls {
        let mut digest = lock(&self.digest);
        self.digest(&mut digest);
        digest.fold();
        let mut groups: Vec<StallGroup> = digest
            .folded
            .iter_mut()
            .map(|(key, folded)| {
                let (longest_ns, total_ns) = folded.times.read();
                StallGroup {
                    label: (self.name_of)(key.label),
                    kind: key.kind,
                    count: folded.times.count,
                    longest: Duration::from_nanos(longest_ns),
                    total: Duration::from_nanos(total_ns),
                    stack: folded.stack.clone(),
                    no_stack: key.frame.as_ref().err().copied(),
                    culprit: folded.culprit,
                }
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse((group.total, group.count)));
        Stalls {
            groups,
            other_groups: digest.other_groups,
            not_captured: self.not_captured.load(Ordering::Relaxed),
        }
    }
}

impl Digest {
    /// Brings what was counted at places into the groups.
    fn fold(&mut self) {
        for (place, known) in &mut self.places {
            if known.times.count == 0 {
                continue;
            }
            let times = std::mem::take(&mut known.times);
            let group = match &known.group {
                Some(group) => group.clone(),
                None => {
                    let group = named(&mut self.folded, place, &known.addresses);
                    known.group = Some(group.clone());
                    known.addresses = Vec::new();
                    group
                }
            };
            match group.and_then(|group| self.folded.get_mut(&group)) {
                Some(folded) => folded.times.merge(times),
                None => self.other_groups += times.count,
            }
        }
    }
}

/// The group of a place, made if there is room for another.
fn named(
    folded: &mut HashMap<GroupKey, Folded>,
    place: &PlaceKey,
    addresses: &[At],
) -> Option<GroupKey> {
    let stack = source::frames(addresses);
    let culprit = culprit(&stack);
    let frame = match &place.stack {
        Ok(_) => Ok(culprit
            .and_then(|index| stack.get(index))
            .or(stack.first())
            .cloned()),
        Err(why) => Err(*why),
    };
    // How it was found does not tell one place from another.
    let frame = frame.map(|frame| {
        frame.map(|frame| Frame {
            searched: false,
            ..frame
        })
    });
    let key = GroupKey {
        label: place.label,
        kind: place.kind,
        frame,
    };
    if !folded.contains_key(&key) {
        if folded.len() >= MOST_GROUPS {
            return None;
        }
        folded.insert(
            key.clone(),
            Folded {
                stack,
                culprit,
                times: Times::default(),
            },
        );
    }
    Some(key)
}

/// Which frame is to blame. Without one of the application's own, the innermost of some library.
fn culprit(stack: &[Frame]) -> Option<usize> {
    stack
        .iter()
        .position(|frame| frame.is_application)
        .or_else(|| {
            stack
                .iter()
                .position(|frame| is_library(&frame.function, frame.file.as_deref()))
        })
}

/// Groups of no runtime.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn shared() -> Arc<Shared> {
        let name_of = |label: Option<u32>| match label {
            Some(label) => format!("label {label}"),
            None => "no label".to_owned(),
        };
        Arc::new(Shared::new(name_of, |_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(label: Option<u32>, ns: u64, is_over: bool) -> Record {
        let standing = Standing::default();
        standing.ns.store(ns, Ordering::Relaxed);
        standing.is_over.store(is_over, Ordering::Relaxed);
        Record {
            label,
            kind: StallKind::Blocked,
            standing: Arc::new(standing),
            found: Err(NoStack::Over),
        }
    }

    #[test]
    fn labels_are_told_apart_and_durations_added() {
        let shared = testing::shared();
        for (label, ns, is_over) in [
            (None, 5, true),
            (None, 7, false),
            (Some(9), 3, true),
            (None, 1, true),
        ] {
            shared.take(record(label, ns, is_over));
        }
        for _ in 0..2 {
            let stalls = shared.stalls();
            let [first, second] = &stalls.groups[..] else {
                panic!("{stalls:?}");
            };
            assert_eq!((first.label.as_str(), first.count), ("no label", 3));
            assert_eq!((first.longest.as_nanos(), first.total.as_nanos()), (7, 13));
            assert_eq!((second.label.as_str(), second.count), ("label 9", 1));
        }
        assert!(shared.stalls().to_string().contains("it ended before"));
    }

    #[test]
    fn one_thread_at_a_time_walks_the_copies() {
        let shared = testing::shared();
        let held = lock(&shared.digest);
        for number in 0..10 * DIGESTED_AT as u32 {
            shared.take(record(Some(number % 3), 1, true));
        }
        // Each thread has a clone.
        assert_eq!(Arc::strong_count(&shared), 2);
        drop(held);
        while Arc::strong_count(&shared) > 1 {
            std::thread::yield_now();
        }
        let counted: u64 = shared.stalls().groups.iter().map(|group| group.count).sum();
        assert_eq!(counted, 10 * DIGESTED_AT as u64);
        assert!(!shared.digesting.load(Ordering::Relaxed));
    }

    #[test]
    fn there_are_not_more_groups_than_the_table_holds() {
        let shared = testing::shared();
        for number in 0..2 * MOST_GROUPS as u32 {
            shared.take(record(Some(number), 1, true));
            if number % 10 == 0 {
                drop(shared.stalls());
            }
        }
        let stalls = shared.stalls();
        assert_eq!(stalls.groups.len(), MOST_GROUPS);
        assert_eq!(stalls.other_groups, MOST_GROUPS as u64);
    }

    #[test]
    fn the_caller_is_told_of_the_first_stall_alone() {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        let shared = Arc::new(Shared::new(
            |_| String::new(),
            |shared| {
                // Before it is put in, and with no lock held.
                assert!(shared.stalls().groups.is_empty());
                TOLD.fetch_add(1, Ordering::Relaxed);
            },
        ));
        assert_eq!(TOLD.load(Ordering::Relaxed), 0);
        for _ in 0..3 {
            shared.take(record(None, 1, true));
        }
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
        assert_eq!(shared.stalls().groups[0].count, 3);
    }
}
