// SPDX-License-Identifier: GPL-2.0-only
//! Shorter slices while wakes wait too long, and the way back.
//!
//! Too long a wait is answered at once, by a quarter. The way back is slow, in steps and only after two calm seconds:
//! what made the waits long is mostly still there, and slices that swing with every look help no task.

use crate::adapt::knobs::SLICE_FLOOR_NS;
use crate::adapt::regime::Regime;

/// One step of the way back.
pub const RELAX_STEP_NS: u64 = 500_000;
/// As long must waits have been short before the first step back.
pub const RELAX_AFTER_NS: u64 = 2_000_000_000;

/// How long the slowest hundredth of wakes may wait in a regime. It is compared with an estimate that is right to a factor
/// of two, so within that of the ceiling either may happen.
#[must_use]
pub const fn p99_ceiling_ns(regime: Regime) -> u64 {
    match regime {
        Regime::Light => 3_000_000,
        Regime::Mixed => 5_000_000,
        Regime::Heavy => 10_000_000,
    }
}

/// Whether slices are shortened in a regime. In a light one long waits are not for a CPU; in a heavy one all tasks wait,
/// and shorter slices would only add switches.
#[must_use]
pub const fn tightens(regime: Regime) -> bool {
    matches!(regime, Regime::Mixed)
}

/// A slice that is tightened and relaxed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    slice_ns: u64,
    /// For how long waits have been short.
    calm_ns: u64,
}

impl Slice {
    /// A slice at its baseline.
    #[must_use]
    pub fn new(baseline_ns: u64) -> Slice {
        Slice {
            slice_ns: baseline_ns,
            calm_ns: 0,
        }
    }

    /// The slice as it stands.
    #[must_use]
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Wakes waited too long: a quarter shorter.
    pub fn tighten(&mut self) {
        self.calm_ns = 0;
        let shorter_ns = self.slice_ns - self.slice_ns / 4;
        // A baseline that is shorter still stays what it is.
        self.slice_ns = shorter_ns.max(SLICE_FLOOR_NS).min(self.slice_ns);
    }

    /// Something is going on that says nothing about the slice: the calm begins anew.
    pub fn hold(&mut self) {
        self.calm_ns = 0;
    }

    /// Waits were short for `elapsed_ns` more: after two seconds of that, a step back at each look.
    pub fn relax(&mut self, baseline_ns: u64, elapsed_ns: u64) {
        self.calm_ns = self.calm_ns.saturating_add(elapsed_ns);
        if self.calm_ns >= RELAX_AFTER_NS {
            self.slice_ns = self.slice_ns.saturating_add(RELAX_STEP_NS).min(baseline_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_quarter_at_a_time_down_to_the_floor() {
        let mut slice = Slice::new(MS);
        let slices = [(); 6].map(|()| {
            slice.tighten();
            slice.slice_ns() / US
        });
        assert_eq!(slices, [750, 562, 421, 316, 250, 250]);
    }

    #[test]
    fn back_in_steps_after_two_calm_seconds() {
        let mut slice = Slice::new(4 * MS);
        for _ in 0..4 {
            slice.tighten();
        }
        let slices = [(); 8].map(|()| {
            slice.relax(4 * MS, SECOND);
            slice.slice_ns() / US
        });
        // 4 ms × (3/4)^4 is 1.265625 ms.
        assert_eq!(slices, [1265, 1765, 2265, 2765, 3265, 3765, 4000, 4000]);
    }

    #[test]
    fn what_is_no_calm_begins_the_wait_anew() {
        let mut slice = Slice::new(MS);
        slice.tighten();
        slice.relax(MS, SECOND);
        slice.hold();
        slice.relax(MS, SECOND);
        assert_eq!(slice.slice_ns(), 750 * US);
        slice.relax(MS, SECOND);
        assert_eq!(slice.slice_ns(), MS);
    }

    proptest! {
        #[test]
        fn calm_leads_exactly_back(
            baseline_ns in SLICE_FLOOR_NS..=4 * MS,
            tightened in 0..30,
            elapsed_ns in SECOND / 10..=10 * SECOND,
        ) {
            let mut slice = Slice::new(baseline_ns);
            for _ in 0..tightened {
                slice.tighten();
                prop_assert!((SLICE_FLOOR_NS..=baseline_ns).contains(&slice.slice_ns()));
            }
            for _ in 0..40 {
                let before_ns = slice.slice_ns();
                slice.relax(baseline_ns, elapsed_ns);
                prop_assert!(slice.slice_ns() - before_ns <= RELAX_STEP_NS);
            }
            prop_assert_eq!(slice.slice_ns(), baseline_ns);
        }
    }
}
