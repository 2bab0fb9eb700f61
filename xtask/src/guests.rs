//! The steps that boot a real kernel: which machines there are, and what runs in each.
//!
//! Each is a call of `cargo xtask vm`, which a person can type as well; `cargo xtask test --list` shows it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::Context;
use crate::counts::Counts;
use crate::process;
use crate::runner::Outcome;
use crate::steps::Part;
use crate::tools::Tool;
use crate::vm::arch::Arch;
use crate::vm::{self, initramfs};

/// Whose test programs run in guests, as root, with [`VARIABLE`] set.
const PACKAGE: &str = "morpheus-bpf";

/// The daemon, which they start.
const DAEMON: &str = "scx_morpheus";

/// Whose programs run in guests beside them.
const BENCHMARKS: &str = "morpheus-bench";

/// Whose programs the doctor's tests look at. They keep their symbols and lines: these are what is tested.
const PATIENTS: &str = "morpheus-patients";

/// Tells a test that it is in a guest that was booted for it: root, and free to do with the machine as it likes.
const VARIABLE: &str = "MORPHEUS_GUEST";

/// The kernel with long-term support: all tests run on it, and it must be there.
const LONG_TERM: &str = "6.18";

/// Tests that need a machine under the scheduler: the ladder and how the scheduler comes and goes.
const LADDER: &[&str] = &["scheduler", "runtime", "crowd"];

/// The link of an observer, and the socket.
const LINK: &[&str] = &["observer", "broker", "isolation"];

/// Tasks of all other processes.
const MACHINE: &[&str] = &["tiers", "cgroups", "pinned", "idle"];

/// Operators, and processes that mean harm.
const OTHERS: &[&str] = &["hostile", "kernel_memory", "operator", "ejection"];

/// Tests of behaviour that differs between kernels. The socket and its limits are the daemon's own.
const KERNEL: &[&str] = &[
    "observer",
    "runtime",
    "scheduler",
    "crowd",
    "tiers",
    "cgroups",
];

/// The tests of `scheduler` that start it many times. Each start is seconds of an emulated verifier.
const MANY_STARTS: &str = "comes_and_goes_twenty_times each_switch_switches";
const FEW_STARTS: &str = "--skip comes_and_goes_twenty_times --skip each_switch_switches --skip enabled_within_two_seconds";

/// How long one takes, on a CPU of 1 ns an instruction.
const ONE_START: &str = "enabled_within_two_seconds";

/// Tests that depend on how much of a CPU each task gets: on one CPU that is exact.
const SHARES: &[&str] = &["shares", "crowd"];

/// Tests that need four CPUs of one last-level cache, or lay pairs over them.
const PLACEMENT: &[&str] = &["placement", "affinity"];

/// Tests that need CPUs whose capacities can be made up.
const HYBRID: &[&str] = &["hybrid"];

/// Tests that need several last-level caches.
const DOMAINS: &[&str] = &["domains"];

/// Tests that need many CPUs in several domains.
const SERVER: &[&str] = &["domains", "conserving"];

/// The test of the scheduler's cost, as a ratio to the kernel's own: exact in virtual time.
const OVERHEAD: &[&str] = &["cost"];

/// The doctor, on the programs that [`DOCTOR_PATIENTS`] names.
const DOCTOR: &[&str] = &["doctor"];
const DOCTOR_PATIENTS: &[&str] = &[
    "patient-argon2",
    "patient-files",
    "patient-healthy",
    "patient-json",
    "patient-lookup",
    "patient-mutex",
    "patient-println",
    "patient-regex",
    "patient-sleep",
    "patient-spin",
    "patient-sqlite",
    "patient-threads",
];

/// Without the tests that need a CPU which is not emulated: polls there are ten times as long, and begin less often.
const DIAGNOSES: &str = "--skip not_much_longer --skip tasks_of_morpheus --skip in_a_stripped_program --skip waits_for_the_lock";

/// Tests that need CPUs with frequencies. Times are exact on one CPU whose clock counts its instructions.
const FREQUENCIES: &[&str] = &["cpuperf"];

/// A machine, and what runs in it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Words behind the kernel's, in the step's name.
    what: &'static str,
    kernel: &'static str,
    part: Part,
    /// Further options of `cargo xtask vm`, separated by blanks.
    options: &'static str,
    pub(crate) needs: &'static [Tool],
    work: GuestWork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestWork {
    /// Test programs, and what each is told, beside running one test at a time.
    Tests(&'static [&'static str], &'static str),
    /// A line for the guest's shell, which counts as one.
    Command(&'static str),
}

/// Everything that an emulated machine with this project's programs needs, and a table of frequencies last.
const NEEDS_CPUFREQ: &[Tool] = &[
    Tool::Clang,
    Tool::Libelf,
    Tool::Zlib,
    Tool::PkgConfig,
    Tool::Make,
    Tool::Gcc,
    Tool::Qemu,
    Tool::Busybox,
    Tool::Iasl,
];

/// The same without that.
const NEEDS: &[Tool] = NEEDS_CPUFREQ.split_at(NEEDS_CPUFREQ.len() - 1).0;

/// The benchmark's suites that fail where a rule is broken. In virtual time, in which a wait is the scheduler's own.
const SUITES: &str = "for suite in contention pcpu scx trace soak; do scale --suite $suite --schedulers morpheus --iterations 1 \
                      --duration 3 || exit 1; done";

const SHAPE: &str = include_str!("shape.sh");
const SHAPE_OF_NODES: &str = concat!(
    "test -d /sys/devices/system/node/node1 || exit 1\n",
    include_str!("shape.sh")
);

/// In virtual time: what else the host does decides how long it takes, and nothing else.
const TWO_CPUS: &str = "--cpus 2 --icount=3 --timeout 3000";

/// All of them, the long ones first: two run at once.
pub(crate) const GUESTS: &[Guest] = &[
    Guest {
        part: Part::Default,
        work: GuestWork::Tests(LADDER, FEW_STARTS),
        ..tests(LONG_TERM, "tests", LADDER)
    },
    Guest {
        work: GuestWork::Tests(&["scheduler"], MANY_STARTS),
        ..tests(LONG_TERM, "many starts", &["scheduler"])
    },
    Guest {
        options: "--cpus 2 --icount=0 --timeout 600",
        work: GuestWork::Tests(&["scheduler"], ONE_START),
        ..tests(LONG_TERM, "one start", &["scheduler"])
    },
    others("6.16"),
    others("7.2"),
    tests(LONG_TERM, "the whole machine", MACHINE),
    tests(LONG_TERM, "operators and attackers", OTHERS),
    tests(LONG_TERM, "links", LINK),
    Guest {
        options: "--cpus 1 --icount=3 --timeout 1500",
        ..tests(LONG_TERM, "shares of one CPU", SHARES)
    },
    tests(LONG_TERM, "overhead", OVERHEAD),
    Guest {
        // A CPU of 500 million instructions a second: on a slower one the faults of `argon2` and `json` leave no idle worker.
        options: "--cpus 2 --icount=1 --timeout 3000",
        work: GuestWork::Tests(DOCTOR, DIAGNOSES),
        ..tests(LONG_TERM, "a doctor", DOCTOR)
    },
    command("one CPU", "--cpus 1", SHAPE),
    command("3 CPUs", "--cpus 3", SHAPE),
    command("7 CPUs", "--cpus 7", SHAPE),
    command("8 CPUs", "--cpus 8", SHAPE),
    command("4 CPUs in 2 nodes", "--cpus 4 --numa 2", SHAPE_OF_NODES),
    Guest {
        options: "--cpus 4 --numa 2 --icount=3 --timeout 1500",
        ..tests(LONG_TERM, "domains in 2 nodes", DOMAINS)
    },
    Guest {
        options: "--cpus 16 --numa 2 --caches 2 --icount=3 --timeout 3000",
        ..tests(LONG_TERM, "16 CPUs in 4 domains", SERVER)
    },
    Guest {
        // At 8 ns an instruction, each of 64 CPUs that run in turn would be so slow that threads wait for seconds under any scheduler.
        options: "--cpus 64 --numa 4 --caches 2 --icount=0 --timeout 3000",
        work: GuestWork::Tests(DOMAINS, "no_thread_waits"),
        ..tests(LONG_TERM, "64 CPUs in 8 domains", DOMAINS)
    },
    Guest {
        options: "--cpus 32 --numa 4 --caches 8 --icount=3 --timeout 900",
        work: GuestWork::Tests(DOMAINS, "many_domains"),
        ..tests(LONG_TERM, "32 domains", DOMAINS)
    },
    Guest {
        // With two, the masks of idle CPUs are not by node while one of them is missing.
        options: "--cpus 6 --numa 3 --icount=3 --timeout 900",
        work: GuestWork::Tests(DOMAINS, "comes_later"),
        ..tests(LONG_TERM, "a node that comes later", DOMAINS)
    },
    Guest {
        options: "--cpus 4 --icount=3 --timeout 1500",
        ..tests(LONG_TERM, "placement near a cache", PLACEMENT)
    },
    Guest {
        options: "--cpus 4 --icount=3 --timeout 900",
        ..tests(LONG_TERM, "cores of two kinds", HYBRID)
    },
    command(
        "everything at once",
        "--cpus 2 --icount=3 --timeout 900",
        SUITES,
    ),
    frequencies(LONG_TERM),
    frequencies("6.16"),
    frequencies("7.2"),
    Guest {
        needs: NEEDS_CPUFREQ,
        ..command("a governor", "--cpufreq", include_str!("governor.sh"))
    },
    Guest {
        needs: NEEDS_CPUFREQ,
        ..command(
            "a governor beside the scheduler",
            "--cpus 2 --cpufreq --icount=3 --timeout 600",
            include_str!("beside.sh"),
        )
    },
];

const fn tests(kernel: &'static str, what: &'static str, tests: &'static [&'static str]) -> Guest {
    Guest {
        what,
        kernel,
        part: Part::All,
        options: TWO_CPUS,
        needs: NEEDS,
        work: GuestWork::Tests(tests, ""),
    }
}

/// The kernels beside the one with long-term support.
const fn others(kernel: &'static str) -> Guest {
    Guest {
        work: GuestWork::Tests(KERNEL, FEW_STARTS),
        ..tests(kernel, "tests", KERNEL)
    }
}

/// The guest that tests the scheduler's requests to a governor.
const fn frequencies(kernel: &'static str) -> Guest {
    Guest {
        options: "--cpus 1 --icount --cpufreq --timeout 600",
        needs: NEEDS_CPUFREQ,
        ..tests(kernel, "frequencies", FREQUENCIES)
    }
}

/// A machine of another shape.
const fn command(what: &'static str, options: &'static str, line: &'static str) -> Guest {
    Guest {
        what,
        kernel: LONG_TERM,
        part: Part::All,
        options,
        needs: NEEDS,
        work: GuestWork::Command(line),
    }
}

/// Test programs of other packages that show something in a release build alone: machine code, instructions, speed.
const ON_HOST: &[(&str, &[&str])] = &[
    ("morpheus-runtime", &["checkpoint_asm", "holds"]),
    (BENCHMARKS, &["instructions", "loops"]),
];

/// Programs that cargo has built, and where each is.
#[derive(Debug)]
pub(crate) struct Programs(HashMap<&'static str, PathBuf>);

impl Programs {
    /// Finds what guests of the default run are given in what cargo said while it built all tests.
    ///
    /// # Errors
    ///
    /// Cargo named no such program, or it cannot be copied.
    pub(crate) fn of_tests(context: &Context, messages: &str) -> io::Result<Programs> {
        let default = GUESTS.iter().filter(|guest| !guest.is_optimized());
        for_guests(context, Build::Tests, default, messages).map(Programs)
    }

    /// Finds what the other guests are given, and the programs of [`ON_HOST`], in what cargo said of the release build.
    ///
    /// # Errors
    ///
    /// The same.
    pub(crate) fn of_release(context: &Context, messages: &str) -> io::Result<Programs> {
        let others = GUESTS.iter().filter(|guest| guest.is_optimized());
        let mut programs = for_guests(context, Build::Release, others, messages)?;
        for test in tests_on_host() {
            programs.insert(test, executable(messages, "test", test, true)?);
        }
        Ok(Programs(programs))
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// If no table names it.
    pub(crate) fn of(&self, name: &str) -> &Path {
        &self.0[name]
    }
}

/// Copies programs under names of their own, mostly without the lines of their source: cargo's names end in a number that changes,
/// and a guest unpacks all that it is given.
fn for_guests<'a>(
    context: &Context,
    build: Build,
    guests: impl Iterator<Item = &'a Guest>,
    messages: &str,
) -> io::Result<HashMap<&'static str, PathBuf>> {
    let directory = context.target.join("guest").join(build.directory());
    fs::create_dir_all(&directory)?;
    let built = programs_of(guests).into_iter().map(|(kind, name)| {
        let built = executable(messages, kind, name, kind == "test")?;
        let program = directory.join(name);
        let keeps_lines = DOCTOR_PATIENTS.contains(&name);
        if keeps_lines || !initramfs::strip(Arch::X86_64, &built, &program) {
            // A link would do, but for file systems that have none.
            fs::copy(&built, &program)?;
        }
        Ok((name, program))
    });
    built.collect()
}

/// The build of a guest's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// With the host's tests: a release build takes longer than the guest of the default run.
    Tests,
    /// Optimized: some workloads come to what they are to show only so.
    Release,
}

impl Build {
    fn directory(self) -> &'static str {
        match self {
            Build::Tests => "tests",
            Build::Release => "release",
        }
    }
}

impl Guest {
    /// Whether its programs are those of the release build.
    pub(crate) fn is_optimized(&self) -> bool {
        self.build() == Build::Release
    }

    fn build(&self) -> Build {
        match self.part {
            Part::Default => Build::Tests,
            _ => Build::Release,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("Linux {}: {}", self.kernel, self.what)
    }

    pub(crate) fn part(&self) -> Part {
        self.part
    }

    /// Whether its outcome is a number of tests.
    pub(crate) fn counts_tests(&self) -> bool {
        matches!(self.work, GuestWork::Tests(..))
    }

    /// The command line that does the same by hand, after the programs are built.
    pub(crate) fn shell_line(&self) -> String {
        let (adds, script) = match self.work {
            GuestWork::Tests(tests, arguments) => {
                let directory = self.build().directory();
                let add = |name| format!(" --add target/guest/{directory}/{name}");
                let adds: Vec<String> = added(tests).map(add).collect();
                (
                    format!(" --only-added{}", adds.concat()),
                    test_script(tests, arguments),
                )
            }
            GuestWork::Command(line) => (String::new(), line.trim().to_string()),
        };
        // Several lines of a script are too many for a list.
        let script = script.lines().next_back().unwrap_or_default();
        format!(
            "cargo xtask vm --kernel {} {}{adds} -- sh -c '{script}'",
            self.kernel, self.options
        )
    }

    /// Boots it with the programs that it runs, and counts. A command has all of the release build.
    ///
    /// # Errors
    ///
    /// This program cannot be started again.
    pub(crate) fn run(
        &self,
        context: &Context,
        programs: &Programs,
        install: bool,
        on_line: &mut dyn FnMut(&str),
    ) -> io::Result<Outcome> {
        // This very program: cargo would wait for the build directory, and may have replaced the file since.
        let mut boot = Command::new("/proc/self/exe");
        boot.current_dir(&context.root)
            .env("CARGO_TARGET_DIR", &context.target)
            .args(["vm", "--kernel", self.kernel])
            .args(self.options.split(' '));
        if !install {
            boot.arg("--no-install");
        }
        let script = match self.work {
            GuestWork::Tests(tests, arguments) => {
                boot.arg("--only-added");
                for name in added(tests) {
                    boot.arg("--add").arg(programs.of(name));
                }
                test_script(tests, arguments)
            }
            GuestWork::Command(line) => line.to_string(),
        };
        boot.args(["--", "sh", "-c"]).arg(script);
        let finished = process::run(&mut boot, on_line)?;
        Ok(self.outcome(&finished))
    }

    /// A kernel that cannot be fetched is a failure: a run that has this guest is to show what happens on that kernel.
    fn outcome(&self, finished: &process::Finished) -> Outcome {
        let no_machine = finished.code == Some(vm::NO_MACHINE.into());
        let counts = match self.work {
            GuestWork::Tests(..) => {
                Counts::of_tests(finished.success, vm::last_boot(&finished.output))
            }
            GuestWork::Command(_) => Counts::of_command(finished.success),
        };
        let note = if no_machine {
            vm::last_word(&finished.output)
        } else if finished.success {
            String::new()
        } else {
            match finished.code {
                Some(code) => format!("exit code {code}"),
                None => "killed".to_string(),
            }
        };
        Outcome {
            counts,
            note,
            output: finished.output.clone(),
            interrupted: finished.interrupted,
        }
    }
}

/// The programs that are added to a guest for these tests.
fn added(tests: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    tests.iter().copied().chain([DAEMON]).chain(patients(tests))
}

/// The programs that these tests look at.
fn patients(tests: &[&str]) -> impl Iterator<Item = &'static str> {
    let has_doctor = tests.iter().any(|test| DOCTOR.contains(test));
    DOCTOR_PATIENTS.iter().copied().filter(move |_| has_doctor)
}

/// The programs of guests that run tests, each with its kind in cargo's messages.
fn programs_of<'a>(guests: impl Iterator<Item = &'a Guest>) -> Vec<(&'static str, &'static str)> {
    let mut programs = vec![("bin", DAEMON)];
    for guest in guests {
        if let GuestWork::Tests(tests, _) = guest.work {
            programs.extend(tests.iter().map(|&test| ("test", test)));
            programs.extend(patients(tests).map(|program| ("bin", program)));
        }
    }
    programs.sort_unstable();
    programs.dedup();
    programs
}

fn tests_on_host() -> impl Iterator<Item = &'static str> {
    ON_HOST.iter().flat_map(|(_, tests)| tests.iter().copied())
}

/// Cargo's arguments for the release build, in one call: two would build their dependencies twice, with other features.
pub(crate) fn release_build() -> Vec<&'static str> {
    let mut arguments = vec!["build", "--release", "--bins"];
    arguments.extend(
        [PACKAGE, PATIENTS]
            .iter()
            .flat_map(|package| ["--package", *package]),
    );
    arguments.extend(
        ON_HOST
            .iter()
            .flat_map(|(package, _)| ["--package", package]),
    );
    arguments.extend(MESSAGES);
    let in_guests = programs_of(GUESTS.iter().filter(|guest| guest.is_optimized()));
    let in_guests = in_guests.into_iter().filter(|(kind, _)| *kind == "test");
    let tests = in_guests.map(|(_, test)| test).chain(tests_on_host());
    arguments.extend(tests.flat_map(|test| ["--test", test]));
    arguments
}

/// The options that make cargo name the programs that it has built.
pub(crate) const MESSAGES: [&str; 2] = ["--message-format", "json-render-diagnostics"];

/// Runs every test program with these arguments, also after one has failed.
pub(crate) fn test_script(programs: &[&str], arguments: &str) -> String {
    format!(
        "failed=0; for test in {}; do echo \"     Running $test\"; {VARIABLE}=1 ./$test --test-threads 1 {arguments} || failed=1; \
         done; exit $failed",
        programs.join(" ")
    )
}

/// A program, from cargo's messages. A binary is built twice, as itself and as its unit tests, which are no program of it.
///
/// # Errors
///
/// Cargo names no such program.
pub(crate) fn executable(
    messages: &str,
    kind: &str,
    name: &str,
    is_tests: bool,
) -> io::Result<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["kind"][0] == kind)
        .filter(|message| message["target"]["name"] == name)
        .filter(|message| message["profile"]["test"] == is_tests)
        .find_map(|message| Some(Path::new(message["executable"].as_str()?).to_path_buf()))
        .ok_or_else(|| io::Error::other(format!("cargo names no {kind} {name}")))
}

/// The output of cargo and the compiler that is for people.
pub(crate) fn without_json(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| !line.starts_with('{'))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_is_in_every_run_and_all_kernels_in_the_whole_one() {
        let of = |part: Part| {
            let guests = GUESTS.iter().filter(move |guest| guest.part == part);
            guests.map(|guest| guest.kernel).collect::<Vec<_>>()
        };
        assert_eq!(of(Part::Default), [LONG_TERM]);
        let mut all = of(Part::All);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, ["6.16", LONG_TERM, "7.2"]);
    }

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let messages = r#"   Compiling a
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"observer"},"profile":{"test":false},"executable":"/t/observer"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"broker"},"profile":{"test":true},"executable":"/t/wrong"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"broker"},"profile":{"test":true},"executable":"/t/broker-1"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"observer"},"profile":{"test":true},"executable":"/t/observer-2"}
{"reason":"build-finished","success":true}"#;
        let found = |kind, name| executable(messages, kind, name, kind == "test").ok();
        assert_eq!(
            found("test", "observer"),
            Some(PathBuf::from("/t/observer-2"))
        );
        assert_eq!(found("bin", "observer"), Some(PathBuf::from("/t/observer")));
        assert_eq!(found("test", "broker"), Some(PathBuf::from("/t/broker-1")));
        assert_eq!(found("bin", "broker"), None);
        assert_eq!(found("test", "other"), None);
        assert_eq!(without_json(messages), "   Compiling a");
    }

    fn finished(code: i32, output: &str) -> process::Finished {
        process::Finished {
            success: code == 0,
            code: Some(code),
            output: output.to_string(),
            interrupted: false,
        }
    }

    #[test]
    fn a_kernel_that_cannot_be_had_is_a_failure() {
        let missing = finished(vm::NO_MACHINE.into(), "x\nvm: no Debian mirror\n");
        for guest in GUESTS {
            let outcome = guest.outcome(&missing);
            assert_eq!(outcome.counts, Counts::FAILED, "{}", guest.name());
            assert_eq!(outcome.note, "no Debian mirror");
        }
    }

    #[test]
    fn a_kernel_that_complains_fails_whatever_the_tests_say() {
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        for guest in GUESTS.iter().filter(|guest| guest.counts_tests()) {
            let passed = guest.outcome(&finished(0, result)).counts;
            assert_eq!((passed.passed, passed.failed), (3, 0));
            let again = format!(
                "{result}vm: the emulator failed; {} 1 of 2\n{result}",
                vm::AGAIN
            );
            let passed = guest.outcome(&finished(0, &again)).counts;
            assert_eq!((passed.passed, passed.failed), (3, 0));
            let complained = guest.outcome(&finished(120, result)).counts;
            assert_eq!((complained.passed, complained.failed), (3, 1));
        }
    }

    /// It runs for real, with programs that succeed and fail.
    #[test]
    fn one_failure_does_not_hide_the_others() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("xtask-guests-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (index, test) in MACHINE.iter().enumerate() {
            let program = directory.join(test);
            let body = format!(
                "#!/bin/sh\necho ran {} $MORPHEUS_GUEST $*\nexit {}\n",
                test,
                i32::from(index == 0)
            );
            fs::write(&program, body).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let answer = std::process::Command::new("sh")
            .arg("-c")
            .arg(test_script(MACHINE, FEW_STARTS))
            .current_dir(&directory)
            .output()
            .unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let output = String::from_utf8(answer.stdout).unwrap();
        for test in MACHINE {
            let ran = format!("ran {test} 1 --test-threads 1 {FEW_STARTS}\n");
            assert!(output.contains(&ran), "{output}");
        }
        assert_eq!(answer.status.code(), Some(1));
    }
}
