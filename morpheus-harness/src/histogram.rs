//! Latency histograms in nanoseconds, and when a percentile of one may be named.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// With at least this many samples, a 99th percentile rests on ten or more of them.
pub const SAMPLES_FOR_P99: u64 = 1_000;
/// With at least this many samples, a 99.9th percentile rests on ten or more of them.
pub const SAMPLES_FOR_P999: u64 = 10_000;

/// A point of a curve rests on at least this many samples above it, as the named percentiles do.
pub const BEYOND: f64 = 10.0;

/// An hour is beyond anything that is measured here; the bound keeps the histogram's memory small.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds with three significant digits. All of its memory is there from the start: if it grew, the
/// first long latency would be followed by page faults in what is measured.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Histogram<u64>,
    /// The ages, in nanoseconds, of what had not ended; they are among the counts.
    pending_ns: Vec<u64>,
}

impl Default for Latencies {
    #[inline]
    fn default() -> Self {
        let mut counts = Histogram::new_with_bounds(1, HOUR_NS, 3)
            .expect("an hour and three significant digits are within HdrHistogram's range");
        // Two counts of each power of two are on each page of 4 KiB, and memory that was never written is not there.
        for power in 0..HOUR_NS.ilog2() {
            let value = 1 << power;
            let _ = counts.record(value);
            let _ = counts.record(value + value / 2);
        }
        counts.reset();
        Self {
            counts,
            pending_ns: Vec::new(),
        }
    }
}

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.record_ns(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one latency given in nanoseconds (0 counts as 1, the least that HdrHistogram tells apart).
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        let _ = self.counts.record(ns.clamp(1, HOUR_NS));
    }

    /// Counts what has not ended with its age, the least that its latency can be.
    pub fn record_pending(&mut self, age: Duration) {
        self.record_pending_ns(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The same with an age in nanoseconds.
    pub fn record_pending_ns(&mut self, age_ns: u64) {
        self.record_ns(age_ns);
        self.pending_ns.push(age_ns.clamp(1, HOUR_NS));
    }

    /// Adds what another histogram has counted.
    #[inline]
    pub fn add(&mut self, other: &Latencies) {
        // Cannot fail: both have the same bounds.
        let _ = self.counts.add(&other.counts);
        self.pending_ns.extend(&other.pending_ns);
    }

    /// Adds counts of nanoseconds that may have other bounds; what is beyond an hour counts as one.
    pub fn add_counts(&mut self, counts: &Histogram<u64>) {
        for value in counts.iter_recorded() {
            let ns = value.value_iterated_to().clamp(1, HOUR_NS);
            let _ = self.counts.record_n(ns, value.count_since_last_iteration());
        }
    }

    /// The same, with what was never measured because the measurer itself was held up filled in: a latency beyond
    /// `interval` stands for those as well that should have begun meanwhile, one each interval.
    ///
    /// Only for measurements that wait for one another. A latency from its intended start needs no correction.
    #[must_use]
    pub fn corrected(&self, interval: Duration) -> Self {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self {
            counts: self.counts.clone_correct(interval_ns),
            pending_ns: self.pending_ns.clone(),
        }
    }

    /// The counts as HdrHistogram has them.
    pub fn counts(&self) -> &Histogram<u64> {
        &self.counts
    }

    /// How many latencies were counted.
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether none was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The percentiles that the number of samples allows.
    pub fn summary(&self) -> Summary {
        let n = self.counts.len();
        let of = |part: Part| {
            let (q, least) = part.quantile()?;
            (n >= least).then(|| self.counts.value_at_quantile(q))
        };
        let mut summary = Summary {
            n,
            pending: self.pending_ns.len() as u64,
            p50: of(Part::P50),
            p99: of(Part::P99),
            p999: of(Part::P999),
            max: (n > 0).then(|| self.counts.max()),
            at_least: Vec::new(),
            curve: self.curve(),
        };
        if summary.pending > 0 {
            let ended = self.without_pending();
            let all = [Part::P50, Part::P99, Part::P999, Part::Max];
            let is_least = |part: &Part| {
                let seen_ns = part.of(&summary);
                seen_ns.is_some_and(|ns| self.at_most_ns(*part, &ended) > ns * (1.0 + SAME))
            };
            summary.at_least = all.into_iter().filter(is_least).collect();
        }
        summary
    }

    /// What has ended.
    fn without_pending(&self) -> Histogram<u64> {
        let mut pending = Histogram::new_from(&self.counts);
        let mut ended = self.counts.clone();
        for &age_ns in &self.pending_ns {
            let _ = pending.record(age_ns);
        }
        // Cannot fail: each is among the counts.
        let _ = ended.subtract(&pending);
        ended
    }

    /// What a part would be if what is pending never ended. The longest is the longest of the run.
    fn at_most_ns(&self, part: Part, ended: &Histogram<u64>) -> f64 {
        let Some((q, _)) = part.quantile() else {
            let has_ended = ended.max() >= self.counts.max();
            return if has_ended {
                ended.max() as f64
            } else {
                f64::INFINITY
            };
        };
        let rank = q * self.counts.len() as f64;
        match ended.len() as f64 {
            ended_len if rank > ended_len || ended_len == 0.0 => f64::INFINITY,
            ended_len => ended.value_at_quantile(rank / ended_len) as f64,
        }
    }

    /// The curve of a plot: percentiles from the least up to where [`BEYOND`] samples are left above.
    pub fn curve(&self) -> Vec<Point> {
        let n = self.counts.len() as f64;
        let allowed = |q: &f64| (1.0 - q) * n > BEYOND * (1.0 - 1e-9);
        quantiles()
            .take_while(allowed)
            .map(|q| Point(q, self.counts.value_at_quantile(q)))
            .collect()
    }
}

/// Where a curve has points: six to each factor of ten by which fewer samples are above, all of them round numbers.
fn quantiles() -> impl Iterator<Item = f64> {
    let decades = (0..=6).map(|decade| 10_f64.powi(decade));
    decades.flat_map(|decade| {
        // The samples above the point, of 100, of 1,000 …
        [100.0, 75.0, 50.0, 35.0, 25.0, 15.0].map(|above| {
            let whole = 100.0 * decade;
            (whole - above) / whole
        })
    })
}

/// Latencies that count from the time at which each was meant to begin: nothing is omitted, and there is nothing to correct.
pub const FROM_INTENDED_START: &str = "from the intended start";

/// Latencies that count from the time at which each began; each begins when the one before it is over, and a delay hides those
/// that it held up.
pub const RAW: &str = "raw";

/// A part of a [`Summary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Half of the samples are at most this long. Its row has the percentile curve.
    P50,
    /// 99 %.
    P99,
    /// 99.9 %.
    P999,
    /// The longest.
    Max,
}

impl Part {
    /// The share of the samples that are at most this long, and how many samples that needs; none for the longest.
    fn quantile(self) -> Option<(f64, u64)> {
        match self {
            Self::P50 => Some((0.5, 1)),
            Self::P99 => Some((0.99, SAMPLES_FOR_P99)),
            Self::P999 => Some((0.999, SAMPLES_FOR_P999)),
            Self::Max => None,
        }
    }

    /// This part, in nanoseconds.
    pub fn of(self, summary: &Summary) -> Option<f64> {
        let ns = match self {
            Self::P50 => summary.p50,
            Self::P99 => summary.p99,
            Self::P999 => summary.p999,
            Self::Max => summary.max,
        };
        ns.map(|ns| ns as f64)
    }
}

/// Two values of a figure that differ by no more than this share are one: what is measured twice differs by more.
pub const SAME: f64 = 0.05;

/// Percentiles of a [`Latencies`], in nanoseconds; `None` where there were too few samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Samples.
    pub n: u64,
    /// How many of them had not ended, and count with their age.
    #[serde(default)]
    pub pending: u64,
    /// Half of the samples were at most this long.
    pub p50: Option<u64>,
    /// 99 % were; from [`SAMPLES_FOR_P99`] samples.
    pub p99: Option<u64>,
    /// 99.9 % were; from [`SAMPLES_FOR_P999`] samples.
    pub p999: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
    /// The parts that would be larger by more than [`SAME`] if what is pending never ended: each is known to be at least this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<Part>,
    /// For a plot, as [`Latencies::curve`] has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
}

impl Summary {
    /// The share of the samples that had ended, from 0 to 1.
    pub fn ended(&self) -> f64 {
        (self.n - self.pending) as f64 / self.n.max(1) as f64
    }
}

/// A point of a percentile curve: a share of the samples (0.99), and how long those are at most, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point(pub f64, pub u64);

/// The median at each percentile of some rounds' curves, as far as the shortest of them goes.
pub fn median_curve(rounds: &[&[Point]]) -> Vec<Point> {
    let shortest = rounds.iter().map(|curve| curve.len()).min();
    let point = |i: usize| {
        let values = rounds.iter().map(|curve| curve[i].1 as f64);
        let ns = median(values.collect())? as u64;
        Some(Point(rounds[0][i].0, ns))
    };
    (0..shortest.unwrap_or(0)).filter_map(point).collect()
}

/// The median, the mean of the two in the middle for an even count; `None` of nothing.
#[inline]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: u64) -> Latencies {
        let mut latencies = Latencies::default();
        (1..=n).for_each(|i| latencies.record_ns(i * 1_000));
        latencies
    }

    #[test]
    fn too_few_samples_give_no_percentile() {
        assert_eq!(Latencies::default().summary(), Summary::default());
        assert_eq!(of(999).summary().p99, None);
        assert!(of(999).summary().p50.is_some() && of(999).summary().max.is_some());
        assert!(of(1_000).summary().p99.is_some());
        assert_eq!(of(9_999).summary().p999, None);
        assert!(of(10_000).summary().p999.is_some());
    }

    #[test]
    fn percentiles_have_three_digits() {
        let p99 = of(10_000).summary().p99.unwrap() as f64;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 0.001, "{p99}");
    }

    #[test]
    fn a_curve_ends_where_too_few_samples_are_above() {
        assert!(of(9).curve().is_empty());
        let shares = |n| -> Vec<f64> { of(n).curve().iter().map(|point| point.0).collect() };
        assert_eq!(shares(40), [0.0, 0.25, 0.5, 0.65, 0.75]);
        assert_eq!(shares(999).last(), Some(&0.985));
        assert_eq!(shares(1_000).last(), Some(&0.99));
        assert_eq!(shares(10_000).last(), Some(&0.999));
        for Point(q, ns) in &of(10_000).curve()[1..] {
            let expected = q * 1e7;
            assert!((*ns as f64 / expected - 1.0).abs() < 0.002, "{q}: {ns}");
        }
    }

    #[test]
    fn the_curve_of_several_rounds_is_their_median_as_far_as_all_go() {
        let rounds = [100, 400, 10_000].map(|n| of(n).summary());
        let curves = [0, 1, 2].map(|round: usize| &rounds[round].curve[..]);
        let median = median_curve(&curves);
        assert_eq!(median.len(), rounds[0].curve.len());
        assert_eq!(median[2].0, 0.5);
        assert_eq!(median[2].1, rounds[1].curve[2].1);
        assert!(median_curve(&[]).is_empty());
        let json = serde_json::to_value(&rounds[0]).unwrap();
        assert_eq!(json["curve"][2][0], 0.5);
        assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), rounds[0]);
        assert!(
            serde_json::to_value(Summary::default())
                .unwrap()
                .get("curve")
                .is_none()
        );
    }

    /// A system that answers each of 100 requests a second in 1 ms for 100 s, and then stands still for 100 s. A client
    /// that waits for each answer counts one latency of 100 s in 10,001; a client that asks at any time of these 200 s
    /// waits for more than 50 s with a chance of a quarter, and for more than 98 s with one of a hundredth.
    #[test]
    fn coordinated_omission_is_corrected_to_the_known_answer() {
        let mut latencies = Latencies::default();
        (0..10_000).for_each(|_| latencies.record(Duration::from_millis(1)));
        latencies.record(Duration::from_secs(100));
        assert!(latencies.summary().p999.unwrap() < 1_001_000);
        let corrected = latencies.corrected(Duration::from_millis(10));
        // It fills in from the upper end of a bucket of three digits.
        assert!(corrected.len().abs_diff(20_000) <= 10);
        let seconds = |q| corrected.counts().value_at_quantile(q) as f64 / 1e9;
        for (q, expected) in [(0.49, 0.001), (0.75, 50.0), (0.9, 80.0), (0.99, 98.0)] {
            assert!(
                (seconds(q) / expected - 1.0).abs() < 0.002,
                "{q}: {}",
                seconds(q)
            );
        }
    }

    #[test]
    fn an_absurd_latency_is_counted_and_not_lost() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::MAX);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.len(), 2);
    }

    #[test]
    fn a_part_is_a_lower_bound_where_what_is_pending_could_move_it() {
        let at_least = |ages_ns: &[u64]| {
            // 2,000 that ended, up to 2 ms.
            let mut latencies = of(2_000);
            for &age_ns in ages_ns {
                latencies.record_pending_ns(age_ns);
            }
            let summary = latencies.summary();
            assert_eq!(summary.pending, ages_ns.len() as u64);
            assert_eq!(summary.n, 2_000 + summary.pending);
            summary.at_least
        };
        assert_eq!(at_least(&[]), []);
        // One that has just begun is no more than a rank.
        assert_eq!(at_least(&[10_000]), []);
        // Longer than all others.
        assert_eq!(at_least(&[5_000_000; 10]), [Part::Max]);
        // Below the percentile, and not above it once they end.
        assert_eq!(at_least(&[10_000; 40]), [Part::P99]);
        assert_eq!(at_least(&[1_000_000; 1_500]), [Part::P50, Part::P99]);
        assert_eq!(
            at_least(&[3_000_000; 2_100]),
            [Part::P50, Part::P99, Part::Max]
        );
        let mut none = Latencies::default();
        none.record_pending_ns(7);
        assert_eq!(none.summary().at_least, [Part::P50, Part::Max]);
        let mut both = of(10);
        both.add(&none);
        let ended = (both.summary().ended() * 11.0).round();
        assert_eq!((both.summary().pending, ended), (1, 10.0));
    }

    #[test]
    fn median_of_an_even_count_is_between() {
        assert_eq!(super::median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(super::median(vec![]), None);
    }
}
