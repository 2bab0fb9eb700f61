//! Random numbers and orders that a seed repeats, on every machine and for ever.

use std::f64::consts::TAU;

/// A generator (SplitMix64), good enough to shuffle and to make signals with. Every seed is as good as any other.
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// A number below `limit` (0 for a limit of 0).
    pub fn below(&mut self, limit: usize) -> usize {
        // The high half of the product: as even as 64 bits allow.
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// Shuffles.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Of `n` places, the one that follows each, so that all lie on a single cycle.
    pub fn cycle(&mut self, n: usize) -> Vec<usize> {
        let mut next: Vec<usize> = (0..n).collect();
        // Sattolo's shuffle: a place is never exchanged with itself, which keeps one cycle.
        for last in (1..n).rev() {
            next.swap(last, self.below(last));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_goes_through_all_places_once() {
        for n in [1, 2, 3, 768, 4_096] {
            let next = Random::new(1).cycle(n);
            let mut seen = vec![false; n];
            let mut at = 0;
            for _ in 0..n {
                assert!(!std::mem::replace(&mut seen[at], true), "{n}: {at} twice");
                at = next[at];
            }
            assert_eq!(at, 0, "{n}: back at the start after all");
        }
        assert!(Random::new(1).cycle(0).is_empty());
    }

    /// The first outputs of splitmix64 for seed 0.
    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.bits(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn a_seed_repeats_its_order_and_another_has_another() {
        let of = |seed| Random::new(seed).cycle(1_000);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn numbers_are_below_the_limit_and_spread() {
        let mut random = Random::new(9);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[random.below(10)] += 1);
        assert!(
            counts.iter().all(|n| (850..1_150).contains(n)),
            "{counts:?}"
        );
        assert_eq!(random.below(0), 0);
        let mut items: Vec<usize> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
