//! Computing: a calibrated amount of it, or as much as fits into a thread's CPU time.

use std::hint::black_box;
use std::time::Duration;

use morpheus_harness::clock;

/// Iterations between two looks at a clock: about 10 µs, so that the look costs 2 % and the end is exact.
const CHUNK: u64 = 5_000;
/// Iterations between two pauses.
const PIECE: u64 = 1_000;

/// Computes for this many iterations (one is about 2 ns). Real arithmetic rather than `spin_loop`: in a
/// virtual machine a loop of PAUSE instructions makes the hypervisor take the CPU away.
#[inline(never)]
pub fn compute(iterations: u64) -> u64 {
    let mut x = black_box(0x9E37_79B9_7F4A_7C15_u64);
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

/// Computes likewise, and lets the others go on where an emulator runs virtual CPUs in turn: it changes to the next one at such a
/// pause, and else only at the next timer, which would keep what one CPU tells another from it for milliseconds. One pause in
/// two microseconds costs next to nothing elsewhere.
pub fn compute_in_turn(iterations: u64) {
    let pieces = iterations.div_ceil(PIECE).max(1);
    for _ in 0..pieces {
        compute(iterations / pieces);
        std::hint::spin_loop();
    }
}

/// Iterations of [`compute`] in a microsecond of this CPU.
///
/// It is measured once and handed to every run, so that every runtime has exactly the same work to do.
pub fn iterations_per_us() -> f64 {
    const ITERATIONS: u64 = 200_000;
    let fastest = clock::fastest(20, || compute(ITERATIONS));
    ITERATIONS as f64 / (fastest.as_nanos().max(1) as f64 / 1e3)
}

/// Computes until the calling thread has used `duration` of CPU time. `tick` is told about every 10 µs
/// how much CPU time has gone by.
pub fn burn(duration: Duration, mut tick: impl FnMut(Duration)) {
    let start = clock::thread_cpu();
    loop {
        compute_in_turn(CHUNK);
        let used = clock::thread_cpu() - start;
        tick(used);
        if used >= duration {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_takes_the_cpu_time_asked_for() {
        let mut ticks = 0;
        let start = clock::thread_cpu();
        burn(Duration::from_millis(5), |_| ticks += 1);
        let used = clock::thread_cpu() - start;
        assert!(used >= Duration::from_millis(5) && used < Duration::from_millis(50));
        assert!(ticks > 1);
    }

    #[test]
    fn calibration_is_plausible() {
        let rate = iterations_per_us();
        assert!((5.0..50_000.0).contains(&rate), "{rate} iterations per µs");
    }
}
