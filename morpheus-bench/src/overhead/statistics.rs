//! What a set of readings says: extremes, mean, median, and how sure the median is (see [`Median`]): the source's
//! figures, and what one needs to judge them.

use serde::Serialize;

use crate::histogram::median;
use crate::stats::{self, Median};

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
            interval_ns: Median::of(&sorted).map(|median| (median.low, median.high)),
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

#[cfg(test)]
mod tests {
    use super::*;

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
