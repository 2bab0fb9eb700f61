//! Statistics of a sample: mean, deviation, and where the median lies.

use serde::{Deserialize, Serialize};

use crate::histogram::median;

/// The chance that an interval contains what it is said to contain.
pub const CONFIDENCE: f64 = 0.95;

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample (the sum of squares over n − 1); `None` below two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// How a sample lies: its ends, its quartiles and its median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// A quarter is at most this.
    pub q1: f64,
    /// Half is.
    pub median: f64,
    /// Three quarters are.
    pub q3: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Between two values it interpolates by their distance. `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let [below, above] = [place.floor(), place.ceil()].map(|place| sorted[place as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self {
            min: sorted[0],
            q1: at(0.25),
            median: at(0.5),
            q3: at(0.75),
            max: sorted[last],
        })
    }

    /// The five numbers, from the least to the most, with the share of the sample that is at most that.
    pub fn quantiles(&self) -> [(f64, f64); 5] {
        [
            (0.0, self.min),
            (0.25, self.q1),
            (0.5, self.median),
            (0.75, self.q3),
            (1.0, self.max),
        ]
    }
}

/// The geometric mean; `None` of nothing and where a value is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let positive = values.iter().all(|value| *value > 0.0);
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    mean(&logarithms).filter(|_| positive).map(f64::exp)
}

/// A median, and the interval in which the median of all that could have been measured lies with [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Median {
    /// Of the sample.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Median {
    /// By ranks: the number of values below the true median is binomial, whatever their distribution. `None` below
    /// six values: no interval between two of five has this confidence.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = rank(sorted.len())?;
        Some(Self {
            median: median(values.to_vec())?,
            low: sorted[rank],
            high: sorted[sorted.len() - 1 - rank],
        })
    }
}

/// How many values may be cut off at either end: the most for which the binomial tails leave [`CONFIDENCE`].
pub fn rank(n: usize) -> Option<usize> {
    let each = (1.0 - CONFIDENCE) / 2.0;
    // In logarithms: 2⁻ⁿ is no double from n = 1,075 on.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    let mut fits = None;
    for k in 0..n.div_ceil(2) {
        tail += log_term.exp();
        if tail > each {
            break;
        }
        fits = Some(k);
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    fits
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Numbers from 0 to 1 that are the same in every run.
    pub(crate) fn uniform(seed: u64) -> impl Iterator<Item = f64> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        std::iter::repeat_with(move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    #[test]
    fn mean_and_deviation_of_known_numbers() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert!((deviation(&values).unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((mean(&[]), deviation(&[1.0])), (None, None));
    }

    #[test]
    fn quartiles_lie_between_values() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            spread.quantiles().map(|(_, value)| value),
            [1.0, 1.75, 2.5, 3.25, 4.0]
        );
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.min, one.q3, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn geometric_means_need_positive_numbers() {
        assert!((geometric_mean(&[1.0, 8.0, 1.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }

    #[test]
    fn ranks_are_those_of_the_binomial_tables() {
        let known = [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (10, Some(1)),
        ];
        let more = [(20, Some(5)), (50, Some(17)), (100, Some(39))];
        for (n, expected) in known.into_iter().chain(more) {
            assert_eq!(rank(n), expected, "{n}");
        }
        // Far beyond where 2⁻ⁿ can be written down: n / 2 − 0.98 √n.
        assert!(rank(1_000_000).unwrap().abs_diff(499_019) <= 2);
    }

    /// The median of an exponential distribution is ln 2; the interval contains it in 95 of 100 samples.
    #[test]
    fn intervals_contain_the_median_as_often_as_they_say() {
        let mut numbers = uniform(7);
        let samples = 2_000;
        let hits = (0..samples)
            .filter(|_| {
                let sample: Vec<f64> = (&mut numbers).take(30).map(|u| -(1.0 - u).ln()).collect();
                let median = Median::of(&sample).unwrap();
                median.low <= std::f64::consts::LN_2 && std::f64::consts::LN_2 <= median.high
            })
            .count();
        let share = hits as f64 / f64::from(samples);
        // 30 values give 95.7 %; the standard error of the share is 0.5 %.
        assert!((0.935..0.98).contains(&share), "{share}");
    }

    #[test]
    fn mean_and_deviation_of_a_uniform_distribution() {
        let values: Vec<f64> = uniform(3).take(100_000).collect();
        assert!((mean(&values).unwrap() - 0.5).abs() < 0.005);
        assert!((deviation(&values).unwrap() - (1.0f64 / 12.0).sqrt()).abs() < 0.005);
    }
}
