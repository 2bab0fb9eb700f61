//! A handler that prints a long report to a pipe whose reader is slow.
//!
//! The program makes the pipe and its reader itself, in place of its standard output: a terminal or a log collector that is slow
//! has the same effect.

use std::process::ExitCode;
use std::sync::Arc;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, pipe, service};

/// 16 pages, which the reader takes in at least 14 ms.
const LENGTH: usize = 64 << 10;

/// Prints the report, and says how long it is.
#[inline(never)]
fn print_report(report: &str) -> usize {
    println!("{report}"); // CULPRIT
    report.len() + 1
}

async fn report(text: &str) {
    let stopwatch = Stopwatch::start();
    let length = print_report(text);
    stopwatch.stop();
    handler::answer(length).await;
}

async fn requests(text: Arc<str>) {
    loop {
        handler::request().await;
        report(&text).await;
    }
}

fn main() -> ExitCode {
    service::run("println", || {
        pipe::slow_stdout().map_err(|error| format!("standard output is no slow pipe: {error}"))?;
        let line = "an order was delivered on time, and nothing else is to be said about it\n";
        let text: Arc<str> = line.repeat(LENGTH / line.len()).into();
        handler::start(|_| requests(Arc::clone(&text)));
        Ok(())
    })
}
