// SPDX-License-Identifier: GPL-2.0-only
//! The account that a peer's uid is charged to.
//!
//! One user can appear under many uids: `/etc/subuid` gives it a range for its user namespaces, and systemd hands out
//! further ranges on request. A limit for each uid would be no limit for such a user. So a subordinate uid is charged to
//! the user who has the range, and all uids that no file explains are charged to one account together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Uids below this one belong to users and services of this machine; ranges are handed out above it.
const FIRST_OF_RANGES: u32 = 1 << 16;
/// How often the files are checked for changes, at most.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The holder of connections and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Root, and the user that the daemon runs as.
    Root,
    /// A user, with its subordinate uids.
    User(u32),
    /// A range of subordinate uids, named by its first one, whose owner `/etc/passwd` does not name or is root.
    Range(u32),
    /// All other uids together.
    Strangers,
}

/// Finds the account of a uid.
#[derive(Debug)]
pub struct Accounts {
    own: u32,
    subuid: PathBuf,
    passwd: PathBuf,
    table: Table,
    /// The stamps of the files when `table` was made of them.
    stamp: [Stamp; 2],
    check_again: Instant,
}

/// The attributes of a file that change with it: inode, length, time of the last change. `None` where there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Accounts {
    /// The accounts of this machine. The files are read when the first uid is looked up.
    #[must_use]
    pub fn new(now: Instant) -> Accounts {
        Accounts::of_files("/etc/subuid".into(), "/etc/passwd".into(), now)
    }

    fn of_files(subuid: PathBuf, passwd: PathBuf, now: Instant) -> Accounts {
        Accounts {
            own: rustix::process::geteuid().as_raw(),
            subuid,
            passwd,
            table: Table::default(),
            stamp: [None; 2],
            check_again: now,
        }
    }

    /// The account that `uid` is charged to.
    pub fn of(&mut self, uid: u32, now: Instant) -> Account {
        if uid == 0 || uid == self.own {
            return Account::Root;
        }
        if self.check_again <= now {
            self.check_again = now + CHECK_EVERY;
            let stamp = [stamp(&self.subuid), stamp(&self.passwd)];
            if stamp != self.stamp {
                self.stamp = stamp;
                let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
                self.table = Table::parse(&read(&self.subuid), &read(&self.passwd));
            }
        }
        self.table.account(uid)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    ))
}

/// The contents of both files.
#[derive(Debug, Default)]
struct Table {
    /// The uids that `/etc/passwd` names.
    users: BTreeSet<u32>,
    /// In the order of the file; the first one that has a uid counts.
    ranges: Vec<Range>,
}

#[derive(Debug)]
struct Range {
    first: u32,
    /// How many uids.
    count: u32,
    account: Account,
}

impl Table {
    /// Reads lines `name:password:uid:…` and `owner:first:count`. Lines of another form are skipped.
    fn parse(subuid: &str, passwd: &str) -> Table {
        let mut names = BTreeMap::new();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            if let (Some(name), Some(Ok(uid))) = (fields.next(), fields.nth(1).map(str::parse)) {
                names.entry(name).or_insert(uid);
            }
        }
        let range = |line: &str| {
            let mut fields = line.split(':');
            let owner = fields.next()?.trim();
            let first = fields.next()?.trim().parse().ok()?;
            let count = fields.next()?.trim().parse().ok()?;
            let uid = names.get(owner).copied().or_else(|| owner.parse().ok());
            Some(Range {
                first,
                count,
                account: match uid {
                    // Root's ranges are for containers, which are not root.
                    None | Some(0) => Account::Range(first),
                    Some(uid) => Account::User(uid),
                },
            })
        };
        Table {
            ranges: subuid.lines().filter_map(range).collect(),
            users: names.into_values().collect(),
        }
    }

    fn account(&self, uid: u32) -> Account {
        if self.users.contains(&uid) {
            return Account::User(uid);
        }
        let of = |range: &&Range| uid >= range.first && uid - range.first < range.count;
        match self.ranges.iter().find(of) {
            Some(range) => range.account,
            None if uid < FIRST_OF_RANGES => Account::User(uid),
            None => Account::Strangers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
        ann:x:1000:1000::/home/ann:/bin/sh\n\
        bob:x:1001:1001::/home/bob:/bin/sh\n\
        far:x:70000:70000::/home/far:/bin/sh\n\
        broken\n";

    #[test]
    fn subordinate_uids_belong_to_their_owner() {
        let subuid = "# a comment\n\
            ann:100000:65536\n\
            1001:165536:65536\n\
            nobody-knows:300000:10\n\
            root:400000:10\n\
            bad:line\n\
            ann:4294967290:65536\n";
        let table = Table::parse(subuid, PASSWD);
        for (uid, account) in [
            (1000, Account::User(1000)),
            (100_000, Account::User(1000)),
            (165_535, Account::User(1000)),
            (165_536, Account::User(1001)),
            (231_071, Account::User(1001)),
            (231_072, Account::Strangers),
            (300_009, Account::Range(300_000)),
            (400_000, Account::Range(400_000)),
            (70_000, Account::User(70_000)),
            (65_534, Account::User(65_534)),
            (600_000, Account::Strangers),
            (u32::MAX, Account::User(1000)),
        ] {
            assert_eq!(table.account(uid), account, "{uid}");
        }
    }

    #[test]
    fn the_files_are_read_again_when_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let (subuid, passwd) = (
            directory.path().join("subuid"),
            directory.path().join("passwd"),
        );
        fs::write(&passwd, PASSWD).unwrap();
        let start = Instant::now();
        let mut accounts = Accounts::of_files(subuid.clone(), passwd, start);
        assert_eq!(accounts.of(0, start), Account::Root);
        assert_eq!(accounts.of(100_000, start), Account::Strangers);
        fs::write(&subuid, "ann:100000:65536\n").unwrap();
        let soon = start + CHECK_EVERY / 2;
        assert_eq!(accounts.of(100_000, soon), Account::Strangers);
        let later = start + CHECK_EVERY;
        assert_eq!(accounts.of(100_000, later), Account::User(1000));
    }
}
