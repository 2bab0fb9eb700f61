//! The smallest program: it differs in one line from a tokio program, and tasks that compute do not delay the
//! others.
//!
//! ```text
//! cargo run --release --example hello
//! ```

use std::time::{Duration, Instant};

#[morpheus_runtime::main]
async fn main() {
    // One task for each CPU computes for 200 ms and never yields: on plain tokio no other task would run.
    for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
        tokio::spawn(async {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
        });
    }
    let mut worst = Duration::ZERO;
    for _ in 0..100 {
        let due = Instant::now() + Duration::from_millis(1);
        tokio::spawn(tokio::time::sleep_until(due.into()))
            .await
            .expect("a sleep does not panic");
        worst = worst.max(due.elapsed());
    }
    println!("100 sleeps of 1 ms beside tasks that compute: the latest woke {worst:.1?} late");
}
