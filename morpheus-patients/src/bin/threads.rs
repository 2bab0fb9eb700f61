//! A handler that sleeps, in a process with thousands of other threads.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use morpheus_patients::clock::Stopwatch;
use morpheus_patients::service::{Absent, Failure, Options};
use morpheus_patients::{CROWD, handler, service, traffic};

/// They only park, and all of them together should not need much memory.
const STACK: usize = 16 << 10;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// Threads that do nothing; each needs four mappings, of which a process has 65530
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(..=15_000))]
    threads: u32,
}

/// Waits until it is this request's turn, and says which it is.
#[inline(never)]
fn wait_for_turn(request: u64) -> String {
    thread::sleep(Duration::from_millis(10)); // CULPRIT
    format!("request {request}")
}

async fn report(request: u64) {
    let stopwatch = Stopwatch::start();
    let page = wait_for_turn(request);
    stopwatch.stop();
    handler::answer(page).await;
}

async fn requests() {
    for request in 0.. {
        handler::request().await;
        report(request).await;
    }
}

/// Starts the threads that do nothing.
fn crowd(threads: u32) -> Result<(), Failure> {
    for number in 0..threads {
        let thread = thread::Builder::new()
            .name("idle".to_owned())
            .stack_size(STACK);
        let idle = || {
            loop {
                thread::park();
            }
        };
        thread.spawn(idle).map_err(|error| {
            Absent(format!(
                "only {number} of {threads} threads are possible here ({error}): raise the limit, or use --threads"
            ))
        })?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let about = format!(
        "A service on plain tokio with a planted fault (blocked): {}",
        CROWD.about
    );
    let arguments: Arguments = service::arguments(CROWD.program, &about);
    service::serve(CROWD.program, &arguments.options, || {
        crowd(arguments.threads)?;
        traffic::start();
        handler::start(|_| requests());
        Ok(())
    })
}
