//! Tests the assumptions about tokio with the oldest and the newest version that the workspace lets in.
//!
//! Both are resolved in a copy of the tree, so that the checkout's `Cargo.lock` stays. The copy lies in the target
//! directory, beside a build directory of its own: what the last run built of it is used again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::Context;
use crate::counts::Counts;
use crate::process;
use crate::requirement::{Version, of_lock, of_workspace, oldest};
use crate::runner::Outcome;
use crate::steps::ASSUMPTIONS;
use crate::tree;

/// How many versions above the lowest allowed one are tried: that one may never have been published.
const GAP: usize = 20;

/// Resolves both versions, and runs the tests with each; once, where they are the same.
///
/// # Errors
///
/// The tree cannot be copied, or cargo cannot be started.
pub(crate) fn run(context: &Context, on_line: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let base = context.target.join("tokio-range");
    let mut range = Range {
        context,
        tree: base.join("tree"),
        target: base.join("target"),
        outcome: Outcome::default(),
        on_line,
    };
    tree::copy(&context.root, &range.tree)?;
    if let Some((oldest, newest)) = range.resolve()? {
        if oldest == newest {
            range.outcome.note = format!("one version in range: {newest}");
            range.test(newest)?;
        } else {
            range.outcome.note = format!("{oldest} and {newest}");
            // The newest first: it is what is locked now.
            for version in [newest, oldest] {
                if range.outcome.interrupted {
                    break;
                }
                if range.lock(version)? {
                    range.test(version)?;
                } else {
                    range.outcome.fail(
                        &format!("tokio {version} could not be locked"),
                        range.on_line,
                    );
                }
            }
        }
    }
    Ok(range.outcome)
}

struct Range<'a> {
    context: &'a Context,
    tree: PathBuf,
    target: PathBuf,
    outcome: Outcome,
    on_line: &'a mut dyn FnMut(&str),
}

impl Range<'_> {
    /// The oldest and the newest version, or `None` and a failure in the outcome.
    fn resolve(&mut self) -> io::Result<Option<(Version, Version)>> {
        let manifest = fs::read_to_string(self.tree.join("Cargo.toml"))?;
        let Some(lowest) = of_workspace(&manifest, "tokio").and_then(oldest) else {
            self.outcome.fail(
                "Cargo.toml: no lowest version of tokio in [workspace.dependencies]",
                self.on_line,
            );
            return Ok(None);
        };
        if !self.tree.join("Cargo.lock").exists() {
            let mut generate = self.cargo();
            generate.arg("generate-lockfile");
            if !self.step(&mut generate)? {
                self.outcome
                    .fail("tokio could not be resolved", self.on_line);
                return Ok(None);
            }
        }
        let mut update = self.cargo();
        update
            .args(["update", "--package", "tokio"])
            // The newest is the newest, also when it wants a newer compiler than the workspace does.
            .env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "allow");
        if !self.step(&mut update)? {
            self.outcome
                .fail("the newest tokio could not be resolved", self.on_line);
            return Ok(None);
        }
        let Some(newest) = locked(&self.tree)? else {
            self.outcome.fail("Cargo.lock: no tokio", self.on_line);
            return Ok(None);
        };
        let mut candidate = lowest;
        for _ in 0..GAP {
            if candidate >= newest {
                return Ok(Some((newest, newest)));
            }
            if self.lock(candidate)? {
                return Ok(Some((candidate, newest)));
            }
            if self.outcome.interrupted {
                return Ok(None);
            }
            candidate = candidate.next_patch();
        }
        self.outcome
            .fail(&format!("no tokio found from {lowest} up"), self.on_line);
        Ok(None)
    }

    /// Makes `version` the one in `Cargo.lock`; whether that worked.
    fn lock(&mut self, version: Version) -> io::Result<bool> {
        let mut update = self.cargo();
        update.args(["update", "--package", "tokio", "--precise"]);
        update.arg(version.to_string());
        self.step(&mut update)
    }

    /// Runs the tests with what is locked. `--locked`, so that it stays that.
    fn test(&mut self, version: Version) -> io::Result<()> {
        self.outcome
            .say(&format!("--- tokio {version}"), self.on_line);
        let mut test = self.cargo();
        test.args(ASSUMPTIONS.split(' ')).arg("--locked");
        let finished = process::run(&mut test, self.on_line)?;
        self.outcome.counts += Counts::of_tests(finished.success, &finished.output);
        self.outcome.output.push_str(&finished.output);
        self.outcome.interrupted |= finished.interrupted;
        Ok(())
    }

    fn cargo(&self) -> Command {
        let mut command = self.context.cargo();
        command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }

    fn step(&mut self, command: &mut Command) -> io::Result<bool> {
        let finished = process::run(command, self.on_line)?;
        self.outcome.output.push_str(&finished.output);
        self.outcome.interrupted |= finished.interrupted;
        Ok(finished.success)
    }
}

fn locked(tree: &Path) -> io::Result<Option<Version>> {
    let lock = fs::read_to_string(tree.join("Cargo.lock"))?;
    Ok(of_lock(&lock, "tokio"))
}
