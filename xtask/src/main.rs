//! The project's own commands; `cargo xtask --help` teaches them.
//!
//! This file only reads the command line. The tests are a table in `steps`; `runner` walks through it;
//! `counts` adds up; `tools` and `install` see to what must be on the machine. `vm` boots a real kernel, `guests` are the
//! steps that do; `measure` and `ablation` measure there and `soak` holds out there, by `rounds`, `suite` and `service` measure here.
#![warn(missing_docs)]

mod aarch64;
mod ablation;
mod context;
mod counts;
mod criterion;
mod guests;
mod install;
mod interrupt;
mod measure;
mod process;
mod progress;
mod requirement;
mod rights;
mod rounds;
mod runner;
mod service;
mod soak;
mod steps;
mod suite;
mod tokio_range;
mod tokio_suite;
mod tools;
mod tree;
mod vm;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::ablation::AblationArgs;
use crate::context::Context;
use crate::measure::ScaleArgs;
use crate::service::ServiceArgs;
use crate::soak::SoakArgs;
use crate::suite::{FiguresArgs, SuiteArgs};
use crate::vm::VmArgs;

/// The project's own commands.
///
/// Run `cargo xtask test --quick` while you work, and `cargo xtask test` before you propose a change: it is all that CI
/// runs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks the project: format, lints, tests, docs, models, and the scheduler on a real kernel.
    ///
    /// Steps that measure times run one after another; beside them, at the lowest priority, run those in which time plays no
    /// part: builds, models, and a guest with a clock of its own. A step runs also after another has failed, and the output
    /// of those that failed is shown. The last line is the sum, `N passed, N failed`: each test counts as one, and so does
    /// each step that is no test run (the format, the lints, a build). Tests that cannot run here count as skipped.
    ///
    /// With --all it also runs the tests on all kernels, on machines of other shapes, with other versions of tokio, under
    /// miri and under the thread sanitizer.
    ///
    /// A step whose tools are missing counts as failed. On Debian and Ubuntu, as root, they are installed first, and so are
    /// components of the toolchain, where there is rustup; elsewhere the command says what to install.
    ///
    /// The exit code is 0 when nothing failed, 1 when something did, 130 after Ctrl-C.
    #[command(after_help = EXAMPLES)]
    Test(TestArgs),
    /// Runs a command under a real kernel with sched_ext.
    ///
    /// Boots the kernel in QEMU's software emulation, which needs no rights and no KVM, and runs the command as root in a
    /// small system: busybox, the programs of the last `cargo build --release`, what was added with --add. The command's
    /// output goes to standard output, all else to standard error. Nothing in the guest outlives it.
    ///
    /// Kernels come from Debian's archive, through apt with a configuration of its own, so that the machine's package
    /// sources stay as they are. Each is fetched once, and kept in target/vm or in the directory that
    /// $MORPHEUS_VM_CACHE names; remove it to get a newer one. QEMU and busybox are installed where they are missing, on
    /// Debian and Ubuntu, as root; elsewhere the command says what to install.
    ///
    /// Virtual CPUs that run in turn (--accel single) are the most robust. With a thread for each (--accel multi), times
    /// within a guest can be compared; but QEMU then sometimes runs the old translation of an instruction that the
    /// kernel has patched ("Oops: int3"): on exactly that the guest is booted again, three times at most. So it is, with
    /// both, when the kernel's complaint shows a CPU in a state that none can be in.
    ///
    /// The exit code is the command's (126: it cannot be run, 127: not found, 128 and more: a signal), but
    /// 120 when the kernel complained (a warning, an oops, a panic, a stall, a scheduler thrown out), whatever the
    /// command said; 121 when there is nothing to boot (QEMU, busybox or the kernel is missing); 124 after --timeout;
    /// 125 when the command was not run, or the guest ended before it; 130 after Ctrl-C; 2 for a command line that makes
    /// no sense.
    #[command(after_help = vm::EXAMPLES)]
    Vm(VmArgs),
    /// Measures what schedulers make of a whole machine, in guests, and shows one table.
    ///
    /// Boots a guest for each round (a virtual CPU in a thread each) and runs the benchmark `scale` there: batch throughput,
    /// wakes beside several kinds of load, frames, round trips, launches and messages, under the kernel's own scheduler,
    /// scx_morpheus and others. A round takes two minutes for each scheduler; one that the emulator loses is measured again.
    /// The measurements are also in target/scale.jsonl.
    ///
    /// The others are not part of this project:
    /// cargo install --locked scx_bpfland --version 1.0.18 --root target/peers
    /// cargo install --locked scx_pandemonium --version 5.23.1 --root target/peers
    #[command(after_help = "\
Examples:
  cargo xtask scale                                      five rounds of all
  cargo xtask scale --schedulers default,morpheus        without other people's schedulers
  cargo xtask scale --rounds 1 -- --only latency,burst   two cases, once
  cargo xtask scale --cpus 4 -- --cpus 2,4               four CPUs, of which two are offline in the first half
  cargo xtask scale --schedulers default/lazy,default/full,scx_bpfland,morpheus -- --suite runtime --duration 3
                                                         what tasks of Morpheus's runtime feel beside hogs, under each")]
    Scale(ScaleArgs),
    /// Measures what each feature of scx_morpheus is good for, in guests, and shows one table.
    ///
    /// Each feature has loads that it was made for, and a guest that has what it is about (`morpheus-bench/src/scale/trials.rs`). In
    /// each boot the scheduler is measured as it is, with each feature switched the other way, and as it is again, in the guest's own
    /// time, with another seed. A feature wins where its figure is better with it by more than the scheduler differs from itself.
    /// The measurements are also in target/ablation.jsonl.
    ///
    /// The exit code is 0 when everything was measured, 1 when something could not be, 2 for a command line that makes no sense,
    /// 130 after Ctrl-C (with a table of the boots until then).
    #[command(after_help = "\
Examples:
  cargo xtask ablation                                   all features under the loads that they were made for
  cargo xtask ablation --feature tiers,steal --boots 3   two of them, a first look
  cargo xtask ablation --feature adapt --elsewhere       also what it costs under other loads
  cargo xtask ablation --feature adapt --only pipe,ipc   under these loads in their place
  cargo xtask ablation --figures                         all, into the tables of the guide; commit first")]
    Ablation(AblationArgs),
    /// Runs everything at once for long, in a guest for each number of CPUs, and shows one table.
    ///
    /// Storms of processes, hogs, pipes, timers, sleepers, messages, and CPUs that go offline and come back: the scheduler is to
    /// stay in force, no runnable task may wait for longer than a second, and the kernel's log has to be clean. The longest wait
    /// without load is shown beside it. The guests have a time of their own, 8 ns an instruction, so that no task waits for the
    /// host; with --parallel the virtual CPUs run at the same time, and those that the machine does not have wait themselves.
    /// The results are also in target/soak.jsonl.
    ///
    /// The exit code is 0 when all of them held, 1 when something was wrong, 130 after Ctrl-C.
    #[command(after_help = "\
Examples:
  cargo xtask soak                               ten minutes on 2, 4 and 8 CPUs
  cargo xtask soak --cpus 2 --minutes 0.5        a short one
  cargo xtask soak --scheduler default --cpus 4  the kernel's own scheduler under the same load")]
    Soak(SoakArgs),
    /// Drives a real service on Morpheus and on tokio, and shows one table.
    ///
    /// Builds the example `http_service` (axum, SQLite, argon2), its twin on tokio, which differs in one line, and the benchmark
    /// `service`, and calls that: six minutes.
    ///
    /// The exit code is 0 when everything was measured, 1 when something could not be, 2 for a command line that makes no
    /// sense, 130 after Ctrl-C (what was measured until then is shown).
    #[command(after_help = "\
Examples:
  cargo xtask service                       four clients of /compute, and /ping and /db meanwhile
  cargo xtask service --clients 4,40,200    also more hogs than there are spares
  cargo xtask service --scene blocking      64 clients of a query that blocks
  cargo xtask service -- --help             all that the benchmark can be told")]
    Service(ServiceArgs),
    /// Runs the benchmarks, each at a size that fits into fifteen minutes, and makes a page of what they measured.
    ///
    /// Figures go into the directory of --output as JSON, and so does the page, index.html, with its pictures. As root, with a
    /// kernel that has BTF, also what the observer makes of it: `scx_morpheus --observe` is built, started and ended for
    /// that. Benchmarks that cannot run here are named and left out. Run it on a machine that has nothing else to do.
    ///
    /// The exit code is 0 when everything was measured, 1 when something failed, 130 after Ctrl-C (with a page of what there
    /// was until then).
    Bench(SuiteArgs),
    /// Measures what README and the guide show, into figures/, and fills their tables.
    ///
    /// Commit first: each file says of which commit its figures are. Run it on a machine that has nothing else to do.
    ///
    /// The exit code is 0 when everything was measured and filled, 1 when something failed, 130 after Ctrl-C (nothing is filled).
    Figures(FiguresArgs),
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask test --quick       after an edit: format, lints and tests of what applications link
  cargo xtask test               before a change is proposed, as CI does
  cargo xtask test --all         before a release: all kernels, versions of tokio, sanitizers
  cargo xtask test --only 6.18   the steps that have this in their name, of any run
  cargo xtask test --all --list  the steps, and the commands to run one by hand
  cargo xtask test --no-install  change nothing on this machine";

/// How to test.
#[derive(Clone, Debug, Args)]
pub(crate) struct TestArgs {
    /// Only what an edit of the runtime needs most: format, and lints and tests of what applications link
    #[arg(long, conflicts_with = "all")]
    quick: bool,
    /// Also all other kernels, shapes of machines, versions of tokio, and sanitizers
    #[arg(long)]
    all: bool,
    /// Only the steps whose name has this in it ("6.18", "kernel side")
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
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
    let command = Cli::parse().command;
    let context = match Context::find() {
        Ok(context) => context,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::FAILURE;
        }
    };
    match command {
        Command::Test(args) if args.list => {
            runner::list(&context, &args);
            ExitCode::SUCCESS
        }
        Command::Test(args) => runner::test(&context, &args),
        Command::Vm(args) => vm::run(&context, &args),
        Command::Scale(args) => measure::scale(&context, &args),
        Command::Ablation(args) => ablation::run(&context, &args),
        Command::Soak(args) => soak::run(&context, &args),
        Command::Service(args) => service::run(&context, &args),
        Command::Bench(args) => suite::run(&context, &args),
        Command::Figures(args) => suite::figures(&context, &args),
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
