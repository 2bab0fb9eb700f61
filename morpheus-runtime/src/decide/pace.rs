//! The pace of the controller: when it takes its next sample.
//!
//! It samples once a millisecond, and less often while nothing has stalled and a worker is parked, or while many polls
//! are under way. Between two samples there is an early one when a poll of a slow label will have used up its budget.

/// The interval between two samples. A fifth of it costs 8.5 % of a core and finds nothing sooner that matters.
const SAMPLE_NS: u64 = 1_000_000;
/// The least time between two naps.
const SHORTEST_NAP_NS: u64 = 200_000;
/// The interval is doubled this often on a healthy runtime with a parked worker: the next task to come has a worker to
/// serve it, and a thread that wakes a thousand times a second costs a service that is mostly idle a third of its CPU time.
const HEALTHY_SHIFT: usize = 2;
/// The interval is doubled for each of this many polls under way, twice at most.
const BUSY_POLLS: usize = 64;
/// The first intervals after a sleep, last one first, in nanoseconds. The sample right after the sleep counts the parks, the
/// second finds that no worker has parked since and sends a canary, and the third finds the canary late (0.4 ms). So a stall
/// after a quiet time is replaced within a millisecond.
const AFTER_SLEEP_NS: [u64; 2] = [410_000, 100_000];

/// The next sample, and the next early one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    sample_ns: u64,
    early_ns: Option<u64>,
    /// The intervals of [`AFTER_SLEEP_NS`] that are still to come.
    short: usize,
}

impl Pace {
    /// After a sleep that ends now: the first sample comes at once.
    pub(crate) fn begin(now_ns: u64) -> Pace {
        Pace {
            sample_ns: now_ns,
            early_ns: None,
            short: AFTER_SLEEP_NS.len(),
        }
    }

    /// The end of a nap that begins now.
    pub(crate) fn wake_ns(&self, now_ns: u64) -> u64 {
        let shortest_ns = now_ns + SHORTEST_NAP_NS;
        match self.early_ns {
            Some(early_ns) => early_ns.clamp(shortest_ns, self.sample_ns.max(shortest_ns)),
            None => self.sample_ns,
        }
    }

    pub(crate) fn is_sample_due(&self, now_ns: u64) -> bool {
        now_ns >= self.sample_ns
    }

    pub(crate) fn is_early_sample_due(&self, now_ns: u64) -> bool {
        self.early_ns.is_some_and(|early_ns| early_ns <= now_ns)
    }

    /// After an early sample: the next one.
    pub(crate) fn plan_early(&mut self, now_ns: u64, early_ns: Option<u64>) {
        self.early_ns = early_ns.filter(|&early_ns| early_ns > now_ns);
    }

    /// After a sample that found `busy` polls under way.
    pub(crate) fn plan(&mut self, now_ns: u64, busy: usize, is_healthy: bool) {
        let interval_ns = match self.short.checked_sub(1) {
            Some(left) => {
                self.short = left;
                AFTER_SLEEP_NS[left]
            }
            None if is_healthy && busy == 0 => SAMPLE_NS << HEALTHY_SHIFT,
            None => SAMPLE_NS << (busy / BUSY_POLLS).min(2),
        };
        self.sample_ns = now_ns + interval_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A pace whose first intervals after a sleep are over, with a sample due at 1 ms.
    fn settled() -> Pace {
        Pace {
            sample_ns: MS,
            early_ns: None,
            short: 0,
        }
    }

    #[test]
    fn a_stall_after_a_sleep_is_found_within_a_millisecond() {
        let mut pace = Pace::begin(0);
        let mut at_ns = Vec::new();
        for _ in 0..4 {
            let now_ns = pace.wake_ns(at_ns.last().copied().unwrap_or(0));
            assert!(pace.is_sample_due(now_ns));
            at_ns.push(now_ns);
            pace.plan(now_ns, 0, true);
        }
        let [first, second, third, fourth] = at_ns[..] else {
            unreachable!("four samples");
        };
        assert_eq!(first, 0);
        // A canary that the second sample sends is late by 0.4 ms in the third, which leaves time to release a spare.
        assert!(third - second > MS * 2 / 5 && third < MS * 6 / 10);
        assert_eq!(fourth - third, 4 * MS, "and the pace is that of before");
    }

    #[test]
    fn samples_are_fewer_on_a_healthy_runtime_and_with_many_polls() {
        let interval = |busy, is_healthy| {
            let mut pace = settled();
            pace.plan(10 * MS, busy, is_healthy);
            assert!(!pace.is_sample_due(10 * MS));
            pace.wake_ns(10 * MS) - 10 * MS
        };
        assert_eq!(interval(0, false), MS);
        assert_eq!(interval(0, true), 4 * MS);
        assert_eq!(interval(1, true), MS);
        assert_eq!(interval(64, true), 2 * MS);
        assert_eq!(
            (interval(128, false), interval(9_999, false)),
            (4 * MS, 4 * MS)
        );
    }

    #[test]
    fn an_early_sample_ends_the_nap_but_no_nap_is_tiny() {
        let mut pace = settled();
        pace.plan_early(0, Some(MS / 2));
        assert_eq!(pace.wake_ns(0), MS / 2);
        assert!(pace.is_early_sample_due(MS / 2) && !pace.is_sample_due(MS / 2));
        pace.plan_early(0, Some(1));
        assert_eq!(pace.wake_ns(0), SHORTEST_NAP_NS);
        pace.plan_early(0, Some(MS * 9));
        assert_eq!(pace.wake_ns(0), MS, "the sample comes first");
        // Late for its sample, the controller naps all the same.
        assert_eq!(pace.wake_ns(2 * MS), 2 * MS + SHORTEST_NAP_NS);
        pace.plan_early(MS, Some(MS));
        assert!(
            !pace.is_early_sample_due(MS),
            "what is due already is seen now"
        );
    }
}
