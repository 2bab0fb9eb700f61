//! `cargo xtask kernel`: the benchmark `kernel` in a guest for each round, and one table of all rounds.
//!
//! A boot of its own for each: when the emulator loses one, that round alone is measured again.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::context::Context;
use crate::interrupt;
use crate::process::{self, Finished};
use crate::vm;

/// How often a round is tried.
const TRIES: u32 = 4;
/// A round takes five minutes.
const LIMIT_S: &str = "1200";

/// The scheduler that Morpheus's is compared with, as cargo builds it.
const PEER: &str = "scx_bpfland";
const PEER_VERSION: &str = "1.0.18";

/// What to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct MeasureArgs {
    /// How many rounds, each in a boot of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// The kernel: a series or a file, as of `cargo xtask vm`
    #[arg(long, value_name = "SERIES|PATH", default_value = "6.18")]
    kernel: String,
    /// Seconds to measure, of each scene under each scheduler
    #[arg(long, value_name = "S", default_value = "3")]
    duration: String,
    /// The program scx_bpfland; in target/peers if not given
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Only these schedulers (each by a word of its name)
    #[arg(long, value_name = "NAME,…")]
    only: Option<String>,
}

/// Measures; ends with 0, with 1 when a figure is missing, with 130 after Ctrl-C.
pub(crate) fn run(context: &Context, args: &MeasureArgs) -> ExitCode {
    interrupt::listen();
    match all_rounds(context, args) {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("kernel: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all_rounds(context: &Context, args: &MeasureArgs) -> io::Result<ExitCode> {
    let peer = match &args.peer {
        Some(peer) => peer.clone(),
        None => context.target.join("peers/bin").join(PEER),
    };
    let wants_peer = args
        .only
        .as_ref()
        .is_none_or(|only| only.split(',').any(|word| PEER.contains(word)));
    if wants_peer && !peer.exists() {
        return Err(io::Error::other(format!(
            "{} is not there: cargo install --locked {PEER} --version {PEER_VERSION} --root {}, or leave it out with \
             --only default,morpheus",
            peer.display(),
            context.target.join("peers").display()
        )));
    }
    let mut build = context.cargo();
    build.args(["build", "--release", "--workspace"]);
    let built = process::run(&mut build, &mut |line| eprintln!("{line}"))?;
    if !built.success {
        return Err(io::Error::other("the programs do not build"));
    }

    let path = context.target.join("kernel.jsonl");
    let mut file = File::create(&path)?;
    for round in 1..=args.rounds {
        let records = one_round(context, args, wants_peer.then_some(&peer), round)?;
        file.write_all(records.as_bytes())?;
        file.flush()?;
        eprintln!("kernel: round {round} of {} done", args.rounds);
    }
    eprintln!("kernel: what was measured is in {}", path.display());

    let mut table = std::process::Command::new(context.target.join("release/kernel"));
    if let Some(only) = &args.only {
        table.arg("--only").arg(only);
    }
    let status = table.arg("--from").arg(&path).status()?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

/// The records of one round, from a boot that lived to its end.
fn one_round(
    context: &Context,
    args: &MeasureArgs,
    peer: Option<&PathBuf>,
    round: u16,
) -> io::Result<String> {
    let mut why = String::new();
    for _ in 0..TRIES {
        let mut boot = context.cargo();
        boot.args(["xtask", "vm", "--kernel", &args.kernel, "--accel", "multi"]);
        boot.args(["--timeout", LIMIT_S]);
        if let Some(peer) = peer {
            boot.arg("--add").arg(peer);
        }
        boot.args(["--", "kernel", "--json", "--rounds", "1"]);
        boot.args(["--duration", &args.duration]);
        boot.args(["--first-round", &round.to_string()]);
        if let Some(only) = &args.only {
            boot.arg("--only").arg(only);
        }
        let finished = process::run(&mut boot, &mut |line| {
            if !is_record(line) {
                eprintln!("{line}");
            }
        })?;
        if finished.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(lost) = lost(&finished) {
            eprintln!("kernel: round {round} is lost ({lost}), and measured again");
            why = lost;
            continue;
        }
        return Ok(records(vm::last_boot(&finished.output)));
    }
    Err(io::Error::other(format!(
        "round {round} was lost {TRIES} times, at last with {why}"
    )))
}

/// Why a boot came to nothing. A guest whose command ended has measured, even if not all of it.
fn lost(finished: &Finished) -> Option<String> {
    match finished.code {
        Some(0 | 1) => None,
        Some(code) => Some(format!("exit code {code}")),
        None => Some("a signal".to_string()),
    }
}

fn is_record(line: &str) -> bool {
    line.starts_with(r#"{"record":"#)
}

fn records(output: &str) -> String {
    output
        .lines()
        .filter(|line| is_record(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_among_other_lines() {
        let run = r#"{"record":"run","round":0}"#;
        let output = format!("vm: booting\n{run}\n{{\"bench\":1}}\nround 1: x\n{run}");
        assert_eq!(records(&output), format!("{run}\n{run}\n"));
    }

    #[test]
    fn only_a_boot_that_ended_by_itself_counts() {
        let ended = |code| Finished {
            success: code == Some(0),
            code,
            output: String::new(),
            interrupted: false,
        };
        assert_eq!(lost(&ended(Some(0))), None);
        assert_eq!(lost(&ended(Some(1))), None);
        assert!(lost(&ended(Some(120))).unwrap().contains("120"));
        assert!(lost(&ended(None)).is_some());
    }
}
