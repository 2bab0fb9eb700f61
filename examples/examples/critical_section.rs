//! Critical sections: a task that holds a lock is not asked to yield before it has released it.
//!
//! ```text
//! cargo run --release --example critical_section
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn compute(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[morpheus_runtime::main(worker_threads = 2)]
async fn main() {
    let ledger = Arc::new(Mutex::new(0u64));
    let task = morpheus_runtime::spawn({
        let ledger = ledger.clone();
        async move {
            let (mut asked_inside, mut asked_outside) = (0, 0);
            for _ in 0..20 {
                {
                    let _section = morpheus_runtime::critical_section();
                    let mut balance = ledger.lock().expect("no task panics with the lock");
                    compute(Duration::from_millis(5));
                    *balance += 1;
                    // Returns false until the section ends, even if a request is pending.
                    asked_inside += u32::from(morpheus_runtime::checkpoint_sync());
                }
                // Answers a request that came during the section.
                asked_outside += u32::from(morpheus_runtime::checkpoint_sync());
                morpheus_runtime::checkpoint().await;
            }
            (asked_inside, asked_outside)
        }
    });
    let (inside, outside) = task.await.expect("no panic");
    println!(
        "20 sections of 5 ms: asked to yield {inside} times inside one, {outside} times right after it; balance {}",
        ledger.lock().expect("no task panics with the lock")
    );
}
