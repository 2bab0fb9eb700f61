//! What a set of readings says: extremes, mean, median, and how sure the median is.
//!
//! The interval of the median is made of two of the readings, by their ranks (a binomial count of how many lie below the
//! true median). It assumes no distribution, so that a few readings that were disturbed do not widen it.

use serde::Serialize;

use crate::histogram::median;
use crate::stats;

/// A set of readings in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Readings.
    pub n: usize,
    /// The least.
    pub min_ns: f64,
    /// The greatest.
    pub max_ns: f64,
    /// Their mean.
    pub mean_ns: f64,
    /// Their median.
    pub median_ns: f64,
    /// Where the true median is, with a confidence of 95 %; `None` when there are too few readings to tell.
    pub interval_ns: Option<(f64, f64)>,
}

impl Figure {
    /// Of these readings; `None` of nothing.
    pub fn of(readings: &[f64]) -> Option<Self> {
        let mut sorted = readings.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min_ns, max_ns) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        Some(Self {
            n,
            min_ns,
            max_ns,
            mean_ns: stats::mean(&sorted)?,
            interval_ns: ranks(n).map(|(low, high)| (sorted[low], sorted[high])),
            median_ns: median(sorted)?,
        })
    }

    /// The same readings, each divided by `divisor`.
    pub fn divided(&self, divisor: f64) -> Self {
        Self {
            n: self.n,
            min_ns: self.min_ns / divisor,
            max_ns: self.max_ns / divisor,
            mean_ns: self.mean_ns / divisor,
            median_ns: self.median_ns / divisor,
            interval_ns: self
                .interval_ns
                .map(|(low, high)| (low / divisor, high / divisor)),
        }
    }

    /// Whether it is surely more than nothing: its interval lies above 0, and above all of the interval of `same`, the
    /// difference of two readings of the same thing.
    pub fn is_positive_beside(&self, same: &Figure) -> bool {
        match (self.interval_ns, same.interval_ns) {
            (Some((low, _)), Some((a, b))) => low > 0.0 && low > a.abs().max(b.abs()),
            _ => false,
        }
    }
}

/// The indices, in sorted order, of the two of `n` readings between which the true median lies with 95 %.
fn ranks(n: usize) -> Option<(usize, usize)> {
    stats::rank(n).map(|low| (low, n - 1 - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Textbooks' 95 % intervals for a median, counted from 1: 6 → 1 and 6, 10 → 2 and 9, 20 → 6 and 15, 100 → 40 and 61.
        assert_eq!(ranks(0), None);
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((0, 5)));
        assert_eq!(ranks(10), Some((1, 8)));
        assert_eq!(ranks(20), Some((5, 14)));
        assert_eq!(ranks(100), Some((39, 60)));
        // Normal approximation: 5,000 ± 0.98 × √10,000.
        let (low, high) = ranks(10_000).unwrap();
        assert!(low.abs_diff(4_901) <= 2 && high == 9_999 - low, "{low}");
    }

    #[test]
    fn a_figure_has_what_it_says() {
        let readings: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let figure = Figure::of(&readings).unwrap();
        assert_eq!(
            (figure.n, figure.min_ns, figure.max_ns, figure.mean_ns),
            (100, 1.0, 100.0, 50.5)
        );
        assert_eq!(figure.median_ns, 50.5);
        assert_eq!(figure.interval_ns, Some((40.0, 61.0)));
        assert_eq!(figure.divided(2.0).interval_ns, Some((20.0, 30.5)));
        assert_eq!(Figure::of(&[]), None);
        assert_eq!(Figure::of(&[1.0; 5]).unwrap().interval_ns, None);
    }

    /// Of many sets of readings around a known median, the intervals of about 95 % hold it.
    #[test]
    fn the_interval_covers_the_median_as_often_as_it_says() {
        let mut random = crate::overhead::random::Random::new(7);
        let trials = 2_000;
        let held = (0..trials)
            .filter(|_| {
                // Skewed: the square of a uniform number, whose median is 1/4.
                let readings: Vec<f64> = (0..50)
                    .map(|_| (random.below(1 << 20) as f64 / f64::from(1 << 20)).powi(2))
                    .collect();
                let (low, high) = Figure::of(&readings).unwrap().interval_ns.unwrap();
                (low..=high).contains(&0.25)
            })
            .count();
        let share = held as f64 / f64::from(trials);
        assert!((0.94..=0.98).contains(&share), "{share}");
    }

    #[test]
    fn nothing_is_positive_inside_the_noise() {
        let figure = |low: f64, high: f64| Figure {
            n: 100,
            min_ns: low,
            max_ns: high,
            mean_ns: low,
            median_ns: low,
            interval_ns: Some((low, high)),
        };
        assert!(figure(5.0, 6.0).is_positive_beside(&figure(-1.0, 1.0)));
        assert!(!figure(5.0, 6.0).is_positive_beside(&figure(-7.0, 1.0)));
        assert!(!figure(-1.0, 6.0).is_positive_beside(&figure(0.0, 0.0)));
        let few = Figure::of(&[5.0]).unwrap();
        assert!(!few.is_positive_beside(&figure(0.0, 0.0)));
    }
}
