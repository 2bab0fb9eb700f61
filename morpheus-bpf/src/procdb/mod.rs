// SPDX-License-Identifier: GPL-2.0-only
//! The process database: what tasks of a name turned out to be, so that the next one of that name starts as that.
//!
//! A task that has just been started has no history, and the scheduler needs a second or so to see what it is. But most
//! have been seen before, under the same name. The database keeps the tier and the average run time by name (`comm`), and
//! predicts them for names that always turned out the same. A prediction is where the scheduler starts from, not what it
//! sticks to, so a wrong one is corrected as any first impression is.
//!
//! ```text
//!  scheduler ── name, tier, run time ──► observe ── steady for long enough ──► predictions ──► scheduler
//!                                           │ full: the stalest, least seen goes
//!                                           ▼
//!                                         file (saved at the end, loaded at the start)
//! ```
//!
//! Names are claims: a process sets its own. All that it gains by that is a first impression, once. And a flood of made-up
//! names evicts names that were hardly seen before any that was seen often, of those that were seen within the last minute
//! or so; what is older is learnt again.

pub mod file;
pub mod saver;

use std::collections::BTreeMap;

use morpheus_tools::tier::Tier;

/// How many bytes a name has, as the kernel keeps it; the first 0 ends it.
pub const COMM_BYTES: usize = 16;
/// How many names are kept.
pub const CAPACITY: usize = 1024;
/// As many observations in a row must have agreed before a name is predicted.
pub const CONFIDENT_FROM: u32 = 8;
/// Where the database is kept, unless told otherwise.
pub const DEFAULT_PATH: &str = "/var/lib/morpheus/procdb.bin";

/// Agreement beyond this does not count: a name that changes its ways is to be doubted soon.
const MOST_STEADY: u32 = 32;
/// No average run time is longer than this; nothing the scheduler does differs beyond.
const MOST_RUNTIME_NS: u64 = 10_000_000_000;
/// An observation moves the average by one part in as many.
const SMOOTHING: u64 = 8;
/// An observation agrees when it moves the average by at most one part in as many, so is within half of it ...
const AGREES_WITHIN: u64 = 16;
/// ... or by at most this: relative to a few microseconds everything varies.
const AGREES_WITHIN_NS: u64 = 2_000;
/// Names last seen less than this number of looks apart are equally stale.
const LOOKS_PER_AGE: u64 = 64;

/// The observations of the tasks of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The tier of the last observation.
    pub tier: Tier,
    /// The average run time, smoothed over observations.
    pub avg_runtime_ns: u64,
    /// How often it was observed.
    pub observations: u32,
    /// How many observations in a row agreed; halved by one that did not.
    steady: u32,
    /// The look at which it was observed last.
    last_look: u64,
}

impl Profile {
    /// Whether its observations have agreed for long enough that the next ones will.
    #[must_use]
    pub fn is_confident(&self) -> bool {
        self.steady >= CONFIDENT_FROM
    }

    fn first(tier: Tier, avg_runtime_ns: u64, look: u64) -> Profile {
        Profile {
            tier,
            avg_runtime_ns,
            observations: 1,
            steady: 0,
            last_look: look,
        }
    }

    fn observe(&mut self, tier: Tier, runtime_ns: u64, look: u64) {
        let before_ns = self.avg_runtime_ns;
        let step_ns = runtime_ns.abs_diff(before_ns).div_ceil(SMOOTHING);
        self.avg_runtime_ns = if runtime_ns > before_ns {
            before_ns + step_ns
        } else {
            before_ns - step_ns
        };
        let agrees = step_ns <= (before_ns / AGREES_WITHIN).max(AGREES_WITHIN_NS);
        self.steady = if tier != self.tier {
            0
        } else if agrees {
            (self.steady + 1).min(MOST_STEADY)
        } else {
            self.steady / 2
        };
        self.tier = tier;
        self.observations = self.observations.saturating_add(1);
        self.last_look = look;
    }
}

/// The tier and the run time with which tasks of a name start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The name, padded with zeroes.
    pub comm: [u8; COMM_BYTES],
    /// The tier.
    pub tier: Tier,
    /// The average run time.
    pub avg_runtime_ns: u64,
}

/// The profiles of all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcDb {
    /// In the order of the names, so that everything that goes through them is the same each time.
    profiles: BTreeMap<[u8; COMM_BYTES], Profile>,
    /// How many looks there have been, over all runs.
    look: u64,
}

impl Default for ProcDb {
    fn default() -> ProcDb {
        ProcDb::new()
    }
}

impl ProcDb {
    /// An empty database.
    #[must_use]
    pub const fn new() -> ProcDb {
        ProcDb {
            profiles: BTreeMap::new(),
            look: 0,
        }
    }

    /// A look has passed (about a second): what is not observed from now on gets older.
    pub fn advance(&mut self) {
        self.look = self.look.saturating_add(1);
    }

    /// A task of this name turned out to be of this tier, with this average run time.
    ///
    /// The name ends at its first 0; an empty one is not counted. Run times above 10 s count as 10 s.
    pub fn observe(&mut self, comm: [u8; COMM_BYTES], tier: Tier, avg_runtime_ns: u64) {
        let comm = name(comm);
        if comm[0] == 0 {
            return;
        }
        let runtime_ns = avg_runtime_ns.min(MOST_RUNTIME_NS);
        if let Some(profile) = self.profiles.get_mut(&comm) {
            profile.observe(tier, runtime_ns, self.look);
            return;
        }
        if self.profiles.len() >= CAPACITY {
            self.evict();
        }
        self.profiles
            .insert(comm, Profile::first(tier, runtime_ns, self.look));
    }

    /// Lets the one go that is missed least: the stalest, of those the least observed, of those the first by name.
    fn evict(&mut self) {
        let key = |comm: &[u8; COMM_BYTES], profile: &Profile| {
            let age = (self.look - profile.last_look) / LOOKS_PER_AGE;
            (std::cmp::Reverse(age), profile.observations, *comm)
        };
        let least = self
            .profiles
            .iter()
            .min_by_key(|(comm, profile)| key(comm, profile));
        if let Some(comm) = least.map(|(comm, _)| *comm) {
            self.profiles.remove(&comm);
        }
    }

    /// The profile of a name.
    #[must_use]
    pub fn profile(&self, comm: [u8; COMM_BYTES]) -> Option<&Profile> {
        self.profiles.get(&name(comm))
    }

    /// The predictions for the names whose observations agree, in the order of the names.
    pub fn predictions(&self) -> impl Iterator<Item = Prediction> + '_ {
        self.profiles
            .iter()
            .filter(|(_, profile)| profile.is_confident())
            .map(|(comm, profile)| Prediction {
                comm: *comm,
                tier: profile.tier,
                avg_runtime_ns: profile.avg_runtime_ns,
            })
    }

    /// How many names are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.profiles.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }

    /// For how many of them there is a prediction.
    #[must_use]
    pub fn confident(&self) -> usize {
        self.predictions().count()
    }
}

/// The name alone: what stands after the first 0 is left over from another one.
fn name(mut comm: [u8; COMM_BYTES]) -> [u8; COMM_BYTES] {
    if let Some(end) = comm.iter().position(|byte| *byte == 0) {
        comm[end..].fill(0);
    }
    comm
}

#[cfg(test)]
mod tests;
