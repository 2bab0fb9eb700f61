// SPDX-License-Identifier: GPL-2.0-only
//! How many connections and how much kernel memory each account may hold.
//!
//! Memory that was handed out cannot be taken back: a process that keeps an area mapped keeps it alive after its
//! connection is closed. So a closed connection's areas stay charged to its account until the kernel no longer knows
//! them.
//!
//! The rule for connections and for memory is the same: **an account may hold as much as it leaves free.** One account
//! alone takes at most half, a second one a quarter, and k of them together leave at least 1/2ᵏ. Root is bounded by
//! itself, so that no user keeps root out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use morpheus_common::broker::Refusal;

use crate::accounts::Account;
use crate::bucket::Bucket;
use crate::session::Payer;

/// The number by which the kernel knows a BPF map.
pub type MapId = u32;

/// A map that was handed out, and the kernel memory that it takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The map.
    pub map: MapId,
    /// Its memory.
    pub bytes: u64,
}

/// The limits of all accounts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of all accounts.
    pub processes: usize,
    /// Connections of one account that is not root's.
    pub processes_per_user: usize,
    /// Bytes of kernel memory of all accounts but root's together.
    pub users_bytes: u64,
    /// Bytes of kernel memory of root's account.
    pub root_bytes: u64,
    /// Connections that an account may open at once.
    pub connects_burst: u32,
    /// Connections that it may open in a second, over the burst.
    pub connects_per_second: u32,
    /// Questions for the numbers that an account may ask at once, and in a second, over the burst.
    pub questions: u32,
    /// Threads that may be looked up in `/proc` for an account at once.
    pub lookups_burst: u32,
    /// Threads that may be looked up for it in a second, over the burst.
    pub lookups_per_second: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            processes: 256,
            processes_per_user: 128,
            users_bytes: 48 << 20,
            root_bytes: 150 << 20,
            connects_burst: 64,
            connects_per_second: 32,
            questions: 20,
            lookups_burst: 8192,
            lookups_per_second: 2000,
        }
    }
}

/// The connections and the memory that each account holds.
#[derive(Debug)]
pub struct Quota {
    limits: Limits,
    entries: BTreeMap<Account, Entry>,
    connections: usize,
    /// Of all accounts but root's.
    users_bytes: u64,
    /// Areas of closed connections, in the order in which the kernel is asked for them.
    kept: VecDeque<(Account, Charge)>,
}

/// The account of one session, and what it is charged to.
#[derive(Debug)]
pub(crate) struct Purse<'a> {
    pub(crate) quota: &'a mut Quota,
    pub(crate) account: Account,
    pub(crate) now: Instant,
}

impl Payer for Purse<'_> {
    fn take(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.quota.take(self.account, bytes, self.now)
    }

    fn give_back(&mut self, bytes: u64) {
        self.quota.give_back(self.account, bytes);
    }

    fn may_look_up(&mut self) -> bool {
        self.quota.may_look_up(self.account, self.now)
    }
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    connections: usize,
    connects: Bucket,
    questions: Bucket,
    lookups: Bucket,
}

impl Entry {
    /// Whether nothing has to be remembered of the account.
    fn is_blank(&mut self, now: Instant) -> bool {
        let buckets = [&mut self.connects, &mut self.questions, &mut self.lookups];
        self.bytes == 0
            && self.connections == 0
            && buckets.into_iter().all(|bucket| bucket.is_full(now))
    }
}

impl Quota {
    /// A quota of which no account holds anything.
    #[must_use]
    pub fn new(limits: Limits) -> Quota {
        Quota {
            limits,
            entries: BTreeMap::new(),
            connections: 0,
            users_bytes: 0,
            kept: VecDeque::new(),
        }
    }

    /// Bytes of kernel memory that all accounts hold.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.users_bytes + self.bytes_of(Account::Root)
    }

    /// Bytes of kernel memory that `account` holds.
    #[must_use]
    pub fn bytes_of(&self, account: Account) -> u64 {
        self.entries.get(&account).map_or(0, |entry| entry.bytes)
    }

    /// Counts a connection of `account`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Rate`] when the account opens them too fast, [`Refusal::Processes`] when it has as many as it may.
    pub fn connect(&mut self, account: Account, now: Instant) -> Result<(), Refusal> {
        let limits = self.limits;
        let free = limits.processes.saturating_sub(self.connections);
        let entry = self.entry(account, now);
        if account != Account::Root && !entry.connects.take(now) {
            return Err(Refusal::Rate);
        }
        let most = match account {
            Account::Root => usize::MAX,
            _ => limits.processes_per_user.min(free),
        };
        if free == 0 || entry.connections >= most {
            return Err(Refusal::Processes);
        }
        entry.connections += 1;
        self.connections += 1;
        Ok(())
    }

    /// Forgets a connection of `account`, and keeps its areas charged until [`sweep`](Self::sweep) finds them gone.
    pub fn disconnect(&mut self, account: Account, areas: &[Charge]) {
        if let Some(entry) = self.entries.get_mut(&account) {
            entry.connections = entry.connections.saturating_sub(1);
            self.connections = self.connections.saturating_sub(1);
        }
        self.kept
            .extend(areas.iter().map(|charge| (account, *charge)));
    }

    /// Whether `account` may have the numbers now. Root always may.
    #[must_use]
    pub fn may_ask(&mut self, account: Account, now: Instant) -> bool {
        account == Account::Root || self.entry(account, now).questions.take(now)
    }

    /// Whether one more thread may be looked up for `account` now.
    #[must_use]
    pub fn may_look_up(&mut self, account: Account, now: Instant) -> bool {
        self.entry(account, now).lookups.take(now)
    }

    /// Charges `bytes` to `account`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Memory`] when it would hold more than it may.
    pub fn take(&mut self, account: Account, bytes: u64, now: Instant) -> Result<(), Refusal> {
        let most = match account {
            Account::Root => self.limits.root_bytes,
            // As much as would be free afterwards; its present memory counts as held.
            _ => {
                let free = self.limits.users_bytes.saturating_sub(self.users_bytes);
                free.saturating_sub(bytes)
            }
        };
        let entry = self.entry(account, now);
        let held = entry.bytes.saturating_add(bytes);
        if held > most {
            return Err(Refusal::Memory);
        }
        entry.bytes = held;
        if account != Account::Root {
            self.users_bytes += bytes;
        }
        Ok(())
    }

    /// Takes `bytes` off the charge of `account`.
    pub fn give_back(&mut self, account: Account, bytes: u64) {
        let Some(entry) = self.entries.get_mut(&account) else {
            return;
        };
        let bytes = bytes.min(entry.bytes);
        entry.bytes -= bytes;
        if account != Account::Root {
            self.users_bytes -= bytes;
        }
    }

    /// Whether closed connections have areas that the kernel may still know.
    #[must_use]
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Asks for up to `most` areas of closed connections whether they are gone, and gives back those that are.
    pub fn sweep(&mut self, most: usize, now: Instant, mut is_gone: impl FnMut(MapId) -> bool) {
        for _ in 0..most.min(self.kept.len()) {
            let Some((account, charge)) = self.kept.pop_front() else {
                break;
            };
            if is_gone(charge.map) {
                self.give_back(account, charge.bytes);
            } else {
                self.kept.push_back((account, charge));
            }
        }
        self.entries.retain(|_, entry| !entry.is_blank(now));
    }

    fn entry(&mut self, account: Account, now: Instant) -> &mut Entry {
        let limits = self.limits;
        self.entries.entry(account).or_insert_with(|| Entry {
            bytes: 0,
            connections: 0,
            connects: Bucket::new(limits.connects_burst, limits.connects_per_second, now),
            questions: Bucket::new(limits.questions, limits.questions, now),
            lookups: Bucket::new(limits.lookups_burst, limits.lookups_per_second, now),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const LARGE: u64 = 600 << 10;

    fn limits() -> Limits {
        Limits::default()
    }

    fn take_all(quota: &mut Quota, account: Account, bytes: u64, now: Instant) -> u64 {
        let mut taken = 0;
        while quota.take(account, bytes, now).is_ok() {
            taken += bytes;
        }
        taken
    }

    #[test]
    fn one_account_leaves_half_and_the_next_a_quarter() {
        let now = Instant::now();
        let mut quota = Quota::new(limits());
        let half = limits().users_bytes / 2;
        let first = take_all(&mut quota, Account::User(65_534), LARGE, now);
        assert!((half - LARGE..=half).contains(&first), "{first}");
        let second = take_all(&mut quota, Account::Strangers, 4096, now);
        assert!(second <= (limits().users_bytes - first) / 2, "{second}");
        assert_eq!(quota.take(Account::User(1000), LARGE, now), Ok(()));
        let root = take_all(&mut quota, Account::Root, LARGE, now);
        assert!(root > limits().root_bytes - LARGE, "{root}");
        assert_eq!(quota.bytes(), first + second + LARGE + root);
    }

    #[test]
    fn a_closed_connection_is_charged_until_its_areas_are_gone() {
        let now = Instant::now();
        let mut quota = Quota::new(limits());
        let account = Account::User(1000);
        quota.connect(account, now).unwrap();
        quota.take(account, 300, now).unwrap();
        let charge = |map, bytes| Charge { map, bytes };
        quota.disconnect(account, &[charge(7, 100), charge(8, 200)]);
        assert!(quota.has_kept());
        quota.sweep(100, now, |_| false);
        assert_eq!(quota.bytes_of(account), 300);
        quota.sweep(100, now, |map| map == 7);
        assert_eq!(quota.bytes_of(account), 200);
        // One at a time, each gets its turn.
        quota.disconnect(account, &[charge(9, 0)]);
        let mut asked = BTreeSet::new();
        for _ in 0..2 {
            quota.sweep(1, now, |map| {
                asked.insert(map);
                false
            });
        }
        assert_eq!(asked, BTreeSet::from([8, 9]));
        quota.sweep(100, now, |_| true);
        assert_eq!((quota.bytes(), quota.has_kept()), (0, false));
    }

    #[test]
    fn connections_have_a_rate_and_a_number() {
        let now = Instant::now();
        let mut quota = Quota::new(limits());
        let account = Account::User(1000);
        for _ in 0..64 {
            assert_eq!(quota.connect(account, now), Ok(()));
        }
        assert_eq!(quota.connect(account, now), Err(Refusal::Rate));
        assert_eq!(quota.connect(Account::User(1001), now), Ok(()));
        for _ in 0..100 {
            assert_eq!(quota.connect(Account::Root, now), Ok(()), "no rate");
        }
        // 91 are free of 256, and the account has 64.
        let later = now + Duration::from_secs(60);
        let more = (0..64).take_while(|_| quota.connect(account, later).is_ok());
        assert_eq!(more.count(), 14);
        for _ in 0..77 {
            assert_eq!(quota.connect(Account::Root, later), Ok(()));
        }
        assert_eq!(
            quota.connect(Account::Root, later),
            Err(Refusal::Processes),
            "all are taken"
        );
        quota.disconnect(account, &[]);
        assert_eq!(quota.connect(Account::Root, later), Ok(()));
    }

    #[test]
    fn questions_and_lookups_have_rates() {
        let now = Instant::now();
        let mut quota = Quota::new(limits());
        let (user, other) = (Account::User(1000), Account::User(1001));
        let asked = (0..100).filter(|_| quota.may_ask(user, now));
        assert_eq!(asked.count(), 20);
        assert!(quota.may_ask(other, now));
        assert!((0..100).all(|_| quota.may_ask(Account::Root, now)));
        let looked_up = (0..10_000).filter(|_| quota.may_look_up(Account::Root, now));
        assert_eq!(looked_up.count(), 8192);
        let later = now + Duration::from_millis(500);
        let asked = (0..100).filter(|_| quota.may_ask(user, later));
        assert_eq!(asked.count(), 10);
        let looked_up = (0..10_000).filter(|_| quota.may_look_up(Account::Root, later));
        assert_eq!(looked_up.count(), 1000);
    }

    #[test]
    fn an_account_that_holds_nothing_is_forgotten() {
        let now = Instant::now();
        let mut quota = Quota::new(limits());
        quota.connect(Account::User(5), now).unwrap();
        quota.disconnect(Account::User(5), &[]);
        quota.sweep(1, now, |_| true);
        assert_eq!(quota.entries.len(), 1, "its rate is remembered");
        quota.sweep(1, now + Duration::from_secs(1), |_| true);
        assert!(quota.entries.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Connect,
        /// Bytes of the three areas.
        Hello([u64; 3]),
        Close,
        /// Of how many maps, by their numbers, the kernel says that they are gone.
        Sweep(u32),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Connect),
            4 => prop::array::uniform3(0u64..=2 << 20).prop_map(Step::Hello),
            2 => Just(Step::Close),
            1 => (0u32..5).prop_map(Step::Sweep),
            1 => (0u64..500).prop_map(Step::Wait),
        ]
    }

    fn account() -> impl Strategy<Value = Account> {
        prop_oneof![
            Just(Account::Root),
            Just(Account::Strangers),
            (1u32..4).prop_map(Account::User),
            Just(Account::Range(100_000)),
        ]
    }

    proptest! {
        /// Whatever accounts do, in any order: the sums are right, the limits are kept, and something is left for the
        /// next account.
        #[test]
        fn no_sequence_of_requests_exceeds_the_limits(
            steps in prop::collection::vec((account(), step()), 1..150)
        ) {
            let mut now = Instant::now();
            let mut quota = Quota::new(limits());
            // A model: open connections with their areas, and areas that are kept.
            let mut open: Vec<(Account, Vec<Charge>)> = Vec::new();
            let mut kept: BTreeMap<MapId, (Account, u64)> = BTreeMap::new();
            let mut next = 0;
            for (account, step) in steps {
                match step {
                    Step::Connect => {
                        if quota.connect(account, now).is_ok() {
                            open.push((account, Vec::new()));
                        }
                    }
                    Step::Hello(bytes) => {
                        let silent = open.iter_mut().find(|(of, areas)| *of == account && areas.is_empty());
                        if let Some((_, areas)) = silent
                            && quota.take(account, bytes.iter().sum(), now).is_ok()
                        {
                            for bytes in bytes {
                                areas.push(Charge { map: next, bytes });
                                next += 1;
                            }
                        }
                    }
                    Step::Close => {
                        if let Some(index) = open.iter().position(|(of, _)| *of == account) {
                            let (_, areas) = open.swap_remove(index);
                            quota.disconnect(account, &areas);
                            kept.extend(areas.iter().map(|area| (area.map, (account, area.bytes))));
                        }
                    }
                    Step::Sweep(part) => {
                        let gone = |map: MapId| part > 0 && map.is_multiple_of(part);
                        quota.sweep(usize::MAX, now, gone);
                        kept.retain(|map, _| !gone(*map));
                    }
                    Step::Wait(ms) => now += Duration::from_millis(ms),
                }
                let charged = |of: Account| -> u64 {
                    let open = open.iter().filter(|(account, _)| *account == of);
                    let open: u64 = open.flat_map(|(_, areas)| areas).map(|area| area.bytes).sum();
                    open + kept.values().filter(|(account, _)| *account == of).map(|(_, bytes)| bytes).sum::<u64>()
                };
                let everybody = [
                    Account::Strangers,
                    Account::User(1),
                    Account::User(2),
                    Account::User(3),
                    Account::Range(100_000),
                ];
                let mut users = 0;
                for of in everybody {
                    prop_assert_eq!(quota.bytes_of(of), charged(of));
                    prop_assert!(charged(of) <= limits().users_bytes / 2);
                    users += charged(of);
                }
                prop_assert_eq!(quota.bytes_of(Account::Root), charged(Account::Root));
                prop_assert!(charged(Account::Root) <= limits().root_bytes);
                prop_assert_eq!(quota.bytes(), users + charged(Account::Root));
                // Five accounts leave a thirty-second.
                prop_assert!(limits().users_bytes - users >= limits().users_bytes >> everybody.len());
                prop_assert_eq!(quota.connections, open.len());
                prop_assert!(open.len() <= limits().processes);
            }
            // All leave, and the kernel forgets: nothing is held.
            for (account, areas) in open {
                quota.disconnect(account, &areas);
            }
            quota.sweep(usize::MAX, now + Duration::from_secs(60), |_| true);
            prop_assert_eq!(quota.bytes(), 0);
            prop_assert!(quota.entries.is_empty() && !quota.has_kept());
        }
    }
}
