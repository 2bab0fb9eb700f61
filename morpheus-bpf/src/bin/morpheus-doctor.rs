// SPDX-License-Identifier: GPL-2.0-only
//! `morpheus-doctor`: the same as `scx_morpheus doctor`.

use std::process::ExitCode;

use clap::Parser;
use morpheus_doctor::arguments::{AFTER_HELP, Arguments};

/// Find the line that blocks a running tokio process
#[derive(Debug, Parser)]
#[command(name = "morpheus-doctor", version, after_help = AFTER_HELP)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    morpheus_bpf::doctor::run(&Program::parse().arguments)
}
