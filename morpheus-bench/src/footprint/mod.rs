//! The benchmark `footprint`: what a Morpheus runtime takes of memory where no poll stalls, by its number of spares,
//! and what a task takes that is watched.
//!
//! A spare is a thread, with a stack, an alternate stack for signals, a worker's queue in tokio, and perhaps an arena of the
//! allocator's. Beside each number of spares stands tokio with as many more workers: what is left between these two
//! is Morpheus's own. Every measurement is a process of its own, so that no runtime finds memory that another one left.
//!
//! `config` reads the command line. `child` is one measurement; [`memory`] reads what the kernel says, [`counting`] is
//! the allocator that counts. `run` calls the children and makes rows of what they found.

mod child;
mod config;
pub mod counting;
pub mod memory;
mod run;

use std::process::ExitCode;

use clap::Parser;

use morpheus_harness::{interrupt, thread};

use config::Options;

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let options = Options::parse();
    // Children inherit it. A huge page under a stack would be resident as a whole.
    thread::without_huge_pages();
    if options.child {
        child::main();
    }
    interrupt::install();
    run::measure(&options).conclude(options.json)
}
