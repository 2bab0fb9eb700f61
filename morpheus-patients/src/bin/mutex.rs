//! A handler that computes while it holds a `std::sync::Mutex`, which other tasks lock.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::work::{FACTOR, rounds_for};
use morpheus_patients::{handler, service};

/// Tasks that add entries.
const WRITERS: u64 = 4;

#[derive(Default)]
struct Ledger {
    entries: u64,
    sum: u64,
}

/// Computes the sum of the ledger again, which nothing else may change meanwhile.
#[inline(never)]
fn recount(ledger: &Mutex<Ledger>, rounds: u64) -> u64 {
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sum = ledger.entries;
    sum = (0..rounds).fold(sum, |sum, n| (sum ^ n).wrapping_mul(FACTOR)); // CULPRIT
    ledger.sum = sum;
    sum
}

/// Adds an entry to the ledger.
#[inline(never)]
fn add_entry(ledger: &Mutex<Ledger>, entry: u64) -> u64 {
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner); // VICTIM
    ledger.entries += 1;
    ledger.sum ^= entry;
    ledger.entries
}

async fn report(ledger: &Mutex<Ledger>, rounds: u64) {
    let stopwatch = Stopwatch::start();
    let sum = recount(ledger, rounds);
    stopwatch.stop();
    handler::answer(sum).await;
}

async fn requests(ledger: Arc<Mutex<Ledger>>, rounds: u64) {
    loop {
        handler::request().await;
        report(&ledger, rounds).await;
    }
}

async fn entries(ledger: Arc<Mutex<Ledger>>, writer: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(3 + writer)).await;
        let entries = add_entry(&ledger, writer);
        handler::answer(entries).await;
    }
}

fn main() -> ExitCode {
    service::run("mutex", || {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let rounds = rounds_for(Duration::from_millis(10), |rounds| {
            recount(&ledger, rounds);
        });
        for writer in 0..WRITERS {
            tokio::spawn(entries(Arc::clone(&ledger), writer));
        }
        handler::start(|_| requests(Arc::clone(&ledger), rounds));
        Ok(())
    })
}
