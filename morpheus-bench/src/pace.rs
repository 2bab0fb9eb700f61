//! Absolute deadlines: the times at which things are meant to happen, whatever happened before.
//!
//! Each is computed from the start and its number, so that neither a late wake nor rounding moves those after it.
//! Times are those of [`morpheus_harness::clock::monotonic_ns`].

/// Deadlines at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start_ns: u64,
    period_ns: f64,
    next: u64,
}

impl Pace {
    /// One deadline each period; the first is a period after the start.
    pub fn every(start_ns: u64, period_ns: u64) -> Self {
        Self {
            start_ns,
            period_ns: period_ns as f64,
            next: 1,
        }
    }

    /// `rate` deadlines a second. The rate must be positive.
    pub fn per_second(start_ns: u64, rate: f64) -> Self {
        Self {
            start_ns,
            period_ns: 1e9 / rate,
            next: 1,
        }
    }

    /// The deadline with this number; that of 0 is the start.
    pub fn at(&self, number: u64) -> u64 {
        // A double holds nanoseconds exactly for 104 days.
        self.start_ns + (number as f64 * self.period_ns) as u64
    }

    /// The number of the last deadline before a time, or of one close by.
    pub fn number_at(&self, ns: u64) -> u64 {
        (ns.saturating_sub(self.start_ns) as f64 / self.period_ns) as u64
    }

    /// The one that has not been taken yet.
    pub fn due(&self) -> u64 {
        self.at(self.next)
    }

    /// Takes a deadline.
    pub fn take(&mut self) -> u64 {
        let due = self.due();
        self.next += 1;
        due
    }

    /// Takes a deadline that is not later than now, if there is one: those that were missed come one by one.
    pub fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        (self.due() <= now_ns).then(|| self.take())
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.next - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_do_not_drift_at_an_uneven_rate() {
        let mut pace = Pace::per_second(5, 3.0);
        let last = (0..3_000_000).map(|_| pace.take()).last();
        assert_eq!(pace.taken(), 3_000_000);
        let off = last.unwrap().abs_diff(1_000_000_000_000_005);
        assert!(off <= 1, "{off} ns");
    }

    #[test]
    fn missed_deadlines_come_one_by_one_and_with_their_own_time() {
        let mut pace = Pace::every(1_000, 10);
        assert_eq!(pace.take_due(1_009), None);
        let taken: Vec<_> = std::iter::from_fn(|| pace.take_due(1_035)).collect();
        assert_eq!(taken, [1_010, 1_020, 1_030]);
        assert_eq!(pace.due(), 1_040);
        assert_eq!(
            [0, 1_000, 1_039, 1_040].map(|ns| pace.number_at(ns)),
            [0, 0, 3, 4]
        );
    }
}
