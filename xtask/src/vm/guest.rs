//! Boots a guest under QEMU's software emulation, and follows it to its end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::arch::Arch;
use super::console::{self, Kind, Separator, Word};
use super::kernel::Kernel;
use super::{Accel, Preempt};
use crate::process::{self, Stream};
use crate::tools::Tool;

/// Room for the guest beside what was packed for it, in MiB.
const MEMORY_MIB: u64 = 2048;
/// The priority of QEMU's main loop, of 1 to 99.
const PRIORITY: libc::c_int = 50;
/// This many of the kernel's last lines are shown when nothing else says what went wrong.
const RECENT: usize = 30;

/// The emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) arch: Arch,
    pub(super) cpus: u16,
    /// NUMA nodes, each a socket with its share of the CPUs and the memory.
    pub(super) nodes: u16,
    /// Last-level caches of each node, with the same number of CPUs.
    pub(super) caches: u16,
    pub(super) accel: Accel,
    /// Time follows the instructions executed: 2 to this power ns each.
    pub(super) icount: Option<u8>,
    /// Seeds all randomness there, where time follows the instructions.
    pub(super) seed: u32,
    pub(super) preempt: Option<Preempt>,
}

/// The files that the machine is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) initramfs: &'a Path,
    /// In bytes.
    pub(super) initramfs_size: u64,
    /// The ACPI table of the CPUs' frequencies, where they have any.
    pub(super) frequencies: Option<&'a Path>,
}

/// How a boot went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The command was started.
    pub(super) ready: bool,
    /// The command's exit code, once it has ended.
    pub(super) exit: Option<u8>,
    /// Why the command was not run.
    pub(super) refused: Option<String>,
    /// The kernel's first complaint.
    pub(super) complaint: Option<String>,
    /// That one was the emulator's fault: see [`Kind::StaleTranslation`].
    pub(super) stale_translation: bool,
    /// With the complaint came a state that no CPU can be in.
    pub(super) impossible: bool,
    pub(super) timed_out: bool,
    pub(super) interrupted: bool,
}

/// Boots once, and passes the command's output on to standard output, what the kernel says to standard error.
///
/// # Errors
///
/// QEMU cannot be started.
pub(super) fn boot(
    machine: &Machine,
    files: &Files<'_>,
    limit: Duration,
    verbose: bool,
) -> io::Result<Outcome> {
    let memory_mib = MEMORY_MIB + 2 * files.initramfs_size.div_ceil(1 << 20);
    let mut command = Command::new(machine.arch.qemu().name());
    command.args(arguments(machine, memory_mib, verbose));
    command.args(["-cpu", &cpu(machine, files)]);
    command.arg("-kernel").arg(&files.kernel.image);
    command.arg("-initrd").arg(files.initramfs);
    if let Some(table) = files.frequencies {
        let mut file = OsString::from("file=");
        file.push(table);
        command.arg("-acpitable").arg(file);
    }
    // SAFETY: `prctl` takes no pointers here, and is allowed between `fork` and `exec`. The thread whose end counts is
    // the caller's, which waits for QEMU.
    unsafe {
        // Without this, a guest would outlive an xtask that was killed.
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }

    let mut watch = Watch::new(verbose);
    let ending = process::stream(
        &mut command,
        limit,
        &mut |pid| introduce(machine, files, pid),
        &mut |stream, chunk| watch.add(stream, chunk),
    )?;
    let mut outcome = watch.end();
    outcome.timed_out = ending.timed_out;
    outcome.interrupted = ending.interrupted;
    Ok(outcome)
}

/// Says what was started, and what was done about the emulator's peculiarities.
fn introduce(machine: &Machine, files: &Files<'_>, pid: u32) {
    let kernel = files.kernel;
    let main_loop = match hurry(pid) {
        Ok(()) => format!("QEMU's main loop at real-time priority {PRIORITY}"),
        Err(error) => {
            format!(
                "QEMU's main loop without real-time priority ({error}): the guest's timers are late"
            )
        }
    };
    let icount = if machine.icount.is_some() {
        ", icount"
    } else {
        ""
    };
    eprintln!(
        "vm: Linux {}, {}, CPUs {}, nodes {}, caches {}, tcg thread={}{icount}; {main_loop}",
        kernel.release,
        machine.arch.name(),
        machine.cpus,
        machine.nodes,
        machine.nodes * machine.caches,
        machine.accel.name(),
    );
    if files.frequencies.is_some() {
        eprintln!(
            "vm: the CPUs' frequencies are a table; instructions take as long at each, and the clock source is hpet"
        );
    }
    if kernel.config.is_none() {
        eprintln!(
            "vm: no configuration beside the kernel, so none in the guest: scx_utils will not load there"
        );
    }
}

/// Lets QEMU's main loop run before its virtual CPUs: it delivers the guest's timer interrupts.
fn hurry(pid: u32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let parameter = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // Threads and processes that it starts have the usual policy: its virtual CPUs would otherwise starve this machine.
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a local that outlives the call; the process has not been waited for, so its number is its
    // own.
    match unsafe { libc::sched_setscheduler(pid, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The model of the CPUs. Its name says whose time it is: a benchmark in a guest shows it.
fn cpu(machine: &Machine, files: &Files<'_>) -> String {
    let mut cpu = "max".to_string();
    // The driver of frequencies binds to no CPU of the emulator's own vendor, and for those a cache is a node's.
    if files.frequencies.is_some() || machine.caches > 1 {
        cpu += ",vendor=GenuineIntel";
    }
    if machine.arch == Arch::Aarch64 {
        // Signs addresses as fast as the emulator can, and not by the algorithm that the manual suggests.
        cpu += ",pauth-impdef=on";
    } else if let Some(shift) = machine.icount {
        let ns = 1 << shift;
        // 47 characters at most.
        cpu += &format!(",model-id=QEMU in virtual time ({ns} ns an instruction)");
    }
    cpu
}

/// QEMU's arguments, but for those that the files decide.
fn arguments(machine: &Machine, memory_mib: u64, verbose: bool) -> Vec<OsString> {
    let nodes = u64::from(machine.nodes);
    let node_mib = memory_mib.div_ceil(nodes);
    let cores = machine.cpus / machine.nodes;
    let mut arguments: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-nic",
        "none",
        // Two serial lines, so that the kernel never writes into the command's output. As files: no terminal is touched.
        "-chardev",
        "file,id=kernel,path=/dev/stderr",
        "-serial",
        "chardev:kernel",
        "-chardev",
        "file,id=command,path=/dev/stdout",
    ]
    .map(str::to_string)
    .to_vec();
    arguments.extend(machine.arch.machine().iter().map(|&word| word.to_string()));
    let mut add = |name: &str, value: String| arguments.extend([name.to_string(), value]);
    add("-accel", format!("tcg,thread={}", machine.accel.name()));
    add("-m", format!("{}M", node_mib * nodes));
    if machine.nodes * machine.caches == 1 {
        add("-smp", machine.cpus.to_string());
    } else {
        let (cpus, dies) = (machine.cpus, machine.caches);
        let of_die = cores / dies;
        let dies = match dies {
            // Not every machine has dies.
            1 => String::new(),
            _ => format!("dies={dies},"),
        };
        add(
            "-smp",
            format!("{cpus},sockets={nodes},{dies}cores={of_die}"),
        );
    }
    if machine.nodes > 1 {
        for node in 0..machine.nodes {
            let (first, last) = (node * cores, (node + 1) * cores - 1);
            add(
                "-object",
                format!("memory-backend-ram,id=m{node},size={node_mib}M"),
            );
            add(
                "-numa",
                format!("node,nodeid={node},cpus={first}-{last},memdev=m{node}"),
            );
        }
    }
    if let Some(shift) = machine.icount {
        add("-icount", format!("shift={shift},sleep=off"));
        add("-rtc", "base=2026-01-01,clock=vm".to_string());
        add("-seed", machine.seed.to_string());
    }
    add("-append", kernel_parameters(machine, verbose));
    arguments.into_iter().map(OsString::from).collect()
}

fn kernel_parameters(machine: &Machine, verbose: bool) -> String {
    // While it boots only warnings and worse (5): each character costs time. `/init` asks for more.
    let level = if verbose { 7 } else { 5 };
    // After an oops nothing that is measured or tested means anything; a panic ends QEMU.
    // The emulator keeps what it has translated by virtual address. Were a program to lie elsewhere each time it is started,
    // its code would be translated anew each time, and where many are started, the table of translations would grow all
    // the while: as often as it doubles, both CPUs stop for 50 to 300 ms.
    // Some kernels test their cryptography when they boot: on 7.2 for seven seconds in emulation, long after `/init` has
    // begun, with preemption off for up to a second and a half at a time. A thread that waits there is not our finding.
    let mut parameters = format!(
        "console={} panic=-1 oops=panic norandmaps cryptomgr.notests=1 loglevel={level}",
        machine.arch.kernel_line()
    );
    if let Some(preempt) = machine.preempt {
        parameters += " preempt=";
        parameters += preempt.name();
    }
    if machine.icount.is_some() {
        // Where the kernel lies would differ from boot to boot.
        parameters += " nokaslr";
    }
    parameters
}

/// Follows both serial lines.
struct Watch {
    separator: Separator,
    lines: process::Output,
    kernel: Printed,
    started: Instant,
    outcome: Outcome,
}

/// The output of the kernel (or QEMU).
#[derive(Default)]
struct Printed {
    /// Every line is shown: as asked, or since the first complaint.
    all: bool,
    recent: VecDeque<String>,
    complaint: Option<String>,
    stale_translation: bool,
    impossible: bool,
    /// A stall is meant to come.
    foretold: bool,
}

impl Watch {
    fn new(verbose: bool) -> Watch {
        Watch {
            separator: Separator::default(),
            lines: process::Output::default(),
            kernel: Printed {
                all: verbose,
                ..Printed::default()
            },
            started: Instant::now(),
            outcome: Outcome::default(),
        }
    }

    fn add(&mut self, stream: Stream, chunk: &[u8]) {
        let Watch {
            separator,
            lines,
            kernel,
            started,
            outcome,
        } = self;
        match stream {
            Stream::Stdout => separator.add(chunk, &mut pass_on, &mut |word| {
                hear(word, started.elapsed(), outcome);
            }),
            Stream::Stderr => lines.add(chunk, &mut |line| kernel.line(line)),
        }
    }

    fn end(mut self) -> Outcome {
        self.separator.end(&mut pass_on);
        self.lines.end(&mut |line| self.kernel.line(line));
        let outcome = Outcome {
            complaint: self.kernel.complaint,
            stale_translation: self.kernel.stale_translation,
            impossible: self.kernel.impossible,
            ..self.outcome
        };
        let explained = outcome.ready || outcome.refused.is_some() || outcome.complaint.is_some();
        if !explained && !self.kernel.all {
            for line in &self.kernel.recent {
                eprintln!("kernel: {line}");
            }
        }
        outcome
    }
}

impl Printed {
    fn line(&mut self, line: &str) {
        let line = console::printable(line);
        let mut kind = console::kind(&line);
        match kind {
            Kind::Foretold(meant) => self.foretold = meant,
            Kind::Complaint if self.foretold && console::is_stall(&line) => {
                self.foretold = false;
                kind = Kind::SchedExt;
            }
            _ => {}
        }
        if matches!(kind, Kind::Complaint | Kind::StaleTranslation) && self.complaint.is_none() {
            self.stale_translation = kind == Kind::StaleTranslation;
            self.complaint = Some(line.clone());
            // The lines that follow belong to it: registers, the trace.
            self.all = true;
        }
        if self.complaint.is_some() && console::is_impossible(&line) {
            self.impossible = true;
        }
        if self.all || kind != Kind::Other || is_news_of_qemu(&line) {
            eprintln!("kernel: {line}");
        }
        self.recent.push_back(line);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

/// Whether a line is QEMU's own, and not that it was ended: that is known here.
fn is_news_of_qemu(line: &str) -> bool {
    [Tool::Qemu, Tool::QemuAarch64]
        .iter()
        .any(|qemu| line.starts_with(qemu.name()))
        && !line.contains(": terminating on signal ")
}

/// A reader that is gone (`| head`) does not stop the command.
fn pass_on(output: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(output).and_then(|()| stdout.flush());
}

fn hear(word: Word, since_start: Duration, outcome: &mut Outcome) {
    let after_s = since_start.as_secs_f64();
    match word {
        Word::Ready(preemption) => {
            eprintln!("vm: up after {after_s:.1} s, preemption: {preemption}");
            outcome.ready = true;
        }
        Word::Refused(why) => outcome.refused = Some(why),
        Word::Exit(code) => {
            eprintln!("vm: the command ended with exit code {code} after {after_s:.1} s");
            outcome.exit = Some(code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        arch: Arch::X86_64,
        cpus: 2,
        nodes: 1,
        caches: 1,
        accel: Accel::Single,
        icount: None,
        seed: 1,
        preempt: None,
    };

    fn line(machine: &Machine) -> String {
        let words = arguments(machine, 2049, false);
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn a_plain_machine() {
        let line = line(&MACHINE);
        assert!(
            line.contains("-accel tcg,thread=single -m 2049M -smp 2 -append"),
            "{line}"
        );
        assert!(
            !line.contains("-numa") && !line.contains("-icount"),
            "{line}"
        );
        assert!(line.contains(" norandmaps cryptomgr.notests=1 "), "{line}");
        assert!(
            !line.contains("preempt=") && !line.contains("nokaslr"),
            "{line}"
        );
    }

    #[test]
    fn a_foreign_machine() {
        let machine = Machine {
            arch: Arch::Aarch64,
            ..MACHINE
        };
        let line = line(&machine);
        assert!(
            line.contains("-machine virt -device pci-serial,chardev=command"),
            "{line}"
        );
        assert!(line.contains("console=ttyAMA0 "), "{line}");
        assert!(is_news_of_qemu("qemu-system-aarch64: no such device"));
    }

    #[test]
    fn nodes_share_cpus_and_memory() {
        let line = line(&Machine {
            cpus: 4,
            nodes: 2,
            accel: Accel::Multi,
            ..MACHINE
        });
        for part in [
            "thread=multi -m 2050M -smp 4,sockets=2,cores=2",
            "-object memory-backend-ram,id=m0,size=1025M -numa node,nodeid=0,cpus=0-1,memdev=m0",
            "-object memory-backend-ram,id=m1,size=1025M -numa node,nodeid=1,cpus=2-3,memdev=m1",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn nodes_share_caches() {
        let machine = Machine {
            cpus: 16,
            nodes: 2,
            caches: 2,
            ..MACHINE
        };
        let line = line(&machine);
        assert!(line.contains("-smp 16,sockets=2,dies=2,cores=4 "), "{line}");
        assert!(line.contains("nodeid=1,cpus=8-15,"), "{line}");
    }

    #[test]
    fn virtual_time_and_preemption() {
        let line = line(&Machine {
            cpus: 1,
            icount: Some(1),
            preempt: Some(Preempt::Lazy),
            ..MACHINE
        });
        assert!(line.contains("-icount shift=1,sleep=off"), "{line}");
        assert!(line.contains("-seed 1"), "{line}");
        assert!(line.ends_with(" preempt=lazy nokaslr"), "{line}");
    }

    #[test]
    fn only_the_first_complaint_tells_whose_fault_it_is() {
        let mut printed = Printed::default();
        printed.line("[    1.0] Oops: int3: 0000 [#1] SMP NOPTI\r");
        printed.line("[    1.0] Kernel panic - not syncing: Fatal exception\r");
        assert!(printed.stale_translation && printed.all);
        let complaint = printed.complaint.unwrap();
        assert_eq!(complaint, "[    1.0] Oops: int3: 0000 [#1] SMP NOPTI");

        let mut printed = Printed::default();
        printed.line("[    1.0] WARNING: CPU: 0 PID: 1 at kernel/sched/ext.c:42");
        printed.line("[    1.0] Oops: int3: 0000 [#1] SMP NOPTI");
        assert!(!printed.stale_translation);
    }
}
