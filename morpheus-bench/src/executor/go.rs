//! Go: a program of its own, built when it is needed and `go` is there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const SOURCE: &str = include_str!("../../go/starvation.go");

/// The Go program, built in a directory that is removed with this value.
pub struct GoProgram {
    directory: TempDir,
}

impl GoProgram {
    /// Whether there is a `go` to build it with.
    pub fn available() -> bool {
        let version = Command::new("go").arg("version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Builds the program.
    ///
    /// # Errors
    /// In words for people: what the compiler or the file system said.
    pub fn build() -> Result<Self, String> {
        // Another user may run it (`--uid`).
        let readable = || fs::Permissions::from_mode(0o755);
        let directory = TempDir::with_prefix("morpheus-bench-go-")
            .and_then(|made| fs::set_permissions(made.path(), readable()).map(|()| made))
            .map_err(|error| format!("temporary directory: {error}"))?;
        let program = Self { directory };
        let source = program.directory.path().join("starvation.go");
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut output = program.compile(None)?;
        if !output.status.success() {
            // Without a usable home directory there is no build cache; then it gets one of its own.
            output = program.compile(Some(&program.directory.path().join("cache")))?;
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("go build failed: {}", said.trim()));
        }
        fs::set_permissions(program.path(), readable()).map_err(|error| error.to_string())?;
        Ok(program)
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("starvation")
    }

    fn compile(&self, cache: Option<&Path>) -> Result<Output, String> {
        let mut command = Command::new("go");
        command
            .args(["build", "-o", "starvation", "starvation.go"])
            .current_dir(&self.directory)
            // The build must not download another toolchain or a module.
            .env("GOTOOLCHAIN", "local")
            .env("GO111MODULE", "off");
        if let Some(cache) = cache {
            command.env("GOCACHE", cache);
        }
        command.output().map_err(|error| format!("go: {error}"))
    }
}
