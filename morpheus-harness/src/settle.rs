//! Warm-up: measuring until the median stays where it is.

use crate::histogram::median;

/// How many blocks in a row must agree.
const BLOCKS: usize = 3;

/// Takes samples and says when their median has settled: when the medians of the last three blocks differ by no more
/// than a share of their least.
#[derive(Clone, Debug)]
pub struct Settle {
    block: Vec<f64>,
    size: usize,
    medians: Vec<f64>,
    tolerance: f64,
}

impl Settle {
    /// Blocks of `size` samples, which agree within this share.
    pub fn new(size: usize, tolerance: f64) -> Self {
        Self {
            block: Vec::with_capacity(size),
            size: size.max(1),
            medians: Vec::new(),
            tolerance,
        }
    }

    /// Counts a sample; true when the median has settled.
    #[inline]
    pub fn feed(&mut self, sample: f64) -> bool {
        self.block.push(sample);
        if self.block.len() >= self.size {
            self.medians.extend(median(std::mem::take(&mut self.block)));
        }
        self.is_settled()
    }

    /// Whether it has.
    #[inline]
    pub fn is_settled(&self) -> bool {
        let Some(last) = self.medians.last_chunk::<BLOCKS>() else {
            return false;
        };
        let least = last.iter().copied().fold(f64::INFINITY, f64::min);
        let most = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most - least <= self.tolerance * least.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_end_of_a_slope_and_not_for_outliers() {
        let mut settle = Settle::new(5, 0.05);
        let mut slope = (0..20).map(|i| 100.0 - 4.0 * f64::from(i));
        assert!(!slope.any(|x| settle.feed(x)));
        // One outlier in each block moves no median.
        let flat = (0..15).map(|i| if i % 5 == 2 { 1e6 } else { 20.0 });
        let at = flat.map(|x| settle.feed(x)).position(|settled| settled);
        assert_eq!(at, Some(14));
    }

    #[test]
    fn noise_beyond_the_tolerance_never_settles() {
        let mut settle = Settle::new(1, 0.05);
        assert!(!(0..1_000).any(|i| settle.feed(if i % 2 == 0 { 1.0 } else { 2.0 })));
    }
}
