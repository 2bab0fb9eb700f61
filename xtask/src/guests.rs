//! The steps that boot a real kernel: which machines there are, and what runs in each.
//!
//! Each is a call of `cargo xtask vm`, which a person can type as well; `cargo xtask test --list` shows it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::counts::Counts;
use crate::process;
use crate::runner::Outcome;
use crate::tools::Tool;
use crate::vm;

/// Whose test programs run in guests, as root, with [`VARIABLE`] set.
const PACKAGE: &str = "morpheus-bpf";

/// What the mandatory kernel is tested with first: who is seen to be stuck, and what follows from it.
const LADDER: &[&str] = &["observer", "broker", "isolation", "runtime", "scheduler"];

/// And then: everybody else's tasks,
const MACHINE: &[&str] = &["tiers", "cgroups"];

/// and those that operate it or mean it ill.
const OTHERS: &[&str] = &["hostile", "operator"];

/// What the others are tested with: what differs between kernels is what is called there. The
/// socket and its limits are the daemon's own.
const KERNEL: &[&str] = &["observer", "runtime", "scheduler", "tiers", "cgroups"];

/// What they are not tested with: many starts, each of which is seconds of an emulated verifier, are no different there.
const NOT_KERNEL: [&str; 2] = ["comes_and_goes_twenty_times", "each_switch_switches"];

/// What depends on how much of a CPU each gets: on one CPU that is exact.
const SHARES: &[&str] = &["shares"];

/// What depends on which CPUs share a cache: each of two pairs.
const PLACEMENT: &[&str] = &["placement"];

/// What needs several nodes of memory.
const NODES: &[&str] = &["nodes"];

/// What needs CPUs with frequencies. Times are exact on one CPU whose clock counts its instructions.
const FREQUENCIES: &[&str] = &["cpuperf"];

/// Tells a test that it is in a guest that was booted for it: root, and free to do with the machine as it likes.
const VARIABLE: &str = "MORPHEUS_GUEST";

/// A machine, and what runs in it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Words behind the kernel's, in the step's name.
    what: &'static str,
    kernel: &'static str,
    /// Where it cannot be booted the step has failed; the others are reported as skipped then.
    mandatory: bool,
    /// Further options of `cargo xtask vm`, separated by blanks.
    options: &'static str,
    pub(crate) needs: &'static [Tool],
    work: GuestWork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestWork {
    /// Test programs, all of whose tests run on the mandatory kernel.
    Tests(&'static [&'static str]),
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

/// All of them. One kernel is mandatory: the one with long-term support.
pub(crate) const GUESTS: &[Guest] = &[
    // The long ones first: two run at once.
    tests("6.18", true),
    tests("6.16", false),
    tests("7.2", false),
    Guest {
        what: "tests of the whole machine",
        work: GuestWork::Tests(MACHINE),
        ..tests("6.18", true)
    },
    Guest {
        what: "operators and attackers",
        work: GuestWork::Tests(OTHERS),
        ..tests("6.18", true)
    },
    Guest {
        what: "shares of one CPU",
        options: "--cpus 1 --icount=3 --timeout 1500",
        work: GuestWork::Tests(SHARES),
        ..tests("6.18", true)
    },
    command("one CPU", "--cpus 1", SHAPE),
    command("3 CPUs", "--cpus 3", SHAPE),
    command("7 CPUs", "--cpus 7", SHAPE),
    command("8 CPUs", "--cpus 8", SHAPE),
    command("4 CPUs in 2 nodes", "--cpus 4 --numa 2", SHAPE_OF_NODES),
    Guest {
        what: "work taken from other nodes",
        options: "--cpus 4 --numa 2 --icount=3 --timeout 1500",
        work: GuestWork::Tests(NODES),
        ..tests("6.18", true)
    },
    Guest {
        what: "placement near a cache",
        options: "--cpus 4 --icount=3 --timeout 1500",
        work: GuestWork::Tests(PLACEMENT),
        ..tests("6.18", true)
    },
    command(
        "everything at once",
        "--cpus 2 --icount=3 --timeout 900",
        SUITES,
    ),
    frequencies("6.18", true),
    frequencies("6.16", false),
    frequencies("7.2", false),
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

const fn tests(kernel: &'static str, mandatory: bool) -> Guest {
    Guest {
        what: "tests",
        kernel,
        mandatory,
        // In virtual time: what else the host does decides how long it takes, and nothing else.
        options: "--cpus 2 --icount=3 --timeout 3000",
        needs: NEEDS,
        work: GuestWork::Tests(if mandatory { LADDER } else { KERNEL }),
    }
}

/// What the scheduler asks a governor for.
const fn frequencies(kernel: &'static str, mandatory: bool) -> Guest {
    Guest {
        what: "frequencies",
        options: "--cpus 1 --icount --cpufreq --timeout 600",
        needs: NEEDS_CPUFREQ,
        work: GuestWork::Tests(FREQUENCIES),
        ..tests(kernel, mandatory)
    }
}

/// On the mandatory kernel: what is there once boots in every shape.
const fn command(what: &'static str, options: &'static str, line: &'static str) -> Guest {
    Guest {
        what,
        kernel: "6.18",
        mandatory: true,
        options,
        needs: NEEDS,
        work: GuestWork::Command(line),
    }
}

impl Guest {
    pub(crate) fn name(&self) -> String {
        format!("Linux {}: {}", self.kernel, self.what)
    }

    /// Whether the step has failed where something that it needs is missing.
    pub(crate) fn is_mandatory(&self) -> bool {
        self.mandatory
    }

    /// Whether its outcome is a number of tests.
    pub(crate) fn counts_tests(&self) -> bool {
        matches!(self.work, GuestWork::Tests(_))
    }

    /// What a person would type, after the programs are built.
    pub(crate) fn shell_line(&self) -> String {
        let (adds, script) = match self.work {
            GuestWork::Tests(tests) => {
                let adds: Vec<String> = tests.iter().map(|test| format!(" --add {test}")).collect();
                (adds.concat(), self.test_script(tests))
            }
            GuestWork::Command(line) => (String::new(), line.trim().to_string()),
        };
        // Several lines of a script are too many for a list.
        let script = script.lines().next_back().unwrap_or_default();
        format!(
            "cargo {}; cargo xtask vm --kernel {} {}{adds} -- sh -c '{script}'",
            build().join(" "),
            self.kernel,
            self.options
        )
    }

    /// Builds what runs in the guest, boots it, and counts.
    ///
    /// # Errors
    ///
    /// Cargo cannot be started, or a test program cannot be copied.
    pub(crate) fn run(
        &self,
        context: &Context,
        install: bool,
        on_line: &mut dyn FnMut(&str),
    ) -> io::Result<Outcome> {
        let mut cargo = context.cargo();
        cargo.args(build());
        let built = process::run(&mut cargo, on_line)?;
        if !built.success {
            return Ok(Outcome {
                counts: Counts::FAILED,
                note: "what runs in the guest does not build".to_string(),
                output: without_json(&built.output),
                interrupted: built.interrupted,
            });
        }

        let mut boot = context.cargo();
        boot.args(["xtask", "vm", "--kernel", self.kernel]);
        boot.args(self.options.split(' '));
        if !install {
            boot.arg("--no-install");
        }
        let script = match self.work {
            GuestWork::Tests(tests) => {
                for program in gather(context, &built.output, tests)? {
                    boot.arg("--add").arg(program);
                }
                self.test_script(tests)
            }
            GuestWork::Command(line) => line.to_string(),
        };
        boot.args(["--", "sh", "-c"]).arg(script);
        let finished = process::run(&mut boot, on_line)?;
        Ok(self.outcome(&finished))
    }

    fn test_script(&self, tests: &[&str]) -> String {
        test_script(tests, if self.mandatory { &[] } else { &NOT_KERNEL })
    }

    fn outcome(&self, finished: &process::Finished) -> Outcome {
        let no_machine = finished.code == Some(vm::NO_MACHINE.into());
        let counts = match self.work {
            _ if no_machine && !self.mandatory => Counts::SKIPPED,
            GuestWork::Tests(_) => {
                Counts::of_tests(finished.success, vm::last_boot(&finished.output))
            }
            GuestWork::Command(_) => Counts::of_command(finished.success),
        };
        let note = if no_machine {
            // The last thing it says is what to do.
            let mut why = finished
                .output
                .lines()
                .filter_map(|line| line.strip_prefix("vm: "));
            why.next_back().unwrap_or("no machine").to_string()
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

/// Cargo's arguments to build every test program, and with them the programs that they start.
fn build() -> Vec<&'static str> {
    let mut arguments = vec!["test", "--release", "--no-run", "--package", PACKAGE];
    arguments.extend(["--message-format", "json-render-diagnostics"]);
    let mut programs: Vec<&str> = Vec::new();
    for guest in GUESTS {
        if let GuestWork::Tests(tests) = guest.work {
            programs.extend(tests);
        }
    }
    programs.sort_unstable();
    programs.dedup();
    arguments.extend(programs.into_iter().flat_map(|test| ["--test", test]));
    arguments
}

/// Runs every test program, but for some tests, also after one has failed.
fn test_script(programs: &[&str], but: &[&str]) -> String {
    let skip: String = but.iter().map(|test| format!(" --skip {test}")).collect();
    format!(
        "failed=0; for test in {}; do echo \"     Running $test\"; {VARIABLE}=1 ./$test --test-threads 1{skip} || failed=1; \
         done; exit $failed",
        programs.join(" ")
    )
}

/// Copies the test programs under names of their own: cargo's end in a number that changes. Links would do, but for
/// file systems that have none.
fn gather(context: &Context, messages: &str, tests: &[&str]) -> io::Result<Vec<PathBuf>> {
    let directory = context.target.join("guest");
    fs::create_dir_all(&directory)?;
    tests
        .iter()
        .map(|test| {
            let built = executable(messages, test)
                .ok_or_else(|| io::Error::other(format!("cargo names no test program {test}")))?;
            let program = directory.join(test);
            fs::copy(&built, &program)?;
            Ok(program)
        })
        .collect()
}

/// The program of a test, from cargo's messages.
fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["kind"][0] == "test")
        .filter(|message| message["target"]["name"] == test)
        .find_map(|message| Some(Path::new(message["executable"].as_str()?).to_path_buf()))
}

/// What cargo and the compiler say to people.
fn without_json(output: &str) -> String {
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
    fn one_kernel_is_mandatory_and_the_others_are_there() {
        let of = |mandatory: bool| {
            GUESTS
                .iter()
                .filter(move |guest| guest.counts_tests() && guest.mandatory == mandatory)
                .map(|guest| guest.kernel)
                .collect::<Vec<_>>()
        };
        let mandatory = of(true);
        assert!(!mandatory.is_empty() && mandatory.iter().all(|&kernel| kernel == "6.18"));
        assert_eq!(of(false), ["6.16", "7.2", "6.16", "7.2"]);
    }

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let messages = r#"   Compiling a
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"observer"},"executable":"/t/wrong"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"broker"},"executable":"/t/broker-1"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"observer"},"executable":"/t/observer-2"}
{"reason":"build-finished","success":true}"#;
        let found = |name| executable(messages, name);
        assert_eq!(found("observer"), Some(PathBuf::from("/t/observer-2")));
        assert_eq!(found("broker"), Some(PathBuf::from("/t/broker-1")));
        assert_eq!(found("other"), None);
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
    fn what_is_missing_fails_only_where_it_is_mandatory() {
        let missing = finished(vm::NO_MACHINE.into(), "x\nvm: no Debian mirror\n");
        let outcome = |kernel: &str| {
            let guest = GUESTS.iter().find(|guest| guest.kernel == kernel).unwrap();
            guest.outcome(&missing)
        };
        assert_eq!(outcome("6.18").counts, Counts::FAILED);
        assert_eq!(outcome("7.2").counts, Counts::SKIPPED);
        assert_eq!(outcome("7.2").note, "no Debian mirror");
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
        for (index, test) in LADDER.iter().enumerate() {
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
            .arg(test_script(LADDER, &NOT_KERNEL))
            .current_dir(&directory)
            .output()
            .unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let output = String::from_utf8(answer.stdout).unwrap();
        for test in LADDER {
            let skip: String = NOT_KERNEL.map(|test| format!(" --skip {test}")).concat();
            let ran = format!("ran {test} 1 --test-threads 1{skip}\n");
            assert!(output.contains(&ran), "{output}");
        }
        assert_eq!(answer.status.code(), Some(1));
    }
}
