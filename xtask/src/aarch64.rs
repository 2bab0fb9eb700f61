//! The tests of what applications link, on a machine of another kind: built for aarch64 here, and run in a guest.
//!
//! An emulator of system calls alone would be faster, and show the states, stacks and clocks of this machine's threads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::Context;
use crate::counts::Counts;
use crate::guests::{self, MESSAGES, executable, without_json};
use crate::process;
use crate::runner::Outcome;
use crate::tools::{AARCH64, Tool};
use crate::vm::arch::Arch;
use crate::vm::{self, initramfs};

/// Cargo's directory for that machine, inside the usual one.
pub(crate) const DIRECTORY: &str = "aarch64";

/// The check of the crates that build on tokio, with their C code.
pub(crate) const ECOSYSTEM: &str =
    "check --target aarch64-unknown-linux-gnu --package morpheus-ecosystem --tests";

/// The linker that cargo uses.
pub(crate) const LINKER: (&str, &str) = (
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
    "aarch64-linux-gnu-gcc",
);

/// Optimized a little: most of the time of an emulated test goes into code that is not, and the assertions stay.
const OPTIMIZED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "1");

/// All that applications link, with every feature.
pub(crate) const LINTS: &str = "clippy --target aarch64-unknown-linux-gnu --package morpheus-common --package morpheus-macros \
                                --package morpheus-system --package morpheus-link --package morpheus-stacks --package morpheus-runtime --lib --examples \
                                --all-features -- -D warnings";

/// The tools that the tests need. Lints need no linker.
pub(crate) const TESTS_NEED: &[Tool] = &[
    Tool::RustAarch64,
    Tool::GccAarch64,
    Tool::LibcAarch64,
    Tool::QemuAarch64,
];

/// A test program.
struct Program {
    /// As cargo's messages call it.
    kind: &'static str,
    name: &'static str,
    /// Its tests look for the lines of its source.
    reads_lines: bool,
}

const PROGRAMS: &[Program] = &[
    tests_of("lib", "morpheus_common", false),
    tests_of("lib", "morpheus_system", false),
    tests_of("lib", "morpheus_link", false),
    tests_of("lib", "morpheus_stacks", true),
    tests_of("lib", "morpheus_runtime", true),
    tests_of("example", "doctor", true),
    tests_of("test", "stalls", true),
    tests_of("test", "current_thread", false),
    tests_of("test", "idle", false),
    tests_of("test", "inherited", false),
    tests_of("test", "metrics", false),
    tests_of("test", "quota", false),
    tests_of("test", "shutdown", false),
    tests_of("test", "starvation", false),
    tests_of("test", "stress", false),
    tests_of("test", "threads", false),
];

const fn tests_of(kind: &'static str, name: &'static str, reads_lines: bool) -> Program {
    Program {
        kind,
        name,
        reads_lines,
    }
}

/// In virtual time, as the other guests that run tests.
const MACHINE: &str = "--arch aarch64 --cpus 2 --icount=3 --timeout 1500 --only-added";

fn build_arguments() -> Vec<&'static str> {
    let mut arguments = vec!["test", "--no-run", "--target", AARCH64];
    arguments.extend([
        "--package",
        "morpheus-common",
        "--package",
        "morpheus-system",
        "--package",
        "morpheus-link",
        "--package",
        "morpheus-stacks",
        "--package",
        "morpheus-runtime",
    ]);
    arguments.push("--lib");
    for program in PROGRAMS.iter().filter(|program| program.kind != "lib") {
        arguments.extend([
            if program.kind == "test" {
                "--test"
            } else {
                "--example"
            },
            program.name,
        ]);
    }
    arguments
}

/// They read files of the workspace, which the guest has not.
const LEFT_OUT: &str = "--skip the_dashboards_show_what_is_published_and_nothing_else --skip the_guide_explains_each_metric";

fn script() -> String {
    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    guests::test_script(&names, LEFT_OUT)
}

/// The command line that does the same by hand.
pub(crate) fn shell_line() -> String {
    let build = build_arguments().join(" ");
    let variables = [LINKER, OPTIMIZED].map(|(name, value)| format!("{name}={value}"));
    format!(
        "CARGO_TARGET_DIR=target/{DIRECTORY} {} cargo {build}; \
         cargo xtask vm {MACHINE} --add target/guest/{DIRECTORY}/… -- sh -c '…'",
        variables.join(" ")
    )
}

/// The test that reads machine code.
pub(crate) const CODE: &str = "checkpoint_asm";

/// Names that test the program whose code it reads: itself, built for aarch64.
const CODE_VARIABLE: &str = "MORPHEUS_AARCH64_CHECKPOINT";

/// Has no `--lib`: one program.
const CODE_BUILD: [&str; 9] = [
    "test",
    "--no-run",
    "--release",
    "--target",
    AARCH64,
    "--package",
    "morpheus-runtime",
    "--test",
    CODE,
];

/// The command line that does the same by hand.
pub(crate) fn code_shell_line() -> String {
    let (variable, linker) = LINKER;
    format!(
        "CARGO_TARGET_DIR=target/{DIRECTORY} {variable}={linker} cargo {}; \
         {CODE_VARIABLE}=… cargo test --release --package morpheus-runtime --test {CODE}",
        CODE_BUILD.join(" ")
    )
}

/// Builds the program whose code is read, and runs `test`, which reads it.
///
/// # Errors
///
/// Cargo or the test cannot be started.
pub(crate) fn read_code(
    context: &Context,
    test: &Path,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let built = match build(context, &CODE_BUILD, &[], on_line)? {
        Ok(messages) => executable(&messages, "test", CODE, true)?,
        Err(outcome) => return Ok(outcome),
    };
    let mut command = Command::new(test);
    command
        .arg("aarch64")
        .env(CODE_VARIABLE, built)
        .current_dir(&context.root);
    let finished = process::run(&mut command, on_line)?;
    Ok(Outcome {
        counts: Counts::of_tests(finished.success, &finished.output),
        output: finished.output,
        interrupted: finished.interrupted,
        ..Outcome::default()
    })
}

/// Calls cargo for that machine; returns its messages, or the outcome of a step whose build fails.
fn build(
    context: &Context,
    arguments: &[&str],
    variables: &[(&str, &str)],
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Result<String, Outcome>> {
    let mut build = context.cargo();
    build
        .args(arguments)
        .args(MESSAGES)
        .env("CARGO_TARGET_DIR", context.target.join(DIRECTORY))
        .env(LINKER.0, LINKER.1)
        .envs(variables.iter().copied());
    let built = process::run(&mut build, &mut |line| {
        if !line.starts_with('{') {
            on_line(line);
        }
    })?;
    if built.success {
        return Ok(Ok(built.output));
    }
    Ok(Err(Outcome {
        counts: Counts::FAILED,
        note: "the build fails".to_string(),
        output: without_json(&built.output),
        interrupted: built.interrupted,
    }))
}

/// Builds the tests, boots the guest and counts.
///
/// # Errors
///
/// Cargo or this program cannot be started, or a built program cannot be copied.
pub(crate) fn run(
    context: &Context,
    install: bool,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let messages = match build(context, &build_arguments(), &[OPTIMIZED], on_line)? {
        Ok(messages) => messages,
        Err(outcome) => return Ok(outcome),
    };
    let mut boot = Command::new("/proc/self/exe");
    boot.current_dir(&context.root)
        .env("CARGO_TARGET_DIR", &context.target)
        .arg("vm")
        .args(MACHINE.split(' '));
    if !install {
        boot.arg("--no-install");
    }
    for program in for_guest(context, &messages)? {
        boot.arg("--add").arg(program);
    }
    boot.args(["--", "sh", "-c"]).arg(script());
    let finished = process::run(&mut boot, on_line)?;
    let note = match finished.code {
        Some(code) if code == i32::from(vm::NO_MACHINE) => vm::last_word(&finished.output),
        Some(code) if !finished.success => format!("exit code {code}"),
        _ => String::new(),
    };
    Ok(Outcome {
        counts: Counts::of_tests(finished.success, vm::last_boot(&finished.output)),
        note,
        output: finished.output,
        interrupted: finished.interrupted,
    })
}

/// Copies the programs under names of their own, those without the lines of their source whose tests do not look for them.
fn for_guest(context: &Context, messages: &str) -> io::Result<Vec<PathBuf>> {
    let directory = context.target.join("guest").join(DIRECTORY);
    fs::create_dir_all(&directory)?;
    let copies = PROGRAMS.iter().map(|program| -> io::Result<PathBuf> {
        let built = executable(messages, program.kind, program.name, true)?;
        let copy = directory.join(program.name);
        if program.reads_lines || !initramfs::strip(Arch::Aarch64, &built, &copy) {
            fs::copy(&built, &copy)?;
        }
        Ok(copy)
    });
    copies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A test that has another name now would run where it cannot.
    #[test]
    fn what_is_left_out_is_there() {
        let tests = include_str!("../../morpheus-runtime/tests/metrics.rs");
        for name in LEFT_OUT.split(" --skip ") {
            let name = name.trim_start_matches("--skip ");
            assert!(tests.contains(&format!("fn {name}()")), "{name}");
        }
    }

    /// A new test file of the runtime is one of these, or has a reason not to be.
    #[test]
    fn every_test_of_the_runtime_runs_there() {
        const NOT_THERE: &[&str] = &[
            // A count of instructions of this machine; a thousand holds, which take minutes in emulation.
            "checkpoint_asm",
            "holds",
            // The refusals of this crate, and its assumptions about tokio: the same on every machine.
            "bad_input",
            "builder",
            "blocking_limit",
            "confinement",
            "contexts",
            "descriptors",
            "hooks",
            "tokio_assumptions",
            // The variant for other systems.
            "passthrough",
            // These need the sources, and cargo.
            "replaced",
            "structure",
        ];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../morpheus-runtime/tests");
        let files = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let here: HashSet<String> = files
            .filter(|path| path.extension().is_some_and(|end| end == "rs"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let tests = PROGRAMS.iter().filter(|program| program.kind == "test");
        let there: HashSet<String> = tests
            .map(|program| program.name)
            .chain(NOT_THERE.iter().copied())
            .map(str::to_string)
            .collect();
        assert_eq!(here, there);
    }

    #[test]
    fn a_program_is_named_for_cargo_once() {
        let arguments = build_arguments().join(" ");
        assert!(
            arguments.contains(" --lib --example doctor --test stalls "),
            "{arguments}"
        );
        assert!(
            script().contains(" morpheus_runtime doctor stalls "),
            "{}",
            script()
        );
    }
}
