//! Three hogs, and the stall reports that name them, on the terminal. At the end, with `MORPHEUS_SUMMARY=1`,
//! a table of the watched ones.
//!
//! ```text
//! MORPHEUS_SUMMARY=1 cargo run --release --example hog
//! ```

use std::io::IsTerminal;
use std::time::{Duration, Instant};

fn compute(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[morpheus_runtime::main(worker_threads = 2)]
async fn main() {
    // No colours in a file.
    tracing_subscriber::fmt()
        .with_ansi(std::io::stdout().is_terminal())
        .init();

    // Watched: the report names the line that spawned it.
    let computes = morpheus_runtime::spawn(async {
        for _ in 0..5 {
            compute(Duration::from_millis(200));
            tokio::task::yield_now().await;
        }
    });
    // Watched under a name.
    let blocks = morpheus_runtime::task::Builder::new()
        .label("reads the config file")
        .spawn(async {
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(200));
                tokio::task::yield_now().await;
            }
        });
    // Not watched: a spare takes over from it too, and the report says "not watched".
    let unknown = tokio::spawn(async { compute(Duration::from_millis(500)) });

    for task in [computes, blocks, unknown] {
        task.await.expect("no task panics");
    }
}
