//! `cargo xtask service`: builds the example `http_service`, its twin on tokio, and the benchmark `service` that drives
//! both, and calls that.
//!
//! The measuring is in `morpheus-bench`, on the clocks, tables and children of `morpheus-harness`; only building is done here, for a
//! benchmark cannot depend on the examples of a package that depends on it.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::context::Context;
use crate::{interrupt, process};

/// The arguments of the benchmark.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServiceArgs {
    /// Arguments of the benchmark; `cargo xtask service -- --help` shows them
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Builds and measures. The exit code is the benchmark's: 0 measured, 1 something could not be, 2 bad usage, 130
/// after Ctrl-C.
pub(crate) fn run(context: &Context, args: &ServiceArgs) -> ExitCode {
    interrupt::listen();
    match build_and_call(context, args) {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_call(context: &Context, args: &ServiceArgs) -> io::Result<u8> {
    build(context)?;
    // In this process group and at this terminal: Ctrl-C is for it, and so is the place for its progress.
    let status = Command::new(context.target.join("release/service"))
        .args(&args.arguments)
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| io::Error::other(format!("the benchmark: {status}")))
}

/// Builds the benchmark and the services that need no flag; the benchmark builds the others.
pub(crate) fn build(context: &Context) -> io::Result<()> {
    let mut build = context.cargo();
    build.args([
        "build",
        "--release",
        "-p",
        "morpheus-bench",
        "-p",
        "examples",
    ]);
    build.args(["--bin", "service", "--example", "http_service"]);
    build.args(["--example", "http_service_tokio"]);
    let built = process::run(&mut build, &mut |line| eprintln!("{line}"))?;
    if built.interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    if !built.success {
        return Err(io::Error::other("the programs do not build"));
    }
    Ok(())
}
