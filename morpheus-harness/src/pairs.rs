//! Two ways to do something, measured in pairs, and what may be said of the difference.
//!
//! Each pair is one measurement of either way (in the order A B B A …, see [`crate::order`]) and its figure is the
//! relative difference. A control compares A with itself in the same way: what it shows is noise, and no verdict is
//! given inside it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::Median;
use crate::unit::Unit;

/// Fewer pairs give no verdict.
pub const LEAST_PAIRS: usize = 10;

/// Relative differences of pairs, and of a control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    /// (B − A) / A of each pair.
    pub differences: Vec<f64>,
    /// The same of two measurements of A.
    pub control: Vec<f64>,
}

/// The verdict on the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing: there are too few.
    TooFew {
        /// Pairs, of the control if those are fewer.
        pairs: usize,
    },
    /// A difference, if there is one, is smaller than what A differs from itself.
    InsideNoise {
        /// B against A.
        difference: Median,
        /// How far from 0 the control's median may lie.
        noise: f64,
    },
    /// B takes more, or less where the difference is negative.
    Differs {
        /// B against A.
        difference: Median,
        /// How far from 0 the control's median may lie.
        noise: f64,
    },
}

/// Whether something costs no more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bar {
    /// The whole interval keeps to the bar, and the noise of a control, if there is one, is smaller than it.
    Met,
    /// The whole interval is beyond it, and beyond the noise of a control, if there is one.
    Missed,
    /// It is in the interval, or the noise is greater than it, or there are too few pairs.
    Undecided,
}

impl Pairs {
    /// Counts a pair and one of the control; what is no positive number is left out.
    pub fn push(&mut self, a: f64, b: f64, a_again: f64) {
        if a > 0.0 && b.is_finite() && a_again.is_finite() {
            self.differences.push(b / a - 1.0);
            self.control.push(a_again / a - 1.0);
        }
    }

    /// The verdict on these pairs.
    pub fn verdict(&self) -> Verdict {
        let pairs = self.differences.len().min(self.control.len());
        let medians = Median::of(&self.differences).zip(Median::of(&self.control));
        let Some((difference, control)) = medians.filter(|_| pairs >= LEAST_PAIRS) else {
            return Verdict::TooFew { pairs };
        };
        let noise = control.low.abs().max(control.high.abs());
        if difference.low > noise || difference.high < -noise {
            Verdict::Differs { difference, noise }
        } else {
            Verdict::InsideNoise { difference, noise }
        }
    }
}

impl Verdict {
    /// Whether B takes at most `limit` more than A, as a share of A. Where B takes less beyond the noise it does, however
    /// great the noise is.
    pub fn judge(&self, limit: f64) -> Bar {
        match *self {
            Self::TooFew { .. } => Bar::Undecided,
            Self::Differs { difference, .. } if difference.high < 0.0 => Bar::Met,
            Self::InsideNoise { difference, noise } | Self::Differs { difference, noise } => {
                if difference.low > limit.max(noise) {
                    Bar::Missed
                } else if difference.high <= limit && noise <= limit {
                    Bar::Met
                } else {
                    Bar::Undecided
                }
            }
        }
    }

    /// The same of what is counted the other way round.
    fn mirrored(mut self) -> Self {
        if let Self::InsideNoise { difference, .. } | Self::Differs { difference, .. } = &mut self {
            *difference = Median {
                median: -difference.median,
                low: -difference.high,
                high: -difference.low,
            };
        }
        self
    }
}

/// The limit that a ratio, B to A, is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// It is to be no greater.
    AtMost(f64),
    /// It is to be no less.
    AtLeast(f64),
}

impl Limit {
    /// Whether the ratio keeps to it: only where the whole interval does.
    pub fn judge(self, verdict: &Verdict) -> Bar {
        match self {
            Self::AtMost(limit) => verdict.judge(limit - 1.0),
            Self::AtLeast(limit) => verdict.mirrored().judge(1.0 - limit),
        }
    }

    /// Whether a figure keeps to it that lies in this interval.
    pub fn judge_interval(self, low: f64, high: f64) -> Bar {
        let (is_met, is_missed) = match self {
            Self::AtMost(limit) => (high <= limit, low > limit),
            Self::AtLeast(limit) => (low >= limit, high < limit),
        };
        match (is_met, is_missed) {
            (true, _) => Bar::Met,
            (_, true) => Bar::Missed,
            _ => Bar::Undecided,
        }
    }

    /// For people, of a figure in this unit.
    pub fn show(self, unit: Unit) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {}", unit.show(limit)),
            Self::AtLeast(limit) => format!("at least {}", unit.show(limit)),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "at most {limit:.3}"),
            Self::AtLeast(limit) => write!(f, "at least {limit:.3}"),
        }
    }
}

/// A share in percent with its sign, to as many digits as small ones need.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        x if x >= 10.0 => format!("{percent:+.0} %"),
        x if x >= 0.1 => format!("{percent:+.2} %"),
        _ => format!("{percent:+.4} %"),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Median { median, low, high }, noise, finding) = match *self {
            Self::TooFew { pairs } => {
                return write!(f, "n too small: {pairs} pairs, {LEAST_PAIRS} are needed");
            }
            Self::InsideNoise { difference, noise } => {
                (difference, noise, ": no difference beyond the noise")
            }
            Self::Differs { difference, noise } => (difference, noise, ""),
        };
        let [median, low, high, noise] = [median, low, high, noise].map(percent);
        let noise = noise.trim_start_matches('+');
        write!(f, "{median} ({low} to {high}; A/A ±{noise}){finding}")
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::uniform;

    /// Pairs where B is `factor` times A, and everything is disturbed by up to `noise`.
    fn pairs(n: usize, factor: f64, noise: f64, seed: u64) -> Pairs {
        let mut numbers = uniform(seed);
        let mut disturbed = move || 100.0 * (1.0 + noise * (numbers.next().unwrap() * 2.0 - 1.0));
        let mut pairs = Pairs::default();
        for _ in 0..n {
            pairs.push(disturbed(), disturbed() * factor, disturbed());
        }
        pairs
    }

    #[test]
    fn few_pairs_say_nothing() {
        let verdict = pairs(9, 2.0, 0.01, 1).verdict();
        assert_eq!(verdict, Verdict::TooFew { pairs: 9 });
        assert_eq!(verdict.judge(0.01), Bar::Undecided);
        assert!(verdict.to_string().contains("n too small: 9"));
    }

    #[test]
    fn a_real_difference_is_seen_and_judged() {
        let verdict = pairs(20, 1.10, 0.02, 2).verdict();
        let Verdict::Differs { difference, .. } = verdict else {
            panic!("{verdict}");
        };
        assert!(difference.low > 0.06 && difference.high < 0.14, "{verdict}");
        assert_eq!(
            [0.05, 0.2].map(|x| verdict.judge(x)),
            [Bar::Missed, Bar::Met]
        );
    }

    /// No difference is claimed where there is none: at most one in twenty by the interval alone, fewer with the
    /// control.
    #[test]
    fn noise_gives_no_verdict() {
        let claimed = (0..200)
            .filter(|seed| {
                matches!(
                    pairs(20, 1.0, 0.05, *seed).verdict(),
                    Verdict::Differs { .. }
                )
            })
            .count();
        assert!(claimed <= 6, "{claimed} of 200");
    }

    #[test]
    fn a_bar_below_the_noise_is_undecided() {
        let verdict = pairs(20, 1.0, 0.05, 5).verdict();
        assert!(matches!(verdict, Verdict::InsideNoise { .. }));
        assert_eq!(
            [0.0005, 0.5].map(|x| verdict.judge(x)),
            [Bar::Undecided, Bar::Met]
        );
    }

    #[test]
    fn a_ratio_has_to_keep_to_its_limit_with_its_whole_interval() {
        let judge = |limit: Limit, factor: f64, noise: f64| {
            limit.judge(&pairs(20, factor, noise, 3).verdict())
        };
        let (most, least) = (Limit::AtMost(1.05), Limit::AtLeast(0.95));
        for (limit, met, missed) in [(most, 1.0, 1.2), (least, 1.0, 0.8)] {
            assert_eq!(judge(limit, met, 0.01), Bar::Met, "{limit}");
            assert_eq!(judge(limit, missed, 0.01), Bar::Missed, "{limit}");
            assert_eq!(judge(limit, met, 0.3), Bar::Undecided, "{limit}");
        }
        // Part of the interval reaches it.
        assert_eq!(judge(least, 0.95, 0.05), Bar::Undecided);
        assert_eq!(most.judge_interval(1.0, 1.05), Bar::Met);
        assert_eq!(most.judge_interval(1.0, 1.06), Bar::Undecided);
        assert_eq!(least.judge_interval(0.8, 0.94), Bar::Missed);
        // Better beyond the noise.
        assert_eq!(judge(least, 1.5, 0.2), Bar::Met);
        assert_eq!(judge(most, 0.5, 0.2), Bar::Met);
    }

    #[test]
    fn what_was_not_measured_is_no_pair() {
        let mut pairs = Pairs::default();
        pairs.push(0.0, 1.0, 1.0);
        pairs.push(1.0, f64::NAN, 1.0);
        assert_eq!(pairs, Pairs::default());
    }
}
