//! A service on Morpheus whose handlers have labels: one computes in a loop of its own, one sleeps.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::service::{self, Alone, Executor, Options};
use morpheus_patients::work::{FACTOR, rounds_for};
use morpheus_patients::{LABELLED, handler, traffic};
use morpheus_runtime::task::Builder;
use morpheus_runtime::{Runtime, watch};

/// Computes a checksum of the numbers below `rounds`.
#[inline(never)]
fn checksum(seed: u64, rounds: u64) -> u64 {
    let sum = (0..rounds).fold(seed, |sum, n| (sum ^ n).wrapping_mul(FACTOR)); // CULPRIT
    sum.rotate_left(7)
}

async fn reports(rounds: u64) {
    for seed in 0.. {
        handler::request().await;
        let stopwatch = Stopwatch::start();
        let sum = checksum(seed, rounds);
        stopwatch.stop();
        handler::answer(sum).await;
    }
}

/// Waits until the service that is asked may be asked again.
#[inline(never)]
fn throttle(request: u64) -> String {
    thread::sleep(Duration::from_millis(10)); // VICTIM
    format!("request {request}")
}

async fn throttled() {
    for request in 0.. {
        handler::request().await;
        handler::answer(throttle(request)).await;
    }
}

/// A runtime of Morpheus.
struct Morpheus(Runtime);

impl Executor for Morpheus {
    fn build(options: &Options) -> io::Result<Morpheus> {
        let mut builder = if options.current_thread {
            morpheus_runtime::Builder::new_current_thread()
        } else {
            morpheus_runtime::Builder::new_multi_thread()
        };
        let workers = usize::from(options.workers);
        let runtime = builder.worker_threads(workers).enable_all().build()?;
        Ok(Morpheus(runtime))
    }

    fn within<R>(&self, start: impl FnOnce() -> R) -> R {
        let _context = self.0.enter();
        start()
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn shut_down(self, timeout: Duration) {
        self.0.shutdown_timeout(timeout);
    }
}

fn main() -> ExitCode {
    let about = format!(
        "A service on Morpheus with labels, and two faults: {}",
        LABELLED.about
    );
    let Alone { options } = service::arguments(LABELLED.program, &about);
    service::serve_on::<Morpheus, ()>(LABELLED.program, &options, || {
        let rounds = rounds_for(Duration::from_millis(20), |rounds| {
            std::hint::black_box(checksum(1, rounds));
        });
        traffic::start();
        handler::start(|number| async move {
            if number % 2 == 0 {
                Builder::new().label("reports").watch(reports(rounds)).await;
            } else {
                watch(throttled()).await;
            }
        });
        Ok(())
    })
}
