//! A handler that computes in a loop of its own.

use std::process::ExitCode;
use std::time::Duration;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::work::{FACTOR, rounds_for};
use morpheus_patients::{handler, service};

/// Computes a checksum of the numbers below `rounds`.
#[inline(never)]
fn checksum(seed: u64, rounds: u64) -> u64 {
    let sum = (0..rounds).fold(seed, |sum, n| (sum ^ n).wrapping_mul(FACTOR)); // CULPRIT
    sum.rotate_left(7)
}

async fn report(seed: u64, rounds: u64) {
    let stopwatch = Stopwatch::start();
    let sum = checksum(seed, rounds);
    stopwatch.stop();
    handler::answer(sum).await;
}

async fn requests(rounds: u64) {
    for seed in 0.. {
        handler::request().await;
        report(seed, rounds).await;
    }
}

fn main() -> ExitCode {
    service::run("spin", || {
        let rounds = rounds_for(Duration::from_millis(20), |rounds| {
            std::hint::black_box(checksum(1, rounds));
        });
        handler::start(|_| requests(rounds));
        Ok(())
    })
}
