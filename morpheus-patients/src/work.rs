//! Work that takes a given time on any machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Makes the rounds of a computation differ, so that a compiler can neither skip nor shorten it.
pub const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// How many rounds of `work` take at least `length` on this machine.
///
/// The fastest of several trials counts, because disturbances only add time.
#[must_use]
pub fn rounds_for(length: Duration, work: impl Fn(u64)) -> u64 {
    const TRIAL: u64 = 1 << 18;
    let time = |_| {
        let began = Instant::now();
        // Without this a call that always gives the same is made once for all trials, and the others take no time.
        work(black_box(TRIAL));
        began.elapsed()
    };
    let fastest = (0..32).map(time).min().unwrap_or_default();
    let rounds = u128::from(TRIAL) * length.as_nanos() / fastest.as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(u64::MAX).max(1)
}
