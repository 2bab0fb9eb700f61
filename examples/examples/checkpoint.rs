//! Checkpoints: a task that computes, and yields when it is asked to.
//!
//! ```text
//! cargo run --release --example checkpoint
//! ```

use std::time::{Duration, Instant};

/// A thousand rounds of a hash for demonstration only.
fn mix(mut hash: u64) -> u64 {
    for round in 0..1_000u64 {
        hash = hash.rotate_left(5) ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash
}

#[morpheus_runtime::main(worker_threads = 2)]
async fn main() {
    let begun = Instant::now();
    // `strip!` finds by itself how many iterations take 50 µs, and awaits a checkpoint after each such strip.
    let helper = morpheus_runtime::spawn(async {
        let mut hash = 0;
        morpheus_runtime::strip!(for i in 0..200_000u64 {
            hash ^= mix(i);
        });
        hash
    });
    // By hand: `checkpoint` yields only if the task was asked to.
    let by_hand = morpheus_runtime::spawn(async {
        let mut hash = 0;
        for block in 0..2_000u64 {
            for i in 0..100 {
                hash ^= mix(block * 100 + i);
            }
            morpheus_runtime::checkpoint().await;
        }
        hash
    });
    // The delay that both cause for another task: a timer on the main task.
    let mut worst = Duration::ZERO;
    while !(helper.is_finished() && by_hand.is_finished()) {
        let due = Instant::now() + Duration::from_millis(1);
        tokio::time::sleep_until(due.into()).await;
        worst = worst.max(due.elapsed());
    }
    assert_eq!(
        helper.await.expect("no panic"),
        by_hand.await.expect("no panic")
    );
    println!(
        "two tasks computed for {:.0?}, checking often; a timer beside them was at most {worst:.1?} late",
        begun.elapsed()
    );
}
