//! `cargo xtask vm`: runs a command under a real kernel with sched_ext, in QEMU's software emulation.
//!
//! This file reads the options and decides the exit code; `kernel` gets the kernel and `userland` what is beside it (with
//! `apt`, for a machine of `arch`), `initramfs` packs the guest (with `cpio`), `frequencies` makes its CPUs' table, `guest`
//! boots it, `console` reads what it prints.

mod apt;
pub(crate) mod arch;
mod console;
mod cpio;
mod frequencies;
mod guest;
pub(crate) mod initramfs;
mod kernel;
mod userland;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{self, ExitCode};
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::arch::Arch;
use self::guest::{Files, Machine, Outcome};
use self::initramfs::Contents;
use crate::context::Context;
use crate::install;
use crate::interrupt;
use crate::progress::Sink;
use crate::tools::Tool;

/// The kernel complained, or the guest died of it.
pub(crate) const COMPLAINED: u8 = 120;
/// There is nothing to boot: QEMU, busybox or the kernel is missing.
pub(crate) const NO_MACHINE: u8 = 121;
/// It took too long; the number is that of `timeout`, as is the next.
const TIMED_OUT: u8 = 124;
/// No exit code of the command: it was not run, or the guest ended before it.
const NO_RESULT: u8 = 125;

/// How often a guest is booted again that the emulator's fault has ended.
const REPEATS: u32 = 3;

/// Said when it is; what was printed before counts no more.
pub(crate) const AGAIN: &str = "boot again,";

/// The output since the guest was booted for the last time.
pub(crate) fn last_boot(output: &str) -> &str {
    output.rsplit_once(AGAIN).map_or(output, |(_, last)| last)
}

/// Why there is nothing to boot: the last thing that is said is what to do.
pub(crate) fn last_word(output: &str) -> String {
    let mut words = output.lines().filter_map(|line| line.strip_prefix("vm: "));
    words.next_back().unwrap_or("no machine").to_string()
}

/// Names the directory for what is fetched and built.
const CACHE: &str = "MORPHEUS_VM_CACHE";

/// The directory of a run begins with this, and ends with its process number.
const RUN: &str = "run-";

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask vm -- uname -a
  cargo xtask vm --kernel 7.2 --cpus 4 --numa 2 -- sh -c 'ls /sys/kernel/sched_ext'
  cargo xtask vm --kernel bzImage --add ./program --add ./data -- program data
  cargo xtask vm --arch aarch64 --add ./program -- program
  cargo xtask vm --cpufreq -- cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
  cargo xtask vm --accel multi --preempt lazy -- starvation      to measure";

/// The command to run, and its machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct VmArgs {
    /// A series that Debian has with sched_ext (6.16, 6.18, 7.2), or the file of a kernel (bzImage)
    #[arg(long, value_name = "SERIES|PATH", default_value = kernel::DEFAULT)]
    kernel: PathBuf,
    /// The kind of machine; of a foreign one the guest has what --add names, and nothing of the release build
    #[arg(long, value_name = "ARCH", default_value = "x86_64")]
    arch: Arch,
    /// Virtual CPUs; 2 if not given, 1 with --icount
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cpus: Option<u16>,
    /// NUMA nodes, each with the same number of CPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    numa: u16,
    /// Last-level caches of each node, with the same number of CPUs: each is a die
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    caches: u16,
    /// The kernel's preemption mode; its own choice if not given
    #[arg(long)]
    preempt: Option<Preempt>,
    /// How QEMU runs the virtual CPUs: in turn for function, in a thread each to measure
    #[arg(long, default_value = "single")]
    accel: Accel,
    /// The CPUs have frequencies that the kernel's governors set; the speed stays as it is
    #[arg(long)]
    cpufreq: bool,
    /// Time follows the instructions executed, 2^SHIFT ns each, whatever else the host does: the next run is the same
    #[arg(
        long,
        value_name = "SHIFT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(0..=10)
    )]
    icount: Option<u8>,
    /// Another run in virtual time: what is random in the guest follows from this number
    #[arg(long, value_name = "N", default_value_t = 1, requires = "icount")]
    seed: u32,
    /// The guest is ended after this many seconds
    #[arg(long = "timeout", value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_s: u64,
    /// Put this file or directory into the guest, where the command starts; programs come with their libraries
    #[arg(long, value_name = "PATH")]
    add: Vec<PathBuf>,
    /// Leave out the programs of the last `cargo build --release`
    #[arg(long)]
    only_added: bool,
    /// Install nothing; say what is missing instead
    #[arg(long)]
    no_install: bool,
    /// Show all that the kernel prints
    #[arg(short, long)]
    verbose: bool,
    /// The command and its arguments, as the guest knows them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// When the kernel takes the CPU from a task that runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preempt {
    /// At the next tick, or when the task leaves the kernel
    Lazy,
    /// At once
    Full,
}

impl Preempt {
    /// As the kernel calls it.
    fn name(self) -> &'static str {
        match self {
            Preempt::Lazy => "lazy",
            Preempt::Full => "full",
        }
    }
}

/// How QEMU runs virtual CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accel {
    /// In turn, in one thread
    Single,
    /// In a thread each
    Multi,
}

impl Accel {
    /// As QEMU calls it.
    fn name(self) -> &'static str {
        match self {
            Accel::Single => "single",
            Accel::Multi => "multi",
        }
    }
}

/// Runs the command in a guest; ends with its exit code, or with one that says why there is none.
pub(crate) fn run(context: &Context, args: &VmArgs) -> ExitCode {
    interrupt::listen();
    let code = in_guest(context, args).unwrap_or_else(|error| {
        eprintln!("vm: {error}");
        NO_RESULT
    });
    // Whatever failed because of a Ctrl-C; during a boot it was taken, and is in the code already.
    ExitCode::from(if interrupt::take() {
        interrupt::EXIT_CODE
    } else {
        code
    })
}

fn in_guest(context: &Context, args: &VmArgs) -> io::Result<u8> {
    let mut machine = machine(args).map_err(io::Error::other)?;
    if !cfg!(target_arch = "x86_64") {
        eprintln!("vm: guests are made on x86-64, and the usual one runs programs of this machine");
        return Ok(NO_MACHINE);
    }
    for path in &args.add {
        // Before anything is fetched for it.
        fs::metadata(path)
            .map_err(|error| io::Error::other(format!("--add {}: {error}", path.display())))?;
    }
    let cache = match env::var_os(CACHE) {
        Some(cache) => absolute(cache)?,
        None => context.target.join("vm"),
    };
    let mut tools = args.arch.tools().to_vec();
    tools.extend(args.cpufreq.then_some(Tool::Iasl));
    if userland::is_fetched(args.arch, &cache)
        || kernel::is_fetched(&args.kernel, args.arch, &cache)
    {
        tools.extend(apt::tools());
    }
    let missing = install::provide(
        context,
        &tools,
        !args.no_install,
        Sink::Stderr,
        args.verbose,
    );
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
        eprintln!("vm: nothing to boot without {}", names.join(", "));
        return Ok(NO_MACHINE);
    }

    fs::create_dir_all(&cache)
        .map_err(|error| io::Error::other(format!("{}: {error}", cache.display())))?;
    let found = userland::find(args.arch, &cache, args.verbose).and_then(|userland| {
        let kernel = kernel::find(&args.kernel, args.arch, &cache, args.verbose)?;
        Ok((userland, kernel))
    });
    let (userland, kernel) = match found {
        Ok(found) => found,
        Err(error) => {
            eprintln!("vm: {error}");
            return Ok(NO_MACHINE);
        }
    };

    if args.cpufreq && kernel.cpufreq.is_none() {
        eprintln!(
            "vm: no {} beside the kernel; where it is not built in, remove {} to fetch the kernel with it",
            kernel::CPUFREQ,
            cache.join("kernels").display()
        );
    }

    let work = Work::new(&cache)?;
    let frequencies = if args.cpufreq {
        Some(frequencies::compile(&work.directory, machine.cpus)?)
    } else {
        None
    };
    let initramfs = work.directory.join("initramfs.cpio");
    let programs = if args.only_added || args.arch != Arch::X86_64 {
        Vec::new()
    } else {
        programs(&context.target.join("release"))?
    };
    let contents = Contents {
        arch: args.arch,
        kernel: &kernel,
        userland: &userland,
        programs: &programs,
        added: &args.add,
        command: &args.command,
        preemption: args.preempt.map_or("", Preempt::name),
        cpufreq: args.cpufreq,
    };
    let size = initramfs::write(&initramfs, &contents)?;
    let limit = Duration::from_secs(args.timeout_s);

    let mut repeats = 0;
    let files = Files {
        kernel: &kernel,
        initramfs: &initramfs,
        initramfs_size: size,
        frequencies: frequencies.as_deref(),
    };
    loop {
        let outcome = guest::boot(&machine, &files, limit, args.verbose)?;
        if may_repeat(&machine, &outcome) && repeats < REPEATS {
            repeats += 1;
            // With the same it would come to the same.
            machine.seed = machine.seed.wrapping_add(1);
            let what = if outcome.impossible {
                "came to a state that no CPU has"
            } else {
                "ran the old translation of a patched instruction"
            };
            eprintln!("vm: the emulator {what}; {AGAIN} {repeats} of {REPEATS}");
            continue;
        }
        let (code, why) = conclusion(&outcome, args.timeout_s);
        if let Some(why) = why {
            eprintln!("vm: {why}");
        }
        return Ok(code);
    }
}

/// The machine that the options describe, or what is wrong with them.
fn machine(args: &VmArgs) -> Result<Machine, String> {
    let cpus = args.cpus.unwrap_or(if args.icount.is_some() {
        1
    } else {
        2.max(args.numa * args.caches)
    });
    if args.icount.is_some() && args.accel == Accel::Multi {
        return Err("--icount needs --accel single".to_string());
    }
    if args.cpufreq && args.arch != Arch::X86_64 {
        return Err("--cpufreq needs --arch x86_64".to_string());
    }
    if args.caches > 1 && args.arch != Arch::X86_64 {
        return Err("--caches needs --arch x86_64".to_string());
    }
    if !cpus.is_multiple_of(args.numa * args.caches) {
        return Err(format!(
            "--cpus {cpus} cannot be shared by --numa {} and --caches {}",
            args.numa, args.caches
        ));
    }
    Ok(Machine {
        arch: args.arch,
        cpus,
        nodes: args.numa,
        caches: args.caches,
        accel: args.accel,
        icount: args.icount,
        seed: args.seed,
        preempt: args.preempt,
    })
}

/// Only the emulator's own fault, and only where it is known to happen.
fn may_repeat(machine: &Machine, outcome: &Outcome) -> bool {
    let is_emulators =
        outcome.impossible || outcome.stale_translation && machine.accel == Accel::Multi;
    is_emulators && !outcome.interrupted
}

/// The exit code, and why it is not the command's.
fn conclusion(outcome: &Outcome, timeout_s: u64) -> (u8, Option<String>) {
    if outcome.interrupted {
        (interrupt::EXIT_CODE, Some("interrupted".to_string()))
    } else if let Some(complaint) = &outcome.complaint {
        (
            COMPLAINED,
            Some(format!("the kernel complained: {complaint}")),
        )
    } else if outcome.timed_out {
        let who = match outcome {
            Outcome { exit: Some(_), .. } => "the guest did not switch itself off",
            Outcome { ready: true, .. } => "the command did not end",
            _ => "the guest was not up",
        };
        (TIMED_OUT, Some(format!("{who} within {timeout_s} s")))
    } else if let Some(why) = &outcome.refused {
        (NO_RESULT, Some(format!("the command was not run: {why}")))
    } else if let Some(code) = outcome.exit {
        (code, None)
    } else {
        (
            NO_RESULT,
            Some("the guest ended before the command".to_string()),
        )
    }
}

/// The programs in cargo's directory for release builds; none where nothing was built.
fn programs(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The rest is libraries, and cargo's notes.
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 && !name.contains('.') {
            programs.push(entry.path());
        }
    }
    programs.sort();
    Ok(programs)
}

/// A directory for this run, gone at its end.
struct Work {
    directory: PathBuf,
}

impl Work {
    fn new(cache: &Path) -> io::Result<Work> {
        remove_orphans(cache);
        let directory = cache.join(format!("{RUN}{}", process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Work { directory })
    }
}

/// Removes what runs left behind that were killed.
fn remove_orphans(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(RUN)
            .and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another run may be faster.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A directory that stays costs room only.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: VmArgs,
    }

    fn parse(line: &str) -> Result<VmArgs, clap::Error> {
        let words = ["vm"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    fn machine_of(line: &str) -> Result<Machine, String> {
        machine(&parse(line).unwrap())
    }

    #[test]
    fn machines() {
        let plain = machine_of("-- true").unwrap();
        assert_eq!(
            (plain.cpus, plain.nodes, plain.accel),
            (2, 1, Accel::Single)
        );
        assert_eq!(machine_of("--icount -- true").unwrap().cpus, 1);
        assert_eq!(machine_of("--icount -- true").unwrap().icount, Some(1));
        let slower = machine_of("--icount=3 --cpus 2 -- true").unwrap();
        assert_eq!((slower.icount, slower.cpus), (Some(3), 2));
        assert_eq!(machine_of("--icount --seed 7 -- true").unwrap().seed, 7);
        assert_eq!(machine_of("--numa 4 -- true").unwrap().cpus, 4);
        assert_eq!(machine_of("--cpus 4 --numa 2 -- true").unwrap().nodes, 2);
    }

    #[test]
    fn machines_that_cannot_be() {
        for line in [
            "--cpus 3 --numa 2 -- true",
            "--cpus 2 --numa 4 -- true",
            "--cpus 4 --numa 2 --caches 4 -- true",
            "--arch aarch64 --cpus 4 --caches 2 -- true",
            "--icount --accel multi -- true",
            "--icount=3 --accel multi -- true",
            "--arch aarch64 --cpufreq -- true",
        ] {
            assert!(machine_of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn options_that_make_no_sense() {
        for line in [
            "",
            "true",
            "--cpus 0 -- true",
            "--cpus 65 -- true",
            "--cpus two -- true",
            "--numa 0 -- true",
            "--timeout 0 -- true",
            "--preempt never -- true",
            "--accel kvm -- true",
            "--icount=11 -- true",
            "--arch riscv64 -- true",
            "--icount 3 true",
            "--seed 7 -- true",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_follows_the_dashes_is_the_commands() {
        let args = parse("--add a --add b -- sh --cpus 0").unwrap();
        assert_eq!(args.command, ["sh", "--cpus", "0"]);
        assert_eq!(args.add.len(), 2);
    }

    #[test]
    fn only_what_nobody_uses_is_removed() {
        let cache = env::temp_dir().join(format!("xtask-vm-{}", process::id()));
        let own = Work::new(&cache).unwrap();
        // Process numbers end below that.
        for name in ["run-4294967295", "run-me", "kernels"] {
            fs::create_dir(cache.join(name)).unwrap();
        }
        remove_orphans(&cache);
        assert!(own.directory.is_dir());
        assert!(!cache.join("run-4294967295").exists());
        assert!(cache.join("run-me").is_dir() && cache.join("kernels").is_dir());
        let directory = own.directory.clone();
        drop(own);
        assert!(!directory.exists());
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn exit_codes() {
        let ended = Outcome {
            exit: Some(3),
            ..Outcome::default()
        };
        assert_eq!(conclusion(&ended, 9), (3, None));
        let complained = Outcome {
            complaint: Some("WARNING: x".to_string()),
            timed_out: true,
            ..ended.clone()
        };
        assert_eq!(conclusion(&complained, 9).0, COMPLAINED);
        let timed_out = Outcome {
            timed_out: true,
            ..Outcome::default()
        };
        assert_eq!(conclusion(&timed_out, 9).0, TIMED_OUT);
        let refused = Outcome {
            refused: Some("no such mode".to_string()),
            ..Outcome::default()
        };
        assert_eq!(conclusion(&refused, 9).0, NO_RESULT);
        assert_eq!(conclusion(&Outcome::default(), 9).0, NO_RESULT);
        let interrupted = Outcome {
            interrupted: true,
            ..complained
        };
        assert_eq!(conclusion(&interrupted, 9).0, interrupt::EXIT_CODE);
    }

    #[test]
    fn only_the_emulators_fault_is_repeated() {
        let multi = machine_of("--accel multi -- true").unwrap();
        let single = machine_of("-- true").unwrap();
        let fault = Outcome {
            complaint: Some("Oops: int3".to_string()),
            stale_translation: true,
            ..Outcome::default()
        };
        assert!(may_repeat(&multi, &fault));
        assert!(!may_repeat(&single, &fault));
        let other = Outcome {
            stale_translation: false,
            ..fault
        };
        assert!(!may_repeat(&multi, &other));
        let impossible = Outcome {
            impossible: true,
            ..other
        };
        assert!(may_repeat(&multi, &impossible) && may_repeat(&single, &impossible));
    }
}
