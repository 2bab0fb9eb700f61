//! Where the workspace is, and how cargo is called in it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

/// The workspace that is tested.
#[derive(Debug)]
pub(crate) struct Context {
    /// The directory of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target directory; steps with flags of their own take a directory inside it.
    pub(crate) target: PathBuf,
}

impl Context {
    /// Asks cargo for the workspace around the current directory.
    ///
    /// # Errors
    ///
    /// Cargo cannot be run, or there is no workspace.
    pub(crate) fn find() -> io::Result<Context> {
        let answer = Command::new(cargo())
            .args(["locate-project", "--workspace", "--message-format", "plain"])
            .output()?;
        if !answer.status.success() {
            let error = String::from_utf8_lossy(&answer.stderr).into_owned();
            return Err(io::Error::other(error));
        }
        let manifest = String::from_utf8_lossy(&answer.stdout);
        let root = Path::new(manifest.trim())
            .parent()
            .ok_or_else(|| io::Error::other("the workspace has no directory"))?
            .to_path_buf();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(target) => absolute(target)?,
            None => root.join("target"),
        };
        Ok(Context { root, target })
    }

    /// The stable cargo that runs this program, in the workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.clean(Command::new(cargo()))
    }

    /// Another toolchain's cargo. Through rustup, since `CARGO` names one toolchain's binary, which knows no `+nightly`.
    pub(crate) fn cargo_of(&self, toolchain: &str) -> Command {
        let mut command = Command::new("rustup");
        command.args(["run", toolchain, "cargo"]);
        // Cargo passes itself on to those it runs; here it would be the wrong one.
        command.env_remove("CARGO");
        self.clean(command)
    }

    /// Output as plain text, without what `cargo run` told this program about itself.
    fn clean(&self, mut command: Command) -> Command {
        command
            .current_dir(&self.root)
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TARGET_DIR", &self.target);
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `extra` behind the flags that the caller's environment already has in `variable`.
pub(crate) fn with_flags(variable: &str, extra: &str) -> OsString {
    join_flags(env::var_os(variable).as_deref(), extra)
}

fn join_flags(present: Option<&OsStr>, extra: &str) -> OsString {
    match present {
        Some(present) if !present.is_empty() => {
            let mut flags = present.to_os_string();
            flags.push(" ");
            flags.push(extra);
            flags
        }
        _ => extra.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_environment_are_kept() {
        assert_eq!(join_flags(None, "--cfg loom"), "--cfg loom");
        assert_eq!(join_flags(Some(OsStr::new("")), "--cfg loom"), "--cfg loom");
        assert_eq!(
            join_flags(Some(OsStr::new("-Cdebuginfo=0")), "--cfg loom"),
            "-Cdebuginfo=0 --cfg loom"
        );
    }
}
