//! A handler that waits for its turn with `std::thread::sleep`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};

/// Waits until the service that is asked may be asked again, and says which request this is.
#[inline(never)]
fn throttle(request: u64) -> String {
    thread::sleep(Duration::from_millis(10)); // CULPRIT
    format!("request {request}")
}

async fn report(request: u64) {
    let stopwatch = Stopwatch::start();
    let page = throttle(request);
    stopwatch.stop();
    handler::answer(page).await;
}

async fn requests() {
    for request in 0.. {
        handler::request().await;
        report(request).await;
    }
}

fn main() -> ExitCode {
    service::run("sleep", || {
        handler::start(|_| requests());
        Ok(())
    })
}
