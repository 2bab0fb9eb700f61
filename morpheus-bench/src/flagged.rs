//! Programs of this workspace built with `--cfg tokio_unstable`, on demand and in a target directory of their own: some contenders
//! need tokio's unstable switches, and a program without them still builds once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::supervised;

/// The compiler flag that gives tokio its unstable switches.
const FLAG: &str = "--cfg tokio_unstable";

/// A program of the workspace.
#[derive(Clone, Copy, Debug)]
pub enum Program<'a> {
    /// A benchmark, by its name.
    Bench(&'a str),
    /// An example of the package `examples`, by its name.
    Example(&'a str),
}

/// Returns a command that runs the benchmark `name` as a child, in a build with the flag. Builds it on the first call.
///
/// # Errors
///
/// As [`build`].
pub fn command(name: &str) -> Result<Command, String> {
    static BUILT: Mutex<Option<Result<PathBuf, String>>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let path = built.get_or_insert_with(|| build(Program::Bench(name)));
    path.as_ref()
        .map(|path| supervised::build_of(name, path))
        .map_err(Clone::clone)
}

/// Returns the path of a program built with the flag: this program itself if it has the flag, else one that cargo builds now.
///
/// # Errors
///
/// A text that says what to do if there is no cargo, no source, or the build fails.
pub fn build(program: Program<'_>) -> Result<PathBuf, String> {
    if cfg!(tokio_unstable) {
        // The link leads to the running program even after a new build has replaced the file.
        return Ok("/proc/self/exe".into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = workspace.join("target/tokio-unstable");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = env::var("RUSTFLAGS").map_or(FLAG.to_owned(), |flags| format!("{flags} {FLAG}"));
    let (package, kind, name) = match program {
        Program::Bench(name) => ("morpheus-bench", "--bin", name),
        Program::Example(name) => ("examples", "--example", name),
    };
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", package, kind, name])
        .current_dir(&workspace)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        command.arg("--release");
        "release"
    };
    eprintln!("building {name} with {FLAG} (a few minutes the first time)");
    let status = command
        .status()
        .map_err(|error| format!("cannot run cargo, which builds it with {FLAG}: {error}"))?;
    if !status.success() {
        return Err(format!("the build with {FLAG} failed: {status}"));
    }
    let directory = target.join(profile);
    Ok(match program {
        Program::Bench(_) => directory.join(name),
        Program::Example(_) => directory.join("examples").join(name),
    })
}
