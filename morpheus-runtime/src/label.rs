//! Labels: what is known of all tasks of one origin, be it a spawn location or a name that was given.
//!
//! Labels live for the whole process, in one table of bounded size, so that a slot in shared memory can
//! name one by number. A label that showed a few good polls and no bad one costs its polls one relaxed load
//! here ([`Standing::Calm`]). Before that, and from the first stuck poll on, every poll is counted, bad ones by the controller
//! when it sees them, good ones by the poll that ends without a verdict, until 64 good ones in a row.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::offender::Standing;

/// How many labels a process may have; whatever comes later shares the last one.
const MAX_LABELS: usize = 4096;

/// Suspicion needs so many in a hundred of the polls counted. Above a tenth: a label of which every tenth
/// poll is a hog must not make its innocents pay for an in-place poll (10 µs) each. One stuck poll alone is
/// enough to begin with: where sixty hogs of one origin arrive at once, each one more that starts inline
/// takes a worker, and four good polls undo the suspicion.
const SUSPECT_PERCENT: u32 = 25;
/// A label of which nothing is known yet has to show so many good polls before it counts as calm.
const PROBATION_POLLS: u32 = 16;
/// Conviction of a label needs more: one hog alone does not make its innocent sisters wait.
const CONVICT_MIN_POLLS: u32 = 4;
const CONVICT_PERCENT: u32 = 80;

/// So many stuck polls, and this part of them asleep when they were found, make a label one that sleeps.
const SLEEPER_MIN_POLLS: u32 = 4;
const SLEEPER_PERCENT: u32 = 80;

/// Where a label comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Named(&'static str),
    At(&'static Location<'static>),
    /// All that found the table full.
    Overflow,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Named(name) => f.write_str(name),
            Origin::At(location) => write!(f, "{}:{}", location.file(), location.line()),
            Origin::Overflow => f.write_str("(more labels than the table holds)"),
        }
    }
}

/// The last 64 polls, newest in the lowest bit.
#[derive(Debug, Default)]
struct History {
    bits: AtomicU64,
}

impl History {
    /// As if the last bad poll had been so long ago that after [`PROBATION_POLLS`] good ones it is forgotten.
    /// No share is affected: those count only the polls that there were.
    fn on_probation() -> History {
        History {
            bits: AtomicU64::new(1 << (64 - PROBATION_POLLS)),
        }
    }

    fn push(&self, bad: bool) -> u64 {
        // Relaxed: the bits are a statistic, they order nothing.
        let update = |bits: u64| Some(bits << 1 | u64::from(bad));
        match self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
        {
            Ok(before) | Err(before) => before << 1 | u64::from(bad),
        }
    }

    /// Marks the newest of the polls in `among` that is not marked yet.
    fn mark_one(&self, among: u64) {
        let update = |bits: u64| {
            let unmarked = among & !bits;
            Some(bits | (unmarked & unmarked.wrapping_neg()))
        };
        let _ = self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    fn bits(&self) -> u64 {
        self.bits.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Label {
    id: u32,
    origin: Origin,
    standing: AtomicU32,
    /// Polls counted while not calm, at most 64: how many bits of the histories are in use.
    counted: AtomicU32,
    /// Polls under way on workers that began on probation.
    unproven: AtomicU32,
    stuck: History,
    /// Of those, polls that slept when they were found stuck.
    blocked: History,
    offences: History,
    #[cfg(tokio_unstable)]
    is_own: bool,
    pub(crate) totals: Totals,
}

/// For the summary table and the reports. Written by controllers, but for `polls`.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) polls: AtomicU64,
    pub(crate) stuck_polls: AtomicU64,
    pub(crate) stuck_blocked: AtomicU64,
    pub(crate) offences: AtomicU64,
    pub(crate) longest_ns: AtomicU64,
    pub(crate) convictions: AtomicU64,
    pub(crate) reported_at_ns: AtomicU64,
    pub(crate) suppressed: AtomicU64,
}

impl Label {
    fn new(id: u32, origin: Origin) -> Label {
        Label {
            id,
            origin,
            standing: AtomicU32::new(Standing::Warm as u32),
            counted: AtomicU32::new(0),
            unproven: AtomicU32::new(0),
            stuck: History::on_probation(),
            blocked: History::default(),
            offences: History::default(),
            #[cfg(tokio_unstable)]
            is_own: crate::hooks::is_own(origin),
            totals: Totals::default(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether its tasks are Morpheus's own: held spares, and no-ops.
    #[cfg(tokio_unstable)]
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        // Relaxed: whoever misses a change by one poll polls inline once more, which is always allowed.
        self.standing.load(Ordering::Relaxed) == Standing::Calm as u32
    }

    /// Whether the next poll may well be the first that is found stuck, or that follows one.
    pub(crate) fn is_on_probation(&self) -> bool {
        self.counted.load(Ordering::Relaxed) < PROBATION_POLLS
    }

    /// Whether a poll on a worker is under way of which nobody knows how it will turn out. Many tasks of a
    /// new origin that begin at once would else each take a worker, before the first is found stuck.
    pub(crate) fn has_unproven(&self) -> bool {
        self.is_on_probation() && self.unproven.load(Ordering::Relaxed) > 0
    }

    /// Marks one, until the guard is dropped.
    pub(crate) fn begin_unproven(&'static self) -> Unproven {
        self.unproven.fetch_add(1, Ordering::Relaxed);
        Unproven(self)
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::from_number(self.standing.load(Ordering::Relaxed))
    }

    /// A poll turned out to be stuck; called once for each such poll, by a controller.
    pub(crate) fn learn_stuck(&self, blocked: bool) {
        self.totals.stuck_polls.fetch_add(1, Ordering::Relaxed);
        if blocked {
            self.totals.stuck_blocked.fetch_add(1, Ordering::Relaxed);
        }
        self.stuck.push(true);
        self.blocked.push(blocked);
        self.offences.push(false);
        self.count_one();
        self.judge();
    }

    /// The same poll went on to be an offence (5 ms on the CPU).
    pub(crate) fn learn_offence(&self) {
        self.totals.offences.fetch_add(1, Ordering::Relaxed);
        // Which of the stuck polls is all the same; several may be under way.
        self.offences.mark_one(self.stuck.bits());
        self.judge();
    }

    /// A poll ended without a verdict. Only worth a call while the label is not calm.
    pub(crate) fn learn_good(&self) {
        let stuck = self.stuck.push(false);
        self.blocked.push(false);
        self.offences.push(false);
        self.count_one();
        if stuck == 0 {
            self.counted.store(0, Ordering::Relaxed);
            self.standing
                .store(Standing::Calm as u32, Ordering::Relaxed);
        } else {
            self.judge();
        }
    }

    /// Whether most of its stuck polls slept: the next will, too.
    pub(crate) fn sleeps(&self) -> bool {
        let polls = self.counted.load(Ordering::Relaxed).min(64);
        let used = used(polls);
        let stuck = (self.stuck.bits() & used).count_ones();
        let blocked = (self.blocked.bits() & used).count_ones();
        stuck >= SLEEPER_MIN_POLLS && blocked * 100 >= SLEEPER_PERCENT * stuck
    }

    pub(crate) fn saw_duration(&self, stood_ns: u64) {
        self.totals
            .longest_ns
            .fetch_max(stood_ns, Ordering::Relaxed);
    }

    fn count_one(&self) {
        if self.counted.load(Ordering::Relaxed) < 64 {
            self.counted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn judge(&self) {
        let polls = self.counted.load(Ordering::Relaxed).min(64);
        let standing = judge(polls, self.stuck.bits(), self.offences.bits());
        let before = self.standing.swap(standing as u32, Ordering::Relaxed);
        if standing == Standing::Convict && before != Standing::Convict as u32 {
            self.totals.convictions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// See [`Label::has_unproven`].
#[derive(Debug)]
pub(crate) struct Unproven(&'static Label);

impl Drop for Unproven {
    fn drop(&mut self) {
        self.0.unproven.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the last `polls` polls say of a label.
fn judge(polls: u32, stuck: u64, offences: u64) -> Standing {
    let used = used(polls);
    let share = |bits: u64, percent: u32| (bits & used).count_ones() * 100 >= percent * polls;
    if polls >= CONVICT_MIN_POLLS && share(offences, CONVICT_PERCENT) {
        Standing::Convict
    } else if polls > 0 && share(stuck, SUSPECT_PERCENT) {
        Standing::Suspect
    } else {
        Standing::Warm
    }
}

/// The bits of the last `polls` polls.
fn used(polls: u32) -> u64 {
    if polls >= 64 {
        u64::MAX
    } else {
        (1 << polls) - 1
    }
}

struct Table {
    by_origin: Mutex<HashMap<Origin, &'static Label>>,
    by_id: Box<[AtomicPtr<Label>]>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = Table {
            by_origin: Mutex::default(),
            by_id: (0..MAX_LABELS)
                .map(|_| AtomicPtr::new(std::ptr::null_mut()))
                .collect(),
        };
        // The last number is the overflow label's; it exists from the start.
        let overflow = Box::leak(Box::new(Label::new(
            MAX_LABELS as u32 - 1,
            Origin::Overflow,
        )));
        table.by_id[MAX_LABELS - 1].store(overflow, Ordering::Release);
        table
    })
}

/// The label of an origin, made on first sight. Never fails: a full table gives the overflow label.
pub(crate) fn of(origin: Origin) -> &'static Label {
    let table = table();
    let mut known = table
        .by_origin
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(label) = known.get(&origin) {
        return label;
    }
    let id = known.len();
    if id >= MAX_LABELS - 1 {
        return by_id(MAX_LABELS as u32 - 1).expect("the overflow label exists from the start");
    }
    let label: &'static Label = Box::leak(Box::new(Label::new(id as u32, origin)));
    known.insert(origin, label);
    // Release: pairs with the Acquire in `by_id`, so that a controller sees the label initialised.
    table.by_id[id].store(std::ptr::from_ref(label).cast_mut(), Ordering::Release);
    label
}

/// The label of a spawn location. A thread remembers the last few it asked for, because spawning is a
/// hot path.
pub(crate) fn at(location: &'static Location<'static>) -> &'static Label {
    use std::cell::Cell;
    // With the task hooks it is asked before every poll.
    const REMEMBERED: usize = if cfg!(tokio_unstable) { 256 } else { 16 };
    type Entry = Cell<Option<(&'static Location<'static>, &'static Label)>>;
    thread_local! {
        static RECENT: [Entry; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
    }
    let address = std::ptr::from_ref(location) as usize;
    RECENT.with(|recent| {
        let entry = &recent[(address / align_of::<Location<'_>>()) % REMEMBERED];
        match entry.get() {
            Some((known, label)) if std::ptr::eq(known, location) => label,
            _ => {
                let label = of(Origin::At(location));
                entry.set(Some((location, label)));
                label
            }
        }
    })
}

/// The label with a number that was read from a slot: a claim, so it is looked up, not trusted.
pub(crate) fn by_id(id: u32) -> Option<&'static Label> {
    let label = table()
        .by_id
        .get(id as usize)?
        // Acquire: pairs with the Release in `of`.
        .load(Ordering::Acquire);
    // SAFETY: non-null entries are leaked boxes, initialised before they were stored and never freed.
    unsafe { label.as_ref() }
}

/// All labels, in the order in which they were first seen.
pub(crate) fn all() -> impl Iterator<Item = &'static Label> {
    (0..MAX_LABELS as u32).filter_map(by_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_offence_alone_convicts_nobody() {
        assert_eq!(judge(1, 0b1, 0b1), Standing::Suspect);
        assert_eq!(judge(4, 0b1000, 0b1000), Standing::Suspect);
        assert_eq!(judge(5, 0b10000, 0b10000), Standing::Warm);
        assert_eq!(judge(3, 0b111, 0b111), Standing::Suspect);
        assert_eq!(judge(4, 0b1111, 0b1111), Standing::Convict);
    }

    #[test]
    fn offences_of_polls_that_run_beside_each_other_all_count() {
        let label = Label::new(0, Origin::Named("beside each other"));
        for _ in 0..CONVICT_MIN_POLLS {
            label.learn_stuck(false);
        }
        assert_eq!(label.standing(), Standing::Suspect);
        for _ in 0..CONVICT_MIN_POLLS {
            label.learn_offence();
        }
        assert_eq!(label.standing(), Standing::Convict);
    }

    #[test]
    fn a_new_label_is_calm_after_its_probation_and_suspect_after_one_bad_poll() {
        let label = Label::new(0, Origin::Named("good"));
        assert!(label.is_on_probation() && label.standing() == Standing::Warm);
        for _ in 0..PROBATION_POLLS {
            assert!(!label.is_calm());
            label.learn_good();
        }
        assert!(label.is_calm());
        let label = Label::new(0, Origin::Named("bad"));
        label.learn_stuck(false);
        assert_eq!(label.standing(), Standing::Suspect);
    }

    #[test]
    fn every_tenth_poll_a_hog_is_not_suspicious() {
        let stuck = (0..64).step_by(10).fold(0u64, |bits, at| bits | 1 << at);
        assert_eq!(judge(64, stuck, stuck), Standing::Warm);
    }

    #[test]
    fn blocked_polls_make_suspects_but_never_convicts() {
        assert_eq!(judge(64, u64::MAX, 0), Standing::Suspect);
    }

    #[test]
    fn a_label_sleeps_whose_stuck_polls_mostly_did() {
        let label = of(Origin::Named("label, sleeps"));
        for _ in 0..3 {
            label.learn_stuck(true);
        }
        assert!(!label.sleeps(), "too few to tell");
        label.learn_stuck(true);
        label.learn_good();
        assert!(label.sleeps());
        label.learn_stuck(false);
        assert!(label.sleeps(), "four of five");
        label.learn_stuck(false);
        assert!(!label.sleeps());
    }

    #[test]
    fn sixty_four_good_polls_clear_a_label() {
        let label = Label::new(0, Origin::Named("cleared"));
        for _ in 0..64 {
            label.learn_stuck(false);
            label.learn_offence();
        }
        assert_eq!(label.standing(), Standing::Convict);
        for _ in 0..63 {
            label.learn_good();
            assert!(!label.is_calm());
        }
        label.learn_good();
        assert!(label.is_calm());
    }

    #[test]
    fn one_origin_has_one_label() {
        let here = Location::caller();
        assert!(std::ptr::eq(at(here), at(here)));
        assert!(std::ptr::eq(at(here), by_id(at(here).id()).unwrap()));
        assert!(std::ptr::eq(of(Origin::Named("x")), of(Origin::Named("x"))));
        assert!(by_id(u32::MAX).is_none());
    }
}
