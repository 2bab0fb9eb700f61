//! Programs of this workspace built with `--cfg tokio_unstable`, on demand and in a target directory of their own: some contenders
//! need tokio's unstable switches, and a program without them still builds once.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use morpheus_harness::supervised;

/// The compiler flag that gives tokio its unstable switches.
const FLAG: &str = "--cfg tokio_unstable";

/// A program of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// A benchmark, by its name.
    Bench(&'static str),
    /// An example of the package `examples`, by its name.
    Example(&'static str),
}

/// Says that this program has to be built with the flag.
///
/// # Errors
///
/// If it was not.
pub fn require() -> Result<(), String> {
    match cfg!(tokio_unstable) {
        true => Ok(()),
        false => Err(format!("it needs a build with {FLAG}")),
    }
}

/// Returns a command that runs the benchmark `name` as a child, in a build with the flag.
///
/// # Errors
///
/// As [`build`].
pub fn command(name: &'static str) -> Result<Command, String> {
    build(Program::Bench(name)).map(|path| supervised::build_of(name, &path))
}

/// Returns the path of a program built with the flag, which cargo builds on the first call; if this program has the flag and is the
/// program that is asked for, itself.
///
/// # Errors
///
/// A text that says what to do if there is no cargo, no source, or the build fails.
pub fn build(program: Program) -> Result<PathBuf, String> {
    static BUILT: LazyLock<Mutex<HashMap<Program, Result<PathBuf, String>>>> =
        LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built
        .entry(program)
        .or_insert_with(|| build_now(program))
        .clone()
}

fn build_now(program: Program) -> Result<PathBuf, String> {
    // With the directory, within that of the profile, in which cargo puts it.
    let (package, kind, directory, name) = match program {
        Program::Bench(name) => ("morpheus-bench", "--bin", "", name),
        Program::Example(name) => ("examples", "--example", "examples", name),
    };
    let is_it = |path: PathBuf| path.file_name().is_some_and(|own| own == name);
    if cfg!(tokio_unstable) && env::current_exe().is_ok_and(is_it) {
        // The link leads to the running program even after a new build has replaced the file.
        return Ok("/proc/self/exe".into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = workspace.join("target/tokio-unstable");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = env::var("RUSTFLAGS").map_or(FLAG.to_owned(), |flags| format!("{flags} {FLAG}"));
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
    Ok(target.join(profile).join(directory).join(name))
}
