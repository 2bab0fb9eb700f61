// SPDX-License-Identifier: GPL-2.0-only
//! How long the oldest batch task may wait, from how often the scheduler dispatches.
//!
//! As in CoDel, what matters is how long one stands in the queue, not how long the queue is. Where dispatches are rare, a
//! short threshold would be over at each of them, and batch would always go first; so the threshold is four times the time
//! between two dispatches, smoothed, and never outside what the number of CPUs allows.

use crate::adapt::knobs::SOJOURN_START_NS;
use crate::scaling::Scaled;

/// The threshold is as many times the interval between two dispatches.
const INTERVALS: u64 = 4;
/// A new target moves the threshold by one part in as many.
const SMOOTHING: u64 = 8;

/// The threshold, smoothed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sojourn {
    thresh_ns: u64,
}

impl Sojourn {
    /// Where it starts.
    #[must_use]
    pub fn new(scaled: &Scaled) -> Sojourn {
        let mut sojourn = Sojourn {
            thresh_ns: SOJOURN_START_NS,
        };
        sojourn.rescale(scaled);
        sojourn
    }

    /// The threshold as it stands.
    #[must_use]
    pub fn thresh_ns(&self) -> u64 {
        self.thresh_ns
    }

    /// For another number of CPUs.
    pub fn rescale(&mut self, scaled: &Scaled) {
        self.thresh_ns = self
            .thresh_ns
            .clamp(scaled.sojourn_floor_ns, scaled.sojourn_ceiling_ns);
    }

    /// Takes a look: `dispatches` within `elapsed_ns`. Returns the threshold from now on. Without elapsed time nothing
    /// changes.
    pub fn look(&mut self, dispatches: u64, elapsed_ns: u64, scaled: &Scaled) -> u64 {
        if elapsed_ns > 0 {
            let target_ns = match elapsed_ns.checked_div(dispatches) {
                Some(interval_ns) => interval_ns.saturating_mul(INTERVALS),
                // Nothing was dispatched, so no task waited.
                None => scaled.sojourn_ceiling_ns,
            };
            let target_ns = target_ns.clamp(scaled.sojourn_floor_ns, scaled.sojourn_ceiling_ns);
            // Whole steps, the last one shorter, so that a constant rate is reached and not only approached.
            let step_ns = target_ns.abs_diff(self.thresh_ns).div_ceil(SMOOTHING);
            self.thresh_ns = if target_ns > self.thresh_ns {
                self.thresh_ns + step_ns
            } else {
                self.thresh_ns - step_ns
            };
        }
        self.thresh_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn starts_within_what_the_cpus_allow() {
        let starts = [1, 2, 4, 8].map(|cpus| Sojourn::new(&Scaled::for_cpus(cpus)).thresh_ns());
        assert_eq!(starts, [4 * MS, 4 * MS, 5 * MS, 6 * MS]);
    }

    #[test]
    fn goes_an_eighth_of_the_way() {
        let scaled = Scaled::for_cpus(4);
        let mut sojourn = Sojourn::new(&scaled);
        // 667 in a second: 1.5 ms between two, 6 ms for four.
        assert_eq!(sojourn.look(1000, 1500 * MS, &scaled), 5 * MS + MS / 8);
        // Too fast for the floor of 4 ms.
        let before_ns = sojourn.thresh_ns();
        assert_eq!(
            sojourn.look(100_000, SECOND, &scaled),
            before_ns - (before_ns - 4 * MS) / 8
        );
    }

    #[test]
    fn the_rate_is_by_the_time_that_passed() {
        let scaled = Scaled::for_cpus(4);
        let (mut one, mut two) = (Sojourn::new(&scaled), Sojourn::new(&scaled));
        assert_eq!(
            one.look(500, SECOND, &scaled),
            two.look(1500, 3 * SECOND, &scaled)
        );
    }

    #[test]
    fn no_time_and_no_dispatches() {
        let scaled = Scaled::for_cpus(4);
        let mut sojourn = Sojourn::new(&scaled);
        assert_eq!(sojourn.look(7, 0, &scaled), 5 * MS);
        assert!(sojourn.look(0, SECOND, &scaled) > 5 * MS);
    }

    #[test]
    fn fewer_cpus_clamp_it_at_once() {
        let mut sojourn = Sojourn::new(&Scaled::for_cpus(16));
        sojourn.rescale(&Scaled::for_cpus(2));
        assert_eq!(sojourn.thresh_ns(), 4 * MS);
    }

    proptest! {
        #[test]
        fn within_bounds_and_settles(
            cpus in 1..=512u32,
            looks in proptest::collection::vec(
                prop_oneof![any::<(u64, u64)>(), (0..3_000u64, Just(SECOND))],
                0..50,
            ),
            dispatches in prop_oneof![0..3_000u64, any::<u64>()],
        ) {
            let scaled = Scaled::for_cpus(cpus);
            let mut sojourn = Sojourn::new(&scaled);
            let bounds = scaled.sojourn_floor_ns..=scaled.sojourn_ceiling_ns;
            for (dispatches, elapsed_ns) in looks {
                prop_assert!(bounds.contains(&sojourn.look(dispatches, elapsed_ns, &scaled)));
            }
            for _ in 0..200 {
                sojourn.look(dispatches, SECOND, &scaled);
            }
            let target_ns = SECOND
                .checked_div(dispatches)
                .map_or(*bounds.end(), |interval_ns| 4 * interval_ns)
                .clamp(*bounds.start(), *bounds.end());
            prop_assert_eq!(sojourn.look(dispatches, SECOND, &scaled), target_ns);
        }
    }
}
