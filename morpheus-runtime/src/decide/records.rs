//! The records of tasks that the hooks watch: what each task did so far, by its id. (`--cfg tokio_unstable`)
//!
//! A task has a record from its first poll under a label that is not healthy until it ends. Their number is bounded: where there is no
//! room, a task that has only been short makes room for the new one, and without such a task the new one is judged by its label alone.
//! The record of a slow task counts as a doubt of its label, so that tasks
//! of healthy labels need no look into the table.
//!
//! A task of a healthy label gets its record after a poll that stalled, and may have ended by then: its waker was called in the poll, and
//! another thread has polled it to its end since. Nothing tells. So a record that no poll has confirmed for [`UNCONFIRMED_NS`] is
//! [forgotten](Records::sweep).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use morpheus_common::slot::VerdictFlags;
use tokio::task::Id;

use crate::decide::rating::TaskRating;
use crate::report::label::Label;
use morpheus_system::clock;
use morpheus_system::lock::lock;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// The most records of one part.
const MOST_IN_A_SHARD: usize = 1024;

/// The most records that are looked at for one to make room: among thousands of connections one in hundreds is slow.
const LOOKED_AT: usize = 64;

/// How long a record stays that no poll of its task has confirmed. A task that is polled less often is judged by its label.
const UNCONFIRMED_NS: u64 = 60_000_000_000;
/// How often such records are looked for.
const SWEEP_INTERVAL_NS: u64 = 10_000_000_000;

/// Short polls after a long one until which the task may have another one that counts as a repetition: a connection that is kept alive
/// alternates between long and short polls.
const REPEATED_WITHIN: u8 = 3;

/// What a record has learned from a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    /// The poll made the task slow.
    pub(crate) became_slow: bool,
    /// It made the task a hog.
    pub(crate) became_hog: bool,
    /// Whether the task's long poll before was repeated soon, if that is known with this poll.
    pub(crate) is_repeated: Option<bool>,
}

/// The rating of a task so far, and its label.
#[derive(Clone, Copy, Debug)]
struct Record {
    rating: TaskRating,
    label: &'static Label,
    /// When it was made after a poll; `None` once a later poll of its task has begun.
    unconfirmed_ns: Option<u64>,
}

/// Task ids are consecutive numbers, which one multiplication spreads well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0.rotate_left(8));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// Returns the hash of a task's id.
#[inline]
pub(crate) fn hash(id: Id) -> u64 {
    BuildHasherDefault::<IdHasher>::default().hash_one(id)
}

type Shard = Mutex<HashMap<Id, Record, BuildHasherDefault<IdHasher>>>;

#[derive(Debug, Default)]
pub(crate) struct Records {
    shards: [Shard; SHARDS],
    /// Relaxed, and pairs with nothing: a task that misses a change has no record of its own yet, or has ended.
    len: AtomicUsize,
    /// Relaxed: the controller alone reads and writes it.
    swept_ns: AtomicU64,
}

impl Records {
    fn shard(&self, id: Id) -> &Shard {
        &self.shards[(hash(id) >> 48) as usize % SHARDS]
    }

    /// Returns the rating of a task; a clean one for a task without a record.
    #[cfg(test)]
    pub(crate) fn rating(&self, id: Id) -> TaskRating {
        let known = lock(self.shard(id)).get(&id).copied();
        known.map_or(TaskRating::clean(), |record| record.rating)
    }

    /// Returns the rating of a task that is about to be polled. A new one gets a record, if there is room.
    pub(crate) fn enter(&self, id: Id, label: &'static Label) -> TaskRating {
        self.with_record(id, label, true, |record, _| {
            record.unconfirmed_ns = None;
            record.rating
        })
    }

    /// Forgets the records of tasks that were polled by another thread to their end before this one came to learn. The controller
    /// calls it at each sample.
    pub(crate) fn sweep(&self, now_ns: u64) {
        let swept_ns = self.swept_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(swept_ns) < SWEEP_INTERVAL_NS
            || self.len.load(Ordering::Relaxed) == 0
        {
            return;
        }
        self.swept_ns.store(now_ns, Ordering::Relaxed);
        for shard in &self.shards {
            lock(shard).retain(|_, record| {
                let since_ns = record.unconfirmed_ns.unwrap_or(now_ns);
                let stays = now_ns.saturating_sub(since_ns) < UNCONFIRMED_NS;
                if !stays {
                    self.end(record);
                }
                stays
            });
        }
    }

    /// Learns the verdict on a poll of a task.
    ///
    /// With `has_entered`, [`enter`](Self::enter) was called for the poll. A task that has no record all the same found no room, or
    /// has ended meanwhile: where its waker was called in the poll, another thread may have polled it to its end since. It gets none,
    /// which nothing would ever remove.
    pub(crate) fn learn(
        &self,
        id: Id,
        label: &'static Label,
        verdict: VerdictFlags,
        has_entered: bool,
    ) -> Learned {
        self.with_record(id, label, !has_entered, |record, is_kept| {
            record.learn(verdict, is_kept)
        })
    }

    /// Calls `then` with the record of a task, and whether it is kept.
    fn with_record<R>(
        &self,
        id: Id,
        label: &'static Label,
        may_insert: bool,
        then: impl FnOnce(&mut Record, bool) -> R,
    ) -> R {
        let mut shard = lock(self.shard(id));
        if may_insert && shard.len() >= MOST_IN_A_SHARD && !shard.contains_key(&id) {
            let mut records = shard.iter().take(LOOKED_AT);
            let clean = records.find(|(_, record)| record.rating.is_clean());
            if let Some((&clean, _)) = clean
                && let Some(record) = shard.remove(&clean)
            {
                self.end(&record);
            }
        }
        let has_room = may_insert && shard.len() < MOST_IN_A_SHARD;
        let new = || Record {
            rating: TaskRating::clean(),
            label,
            unconfirmed_ns: Some(clock::now_ns()),
        };
        match shard.entry(id) {
            Entry::Occupied(mut known) => then(known.get_mut(), true),
            Entry::Vacant(room) if has_room => {
                self.len.fetch_add(1, Ordering::Relaxed);
                then(room.insert(new()), true)
            }
            Entry::Vacant(_) => then(&mut new(), false),
        }
    }

    /// The number of records.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Forgets a task that has ended. Returns its label if its last long poll was not repeated until then, which no poll has told yet.
    pub(crate) fn forget(&self, id: Id) -> Option<&'static Label> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let record = lock(self.shard(id)).remove(&id)?;
        self.end(&record);
        record.is_open().then_some(record.label)
    }

    /// Ends a record that was taken out.
    fn end(&self, record: &Record) {
        self.len.fetch_sub(1, Ordering::Relaxed);
        record.end();
    }
}

impl Record {
    fn learn(&mut self, verdict: VerdictFlags, is_kept: bool) -> Learned {
        let was_clean = self.rating.is_clean();
        let is_repeated = match verdict.is_empty() {
            false if self.is_open() => Some(true),
            true if self.is_open() && self.rating.good_polls() + 1 == REPEATED_WITHIN => {
                Some(false)
            }
            _ => None,
        };
        let became_hog = self.rating.learn(verdict);
        let is_clean = self.rating.is_clean();
        match (was_clean, is_clean) {
            (true, false) if is_kept => self.label.doubt(),
            (false, true) => self.label.end_doubt(),
            _ => {}
        }
        Learned {
            became_slow: was_clean && !is_clean,
            became_hog,
            is_repeated,
        }
    }

    /// Whether the last long poll may still be repeated soon.
    fn is_open(&self) -> bool {
        self.rating.has_long_polls() && self.rating.good_polls() < REPEATED_WITHIN
    }

    fn end(&self) {
        if !self.rating.is_clean() {
            self.label.end_doubt();
        }
    }
}

/// The runtime has ended before these tasks: their labels are not in doubt because of them any more.
impl Drop for Records {
    fn drop(&mut self) {
        for shard in &mut self.shards {
            let shard = shard
                .get_mut()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            shard.drain().for_each(|(_, record)| record.end());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::decide::rating::Rating;
    use crate::report::label::{self, Origin};

    pub(crate) fn ids(count: usize) -> Vec<Id> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.build().unwrap();
        (0..count).map(|_| runtime.spawn(async {}).id()).collect()
    }

    fn healthy_label(name: &'static str) -> &'static Label {
        let label = label::of(Origin::Named(name));
        label.prove();
        assert!(label.is_healthy());
        label
    }

    #[test]
    fn a_long_poll_is_repeated_if_another_one_comes_soon() {
        let label = healthy_label("records, repeated");
        let records = Records::default();
        let id = ids(1)[0];
        let (long, short) = (VerdictFlags::HOG, VerdictFlags::EMPTY);
        let polls = [
            (long, None),
            (short, None),
            (short, None),
            (long, Some(true)),
            (long, Some(true)),
            (short, None),
            (short, None),
            (short, Some(false)),
            (short, None),
            (long, None),
        ];
        for (at, (verdict, is_repeated)) in polls.into_iter().enumerate() {
            let learned = records.learn(id, label, verdict, false);
            assert_eq!(learned.is_repeated, is_repeated, "poll {at}");
        }
    }

    /// A connection that carries one request.
    #[test]
    fn a_long_poll_is_not_repeated_if_the_task_ends() {
        let label = healthy_label("records, ended");
        let records = Records::default();
        let (long, short) = (VerdictFlags::HOG, VerdictFlags::EMPTY);
        let is_open_after = |polls: &[VerdictFlags]| {
            let id = ids(1)[0];
            let _ = records.enter(id, label);
            for verdict in polls {
                let _ = records.learn(id, label, *verdict, true);
            }
            let ended = records.forget(id);
            assert!(ended.is_none_or(|ended| std::ptr::eq(ended, label)));
            ended.is_some()
        };
        assert!(!is_open_after(&[]));
        assert!(!is_open_after(&[short]));
        assert!(is_open_after(&[long]));
        assert!(is_open_after(&[short, long, short, short]));
        let is_known = [long, short, short, short];
        assert!(!is_open_after(&is_known), "a poll has told it");
    }

    #[test]
    fn a_slow_task_is_a_doubt_of_its_label_until_it_ends() {
        let label = healthy_label("records, doubt");
        let records = Records::default();
        let (id, other) = (ids(2)[0], ids(2)[1]);
        let learned = records.learn(id, label, VerdictFlags::HOG, false);
        assert!(learned.became_slow && learned.became_hog);
        let learned = records.learn(other, label, VerdictFlags::EMPTY, false);
        assert!(!learned.became_slow && !learned.became_hog);
        assert!(!label.is_healthy());
        assert_eq!(records.rating(id).rating(), Rating::Hog);
        records.forget(other);
        assert!(!label.is_healthy());
        records.forget(id);
        assert!(label.is_healthy());
        assert!(records.rating(id).is_clean());
        assert_eq!(records.len(), 0);
    }

    #[test]
    fn short_polls_end_the_doubt() {
        let label = healthy_label("records, cleared");
        let records = Records::default();
        let id = ids(1)[0];
        let learned = records.learn(id, label, VerdictFlags::STALLED, false);
        assert!(learned.became_slow && !learned.became_hog);
        for _ in 0..3 {
            assert!(!label.is_healthy());
            let _ = records.learn(id, label, VerdictFlags::EMPTY, true);
        }
        assert!(label.is_healthy());
        assert!(records.rating(id).is_proven());
    }

    /// Its waker was called in a poll, and another thread polled it to its end before this one came to learn.
    #[test]
    fn a_task_that_has_ended_meanwhile_leaves_nothing() {
        let label = healthy_label("records, ended meanwhile");
        let records = Records::default();
        let id = ids(1)[0];
        assert!(records.enter(id, label).is_clean());
        records.forget(id);
        let _ = records.learn(id, label, VerdictFlags::HOG, true);
        assert!(label.is_healthy());
        assert_eq!(records.len(), 0);
    }

    /// The same in a poll of a healthy label, for which there is no record yet.
    #[test]
    fn a_record_that_no_poll_confirms_is_forgotten() {
        let label = healthy_label("records, not confirmed");
        let records = Records::default();
        let ids = ids(2);
        for &id in &ids {
            records.forget(id);
            let _ = records.learn(id, label, VerdictFlags::HOG, false);
        }
        let now_ns = clock::now_ns();
        records.sweep(now_ns + SWEEP_INTERVAL_NS);
        assert_eq!(records.len(), 2);
        // This one goes on.
        assert!(!records.enter(ids[0], label).is_clean());
        records.sweep(now_ns + UNCONFIRMED_NS + SWEEP_INTERVAL_NS);
        assert_eq!(records.len(), 1);
        assert_eq!(records.rating(ids[0]).rating(), Rating::Hog);
        assert!(!label.is_healthy());
        records.forget(ids[0]);
        assert!(label.is_healthy());
    }

    #[test]
    fn the_end_of_the_runtime_ends_its_doubts() {
        let label = healthy_label("records, dropped");
        let records = Records::default();
        let _ = records.learn(ids(1)[0], label, VerdictFlags::HOG, false);
        assert!(!label.is_healthy());
        drop(records);
        assert!(label.is_healthy());
    }

    /// Connections that live for long and were short so far must not keep the hogs of days from being known.
    #[test]
    fn in_a_full_table_a_task_that_was_short_makes_room() {
        let label = healthy_label("records, room");
        let records = Records::default();
        let ids = ids(2 * SHARDS * MOST_IN_A_SHARD);
        let (connections, hogs) = ids.split_at(ids.len() - 100);
        for &id in connections {
            assert!(records.enter(id, label).is_clean());
        }
        let most = records.len();
        assert!(most <= SHARDS * MOST_IN_A_SHARD);
        for &id in hogs {
            let _ = records.enter(id, label);
            let _ = records.learn(id, label, VerdictFlags::HOG, true);
        }
        assert!(
            hogs.iter()
                .all(|&id| records.rating(id).rating() == Rating::Hog)
        );
        assert!(records.len() <= SHARDS * MOST_IN_A_SHARD);
        for &id in &ids {
            records.forget(id);
        }
        assert!(label.is_healthy());
        assert_eq!(records.len(), 0);
    }

    #[test]
    fn a_full_table_refuses_new_tasks_and_keeps_the_known_ones() {
        let label = healthy_label("records, full");
        let records = Records::default();
        let ids = ids(SHARDS * MOST_IN_A_SHARD + 4096);
        for &id in &ids {
            let _ = records.learn(id, label, VerdictFlags::HOG, false);
        }
        let kept = records.len();
        assert!(kept <= SHARDS * MOST_IN_A_SHARD);
        assert!(
            kept > SHARDS * MOST_IN_A_SHARD / 2,
            "ids spread over the parts: {kept}"
        );
        for &id in &ids {
            records.forget(id);
        }
        assert!(label.is_healthy());
    }
}
