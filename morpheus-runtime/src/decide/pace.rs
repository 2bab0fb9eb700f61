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

/// The next sample, and the next early one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    sample_ns: u64,
    early_ns: Option<u64>,
}

impl Pace {
    /// The first sample comes an interval after `now_ns`.
    pub(crate) fn begin(now_ns: u64) -> Pace {
        Pace {
            sample_ns: now_ns + SAMPLE_NS,
            early_ns: None,
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
        let shift = if is_healthy && busy == 0 {
            HEALTHY_SHIFT
        } else {
            (busy / BUSY_POLLS).min(2)
        };
        self.sample_ns = now_ns + (SAMPLE_NS << shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn samples_are_fewer_on_a_healthy_runtime_and_with_many_polls() {
        let interval = |busy, is_healthy| {
            let mut pace = Pace::begin(0);
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
        let mut pace = Pace::begin(0);
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
