//! A service with a fault, in the form of Rust and tokio that all versions from 1.20 on understand.

use std::hint::black_box;
use std::io::Read;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::sleep;

const POLL: Duration = Duration::from_millis(10);

#[inline(never)]
fn computes() {
    let begun = Instant::now();
    while begun.elapsed() < POLL {
        (0..1_000u64).for_each(|number| {
            black_box(number.wrapping_mul(31));
        });
    }
}

#[inline(never)]
fn blocks() {
    std::thread::sleep(POLL);
    // Not the last call, for which there would be no frame.
    black_box(POLL);
}

async fn light() {
    loop {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn faulty(fault: fn()) {
    loop {
        sleep(Duration::from_millis(40)).await;
        fault();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let fault = match arguments[1].as_str() {
        "computes" => computes,
        _ => blocks,
    };
    let mut builder = match arguments[2].as_str() {
        "several" => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..4 {
            tokio::spawn(light());
        }
        eprintln!("ready");
        tokio::spawn(faulty(fault)).await.unwrap();
    });
}
