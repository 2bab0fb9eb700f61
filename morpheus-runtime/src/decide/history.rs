//! Histories: record how the last polls of a label went on one runtime, and rate the label there.
//!
//! Each runtime rates a label by itself, because a budget belongs to a runtime: a poll of 2 ms is stalled with a
//! budget of 0.1 ms, and not with one of 50 ms. So a domain has a table of histories, by the number of the label,
//! with one for each label that was polled there. Durations for each label, which every runtime would compare with
//! its own budget, would not do: a poll that is not stalled is not measured, and so says nothing about a smaller
//! budget. A history for each budget would not do either, because runtimes also differ in their policy, and reports
//! are a runtime's.
//!
//! The hot path does not read histories. It asks its label, by one relaxed load, whether the label is healthy on
//! every runtime ([`Label::is_healthy`]). Only if it is not, the poll reads the history on its own runtime. A label
//! that one runtime has found healthy is healthy for all, without an unrated time on each, until one of them finds a
//! stalled poll.
//!
//! A history that is not healthy counts every poll. The controller counts stalled polls when it sees them, and a handoff poll that it has
//! not seen counts itself. Another poll that ends without a verdict counts itself as good. After 64 good polls in a row the history is
//! healthy; a new one is after 16.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::decide::rating::Rating;
use crate::report::label::{Label, MAX_LABELS};

/// Percentage of stalled polls from which a label is slow. It is above 10 %: a label of which every tenth poll is a
/// hog poll must not make its healthy tasks pay for a handoff poll (10 µs) each. The first stalled poll alone
/// suffices. If sixty hogs of one origin arrive at once, each one that starts inline takes a worker; and four good
/// polls undo the rating.
const SLOW_PERCENT: u32 = 25;
/// Good polls after which a new label is healthy.
const UNRATED_POLLS: u32 = 16;
/// Polls from which a label can be rated a hog. One hog poll alone must not make the label's healthy tasks wait.
const HOG_MIN_POLLS: u32 = 4;
const HOG_PERCENT: u32 = 80;

/// After this many polls without a stalled one, a stalled poll is rare: it says more of the machine than of the label (a lock
/// whose holder was preempted). One in a thousand costs less inline, where a spare takes over, than handing off the 64 polls
/// that clear a label, at 10 µs each. A new label has no such polls: its first stalled poll alone makes it slow.
const RARE_AFTER_POLLS: u64 = 1_000;

/// How many untried tasks of a label (those of which no poll has shown anything yet) are handed off at once, for each [stall](Stalls)
/// among the label's last 64 polls. Each takes a thread. After one false alarm, thousands of short tasks in the queue would start a thread
/// each before the first good polls clear their label. Beyond this number they are polled inline: a good poll takes no time there, and
/// a stalled one raises the number. While none of the last polls was good, there is no limit: these may be a thousand hogs.
#[cfg(any(tokio_unstable, test))]
const UNTRIED_A_STALL: u32 = 16;
/// From this many stalls on there is no limit either: the permits of untried tasks bound those that run, and the threads of
/// those that wait are bounded by [`max_handoffs`](crate::Builder::max_handoffs).
#[cfg(any(tokio_unstable, test))]
const CERTAIN_STALLS: u32 = 4;

/// A label mixes long and short polls if at least this many of the last [`MIXES_OF`] long ones were not repeated. That is an eighth of
/// them: where hogs of all kinds wait, one that would have been short stays known as a hog for all the time that it waits.
const MIXES_LEAST: u32 = 8;
const MIXES_OF: u32 = 64;

/// Stalled polls from which a label can be one that sleeps, and the percentage of them that must have slept.
const SLEEPER_MIN_POLLS: u32 = 4;
const SLEEPER_PERCENT: u32 = 80;

/// The last 64 polls, newest in the lowest bit.
#[derive(Debug, Default)]
struct Last64 {
    bits: AtomicU64,
}

impl Last64 {
    /// Begins with a bad poll that [`UNRATED_POLLS`] good ones shift out. The percentages ignore it: they count only
    /// real polls.
    fn unrated() -> Last64 {
        Last64 {
            bits: AtomicU64::new(1 << (64 - UNRATED_POLLS)),
        }
    }

    fn push(&self, bad: bool) -> u64 {
        // Relaxed, pairs with nothing: the bits are a statistic.
        let update = |bits: u64| Some(bits << 1 | u64::from(bad));
        match self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
        {
            Ok(before) | Err(before) => before << 1 | u64::from(bad),
        }
    }

    /// Marks the newest poll in `among` that is not marked yet.
    fn mark_one(&self, among: u64) {
        let update = |bits: u64| {
            let unmarked = among & !bits;
            Some(bits | (unmarked & unmarked.wrapping_neg()))
        };
        let _ = self
            .bits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Forgets all polls, as if all had been good.
    fn clear(&self) {
        self.bits.store(0, Ordering::Relaxed);
    }

    fn bits(&self) -> u64 {
        self.bits.load(Ordering::Relaxed)
    }
}

/// Stalled polls, of which those that slept side by side count once: all workers wait for one lock, of the allocator say, whose holder
/// was preempted. Counted one by one, they would make each untried task of a healthy label wait for a thread.
#[derive(Debug, Default)]
struct Stalls {
    last: Last64,
    /// When the first of the last ones that slept was found. Those that had begun by then slept beside it.
    slept_at_ns: AtomicU64,
}

impl Stalls {
    fn push(&self, blocked: bool, since_ns: u64, now_ns: u64) {
        let is_same = blocked && since_ns < self.slept_at_ns.load(Ordering::Relaxed);
        if blocked && !is_same {
            self.slept_at_ns.store(now_ns, Ordering::Relaxed);
        }
        self.last.push(!is_same);
    }
}

/// The last polls of a label on one runtime, and its rating there.
///
/// All accesses are Relaxed and pair with nothing: these are statistics that the runtime's workers and its controller
/// write. A poll that misses a change runs inline once more, which is always allowed.
#[derive(Debug)]
pub(crate) struct History {
    label: &'static Label,
    rating: AtomicU32,
    /// Whether this history is counted among the label's doubts.
    is_doubt: AtomicBool,
    /// Polls counted while the label is not healthy, at most 64: the number of bits in use.
    counted: AtomicU32,
    /// Polls of an unrated label that run on workers now.
    unproven: AtomicU32,
    /// Untried tasks that are handed off now.
    #[cfg(any(tokio_unstable, test))]
    untried: AtomicU32,
    stalled: Last64,
    /// Of the stalled polls, one for each stall.
    stalls: Stalls,
    /// Of the stalled polls, those that slept when they were found stalled.
    blocked: Last64,
    hogs: Last64,
    /// Of the long polls of tasks with records, those that were not repeated: see [`learn_repeated`](Self::learn_repeated).
    unrepeated: Last64,
    /// Stalled polls so far.
    stalled_polls: AtomicU64,
    /// Polls of the label, of all runtimes, when the last one stalled.
    polls_at_stall: AtomicU64,
    /// Hog polls so far.
    hog_polls: AtomicU32,
    pub(crate) reported_at_ns: AtomicU64,
    /// Events suppressed since that time.
    pub(crate) suppressed: AtomicU64,
}

impl History {
    pub(crate) fn new(label: &'static Label) -> History {
        History {
            label,
            rating: AtomicU32::new(Rating::Counted as u32),
            is_doubt: AtomicBool::new(false),
            counted: AtomicU32::new(0),
            unproven: AtomicU32::new(0),
            #[cfg(any(tokio_unstable, test))]
            untried: AtomicU32::new(0),
            stalled: Last64::unrated(),
            stalls: Stalls::default(),
            blocked: Last64::default(),
            hogs: Last64::default(),
            unrepeated: Last64::default(),
            stalled_polls: AtomicU64::new(0),
            polls_at_stall: AtomicU64::new(0),
            hog_polls: AtomicU32::new(0),
            reported_at_ns: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    pub(crate) fn label(&self) -> &'static Label {
        self.label
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.rating.load(Ordering::Relaxed) == Rating::Healthy as u32
    }

    /// Whether too few polls were counted to tell how the next one goes. A healthy history counts none, and is rated.
    pub(crate) fn is_unrated(&self) -> bool {
        !self.is_healthy() && self.counted.load(Ordering::Relaxed) < UNRATED_POLLS
    }

    /// Whether a poll of an unrated label runs on a worker now. Without this check, many tasks of a new origin that
    /// start at once would each take a worker before the first one is found stalled.
    pub(crate) fn has_unproven(&self) -> bool {
        self.is_unrated() && self.unproven.load(Ordering::Relaxed) > 0
    }

    /// Counts a poll of an unrated label until the guard is dropped.
    pub(crate) fn begin_unproven(history: &Arc<History>) -> InProgress {
        InProgress::begin(history, |history| &history.unproven)
    }

    /// Counts an untried task that is handed off, until the guard is dropped.
    #[cfg(any(tokio_unstable, test))]
    pub(crate) fn begin_untried(history: &Arc<History>) -> InProgress {
        InProgress::begin(history, |history| &history.untried)
    }

    /// Whether one more untried task may be handed off: see [`UNTRIED_A_STALL`].
    #[cfg(any(tokio_unstable, test))]
    pub(crate) fn has_room_for_untried(&self) -> bool {
        let (stalled, polls) = self.last_stalled();
        let stalls = self.count(&self.stalls.last);
        let is_certain = stalls >= CERTAIN_STALLS || (stalled > 0 && stalled == polls);
        is_certain || self.untried.load(Ordering::Relaxed) < UNTRIED_A_STALL * stalls.max(1)
    }

    /// How many of the last polls that were counted stalled, and how many were counted.
    fn last_stalled(&self) -> (u32, u32) {
        let polls = self.counted.load(Ordering::Relaxed).min(64);
        (self.count(&self.stalled), polls)
    }

    /// How many of the last polls that were counted are marked in one of the words.
    fn count(&self, last: &Last64) -> u32 {
        let polls = self.counted.load(Ordering::Relaxed);
        (last.bits() & used(polls)).count_ones()
    }

    pub(crate) fn rating(&self) -> Rating {
        Rating::from_number(self.rating.load(Ordering::Relaxed))
    }

    /// Whether an untried task of the label counts as slow: there was a stall among the last polls, and not just one in 64.
    #[cfg(any(tokio_unstable, test))]
    pub(crate) fn rates_untried_slow(&self) -> bool {
        let stalls = self.count(&self.stalls.last);
        let polls = self.counted.load(Ordering::Relaxed);
        self.rating() >= Rating::Counted && !self.is_unrated() && (stalls > 1 || polls < 64)
    }

    pub(crate) fn stalled_polls(&self) -> u64 {
        self.stalled_polls.load(Ordering::Relaxed)
    }

    pub(crate) fn hog_polls(&self) -> u32 {
        self.hog_polls.load(Ordering::Relaxed)
    }

    /// Learns that a poll that began at `since_ns` is stalled. The controller calls it once for each such poll.
    pub(crate) fn learn_stalled(&self, blocked: bool, since_ns: u64, now_ns: u64) {
        self.label.totals.count_stalled(blocked);
        self.stalled_polls.fetch_add(1, Ordering::Relaxed);
        let polls = self.label.totals.polls.get();
        let before = self.polls_at_stall.swap(polls, Ordering::Relaxed);
        if polls.saturating_sub(before) >= RARE_AFTER_POLLS {
            // The last 64 were good, whether this history has counted them or was healthy.
            for last in [&self.stalled, &self.stalls.last, &self.blocked, &self.hogs] {
                last.clear();
            }
            self.counted.store(64, Ordering::Relaxed);
        }
        self.stalled.push(true);
        self.stalls.push(blocked, since_ns, now_ns);
        self.blocked.push(blocked);
        self.hogs.push(false);
        self.count_one();
        if !self.is_doubt.swap(true, Ordering::Relaxed) {
            self.label.doubt();
        }
        self.update_rating();
    }

    /// Learns that a poll is stalled, and that no other was before it began.
    #[cfg(test)]
    pub(crate) fn learn_stalled_alone(&self, blocked: bool) {
        let now_ns = self.stalls.slept_at_ns.load(Ordering::Relaxed) + 1;
        self.learn_stalled(blocked, now_ns, now_ns);
    }

    /// Learns that a stalled poll became a hog poll (5 ms of CPU time).
    pub(crate) fn learn_hog(&self) {
        self.label.totals.hog_polls.add(1);
        self.hog_polls.fetch_add(1, Ordering::Relaxed);
        // Any of the stalled polls will do, because several may be in progress.
        self.hogs.mark_one(self.stalled.bits());
        self.update_rating();
    }

    /// Learns that a poll ended without a verdict. Does nothing if the history is healthy.
    pub(crate) fn learn_good(&self) {
        if self.is_healthy() {
            return;
        }
        let stalled = self.stalled.push(false);
        self.stalls.last.push(false);
        self.blocked.push(false);
        self.hogs.push(false);
        self.count_one();
        if stalled == 0 {
            self.counted.store(0, Ordering::Relaxed);
            self.rating.store(Rating::Healthy as u32, Ordering::Relaxed);
            self.end_doubt();
            self.label.prove();
        } else {
            self.update_rating();
        }
    }

    /// Whether most of the stalled polls slept, so that the next one probably sleeps too.
    pub(crate) fn sleeps(&self) -> bool {
        let (stalled, _) = self.last_stalled();
        let blocked = self.count(&self.blocked);
        stalled >= SLEEPER_MIN_POLLS && blocked * 100 >= SLEEPER_PERCENT * stalled
    }

    /// Learns whether a task of the label that had a long poll soon had another one.
    #[cfg(any(tokio_unstable, test))]
    pub(crate) fn learn_repeated(&self, is_repeated: bool) {
        self.unrepeated.push(!is_repeated);
    }

    /// Whether long and short polls of the label's tasks come in any order, so that a long one says little about the task's next.
    /// Not where most polls are long: then the next is, too.
    pub(crate) fn mixes(&self) -> bool {
        !self.is_mostly_long()
            && (self.unrepeated.bits() & used(MIXES_OF)).count_ones() >= MIXES_LEAST
    }

    /// Whether more than three quarters of the last polls were. On a machine that is full short polls look long, too.
    fn is_mostly_long(&self) -> bool {
        let (stalled, polls) = self.last_stalled();
        4 * stalled > 3 * polls
    }

    fn end_doubt(&self) {
        if self.is_doubt.swap(false, Ordering::Relaxed) {
            self.label.end_doubt();
        }
    }

    fn count_one(&self) {
        if self.counted.load(Ordering::Relaxed) < 64 {
            self.counted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn update_rating(&self) {
        let polls = self.counted.load(Ordering::Relaxed).min(64);
        let rating = rate(polls, self.stalled.bits(), self.hogs.bits());
        let before = self.rating.swap(rating as u32, Ordering::Relaxed);
        if rating == Rating::Hog && before != Rating::Hog as u32 {
            let hog_ratings = &self.label.totals.hog_ratings;
            hog_ratings.add(1);
        }
    }
}

/// Ends this runtime's doubt: the runtime has ended, and its budget does not matter any more.
impl Drop for History {
    fn drop(&mut self) {
        self.end_doubt();
    }
}

/// A poll in progress that one of a history's counters counts.
#[derive(Debug)]
pub(crate) struct InProgress {
    history: Arc<History>,
    counter: fn(&History) -> &AtomicU32,
}

impl InProgress {
    fn begin(history: &Arc<History>, counter: fn(&History) -> &AtomicU32) -> InProgress {
        counter(history).fetch_add(1, Ordering::Relaxed);
        InProgress {
            history: history.clone(),
            counter,
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        (self.counter)(&self.history).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rates a label by its last `polls` polls.
fn rate(polls: u32, stalled: u64, hogs: u64) -> Rating {
    let used = used(polls);
    let share = |bits: u64, percent: u32| (bits & used).count_ones() * 100 >= percent * polls;
    if polls >= HOG_MIN_POLLS && share(hogs, HOG_PERCENT) {
        Rating::Hog
    } else if polls > 0 && share(stalled, SLOW_PERCENT) {
        Rating::Slow
    } else {
        Rating::Counted
    }
}

/// Returns the mask of the bits of the last `polls` polls.
fn used(polls: u32) -> u64 {
    if polls >= 64 {
        u64::MAX
    } else {
        (1 << polls) - 1
    }
}

/// Number of histories that are allocated at once.
const BLOCK: usize = 64;

type Block = Box<[OnceLock<Arc<History>>]>;

/// The histories of one runtime, by the numbers of their labels. Memory is allocated for labels that were asked for,
/// and freed with the runtime.
#[derive(Debug)]
pub(crate) struct Histories {
    blocks: Box<[OnceLock<Block>]>,
}

impl Default for Histories {
    fn default() -> Self {
        Histories {
            blocks: empty(MAX_LABELS / BLOCK),
        }
    }
}

fn empty<T>(len: usize) -> Box<[OnceLock<T>]> {
    (0..len).map(|_| OnceLock::new()).collect()
}

impl Histories {
    /// Returns the history of a label. It is unrated at the first call.
    pub(crate) fn of(&self, label: &'static Label) -> &Arc<History> {
        let id = label.id() as usize;
        let block = self.blocks[id / BLOCK].get_or_init(|| empty(BLOCK));
        block[id % BLOCK].get_or_init(|| Arc::new(History::new(label)))
    }

    /// Iterates over all histories that were asked for.
    pub(crate) fn all(&self) -> impl Iterator<Item = &History> {
        let blocks = self.blocks.iter().filter_map(OnceLock::get);
        let histories = blocks.flatten().filter_map(OnceLock::get);
        histories.map(Arc::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::label::{self, Origin};

    fn history(name: &'static str) -> History {
        History::new(label::of(Origin::Named(name)))
    }

    #[test]
    fn one_hog_poll_alone_makes_no_hog() {
        assert_eq!(rate(1, 0b1, 0b1), Rating::Slow);
        assert_eq!(rate(4, 0b1000, 0b1000), Rating::Slow);
        assert_eq!(rate(5, 0b10000, 0b10000), Rating::Counted);
        assert_eq!(rate(3, 0b111, 0b111), Rating::Slow);
        assert_eq!(rate(4, 0b1111, 0b1111), Rating::Hog);
    }

    #[test]
    fn hog_polls_that_run_concurrently_all_count() {
        let history = history("history, concurrent");
        for _ in 0..HOG_MIN_POLLS {
            history.learn_stalled_alone(false);
        }
        assert_eq!(history.rating(), Rating::Slow);
        for _ in 0..HOG_MIN_POLLS {
            history.learn_hog();
        }
        assert_eq!(history.rating(), Rating::Hog);
    }

    #[test]
    fn a_new_label_is_healthy_after_16_good_polls_and_slow_after_one_stalled_poll() {
        let good = history("history, good");
        assert!(good.is_unrated() && good.rating() == Rating::Counted);
        for _ in 0..UNRATED_POLLS {
            assert!(!good.is_healthy() && !good.label.is_healthy());
            good.learn_good();
        }
        assert!(good.is_healthy() && good.label.is_healthy());
        let bad = history("history, bad");
        bad.learn_stalled_alone(false);
        assert_eq!(bad.rating(), Rating::Slow);
    }

    #[test]
    fn a_stalled_poll_after_a_thousand_good_ones_is_rare_and_a_second_one_is_not() {
        let history = history("history, rare");
        let polls = |count| history.label.totals.polls.add(count);
        for _ in 0..UNRATED_POLLS {
            history.learn_good();
        }
        for _ in 0..2 {
            polls(RARE_AFTER_POLLS as usize);
            assert!(history.is_healthy() && !history.rates_untried_slow());
            history.learn_stalled_alone(true);
            assert_eq!(history.rating(), Rating::Counted);
            assert!(!history.is_unrated() && !history.rates_untried_slow());
            polls(10);
            history.learn_stalled_alone(true);
            assert!(history.rates_untried_slow());
            for _ in 0..64 {
                history.learn_good();
            }
        }
        // With fewer polls than `RARE_AFTER_POLLS` before it, the first one suffices.
        let new = super::tests::history("history, not rare");
        new.label.totals.polls.add(100);
        new.learn_stalled_alone(true);
        assert_eq!(new.rating(), Rating::Slow);
    }

    #[test]
    fn polls_that_wait_for_one_lock_are_one_stall() {
        let history = history("history, one lock");
        for _ in 0..UNRATED_POLLS {
            history.learn_good();
        }
        history.label.totals.polls.add(RARE_AFTER_POLLS as usize);
        // Found at 2,000 ns and later, all begun before.
        for now_ns in [2_000, 2_000, 2_000, 2_000, 3_000] {
            history.learn_stalled(true, 1_000, now_ns);
            assert!(!history.rates_untried_slow());
        }
        assert_eq!(
            (
                history.last_stalled().0,
                history.count(&history.stalls.last)
            ),
            (5, 1)
        );
        // Those that a spare has begun since wait for it, too: all of them are a second stall.
        for _ in 0..5 {
            history.learn_stalled(true, 2_500, 3_500);
            assert!(history.rates_untried_slow());
        }
        assert_eq!(
            (
                history.last_stalled().0,
                history.count(&history.stalls.last)
            ),
            (10, 2)
        );
        let history = Arc::new(history);
        let begin = |_| History::begin_untried(&history);
        let mut untried: Vec<InProgress> = (0..2 * UNTRIED_A_STALL).map(begin).collect();
        assert!(!history.has_room_for_untried());
        assert!(untried.pop().is_some() && history.has_room_for_untried());
        // Those that compute wait for no lock.
        for _ in 2..CERTAIN_STALLS {
            history.learn_stalled(false, 1_000, 3_500);
        }
        untried.extend((0..100).map(begin));
        assert!(history.has_room_for_untried());
        for _ in 0..64 {
            history.learn_good();
        }
        assert!(history.is_healthy());
        assert_eq!(history.count(&history.stalls.last), 0);
    }

    #[test]
    fn stalled_polls_allow_untried_tasks_to_be_handed_off() {
        let history = Arc::new(history("history, untried"));
        let begin = || History::begin_untried(&history);
        let mut untried: Vec<InProgress> = (1..UNTRIED_A_STALL).map(|_| begin()).collect();
        assert!(history.has_room_for_untried());
        untried.push(begin());
        assert!(!history.has_room_for_untried());
        for _ in 0..2 {
            history.learn_stalled_alone(true);
        }
        untried.extend((2..UNTRIED_A_STALL).map(|_| begin()));
        assert!(history.has_room_for_untried(), "not one good poll");
        history.learn_good();
        assert!(history.has_room_for_untried());
        untried.extend((0..2).map(|_| begin()));
        assert!(!history.has_room_for_untried());
        drop(untried.pop());
        assert!(history.has_room_for_untried());
        untried.extend((0..1_000).map(|_| begin()));
        for _ in 2..CERTAIN_STALLS {
            assert!(!history.has_room_for_untried());
            history.learn_stalled_alone(true);
        }
        assert!(history.has_room_for_untried());
    }

    #[test]
    fn a_hog_poll_in_ten_makes_no_slow_label() {
        let stalled = (0..64).step_by(10).fold(0u64, |bits, at| bits | 1 << at);
        assert_eq!(rate(64, stalled, stalled), Rating::Counted);
    }

    #[test]
    fn blocked_polls_make_slow_labels_and_never_hogs() {
        assert_eq!(rate(64, u64::MAX, 0), Rating::Slow);
    }

    #[test]
    fn a_label_mixes_if_many_of_its_long_polls_are_not_repeated() {
        let history = history("history, mixes");
        (1..MIXES_LEAST).for_each(|_| history.learn_repeated(false));
        assert!(!history.mixes(), "too few to tell");
        history.learn_repeated(false);
        assert!(history.mixes());
        (0..MIXES_OF).for_each(|at| history.learn_repeated(at % 2 == 0));
        assert!(history.mixes(), "half of them");
        (0..MIXES_OF).for_each(|at| history.learn_repeated(at % 16 != 0));
        assert!(!history.mixes(), "a sixteenth");
    }

    /// Each of its tasks has one long poll and ends.
    #[test]
    fn a_label_of_hogs_does_not_mix() {
        let history = history("history, only hogs");
        for _ in 0..MIXES_OF {
            history.learn_stalled_alone(false);
            history.learn_repeated(false);
        }
        // Whether they compute or block.
        assert!(!history.mixes());
        (0..32).for_each(|_| history.learn_good());
        assert!(history.mixes(), "most are short now");
    }

    #[test]
    fn a_healthy_label_has_no_unproven_polls() {
        let history = Arc::new(history("history, unproven"));
        assert!(history.is_unrated());
        let _unproven = History::begin_unproven(&history);
        assert!(history.has_unproven());
        for _ in 0..UNRATED_POLLS {
            history.learn_good();
        }
        assert!(history.is_healthy());
        assert!(!history.is_unrated() && !history.has_unproven());
    }

    #[test]
    fn a_label_sleeps_if_most_of_its_stalled_polls_slept() {
        let history = history("history, sleeps");
        for _ in 0..3 {
            history.learn_stalled_alone(true);
        }
        assert!(!history.sleeps(), "too few stalled polls to tell");
        history.learn_stalled_alone(true);
        history.learn_good();
        assert!(history.sleeps());
        history.learn_stalled_alone(false);
        assert!(history.sleeps(), "four of five");
        history.learn_stalled_alone(false);
        assert!(!history.sleeps());
    }

    #[test]
    fn sixty_four_good_polls_clear_a_label() {
        let history = history("history, cleared");
        for _ in 0..64 {
            history.learn_stalled_alone(false);
            history.learn_hog();
        }
        assert_eq!(history.rating(), Rating::Hog);
        for _ in 0..63 {
            history.learn_good();
            assert!(!history.is_healthy());
        }
        history.learn_good();
        assert!(history.is_healthy());
    }

    #[test]
    fn runtimes_rate_a_label_separately() {
        let label = label::of(Origin::Named("history, on two runtimes"));
        let (one, two) = (Histories::default(), Histories::default());
        let healthy = |histories: &Histories| histories.of(label).is_healthy();
        for _ in 0..HOG_MIN_POLLS {
            one.of(label).learn_stalled_alone(false);
            one.of(label).learn_hog();
        }
        for _ in 0..64 {
            two.of(label).learn_good();
        }
        assert_eq!(one.of(label).rating(), Rating::Hog);
        assert_eq!((healthy(&one), healthy(&two)), (false, true));
        assert_eq!(one.of(label).hog_polls(), HOG_MIN_POLLS);
        assert_eq!(two.of(label).hog_polls(), 0);
        let stalled_polls =
            |histories: &Histories| histories.all().map(History::stalled_polls).sum();
        let (of_one, of_two): (u64, u64) = (stalled_polls(&one), stalled_polls(&two));
        assert_eq!((of_one, of_two), (u64::from(HOG_MIN_POLLS), 0));
    }

    /// The hot path's load finds a label healthy exactly while no runtime doubts it.
    #[test]
    fn a_label_is_healthy_while_it_is_on_every_runtime() {
        let label = label::of(Origin::Named("history, doubts"));
        let (one, two) = (Histories::default(), Histories::default());
        assert!(!label.is_healthy(), "no runtime has found it healthy");
        let learn_good = |histories: &Histories, polls: u32| {
            for _ in 0..polls {
                histories.of(label).learn_good();
            }
        };
        learn_good(&one, UNRATED_POLLS);
        assert!(label.is_healthy());
        two.of(label).learn_stalled_alone(false);
        two.of(label).learn_stalled_alone(false);
        assert!(!label.is_healthy() && one.of(label).is_healthy());
        learn_good(&one, 64);
        assert!(
            !label.is_healthy(),
            "polls of one runtime end no doubt of another"
        );
        learn_good(&two, 64);
        assert!(label.is_healthy());
        one.of(label).learn_stalled_alone(false);
        two.of(label).learn_stalled_alone(false);
        learn_good(&two, 64);
        assert!(!label.is_healthy());
        drop(one);
        assert!(label.is_healthy(), "the runtime that doubted has ended");
    }

    #[test]
    fn every_label_has_one_history() {
        let histories = Histories::default();
        assert_eq!(histories.all().count(), 0);
        let overflow = label::by_id(MAX_LABELS as u32 - 1).unwrap();
        let first = label::by_id(0).unwrap_or_else(|| label::of(Origin::Named("history, first")));
        for label in [overflow, first] {
            let history = histories.of(label);
            assert!(std::ptr::eq(history.label(), label));
            assert!(Arc::ptr_eq(history, histories.of(label)));
        }
        assert_eq!(histories.all().count(), 2);
    }
}
