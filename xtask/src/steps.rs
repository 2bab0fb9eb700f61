//! What `cargo xtask test` does, as a table: one row for each step, in the order they run.

use crate::guests::{GUESTS, Guest};
use crate::tools::Tool;

/// One step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Also part of `--quick`.
    pub(crate) quick: bool,
    /// Without these it counts as failed.
    pub(crate) needs: &'static [Tool],
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    Cargo(Cargo),
    /// [`ASSUMPTIONS`] with the oldest and the newest tokio that the workspace lets in.
    TokioRange,
    /// A real kernel.
    Guest(&'static Guest),
}

/// One call of cargo.
#[derive(Debug)]
pub(crate) struct Cargo {
    /// The arguments, separated by blanks. `{host}` stands for the target triple of this machine.
    pub(crate) args: String,
    pub(crate) counts: CountAs,
    /// Components of a nightly toolchain that the call needs; without them the step is skipped.
    pub(crate) nightly: &'static [&'static str],
    /// Flags, added to what the environment has in these variables.
    pub(crate) flags: &'static [(&'static str, &'static str)],
    /// A target directory of its own, inside the usual one: other flags would throw the usual build away.
    pub(crate) target: Option<&'static str>,
    /// The arguments instead, where no BPF program can be loaded.
    pub(crate) without_bpf: Option<&'static str>,
}

/// What a call counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountAs {
    /// One, passed or failed.
    One,
    /// The tests that it ran.
    Tests,
}

/// The models that loom explores, as package and test. Tokio does not work as a dependency under `--cfg loom`, so a model
/// lives in a package without tokio.
const LOOM: &[(&str, &str)] = &[("morpheus-common", "loom")];

/// What Morpheus assumes about tokio, as a test: with every tokio that the workspace lets in.
pub(crate) const ASSUMPTIONS: &str =
    "test --package morpheus-runtime --test tokio_assumptions --no-fail-fast";

/// What `morpheus-bpf` needs to build.
pub(crate) const KERNEL_SIDE: &[Tool] = &[
    Tool::Clang,
    Tool::Libelf,
    Tool::Zlib,
    Tool::PkgConfig,
    Tool::Make,
    Tool::Gcc,
];

/// All steps. Those without a package are about the default members: `morpheus-bpf` needs clang and root.
pub(crate) fn all() -> Vec<Step> {
    let mut steps = vec![
        quick(
            "format",
            &[Tool::Rustfmt],
            CountAs::One,
            "fmt --all --check -- --color never",
        ),
        quick(
            "clippy",
            &[Tool::Clippy],
            CountAs::One,
            "clippy --all-targets -- -D warnings",
        ),
        step("release build", CountAs::One, "build --release --bins"),
        // Without its package, whose features are fewer: the build before is this one's.
        Step {
            needs: &[Tool::Valgrind],
            ..step(
                "instructions",
                CountAs::One,
                "run --release --bin instructions",
            )
        },
        // Elsewhere tests and examples turn its features on.
        step(
            "runtime without features",
            CountAs::One,
            "clippy --package morpheus-runtime -- -D warnings",
        ),
        quick(
            "tests",
            &[
                Tool::Libclang,
                Tool::Objdump,
                Tool::Setpriv,
                Tool::Gcc,
                Tool::Browser,
                Tool::Redis,
                Tool::Wrk,
            ],
            CountAs::Tests,
            "test --lib --bins --tests --examples --no-fail-fast",
        ),
        quick(
            "doc tests",
            &[],
            CountAs::Tests,
            "test --doc --no-fail-fast",
        ),
        with(step("docs", CountAs::One, "doc --no-deps"), |call| {
            call.flags = &[("RUSTDOCFLAGS", "-D warnings")]
        }),
    ];
    steps.extend(kernel_side());
    steps.extend(LOOM.iter().map(|(package, test)| {
        let args = format!("test --release --package {package} --test {test} --no-fail-fast");
        with(
            step(&format!("loom: {package}"), CountAs::Tests, &args),
            |call| {
                call.flags = &[("RUSTFLAGS", "--cfg loom")];
                call.target = Some("loom");
            },
        )
    }));
    steps.push(Step {
        name: "tokio, oldest and newest".to_string(),
        quick: false,
        needs: &[],
        work: Work::TokioRange,
    });
    let unstable = |name, counts, args| {
        with(step(name, counts, args), |call| {
            call.flags = &[("RUSTFLAGS", "--cfg tokio_unstable")];
            call.target = Some("tokio-unstable");
        })
    };
    steps.extend([
        unstable(
            "tokio_unstable: build",
            CountAs::One,
            "check --package morpheus-runtime --all-targets",
        ),
        unstable("tokio_unstable: tests", CountAs::Tests, ASSUMPTIONS),
        unstable(
            "tokio_unstable: console",
            CountAs::Tests,
            "test --package morpheus-ecosystem --no-default-features --features console --test console --no-fail-fast",
        ),
        unstable(
            "tokio_unstable: every task watched",
            CountAs::Tests,
            "test --package morpheus-runtime --lib --test hooks --no-fail-fast",
        ),
        with(
            step(
                "miri",
                CountAs::Tests,
                "miri test --package morpheus-common --lib --no-fail-fast",
            ),
            |call| {
                call.nightly = &["miri", "rust-src"];
                // Property tests ask for the current directory.
                call.flags = &[("MIRIFLAGS", "-Zmiri-disable-isolation")];
                call.target = Some("miri");
            },
        ),
        with(
            step(
                "ThreadSanitizer",
                CountAs::Tests,
                "test -Zbuild-std --target {host} --package morpheus-runtime --test stress --no-fail-fast",
            ),
            |call| {
                call.nightly = &["rust-src"];
                call.flags = &[("RUSTFLAGS", "-Zsanitizer=thread")];
                call.target = Some("thread-sanitizer");
            },
        ),
    ]);
    steps
}

/// The kernel side: on this machine's kernel, and on others.
fn kernel_side() -> impl Iterator<Item = Step> {
    let clippy = step(
        "kernel side: clippy",
        CountAs::One,
        "clippy --package morpheus-bpf --all-targets -- -D warnings",
    );
    let docs = with(
        step(
            "kernel side: docs",
            CountAs::One,
            "doc --no-deps --package morpheus-bpf",
        ),
        |call| call.flags = &[("RUSTDOCFLAGS", "-D warnings")],
    );
    let tests = with(
        step(
            "kernel side: tests",
            CountAs::Tests,
            // One program at a time, and in each one test at a time: they measure.
            "test --package morpheus-bpf --no-fail-fast",
        ),
        |call| {
            call.without_bpf = Some("test --package morpheus-bpf --lib --bins --no-fail-fast");
        },
    );
    let native = [clippy, docs, tests].map(|step| Step {
        needs: KERNEL_SIDE,
        ..step
    });
    let guests = GUESTS.iter().map(|guest| Step {
        name: guest.name(),
        quick: false,
        needs: guest.needs,
        work: Work::Guest(guest),
    });
    native.into_iter().chain(guests)
}

fn step(name: &str, counts: CountAs, args: &str) -> Step {
    Step {
        name: name.to_string(),
        quick: false,
        needs: &[],
        work: Work::Cargo(Cargo {
            args: args.to_string(),
            counts,
            nightly: &[],
            flags: &[],
            target: None,
            without_bpf: None,
        }),
    }
}

fn quick(name: &str, needs: &'static [Tool], counts: CountAs, args: &str) -> Step {
    Step {
        quick: true,
        needs,
        ..step(name, counts, args)
    }
}

fn with(mut step: Step, change: impl FnOnce(&mut Cargo)) -> Step {
    if let Work::Cargo(call) = &mut step.work {
        change(call);
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let steps = all();
        let names: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names.len(), steps.len());
    }

    /// Other flags in the usual directory would rebuild everything, twice in every run.
    #[test]
    fn other_compiler_flags_have_a_directory_of_their_own() {
        for step in all() {
            if let Work::Cargo(call) = step.work
                && call.flags.iter().any(|(name, _)| *name == "RUSTFLAGS")
            {
                assert!(call.target.is_some(), "{}", step.name);
            }
        }
    }

    /// One failed test must not hide how many others there are.
    #[test]
    fn test_runs_do_not_stop_at_a_failure() {
        for step in all() {
            if let Work::Cargo(call) = step.work
                && call.counts == CountAs::Tests
            {
                assert!(call.args.contains("--no-fail-fast"), "{}", step.name);
            }
        }
    }
}
