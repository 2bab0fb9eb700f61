//! A benchmark in a guest for each round, and one table of all rounds.
//!
//! A boot of its own for each: when the emulator loses one, that round alone is measured again. The benchmark prints a record
//! a line, and makes a table of such lines with `--from`. `measure` says which benchmarks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::context::Context;
use crate::interrupt;
use crate::process::{self, Finished};
use crate::vm;

/// How often a round is tried.
const TRIES: u32 = 4;
/// Seeds from one try to the next: beyond those of all rounds, and a guest that is lost boots again by itself with the next ones.
const SEEDS: u32 = 1 << 20;

/// Whose time passes in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The host's; the virtual CPUs run at the same time, as far as the host lets them.
    Host,
    /// Its own: 2 to this power ns for each instruction, whatever else the host does. The virtual CPUs run in turn, so that what
    /// interrupts another one comes late: for orders and for what takes long, not for latencies.
    Virtual(u8),
}

impl Clock {
    /// An instruction takes 8 ns: about as fast as the emulator is, of all CPUs together.
    pub(crate) const VIRTUAL: Clock = Clock::Virtual(3);

    /// As options of `cargo xtask vm`.
    fn options(self, seed: u32, attempt: u32) -> Vec<String> {
        match self {
            Clock::Host => vec!["--accel".into(), "multi".into()],
            Clock::Virtual(shift) => vec![
                format!("--icount={shift}"),
                "--seed".into(),
                (seed + SEEDS * attempt).to_string(),
            ],
        }
    }
}

/// A measurement in guests, and how often it is repeated.
pub(crate) struct Plan {
    /// The benchmark's program.
    pub(crate) bench: &'static str,
    /// Names the file of its records.
    pub(crate) name: &'static str,
    /// Each in a boot of its own.
    pub(crate) rounds: u16,
    /// As of `cargo xtask vm`.
    pub(crate) kernel: String,
    /// CPUs of the guest, of each round.
    pub(crate) cpus: Box<dyn Fn(u16) -> u16>,
    /// Last-level caches of the guest, of each round.
    pub(crate) caches: Box<dyn Fn(u16) -> u16>,
    /// The seed of each round, in virtual time.
    pub(crate) seed: Box<dyn Fn(u16) -> u32>,
    pub(crate) clock: Clock,
    /// A guest in which the kernel complained is what was to be found out, and not lost.
    pub(crate) complaints_count: bool,
    /// A guest that takes longer is lost.
    pub(crate) limit_s: u64,
    /// Schedulers of others that are measured as well.
    pub(crate) peers: Vec<Peer>,
    /// The benchmark's arguments in the guest for a round, counted from 1, beside `--json`.
    pub(crate) arguments: Box<dyn Fn(u16) -> Vec<OsString>>,
    /// Its arguments when it makes the table, beside `--from`.
    pub(crate) table: Vec<OsString>,
}

/// The program of another project's scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) path: PathBuf,
    /// How to get it, or to do without.
    pub(crate) advice: String,
}

impl Peer {
    /// A program that cargo installs into a directory of ours. The version is the one that is known to load.
    pub(crate) fn installed(context: &Context, name: &str) -> Peer {
        const VERSIONS: [(&str, &str); 2] =
            [("scx_bpfland", "1.0.18"), ("scx_pandemonium", "5.23.1")];
        let root = context.target.join("peers");
        let version = VERSIONS.iter().find(|(known, _)| *known == name);
        let version =
            version.map_or_else(String::new, |(_, version)| format!(" --version {version}"));
        let install = format!(
            "cargo install --locked {name}{version} --root {}",
            root.display()
        );
        Peer {
            path: root.join("bin").join(name),
            advice: format!("{install}, or leave it out with --schedulers default,morpheus"),
        }
    }
}

/// Measures; ends with 0, with 1 when a figure is missing, with 130 after Ctrl-C.
pub(crate) fn run(context: &Context, plan: &Plan) -> ExitCode {
    interrupt::listen();
    match all_rounds(context, plan) {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("{}: {error}", plan.bench);
            ExitCode::FAILURE
        }
    }
}

fn all_rounds(context: &Context, plan: &Plan) -> io::Result<ExitCode> {
    if let Some(peer) = plan.peers.iter().find(|peer| !peer.path.exists()) {
        let path = peer.path.display();
        return Err(io::Error::other(format!(
            "{path} is not there: {}",
            peer.advice
        )));
    }
    build(context, plan.bench)?;
    let (bench, rounds) = (plan.bench, plan.rounds);
    let path = context.target.join(format!("{}.jsonl", plan.name));
    let mut file = File::create(&path)?;
    let mut complained = false;
    let mut interrupted = false;
    for round in 1..=rounds {
        let (records, complaint) = match one_round(context, plan, round) {
            // The rounds measured until then are shown.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && round > 1 => {
                interrupted = true;
                break;
            }
            measured => measured?,
        };
        complained |= complaint;
        file.write_all(records.as_bytes())?;
        file.flush()?;
        eprintln!("{bench}: round {round} of {rounds} done");
    }
    eprintln!("{bench}: what was measured is in {}", path.display());

    let mut table = std::process::Command::new(context.target.join("release").join(bench));
    let status = table.args(&plan.table).arg("--from").arg(&path).status()?;
    if complained {
        eprintln!("{bench}: a guest's kernel complained, see above");
    }
    if interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(ExitCode::from(u8::from(complained || !status.success())))
}

/// Builds what guests run.
///
/// # Errors
/// `Interrupted` after Ctrl-C; else what does not build was said.
pub(crate) fn build(context: &Context, name: &str) -> io::Result<()> {
    let mut build = context.cargo();
    build.args([
        "build",
        "--release",
        "-p",
        "morpheus-bpf",
        "-p",
        "morpheus-bench",
    ]);
    let built = process::run(&mut build, &mut |line| eprintln!("{line}"))?;
    if built.interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    if !built.success {
        return Err(io::Error::other(format!(
            "the programs of {name} do not build"
        )));
    }
    Ok(())
}

/// The records of one round, from a boot that lived to its end, and whether its kernel complained.
fn one_round(context: &Context, plan: &Plan, round: u16) -> io::Result<(String, bool)> {
    let mut why = String::new();
    let bench = plan.bench;
    for attempt in 0..TRIES {
        let mut boot = context.cargo();
        boot.args(["xtask", "vm", "--kernel", &plan.kernel]);
        boot.args(plan.clock.options((plan.seed)(round), attempt));
        boot.args(["--cpus", &(plan.cpus)(round).to_string()]);
        boot.args(["--caches", &(plan.caches)(round).to_string()]);
        boot.args(["--timeout", &plan.limit_s.to_string()]);
        for peer in &plan.peers {
            boot.arg("--add").arg(&peer.path);
        }
        boot.args(["--", bench, "--json"]);
        boot.args((plan.arguments)(round));
        let finished = process::run(&mut boot, &mut |line| {
            if !is_record(line) {
                eprintln!("{line}");
            }
        })?;
        if finished.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(lost) = lost(&finished, plan.complaints_count) {
            eprintln!("{bench}: round {round} is lost ({lost}), and measured again");
            why = lost;
            continue;
        }
        let complained = finished.code == Some(i32::from(vm::COMPLAINED));
        return Ok((records(vm::last_boot(&finished.output)), complained));
    }
    Err(io::Error::other(format!(
        "round {round} was lost {TRIES} times, at last with {why}"
    )))
}

/// Why a boot came to nothing. A guest whose command ended has measured, even if not all of it.
fn lost(finished: &Finished, complaints_count: bool) -> Option<String> {
    match finished.code {
        Some(0 | 1) => None,
        Some(code) if complaints_count && code == i32::from(vm::COMPLAINED) => None,
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
    fn what_is_tried_again_in_virtual_time_has_another_seed() {
        assert_eq!(Clock::Host.options(1, 2), ["--accel", "multi"]);
        assert_eq!(
            Clock::Virtual(3).options(7, 0),
            ["--icount=3", "--seed", "7"]
        );
        assert_eq!(
            Clock::Virtual(2).options(7, 3),
            ["--icount=2", "--seed", "3145735"]
        );
    }

    #[test]
    fn only_a_boot_that_ended_by_itself_counts() {
        let ended = |code| Finished {
            success: code == Some(0),
            code,
            output: String::new(),
            interrupted: false,
        };
        assert_eq!(lost(&ended(Some(0)), false), None);
        assert_eq!(lost(&ended(Some(1)), false), None);
        assert!(lost(&ended(Some(120)), false).unwrap().contains("120"));
        assert!(lost(&ended(None), false).is_some());
        // A complaint of the kernel may be the result.
        assert_eq!(lost(&ended(Some(120)), true), None);
        assert!(lost(&ended(Some(124)), true).is_some());
    }
}
