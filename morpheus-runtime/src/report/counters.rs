//! Counters of all that the runtime does in addition to tokio. CONTRIBUTING.md says what else a new one needs.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;
use morpheus_system::lock::lock;

/// A statistic. All accesses are Relaxed and pair with nothing: statistics order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Takes back 1 of what was added.
    #[cfg(tokio_unstable)]
    pub(crate) fn take_back(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn raise_to(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The live counters of a domain.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) takeovers_watched: Counter,
    pub(crate) takeovers_canary: Counter,
    pub(crate) takeovers_reserve: Counter,
    pub(crate) taken_back: Counter,
    pub(crate) holds: Counter,
    pub(crate) demotions: Counter,
    pub(crate) throttles: Counter,
    pub(crate) slow_tasks: Counter,
    pub(crate) hog_tasks: Counter,
    pub(crate) pokes: Counter,
    pub(crate) canaries: Counter,
    pub(crate) handoff_polls: Counter,
    pub(crate) handoffs_refused: Counter,
    pub(crate) spares_exhausted: Counter,
    pub(crate) spares_peak: Counter,
    pub(crate) controller_cpu_ns: Counter,
    pub(crate) samples: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) last_request_ns: Counter,
    /// Time of the controller's last sample, in nanoseconds, or of the runtime's start before the first one.
    pub(crate) last_sample_ns: Counter,
    pub(crate) controller_restarts: Counter,
    pub(crate) joiner_restarts: Counter,
    pub(crate) controller_off: AtomicBool,
    pub(crate) thread_states_missing: Counter,
    pub(crate) slices_refused: Counter,
    pub(crate) takeover_latency: Latencies,
    pub(crate) detection_latency: Latencies,
    pub(crate) takeovers_kernel: Counter,
    pub(crate) kernel_demotions: Counter,
    pub(crate) kernel_throttles: Counter,
    pub(crate) hogs_marked: Counter,
    pub(crate) hogs_confined: Counter,
    pub(crate) canary_lateness: Latencies,
}

impl Counters {
    pub(crate) fn new(now_ns: u64) -> Counters {
        Counters {
            last_sample_ns: Counter(AtomicU64::new(now_ns)),
            ..Counters::default()
        }
    }
}

/// Number of latencies that are kept one by one.
const FEW: usize = 32;

/// A few latencies, or a histogram of many.
#[derive(Default)]
pub(crate) struct Latencies(Mutex<Recorded>);

/// The recorded latencies. An idle runtime records one or two, and a histogram takes 30 KB.
enum Recorded {
    Few(Vec<u64>),
    /// 1 µs to 1 min, with two digits.
    Many(Box<Histogram<u64>>),
}

impl Default for Recorded {
    fn default() -> Self {
        Recorded::Few(Vec::new())
    }
}

/// Makes a histogram of latencies in nanoseconds.
fn histogram(latencies: &[u64]) -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("constant bounds are valid");
    for ns in latencies {
        histogram.saturating_record(*ns);
    }
    histogram
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

impl Latencies {
    pub(crate) fn record(&self, ns: u64) {
        let mut recorded = lock(&self.0);
        match &mut *recorded {
            Recorded::Many(histogram) => histogram.saturating_record(ns),
            Recorded::Few(latencies) => {
                latencies.push(ns);
                if latencies.len() > FEW {
                    *recorded = Recorded::Many(Box::new(histogram(latencies)));
                }
            }
        }
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let recorded = lock(&self.0);
        let of = |histogram: &Histogram<u64>| LatencySummary {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        };
        match &*recorded {
            Recorded::Few(latencies) if latencies.is_empty() => LatencySummary::default(),
            Recorded::Few(latencies) => of(&histogram(latencies)),
            Recorded::Many(histogram) => of(histogram),
        }
    }
}

/// A distribution of latencies in four numbers, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencySummary {
    /// Number of measurements.
    pub count: u64,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds; means little below a thousand measurements.
    pub p99_ns: u64,
    /// The largest latency, in nanoseconds.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_latencies_have_the_summary_of_their_histogram() {
        let latencies = Latencies::default();
        assert_eq!(latencies.summary(), LatencySummary::default());
        for n in 1..=FEW as u64 {
            latencies.record(n * 1_000_000);
        }
        assert!(matches!(*lock(&latencies.0), Recorded::Few(_)));
        let few = latencies.summary();
        assert_eq!(few.count, FEW as u64);
        // The histogram keeps two digits.
        assert!((15_800_000..=16_300_000).contains(&few.p50_ns), "{few:?}");
        assert!((31_600_000..=32_500_000).contains(&few.max_ns), "{few:?}");
        // One more latency in the middle, and two beyond the bounds.
        for ns in [16_000_000, 1, u64::MAX] {
            latencies.record(ns);
        }
        assert!(matches!(*lock(&latencies.0), Recorded::Many(_)));
        let many = latencies.summary();
        assert_eq!((many.count, many.p50_ns), (few.count + 3, few.p50_ns));
        assert!(many.max_ns >= 59_000_000_000, "{many:?}");
    }
}
