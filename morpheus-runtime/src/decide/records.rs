//! The records of tasks that the hooks watch: what each task did so far, by its id. (`--cfg tokio_unstable`)
//!
//! A task has a record from its first poll under a label that is not healthy until it ends. Their number is bounded: a task
//! that finds no room is judged by its label alone. The record of a slow task counts as a doubt of its label, so that tasks
//! of healthy labels need no look into the table.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use morpheus_common::slot::VerdictFlags;
use tokio::task::Id;

use crate::decide::rating::TaskRating;
use crate::report::label::Label;
use morpheus_system::lock::lock;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// The most records of one part.
const MOST_IN_A_SHARD: usize = 1024;

/// What a task did so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) rating: TaskRating,
    /// The time until which a throttled task has to wait, in nanoseconds.
    pub(crate) not_before_ns: u64,
    label: &'static Label,
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

type Shard = Mutex<HashMap<Id, Record, BuildHasherDefault<IdHasher>>>;

#[derive(Debug, Default)]
pub(crate) struct Records {
    shards: [Shard; SHARDS],
    /// Relaxed, and pairs with nothing: a task that misses a change has no record of its own yet, or has ended.
    len: AtomicUsize,
}

impl Records {
    fn shard(&self, id: Id) -> &Shard {
        let mut hasher = IdHasher::default();
        std::hash::Hash::hash(&id, &mut hasher);
        &self.shards[(hasher.finish() >> 48) as usize % SHARDS]
    }

    /// Returns the record of a task. A task without one gets a clean one.
    pub(crate) fn of(&self, id: Id, label: &'static Label) -> Record {
        let known = lock(self.shard(id)).get(&id).copied();
        known.unwrap_or(Record {
            rating: TaskRating::clean(),
            not_before_ns: 0,
            label,
        })
    }

    /// Stores what a poll of a task taught.
    pub(crate) fn store(&self, id: Id, record: Record) {
        let mut shard = lock(self.shard(id));
        let has_room = shard.len() < MOST_IN_A_SHARD;
        let before = match shard.get_mut(&id) {
            Some(known) => {
                let before = std::mem::replace(known, record);
                Some(before)
            }
            None if has_room => {
                shard.insert(id, record);
                self.len.fetch_add(1, Ordering::Relaxed);
                None
            }
            None => return,
        };
        let was_slow = before.is_some_and(|before| !before.rating.is_clean());
        match (was_slow, !record.rating.is_clean()) {
            (false, true) => record.label.doubt(),
            (true, false) => record.label.end_doubt(),
            _ => {}
        }
    }

    /// Learns the verdict on a poll of a task. Returns whether the task became slow, and whether it became a hog.
    pub(crate) fn learn(
        &self,
        id: Id,
        label: &'static Label,
        verdict: VerdictFlags,
    ) -> (bool, bool) {
        let mut record = self.of(id, label);
        let was_clean = record.rating.is_clean();
        let became_hog = record.rating.learn(verdict);
        self.store(id, record);
        (was_clean && !record.rating.is_clean(), became_hog)
    }

    /// Forgets a task that has ended.
    pub(crate) fn forget(&self, id: Id) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ended = lock(self.shard(id)).remove(&id);
        if let Some(record) = ended {
            self.len.fetch_sub(1, Ordering::Relaxed);
            record.end();
        }
    }
}

impl Record {
    fn end(self) {
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
mod tests {
    use super::*;
    use crate::decide::rating::Rating;
    use crate::report::label::{self, Origin};

    fn ids(count: usize) -> Vec<Id> {
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
    fn a_slow_task_is_a_doubt_of_its_label_until_it_ends() {
        let label = healthy_label("records, doubt");
        let records = Records::default();
        let (id, other) = (ids(2)[0], ids(2)[1]);
        assert_eq!(records.learn(id, label, VerdictFlags::HOG), (true, true));
        assert_eq!(
            records.learn(other, label, VerdictFlags::EMPTY),
            (false, false)
        );
        assert!(!label.is_healthy());
        assert_eq!(records.of(id, label).rating.rating(), Rating::Hog);
        records.forget(other);
        assert!(!label.is_healthy());
        records.forget(id);
        assert!(label.is_healthy());
        assert!(records.of(id, label).rating.is_clean());
        assert_eq!(records.len.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn short_polls_end_the_doubt() {
        let label = healthy_label("records, cleared");
        let records = Records::default();
        let id = ids(1)[0];
        assert_eq!(
            records.learn(id, label, VerdictFlags::STALLED),
            (true, false)
        );
        for _ in 0..3 {
            assert!(!label.is_healthy());
            let _ = records.learn(id, label, VerdictFlags::EMPTY);
        }
        assert!(label.is_healthy());
        assert!(records.of(id, label).rating.is_proven());
    }

    #[test]
    fn the_end_of_the_runtime_ends_its_doubts() {
        let label = healthy_label("records, dropped");
        let records = Records::default();
        let _ = records.learn(ids(1)[0], label, VerdictFlags::HOG);
        assert!(!label.is_healthy());
        drop(records);
        assert!(label.is_healthy());
    }

    #[test]
    fn a_full_table_refuses_new_tasks_and_keeps_the_known_ones() {
        let label = healthy_label("records, full");
        let records = Records::default();
        let ids = ids(SHARDS * MOST_IN_A_SHARD + 4096);
        for &id in &ids {
            let _ = records.learn(id, label, VerdictFlags::HOG);
        }
        let kept = records.len.load(Ordering::Relaxed);
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
