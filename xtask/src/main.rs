//! The project's own commands; `cargo xtask --help` teaches them.
//!
//! This file only reads the command line. What the tests are is a table in `steps`; `runner` walks through it;
//! `counts` adds up; `tools` and `install` see to what must be on the machine.
#![warn(missing_docs)]

mod context;
mod counts;
mod install;
mod interrupt;
mod process;
mod progress;
mod requirement;
mod runner;
mod steps;
mod tokio_range;
mod tools;
mod tree;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::context::Context;

/// The project's own commands.
///
/// Start with `cargo xtask test --quick` while you work, and run `cargo xtask test` before you propose a change:
/// it is all that CI runs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks everything: format, lints, tests, docs, models, sanitizers.
    ///
    /// Runs every step in order, also after one has failed, and shows the output of those that failed. The last line
    /// is the sum, `N passed, N failed`: each test counts as one, and so does each step that is no test run (the
    /// format, the lints, a build). What could not run here is said and counted as skipped, and so are ignored tests.
    ///
    /// A step whose tools are missing counts as failed. On Debian and Ubuntu, as root, they are installed first;
    /// elsewhere the command says what to install. Nightly toolchains are never installed: steps that need one are
    /// skipped without it.
    ///
    /// The exit code is 0 when nothing failed, 1 when something did, 130 after Ctrl-C.
    #[command(after_help = EXAMPLES)]
    Test(TestArgs),
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask test --quick       format, lints, tests and doc tests
  cargo xtask test               all of it, as CI does
  cargo xtask test --list        the steps, and the commands to run one by hand
  cargo xtask test --no-install  change nothing on this machine";

/// How to test.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TestArgs {
    /// Only the steps that a change needs most: format, lints, tests, doc tests
    #[arg(long)]
    quick: bool,
    /// Install nothing; say what is missing instead
    #[arg(long)]
    no_install: bool,
    /// Show the steps and their commands, and run none
    #[arg(long)]
    list: bool,
    /// Show the output of every step while it runs
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let Command::Test(args) = Cli::parse().command;
    match Context::find() {
        Ok(context) if args.list => {
            runner::list(&context, args.quick);
            ExitCode::SUCCESS
        }
        Ok(context) => runner::test(&context, args),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
