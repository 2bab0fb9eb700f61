//! The steps of `cargo xtask test`, as a table: one row a step, in the order they start.

use crate::aarch64;
use crate::guests::{GUESTS, Guest};
use crate::tools::{OLDEST_RUST, Tool};

/// One step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) lane: Lane,
    /// Without these it counts as failed.
    pub(crate) needs: Vec<Tool>,
    pub(crate) work: Work,
}

/// Which runs a step is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// `--quick` alone: a smaller form of steps that the other runs have.
    Quick,
    /// Every run.
    Always,
    /// All but `--quick`.
    Default,
    /// `--all` alone.
    All,
}

/// Beside what a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// One after another, with the machine almost to themselves: these tests measure times.
    Front,
    /// Beside those, at the lowest priority: time plays no part. A guest has a time of its own, and models, builds and
    /// counts of instructions come to the same on a busy machine.
    Back,
}

/// The work of a step.
#[derive(Debug)]
pub(crate) enum Work {
    Cargo(Cargo),
    /// Builds all tests, of which guests run some.
    Tests,
    /// Builds what the next two kinds run.
    Release,
    /// Runs a program of the release build, which counts as one.
    Program(&'static str),
    /// Runs test programs of the release build.
    ReleaseTests(&'static [&'static str]),
    /// [`ASSUMPTIONS`] with the oldest and the newest tokio that the workspace lets in.
    TokioRange,
    /// The tests that tokio publishes, on Morpheus: those of the locked version, and with `--all` of the newest.
    TokioSuite,
    /// Boots a real kernel and runs tests in it, or programs of the release build.
    Guest(&'static Guest),
    /// Builds tests for aarch64, and runs them in a guest of that kind.
    Aarch64,
    /// Builds for aarch64 the test that reads machine code, and reads its code.
    Aarch64Code,
}

/// One call of cargo.
#[derive(Debug)]
pub(crate) struct Cargo {
    /// The arguments, separated by blanks. `{host}` stands for the target triple of this machine.
    pub(crate) args: String,
    pub(crate) counts: CountAs,
    /// The toolchain whose cargo it is; `None` for the one that runs this program.
    pub(crate) toolchain: Option<&'static str>,
    /// Flags, added to what the environment has in these variables.
    pub(crate) flags: &'static [(&'static str, &'static str)],
    /// A target directory of its own, inside the usual one: other flags would throw the usual build away.
    pub(crate) target: Option<&'static str>,
}

/// The unit in which a call is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountAs {
    /// One, passed or failed.
    One,
    /// The tests that it ran.
    Tests,
}

/// One call for all packages: each crate is built once, with the features that any of them asks for.
pub(crate) const TEST_BUILD: &str = "test --workspace --tests --examples --no-run";

/// Morpheus's assumptions about tokio, as a test: with every tokio that the workspace lets in.
pub(crate) const ASSUMPTIONS: &str =
    "test --package morpheus-runtime --test tokio_assumptions --no-fail-fast";

/// The tools that the whole workspace needs to build: `morpheus-bpf` compiles BPF programs and links libbpf.
const BUILD: &[Tool] = &[
    Tool::Clang,
    Tool::Libelf,
    Tool::Zlib,
    Tool::PkgConfig,
    Tool::Make,
    Tool::Gcc,
];

/// These tools, and those of [`BUILD`].
fn and_build(tools: &[Tool]) -> Vec<Tool> {
    [tools, BUILD].concat()
}

/// All steps, whichever part they are of.
pub(crate) fn all() -> Vec<Step> {
    let mut steps = vec![Step {
        needs: vec![Tool::Rustfmt],
        ..step("format", Part::Always, "fmt --all --check -- --color never")
    }];
    steps.extend(quick());
    steps.extend(whole_workspace());
    steps.extend(back());
    steps.extend(GUESTS.iter().map(|guest| Step {
        name: guest.name(),
        part: guest.part(),
        lane: Lane::Back,
        needs: guest.needs.to_vec(),
        work: Work::Guest(guest),
    }));
    steps.extend(on_aarch64());
    steps.extend(after_guests());
    steps.push(loom());
    steps.extend(other_builds());
    steps.extend(other_systems());
    steps.extend(publication());
    steps.push(guide());
    steps
}

/// The test files of those crates that take a few seconds at most.
const QUICK_TESTS: &[&str] = &[
    "abi",
    "attributes",
    "bad_input",
    "blocking_limit",
    "builder",
    "contexts",
    "current_thread",
    "descriptors",
    "hooks",
    "inherited",
    "metrics",
    "quota",
    "shutdown",
    "stress",
    "structure",
];

/// After an edit of the runtime: the crates that applications link.
fn quick() -> [Step; 2] {
    [
        Step {
            needs: vec![Tool::Clippy],
            ..step(
                "clippy of what applications link",
                Part::Quick,
                &format!("clippy {PUBLISHED} --all-targets -- -D warnings"),
            )
        },
        Step {
            needs: vec![Tool::Libclang, Tool::Objdump, Tool::Gcc],
            ..tests(
                "tests of what applications link",
                Part::Quick,
                &format!(
                    "test {PUBLISHED} --lib --test {} --no-fail-fast",
                    QUICK_TESTS.join(" --test ")
                ),
            )
        },
    ]
}

fn whole_workspace() -> [Step; 5] {
    [
        Step {
            needs: and_build(&[Tool::Clippy]),
            ..step(
                "clippy",
                Part::Default,
                "clippy --workspace --all-targets -- -D warnings",
            )
        },
        Step {
            needs: and_build(&[]),
            ..step_of("test build", Part::Default, Work::Tests)
        },
        // Before the tests: its build is done when the docs' begins.
        step_of("tokio's own tests", Part::Default, Work::TokioSuite),
        Step {
            needs: and_build(&[
                Tool::Libclang,
                Tool::Objdump,
                Tool::Setpriv,
                Tool::Browser,
                Tool::Redis,
            ]),
            ..tests(
                "tests",
                Part::Default,
                "test --workspace --tests --examples --no-fail-fast",
            )
        },
        Step {
            needs: and_build(&[]),
            ..tests(
                "doc tests",
                Part::Default,
                "test --workspace --doc --no-fail-fast",
            )
        },
    ]
}

/// For another kind of machine.
fn on_aarch64() -> [Step; 4] {
    let lints = Step {
        needs: vec![Tool::Clippy, Tool::RustAarch64],
        ..step("aarch64: lints", Part::All, aarch64::LINTS)
    };
    // Some of its crates compile C.
    let ecosystem = Step {
        needs: vec![Tool::RustAarch64, Tool::GccAarch64, Tool::LibcAarch64],
        ..step("aarch64: ecosystem", Part::All, aarch64::ECOSYSTEM)
    };
    [
        in_back(with(lints, |call| {
            call.target = Some(aarch64::DIRECTORY);
        })),
        in_back(with(ecosystem, |call| {
            call.target = Some(aarch64::DIRECTORY);
        })),
        in_back(Step {
            needs: aarch64::TESTS_NEED.to_vec(),
            ..step_of("aarch64: tests", Part::All, Work::Aarch64)
        }),
        in_back(Step {
            needs: and_build(&[Tool::RustAarch64, Tool::GccAarch64, Tool::LibcAarch64]),
            ..step_of("aarch64: machine code", Part::All, Work::Aarch64Code)
        }),
    ]
}

/// In the back lane though they build in the front lane's directory: they follow guests, which wait for the test build, and
/// after that the front lane builds nothing of this size.
fn after_guests() -> [Step; 3] {
    // With one example, whichever, cargo gives the dependencies the features that they have in tests: the lints have checked
    // them so, and otherwise all of them would be checked again.
    let docs = Step {
        needs: and_build(&[]),
        ..step(
            "docs",
            Part::Default,
            "doc --workspace --no-deps --lib --bins --example panic_abort",
        )
    };
    [
        in_back(with(docs, |call| {
            call.flags = &[("RUSTDOCFLAGS", "-D warnings")];
        })),
        // Elsewhere tests and examples turn its features on.
        in_back(step(
            "runtime without features",
            Part::Default,
            "clippy --package morpheus-runtime -- -D warnings",
        )),
        // By default it has stacks, and each other package that uses it turns them on.
        in_back(step(
            "runtime without stacks",
            Part::Default,
            "clippy --package morpheus-stacks --package morpheus-runtime --no-default-features -- -D warnings",
        )),
    ]
}

/// The steps that come to the same on a busy machine.
fn back() -> [Step; 3] {
    [
        in_back(Step {
            needs: and_build(&[]),
            ..step_of("release build", Part::All, Work::Release)
        }),
        in_back(Step {
            needs: and_build(&[Tool::Valgrind]),
            ..step_of("instructions", Part::All, Work::Program("instructions"))
        }),
        in_back(Step {
            needs: and_build(&[Tool::Objdump]),
            ..step_of(
                "machine code",
                Part::All,
                Work::ReleaseTests(&["checkpoint_asm"]),
            )
        }),
    ]
}

/// Last of the default run, for it needs a CPU for minutes: at first builds want both, and in the end tests leave one idle.
fn loom() -> Step {
    // Tokio does not work as a dependency under `--cfg loom`, so the models are in a package without tokio.
    in_back(with(
        tests(
            "loom",
            Part::Default,
            "test --release --package morpheus-common --test loom --no-fail-fast",
        ),
        |call| {
            call.flags = &[("RUSTFLAGS", "--cfg loom")];
            call.target = Some("loom");
        },
    ))
}

/// The published crates: those that applications link.
const PUBLISHED: &str = "--package morpheus-common --package morpheus-macros --package morpheus-system \
                         --package morpheus-link --package morpheus-stacks --package morpheus-runtime";

/// The steps that a release needs.
fn publication() -> Vec<Step> {
    vec![
        // Uploads nothing: packs the crates, and builds each from its package.
        in_back(with(
            step(
                "publish",
                Part::All,
                &format!("publish --dry-run --allow-dirty {PUBLISHED}"),
            ),
            |call| call.target = Some("publish"),
        )),
        in_back(with(
            Step {
                needs: vec![Tool::OldestRust],
                ..step(
                    "oldest Rust",
                    Part::All,
                    &format!("check {PUBLISHED} --all-features"),
                )
            },
            |call| {
                call.toolchain = Some(OLDEST_RUST);
                call.target = Some("oldest-rust");
            },
        )),
        // As docs.rs builds them.
        in_back(with(
            Step {
                needs: vec![Tool::RustSrc],
                ..step(
                    "docs as published",
                    Part::All,
                    &format!("doc {PUBLISHED} --all-features --no-deps"),
                )
            },
            |call| {
                call.toolchain = Some("nightly");
                call.flags = &[("RUSTDOCFLAGS", "--cfg docsrs -D warnings")];
                call.target = Some("docs-rs");
            },
        )),
    ]
}

/// The book, and the links between its pages. In the front lane, whose build it uses.
fn guide() -> Step {
    Step {
        needs: vec![Tool::Mdbook],
        ..tests(
            "guide",
            Part::All,
            "test --package xtask --test documents --no-fail-fast -- --ignored --nocapture",
        )
    }
}

/// With other flags, toolchains and versions of tokio.
fn other_builds() -> Vec<Step> {
    let unstable = |step| {
        with(step, |call: &mut Cargo| {
            call.flags = &[("RUSTFLAGS", "--cfg tokio_unstable")];
            call.target = Some("tokio-unstable");
        })
    };
    vec![
        Step {
            needs: and_build(&[Tool::Valgrind]),
            ..step_of(
                "tests of the release build",
                Part::All,
                Work::ReleaseTests(&["holds", "instructions", "loops"]),
            )
        },
        // It builds sixteen programs.
        tests(
            "programs written for tokio",
            Part::All,
            "test --package morpheus-runtime --test replaced --no-fail-fast -- --include-ignored",
        ),
        step_of("tokio, oldest and newest", Part::All, Work::TokioRange),
        Step {
            needs: and_build(&[]),
            ..tests(
                "every tokio for the doctor",
                Part::All,
                "test --package morpheus-bpf --test doctor --no-fail-fast -- --ignored",
            )
        },
        // Cargo builds no test so: an example, which ends with 0 only if nothing panicked.
        in_back(with(
            step(
                "panic = abort",
                Part::All,
                "run --package morpheus-runtime --example panic_abort",
            ),
            |call| {
                call.flags = &[("CARGO_PROFILE_DEV_PANIC", "abort")];
                call.target = Some("panic-abort");
            },
        )),
        unstable(step(
            "tokio_unstable: build",
            Part::All,
            "check --package morpheus-runtime --all-targets",
        )),
        unstable(tests(
            "tokio_unstable: console",
            Part::All,
            "test --package morpheus-ecosystem --no-default-features --features console --test console --no-fail-fast",
        )),
        unstable(tests(
            "tokio_unstable: every task watched",
            Part::All,
            "test --package morpheus-runtime --tests --no-fail-fast",
        )),
        in_back(with(
            Step {
                needs: vec![Tool::Miri, Tool::RustSrc],
                ..tests(
                    "miri",
                    Part::All,
                    "miri test --package morpheus-common --lib --no-fail-fast",
                )
            },
            |call| {
                call.toolchain = Some("nightly");
                // Property tests ask for the current directory.
                call.flags = &[("MIRIFLAGS", "-Zmiri-disable-isolation")];
                call.target = Some("miri");
            },
        )),
        in_back(with(
            Step {
                needs: vec![Tool::RustSrc],
                ..tests(
                    "ThreadSanitizer",
                    Part::All,
                    "test -Zbuild-std --target {host} --package morpheus-runtime --test stress --no-fail-fast",
                )
            },
            |call| {
                call.toolchain = Some("nightly");
                call.flags = &[("RUSTFLAGS", "-Zsanitizer=thread")];
                call.target = Some("thread-sanitizer");
            },
        )),
    ]
}

/// Systems whose tokio has no protection, and another architecture of Linux. Nothing runs there: what they build is
/// built and run on this system by the last two.
const OTHER_SYSTEMS: [&str; 3] = [
    "x86_64-apple-darwin",
    "x86_64-pc-windows-gnu",
    "aarch64-unknown-linux-gnu",
];

/// The runtime without protection, which passes through to tokio, as it does on other systems.
fn passthrough(step: Step) -> Step {
    in_back(with(step, |call| {
        call.flags = &[("RUSTFLAGS", "--cfg morpheus_passthrough")];
        call.target = Some("passthrough");
    }))
}

/// The checks of the code for other systems, also with the flag.
fn other_systems() -> [Step; 5] {
    let targets = OTHER_SYSTEMS.map(|target| format!("--target {target}"));
    [
        // A part that the runtime has here alone is missed there: nothing else of the default run builds it so.
        passthrough(step(
            "runtime without protection",
            Part::Default,
            "clippy --package morpheus-runtime -- -D warnings",
        )),
        in_back(with(
            Step {
                needs: OTHER_SYSTEMS.map(Tool::Target).to_vec(),
                ..step(
                    "other systems",
                    Part::All,
                    &format!(
                        "check {PUBLISHED} --all-features --lib --example whole_api {}",
                        targets.join(" ")
                    ),
                )
            },
            |call| call.target = Some("other-systems"),
        )),
        in_back(with(
            step(
                "without protection: with the flag",
                Part::All,
                "clippy --package morpheus-runtime -- -D warnings",
            ),
            |call| {
                call.flags = &[(
                    "RUSTFLAGS",
                    "--cfg morpheus_passthrough --cfg tokio_unstable",
                )];
                call.target = Some("passthrough-unstable");
            },
        )),
        passthrough(step(
            "without protection: whole API",
            Part::All,
            "run --package morpheus-runtime --example whole_api",
        )),
        passthrough(tests(
            "without protection: tests",
            Part::All,
            "test --package morpheus-runtime --lib --test passthrough --no-fail-fast",
        )),
    ]
}

fn step_of(name: &str, part: Part, work: Work) -> Step {
    Step {
        name: name.to_string(),
        part,
        lane: Lane::Front,
        needs: Vec::new(),
        work,
    }
}

/// A call of cargo that counts as one.
fn step(name: &str, part: Part, args: &str) -> Step {
    let call = Cargo {
        args: args.to_string(),
        counts: CountAs::One,
        toolchain: None,
        flags: &[],
        target: None,
    };
    step_of(name, part, Work::Cargo(call))
}

/// A call of cargo that counts as the tests that it runs.
fn tests(name: &str, part: Part, args: &str) -> Step {
    with(step(name, part, args), |call| call.counts = CountAs::Tests)
}

fn in_back(step: Step) -> Step {
    Step {
        lane: Lane::Back,
        ..step
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
                && call
                    .flags
                    .iter()
                    .any(|(name, _)| *name == "RUSTFLAGS" || name.starts_with("CARGO_PROFILE"))
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

    /// Two steps of one lane never wait for each other's build directory, but those of two lanes would, except where
    /// their order keeps them apart ([`after_guests`]).
    #[test]
    fn lanes_share_no_build_directory() {
        let directories = |lane: Lane| {
            let steps = all().into_iter();
            let is_late = |step: &Step| after_guests().iter().any(|late| late.name == step.name);
            let steps = steps.filter(move |step| step.lane == lane && !is_late(step));
            steps.filter_map(|step| match step.work {
                Work::Cargo(call) => Some((call.target, call.args.contains("--release"))),
                Work::Tests => Some((None, false)),
                Work::Release => Some((None, true)),
                Work::Program(_)
                | Work::ReleaseTests(_)
                | Work::TokioRange
                | Work::TokioSuite
                | Work::Guest(_)
                | Work::Aarch64
                | Work::Aarch64Code => None,
            })
        };
        let front: HashSet<_> = directories(Lane::Front).collect();
        for directory in directories(Lane::Back) {
            assert!(!front.contains(&directory), "{directory:?}");
        }
    }
}
