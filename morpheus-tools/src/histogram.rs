//! Histograms of wake latencies, as the BPF programs count them: how many wakes waited how long, by powers of two.
//!
//! Counting must cost nanoseconds, so a bucket is found by the position of the highest bit. That makes each twice as wide
//! as the one before, and a quantile that is read from them is right to a factor of two: enough to see that a latency has
//! left its ceiling, not to compare two good ones.

/// How many buckets a histogram has. Bucket `i` counts the waits of 2^i µs and more, below 2^(i+1) µs; the first begins
/// at 0, the last has no end.
pub const BUCKETS: usize = 16;

const NS_PER_US: u64 = 1_000;

/// The bounds of a bucket: from the first, up to but without the second; none for the last bucket, which has no end.
///
/// # Panics
///
/// When there is no such bucket.
#[must_use]
pub const fn bucket_bounds_ns(bucket: usize) -> (u64, Option<u64>) {
    assert!(bucket < BUCKETS);
    let lower_ns = if bucket == 0 { 0 } else { NS_PER_US << bucket };
    let upper_ns = if bucket == BUCKETS - 1 {
        None
    } else {
        Some(NS_PER_US << (bucket + 1))
    };
    (lower_ns, upper_ns)
}

/// The bucket that counts a wait.
#[must_use]
pub const fn bucket_of_ns(wait_ns: u64) -> usize {
    match (wait_ns / NS_PER_US).checked_ilog2() {
        None => 0,
        Some(log) if log as usize >= BUCKETS => BUCKETS - 1,
        Some(log) => log as usize,
    }
}

/// The increments of counters between two readings. Where one of them went back, all have begun anew, and the increments are their present
/// values.
#[must_use]
pub fn all_since<const COUNT: usize>(before: &[u64; COUNT], now: &[u64; COUNT]) -> [u64; COUNT] {
    if before.iter().zip(now).any(|(before, now)| before > now) {
        return *now;
    }
    std::array::from_fn(|index| now[index] - before[index])
}

/// Wakes by how long they waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// One count for each bucket.
    pub counts: [u64; BUCKETS],
}

impl Histogram {
    /// Counts one wait.
    pub fn record(&mut self, wait_ns: u64) {
        let count = &mut self.counts[bucket_of_ns(wait_ns)];
        *count = count.saturating_add(1);
    }

    /// The increments since an earlier reading of the same counters. Where one of them went back, they began anew, and the increments are
    /// their present values.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        Histogram {
            counts: all_since(&earlier.counts, &self.counts),
        }
    }

    /// Both together.
    #[must_use]
    pub fn merged(&self, other: &Histogram) -> Histogram {
        let mut counts = self.counts;
        for (count, more) in counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        Histogram { counts }
    }

    /// How many wakes it has counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        // 16 counts of 64 bits fit.
        let total: u128 = self.counts.iter().copied().map(u128::from).sum();
        u64::try_from(total).unwrap_or(u64::MAX)
    }

    /// The wait that the given share (in thousandths, at most 1000) of the wakes did not exceed; none of an empty histogram.
    ///
    /// The wake of that rank is in the bucket that is found, and its place there is guessed, as if the bucket's wakes were
    /// spread evenly. So the estimate is between half and twice the true value, in the first bucket off by less than 2 µs.
    /// For the last bucket it is its lower bound: the true value is that or more.
    #[must_use]
    pub fn quantile_ns(&self, permille: u32) -> Option<u64> {
        let total: u128 = self.counts.iter().copied().map(u128::from).sum();
        if total == 0 {
            return None;
        }
        let permille = u128::from(permille.min(1000));
        let rank = (total * permille).div_ceil(1000).max(1);
        let mut below = 0;
        for (bucket, count) in self.counts.iter().copied().enumerate() {
            let count = u128::from(count);
            if below + count < rank {
                below += count;
                continue;
            }
            let (lower_ns, upper_ns) = bucket_bounds_ns(bucket);
            let Some(upper_ns) = upper_ns else {
                return Some(lower_ns);
            };
            // The middle of the place that this rank has in the bucket; below the bucket's width, so it fits.
            let place = 2 * (rank - below) - 1;
            let within = u128::from(upper_ns - lower_ns) * place / (2 * count);
            return Some(lower_ns + within as u64);
        }
        unreachable!("the rank is at most the total")
    }

    /// The median; see [`quantile_ns`](Histogram::quantile_ns).
    #[must_use]
    pub fn p50_ns(&self) -> Option<u64> {
        self.quantile_ns(500)
    }

    /// The 99th percentile; see [`quantile_ns`](Histogram::quantile_ns).
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        self.quantile_ns(990)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bounds_touch() {
        assert_eq!(bucket_bounds_ns(0), (0, Some(2_000)));
        assert_eq!(bucket_bounds_ns(1), (2_000, Some(4_000)));
        assert_eq!(bucket_bounds_ns(15), (32_768_000, None));
        for bucket in 1..BUCKETS {
            assert_eq!(
                bucket_bounds_ns(bucket - 1).1,
                Some(bucket_bounds_ns(bucket).0)
            );
        }
    }

    #[test]
    fn buckets_of_waits() {
        for (wait_ns, bucket) in [
            (0, 0),
            (1_999, 0),
            (2_000, 1),
            (3_999, 1),
            (4_000, 2),
            (32_767_999, 14),
            (32_768_000, 15),
            (u64::MAX, 15),
        ] {
            assert_eq!(bucket_of_ns(wait_ns), bucket, "{wait_ns}");
        }
    }

    #[test]
    fn nothing_counted_has_no_quantiles() {
        assert_eq!(Histogram::default().p99_ns(), None);
        assert_eq!(Histogram::default().p50_ns(), None);
    }

    #[test]
    fn quantiles_of_known_waits() {
        let mut histogram = Histogram::default();
        for _ in 0..98 {
            histogram.record(10_000);
        }
        histogram.record(5_000_000);
        histogram.record(60_000_000);
        // The median is the 50th of 98 in 8..16 µs, the 99th the only one in 4.096..8.192 ms.
        assert_eq!(
            histogram.p50_ns(),
            Some(8_000 + 8_000 * (2 * 50 - 1) / (2 * 98))
        );
        assert_eq!(histogram.p99_ns(), Some(6_144_000));
        assert_eq!(histogram.quantile_ns(1000), Some(32_768_000));
        assert_eq!(histogram.quantile_ns(2000), histogram.quantile_ns(1000));
    }

    #[test]
    fn counters_that_began_anew() {
        let mut before = Histogram::default();
        before.record(10_000);
        before.record(10_000);
        let mut now = Histogram::default();
        now.record(10_000);
        now.record(1_000_000);
        assert_eq!(now.since(&before), now);
    }

    fn histograms() -> impl Strategy<Value = Histogram> {
        let count = prop_oneof![Just(0), 0..1000u64, Just(u64::MAX), any::<u64>()];
        proptest::array::uniform16(count).prop_map(|counts| Histogram { counts })
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_bucket(wait_ns in any::<u64>()) {
            let (lower_ns, upper_ns) = bucket_bounds_ns(bucket_of_ns(wait_ns));
            prop_assert!(lower_ns <= wait_ns);
            prop_assert!(upper_ns.is_none_or(|upper_ns| wait_ns < upper_ns));
        }

        #[test]
        fn quantiles_are_as_near_as_promised(
            mut waits_ns in proptest::collection::vec(0..60_000_000u64, 1..200),
            permille in 0..=1000u32,
        ) {
            let mut histogram = Histogram::default();
            for wait_ns in &waits_ns {
                histogram.record(*wait_ns);
            }
            waits_ns.sort_unstable();
            let rank = (waits_ns.len() * permille as usize).div_ceil(1000).max(1);
            let exact_ns = waits_ns[rank - 1];
            let guess_ns = histogram.quantile_ns(permille).unwrap();
            if exact_ns >= 32_768_000 {
                prop_assert_eq!(guess_ns, 32_768_000);
            } else if exact_ns < 2_000 {
                prop_assert!(guess_ns.abs_diff(exact_ns) < 2_000);
            } else {
                prop_assert!(guess_ns <= 2 * exact_ns && exact_ns <= 2 * guess_ns);
            }
        }

        #[test]
        fn quantiles_rise(histogram in histograms()) {
            let quantiles: Vec<_> = (0..=1000).step_by(25).map(|permille| histogram.quantile_ns(permille)).collect();
            prop_assert!(quantiles.is_sorted());
        }

        #[test]
        fn what_came_and_what_was_are_what_is(before in histograms(), came in histograms()) {
            let now = before.merged(&came);
            let fits = before.counts.iter().zip(came.counts).all(|(a, b)| a.checked_add(b).is_some());
            if fits {
                prop_assert_eq!(now.since(&before), came);
            }
            prop_assert!(now.total() >= before.total());
        }
    }
}
