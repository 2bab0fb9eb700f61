// SPDX-License-Identifier: GPL-2.0-only
//! Pseudo-random numbers that are the same in each run.

/// A linear congruential generator; its upper bits are good enough for tests.
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random {
            state: seed ^ 0x9e37_79b9_7f4a_7c15,
        }
    }

    pub fn next(&mut self) -> u64 {
        let mut half = || {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.state >> 32
        };
        half() << 32 | half()
    }

    /// From 0 to less than `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
