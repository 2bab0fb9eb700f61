// SPDX-License-Identifier: GPL-2.0-only
//! How often a peer may ask: a token bucket.

use std::time::{Duration, Instant};

/// A bucket that refills at a constant rate.
#[derive(Debug, Clone)]
pub struct Bucket {
    capacity: u32,
    tokens: u32,
    /// How long one token takes to come back.
    interval: Duration,
    /// When the tokens were last counted.
    counted: Instant,
}

impl Bucket {
    /// A full bucket of `capacity` tokens, `per_second` of which come back in a second. None, and it never refills.
    #[must_use]
    pub fn new(capacity: u32, per_second: u32, now: Instant) -> Bucket {
        let interval = Duration::from_secs(1)
            .checked_div(per_second)
            .unwrap_or(Duration::MAX);
        Bucket {
            capacity,
            tokens: capacity,
            interval,
            counted: now,
        }
    }

    /// Takes a token. Returns whether there was one.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let some = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        some
    }

    /// Whether every token is back.
    #[must_use]
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens == self.capacity
    }

    /// Adds tokens, once, and room for them.
    pub fn enlarge(&mut self, by: u32) {
        self.capacity = self.capacity.saturating_add(by);
        self.tokens = self.tokens.saturating_add(by);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted);
        let came = passed.as_nanos() / self.interval.as_nanos().max(1);
        let room = self.capacity - self.tokens;
        if came >= u128::from(room) {
            self.tokens = self.capacity;
            self.counted = now;
        } else {
            // Less than the room, so it fits. The rest of an interval goes on counting.
            let came = came as u32;
            self.tokens += came;
            self.counted += self.interval.saturating_mul(came);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::new(3, 100, start);
        assert!(bucket.is_full(start));
        assert_eq!(
            [true, true, true, false],
            [0; 4].map(|ms| bucket.take(at(ms)))
        );
        assert!(!bucket.take(at(9)) && !bucket.is_full(at(9)));
        assert!(bucket.take(at(10)));
        assert!(
            !bucket.take(at(19)),
            "the rest of an interval is not forgotten"
        );
        assert!(bucket.take(at(20)));
        // Never more than it holds.
        assert_eq!(
            [true, true, true, false],
            [60_000; 4].map(|ms| bucket.take(at(ms)))
        );
    }

    #[test]
    fn fractions_of_an_interval_add_up() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1, 1000, start);
        let taken = (0..10_000u64)
            .filter(|step| bucket.take(start + Duration::from_micros(step * 100)))
            .count();
        assert!((1000..=1001).contains(&taken), "{taken}");
    }

    #[test]
    fn no_rate_means_the_burst_only() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1, 0, start);
        assert!(bucket.take(start));
        assert!(!bucket.take(start + Duration::from_secs(1 << 30)));
        bucket.enlarge(1);
        assert!(bucket.take(start));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(5);
        let mut bucket = Bucket::new(1, 1000, start);
        assert!(bucket.take(start));
        assert!(!bucket.take(start));
        assert!(!bucket.take(start - Duration::from_secs(5)));
    }
}
