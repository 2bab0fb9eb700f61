//! Tasks that handle requests: the fault is in what they call.

use std::hint::black_box;
use std::time::Duration;

/// Tasks that run handlers.
pub const HANDLERS: u32 = 4;
/// Requests that one of them has in a second.
const REQUESTS_PER_SECOND: u32 = 5;

/// Starts the tasks that handle requests, evenly spread over time. Each runs what `make` returns for its number.
pub fn start<F>(make: impl Fn(u32) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let gap = Duration::from_secs(1) / (HANDLERS * REQUESTS_PER_SECOND);
    for number in 0..HANDLERS {
        let handler = make(number);
        tokio::spawn(async move {
            tokio::time::sleep(gap * number).await;
            handler.await;
        });
    }
}

/// Waits for the next request of a task.
pub async fn request() {
    tokio::time::sleep(Duration::from_secs(1) / REQUESTS_PER_SECOND).await;
}

/// Sends what a handler has made, which takes a while and lets other tasks run.
pub async fn answer<T>(page: T) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    black_box(page);
}
