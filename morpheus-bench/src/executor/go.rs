//! Go: a program of its own, built when it is needed and `go` is there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SOURCE: &str = include_str!("../../go/starvation.go");

/// The Go program, built in a directory that is removed with this value.
pub struct GoProgram {
    directory: PathBuf,
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
        let program = Self {
            directory: fresh_directory()
                .map_err(|error| format!("temporary directory: {error}"))?,
        };
        let source = program.directory.join("starvation.go");
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut output = program.compile(None)?;
        if !output.status.success() {
            // Without a usable home directory there is no build cache; then it gets one of its own.
            output = program.compile(Some(&program.directory.join("cache")))?;
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("go build failed: {}", said.trim()));
        }
        // Another user may run it (`--uid`).
        let readable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(program.path(), readable).map_err(|error| error.to_string())?;
        Ok(program)
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.directory.join("starvation")
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

impl Drop for GoProgram {
    fn drop(&mut self) {
        // If this fails, a small directory is left among temporary files.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A directory that did not exist before, so that no other user can have put anything into it.
fn fresh_directory() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    for attempt in 0.. {
        let path = base.join(format!(
            "morpheus-bench-go-{}-{attempt}",
            std::process::id()
        ));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1_000 => {}
            Err(error) => return Err(error),
            Ok(()) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                return Ok(path);
            }
        }
    }
    unreachable!("the loop ends by returning")
}
