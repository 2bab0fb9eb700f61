// SPDX-License-Identifier: GPL-2.0-only
//! The kind of load that the machine is under, from the idle share of its time.
//!
//! A load near a bound would switch the knobs at every look. Two things prevent it: a Schmitt trigger (a regime is left at
//! another share than it is entered), and a hold (two looks in a row must say the same).

use std::fmt;

/// More of it idle than this, and the load is light.
pub const LIGHT_ABOVE: f64 = 0.50;
/// Less of it idle than this, and a light load is light no more.
pub const LIGHT_UNTIL: f64 = 0.40;
/// Less of it idle than this, and the load is heavy.
pub const HEAVY_BELOW: f64 = 0.10;
/// More of it idle than this, and a heavy load is heavy no more.
pub const HEAVY_UNTIL: f64 = 0.20;
/// As many looks in a row must ask for the same regime.
pub const HOLD_LOOKS: u32 = 2;

/// A kind of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regime {
    /// There is an idle CPU for nearly every task that wakes.
    Light,
    /// Some of both; where scheduling decides what people notice.
    #[default]
    Mixed,
    /// Hardly a CPU is ever idle.
    Heavy,
}

impl Regime {
    /// All of them.
    pub const ALL: [Regime; 3] = [Regime::Light, Regime::Mixed, Regime::Heavy];

    /// Its name in what is handed out to people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Regime::Light => "light",
            Regime::Mixed => "mixed",
            Regime::Heavy => "heavy",
        }
    }

    /// The regime that a share of idle time asks for, when this one is in force. NaN asks for nothing new.
    #[must_use]
    pub fn asked_by(self, idle_share: f64) -> Regime {
        // Written so that a comparison with NaN, which is false, keeps the present one.
        match self {
            Regime::Light if idle_share < HEAVY_BELOW => Regime::Heavy,
            Regime::Light if idle_share < LIGHT_UNTIL => Regime::Mixed,
            Regime::Mixed if idle_share > LIGHT_ABOVE => Regime::Light,
            Regime::Mixed if idle_share < HEAVY_BELOW => Regime::Heavy,
            Regime::Heavy if idle_share > LIGHT_ABOVE => Regime::Light,
            Regime::Heavy if idle_share > HEAVY_UNTIL => Regime::Mixed,
            present => present,
        }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Which regime is in force, and how many looks have asked for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detector {
    present: Regime,
    asked: Regime,
    /// How many looks in a row asked for it; 0 where it is the present one.
    asked_looks: u32,
}

impl Detector {
    /// The regime in force.
    #[must_use]
    pub fn regime(&self) -> Regime {
        self.present
    }

    /// Takes a look, and returns the regime that is in force from now on.
    pub fn look(&mut self, idle_share: f64) -> Regime {
        let asked = self.present.asked_by(idle_share);
        if asked == self.present {
            self.asked_looks = 0;
        } else if asked == self.asked && self.asked_looks > 0 {
            self.asked_looks += 1;
        } else {
            self.asked_looks = 1;
        }
        self.asked = asked;
        if self.asked_looks >= HOLD_LOOKS {
            self.present = asked;
            self.asked_looks = 0;
        }
        self.present
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_force(regime: Regime) -> Detector {
        Detector {
            present: regime,
            asked: regime,
            asked_looks: 0,
        }
    }

    #[test]
    fn entered_and_left_at_different_shares() {
        use Regime::{Heavy, Light, Mixed};
        for (present, idle_share, asked) in [
            (Mixed, 0.51, Light),
            (Mixed, 0.50, Mixed),
            (Light, 0.41, Light),
            (Light, 0.39, Mixed),
            (Mixed, 0.10, Mixed),
            (Mixed, 0.09, Heavy),
            (Heavy, 0.19, Heavy),
            (Heavy, 0.21, Mixed),
            (Heavy, 0.60, Light),
            (Light, 0.05, Heavy),
            (Light, f64::NAN, Light),
            (Mixed, f64::NAN, Mixed),
            (Heavy, f64::NAN, Heavy),
        ] {
            assert_eq!(
                present.asked_by(idle_share),
                asked,
                "{present} {idle_share}"
            );
        }
    }

    #[test]
    fn two_looks_in_a_row() {
        let mut detector = Detector::default();
        assert_eq!(detector.look(0.9), Regime::Mixed);
        assert_eq!(detector.look(0.3), Regime::Mixed);
        assert_eq!(detector.look(0.9), Regime::Mixed);
        assert_eq!(detector.look(0.0), Regime::Mixed, "asked for another one");
        assert_eq!(detector.look(0.9), Regime::Mixed);
        assert_eq!(detector.look(0.9), Regime::Light);
        assert_eq!(detector.look(0.0), Regime::Light);
        assert_eq!(detector.look(0.0), Regime::Heavy);
    }

    proptest! {
        #[test]
        fn never_flips_within_a_band(
            shares in proptest::collection::vec(LIGHT_UNTIL..=LIGHT_ABOVE, 1..50),
            heavier in proptest::collection::vec(HEAVY_BELOW..=HEAVY_UNTIL, 1..50),
        ) {
            for start in [Regime::Light, Regime::Mixed] {
                let mut detector = in_force(start);
                prop_assert!(shares.iter().all(|share| detector.look(*share) == start));
            }
            for start in [Regime::Heavy, Regime::Mixed] {
                let mut detector = in_force(start);
                prop_assert!(heavier.iter().all(|share| detector.look(*share) == start));
            }
        }

        #[test]
        fn one_look_alone_never_switches(
            start in proptest::sample::select(Regime::ALL.to_vec()),
            shares in proptest::collection::vec(any::<f64>(), 1..50),
        ) {
            let mut detector = in_force(start);
            let regimes: Vec<_> = shares.iter().map(|share| detector.look(*share)).collect();
            prop_assert_eq!(regimes[0], start);
            // Two switches have two looks between them.
            for three in regimes.windows(3) {
                prop_assert!(three[0] == three[1] || three[1] == three[2]);
            }
        }

        #[test]
        fn a_constant_share_settles(
            start in proptest::sample::select(Regime::ALL.to_vec()),
            share in any::<f64>(),
        ) {
            let mut detector = in_force(start);
            for _ in 0..2 * HOLD_LOOKS {
                detector.look(share);
            }
            let settled = detector.regime();
            prop_assert!((0..20).all(|_| detector.look(share) == settled));
        }
    }
}
