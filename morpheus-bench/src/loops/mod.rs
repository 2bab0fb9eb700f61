//! The benchmark `loops`: what checkpoints cost the loops that they stand in, on a Morpheus runtime, in a watched task.
//!
//! A checkpoint is a nanosecond; what it does to the loop around it is another matter, since a loop that the compiler
//! vectorises is not vectorised any more with a way out in each turn. So each of some thirty loops, of which half are
//! vectorised, is written in several forms ([`Form`]): without checkpoints, with one after each block of some 20 µs, in
//! the three forms of strip-mining that `morpheus_runtime` has, and, as a control that shows what there is to lose, with
//! a checkpoint in each turn. That all forms of a loop do the same is checked before they are measured.
//!
//! Each form is measured in pairs with the plain one (in the order A B C … A' A' … C B A, where A' is the plain one again:
//! what A and A' differ by is noise). The figure is CPU time of the thread, which others on the machine hardly disturb. All run
//! in one watched task on one worker, whose polls are asked to yield after their budget of 1 ms, as any task's are: to
//! answer that is part of the cost. Nothing is taken over, since the task would then change threads within a measurement.
//!
//! `data` is what the loops work on, `form` writes a loop in all forms, `cases` has the loops, and `run` measures them.

mod cases;
mod config;
mod data;
mod form;
mod run;

use std::process::ExitCode;

use clap::Parser;

pub use form::Form;

use morpheus_harness::{interrupt, report};

use config::Options;

/// The names of the loops.
pub fn names() -> Vec<&'static str> {
    cases::all().map(|case| case.name).collect()
}

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for case in cases::all() {
            report::print(&format!("{:16} {}\n", case.name, run::about(case)));
        }
        return ExitCode::SUCCESS;
    }
    interrupt::install();
    match run::measure(&options) {
        Ok(found) => found.conclude(options.json),
        Err(why) => report::failed("loops", &why),
    }
}
