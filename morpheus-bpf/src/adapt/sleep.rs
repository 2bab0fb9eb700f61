// SPDX-License-Identifier: GPL-2.0-only
//! Slices of batch tasks by how tasks sleep.
//!
//! Where most sleeps are so short that they must be waits for a device or for one another, a batch task that runs a bit
//! longer gets to its own wait sooner, and fewer switches disturb the rest. Where hardly any is, tasks wait for people and
//! timers, and a shorter batch slice is what they notice.

use crate::adapt::knobs::{BATCH_SLICE_CEILING_NS, BATCH_SLICE_FLOOR_NS};
use morpheus_tools::histogram::all_since;

/// How many buckets sleeps are counted in.
pub const SLEEP_BUCKETS: usize = 4;

/// Where a bucket of sleeps ends: I/O waits below 1 ms, short ones below 10 ms, moderate ones below 100 ms; all that are
/// longer are idle.
pub const SLEEP_BOUNDS_NS: [u64; SLEEP_BUCKETS - 1] = [1_000_000, 10_000_000, 100_000_000];

/// A larger share of I/O waits than this, in percent, makes batch slices longer.
pub const IO_HEAVY_ABOVE_PERCENT: u64 = 60;
/// A smaller share of I/O waits than this, in percent, makes batch slices shorter.
pub const IDLE_HEAVY_BELOW_PERCENT: u64 = 15;
/// As many sleeps it takes before they say anything.
const JUDGED_FROM_SLEEPS: u64 = 20;

/// Sleeps by how long they were: I/O waits, short, moderate, idle ([`SLEEP_BOUNDS_NS`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeps {
    /// One count for each bucket.
    pub counts: [u64; SLEEP_BUCKETS],
}

impl Sleeps {
    /// The counts since an earlier reading of the same counters. Where one of them went back, they began anew.
    #[must_use]
    pub fn since(&self, earlier: &Sleeps) -> Sleeps {
        Sleeps {
            counts: all_since(&earlier.counts, &self.counts),
        }
    }

    /// How many of them were waits for I/O, in percent; none where there are too few sleeps to tell.
    #[must_use]
    pub fn io_percent(&self) -> Option<u64> {
        let total: u128 = self.counts.iter().copied().map(u128::from).sum();
        if total < JUDGED_FROM_SLEEPS.into() {
            return None;
        }
        // At most 100.
        Some((u128::from(self.counts[0]) * 100 / total) as u64)
    }
}

/// The slice of batch tasks: a quarter more or less than the baseline, or the baseline.
#[must_use]
pub fn batch_slice_ns(baseline_ns: u64, sleeps: &Sleeps) -> u64 {
    let slice_ns = match sleeps.io_percent() {
        Some(io) if io > IO_HEAVY_ABOVE_PERCENT => baseline_ns.saturating_add(baseline_ns / 4),
        Some(io) if io < IDLE_HEAVY_BELOW_PERCENT => baseline_ns - baseline_ns / 4,
        _ => baseline_ns,
    };
    slice_ns.clamp(BATCH_SLICE_FLOOR_NS, BATCH_SLICE_CEILING_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn sleeps(counts: [u64; SLEEP_BUCKETS]) -> Sleeps {
        Sleeps { counts }
    }

    #[test]
    fn the_bpf_programs_have_the_same_buckets() {
        let header = include_str!("../bpf/options/latency.bpf.c");
        assert!(header.contains(&format!("\n#define SLEEP_BUCKETS {SLEEP_BUCKETS}\n")));
        let [io, short, moderate] = SLEEP_BOUNDS_NS;
        assert!(header.contains(&format!(
            "slept_ns < {io} ? 0 : slept_ns < {short} ? 1 : slept_ns < {moderate} ? 2 : 3;"
        )));
    }

    #[test]
    fn longer_shorter_and_as_it_was() {
        for (counts, slice_ns) in [
            ([61, 0, 0, 39], 25 * MS),
            ([60, 0, 40, 0], 20 * MS),
            ([15, 85, 0, 0], 20 * MS),
            ([14, 0, 0, 86], 15 * MS),
            ([0, 0, 0, 0], 20 * MS),
            ([19, 0, 0, 0], 20 * MS),
            ([20, 0, 0, 0], 25 * MS),
        ] {
            assert_eq!(
                batch_slice_ns(20 * MS, &sleeps(counts)),
                slice_ns,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn counters_that_began_anew() {
        assert_eq!(
            sleeps([5, 6, 7, 8]).since(&sleeps([1, 2, 3, 4])).counts,
            [4; 4]
        );
        assert_eq!(
            sleeps([5, 0, 7, 8]).since(&sleeps([1, 2, 3, 4])),
            sleeps([5, 0, 7, 8])
        );
    }

    proptest! {
        #[test]
        fn never_out_of_bounds(baseline_ns in any::<u64>(), counts in any::<[u64; 4]>()) {
            let slice_ns = batch_slice_ns(baseline_ns, &sleeps(counts));
            prop_assert!((BATCH_SLICE_FLOOR_NS..=BATCH_SLICE_CEILING_NS).contains(&slice_ns));
        }
    }
}
