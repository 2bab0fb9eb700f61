//! The benchmark `compare`: what Morpheus costs where no poll stalls, case by case, beside stock tokio.
//!
//! Each case is something small that a runtime does all day, in tokio's own benchmarks or between a client and a server.
//! It runs on each runtime in turns (A B A' A' B A …), where A' is the same runtime as A: what those two differ by is noise,
//! and inside it no difference is claimed. Two figures stand side by side: operations a second, which other load on the
//! machine disturbs, and CPU time of an operation, which it hardly disturbs.
//!
//! **Every measurement is a process of its own**, which builds one runtime, sets up one case, warms up until the CPU time
//! of an operation has settled, measures one window and ends. One process for all would be quicker, and less sound:
//!
//! - A process's CPU clock then is the runtime's: workers, spares and controller alike, and nothing of another runtime. No
//!   runtime is idle beside the one that is measured, so its idleness need not be assumed.
//! - Runtimes do not share an allocator's arenas, a thread pool's threads, or page tables with those that ran before.
//! - Where code, stacks and heap happen to lie is worth some percent, and stays as it is as long as a process lives. Drawn
//!   anew for each measurement, it is part of the intervals and of the noise, and not a difference between runtimes.
//!
//! It leaves out the work that a runtime does only after many seconds. The number of operations is found once for each
//! case, on what Morpheus is compared with, and is the same for all; each window must have done exactly that number.
//!
//! `config` reads the command line, `contender` names what is compared. [`cases`] are over the trait of [`spawner`].
//! `child` is one measurement, `run` many of them, as rows.

pub mod cases;
mod child;
mod config;
mod contender;
mod run;
pub mod spawner;

use std::process::ExitCode;

use clap::Parser;

pub use contender::Contender;

use morpheus_harness::rows::view::distinct;
use morpheus_harness::{interrupt, report, thread};

use config::Options;

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let mut options = Options::parse();
    for contenders in [&mut options.against, &mut options.runtime] {
        *contenders = distinct(contenders.iter().copied());
    }
    // Children inherit it.
    thread::without_huge_pages();
    if options.child {
        child::main();
    }
    if options.list {
        for case in cases::CASES {
            report::print(&format!("{:24} {}\n", case.name, case.operation));
        }
        return ExitCode::SUCCESS;
    }
    interrupt::install();
    run::measure(&options).conclude(options.json)
}
