//! What steps need beside a Rust toolchain: how each is found, and where it comes from.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::context::Context;

/// Something that must be on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    /// For the test that compares the Rust bindings with the C header.
    Libclang,
    /// For tests that look at the machine code of a hot path.
    Objdump,
    /// For tests that give up rights.
    Setpriv,
    /// For tests that compile the C header.
    Gcc,
    /// The machine that a real kernel boots in.
    Qemu,
    /// The programs beside the one under test, in that machine.
    Busybox,
    Rustfmt,
    Clippy,
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The system's package, as it is called on Debian and Ubuntu, on Fedora, and on Arch.
    Package {
        debian: &'static str,
        fedora: &'static str,
        arch: &'static str,
    },
    /// A component of the Rust toolchain.
    Component(&'static str),
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Libclang => "libclang",
            Tool::Objdump => "objdump",
            Tool::Setpriv => "setpriv",
            Tool::Gcc => "gcc",
            Tool::Qemu => "qemu-system-x86_64",
            Tool::Busybox => "busybox",
            Tool::Rustfmt => "rustfmt",
            Tool::Clippy => "clippy",
        }
    }

    pub(crate) fn source(self) -> Source {
        let package = |debian, fedora, arch| Source::Package {
            debian,
            fedora,
            arch,
        };
        match self {
            Tool::Libclang => package("libclang-dev", "clang-devel", "clang"),
            Tool::Objdump => package("binutils", "binutils", "binutils"),
            Tool::Setpriv => package("util-linux", "util-linux", "util-linux"),
            Tool::Gcc => package("gcc", "gcc", "gcc"),
            Tool::Qemu => package("qemu-system-x86", "qemu-system-x86", "qemu-system-x86"),
            Tool::Busybox => package("busybox-static", "busybox", "busybox"),
            Tool::Rustfmt => Source::Component("rustfmt"),
            Tool::Clippy => Source::Component("clippy"),
        }
    }

    /// A variable for the steps that need the tool, when it is there: a test that would skip itself without the tool
    /// must fail instead.
    pub(crate) fn required(self) -> Option<(&'static str, &'static str)> {
        match self {
            Tool::Libclang => Some(("MORPHEUS_REQUIRE_LIBCLANG", "1")),
            _ => None,
        }
    }

    pub(crate) fn present(self, context: &Context) -> bool {
        match self {
            Tool::Libclang => libclang_directories().iter().any(|path| has_libclang(path)),
            Tool::Objdump | Tool::Setpriv | Tool::Gcc | Tool::Qemu | Tool::Busybox => {
                in_path(self.name()).is_some()
            }
            Tool::Rustfmt => answers(context, "fmt"),
            Tool::Clippy => answers(context, "clippy"),
        }
    }
}

/// The file that a shell would run for `program`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn answers(context: &Context, subcommand: &str) -> bool {
    context
        .cargo()
        .args([subcommand, "--version"])
        .output()
        .is_ok_and(|answer| answer.status.success())
}

/// Where bindgen looks: what the user names, then the system's directories for libraries, and LLVM's own below them.
fn libclang_directories() -> Vec<PathBuf> {
    if let Some(named) = env::var_os("LIBCLANG_PATH") {
        return vec![PathBuf::from(named)];
    }
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"];
    let mut directories: Vec<PathBuf> = roots.map(PathBuf::from).to_vec();
    for entry in fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("llvm") {
            directories.push(entry.path().join("lib"));
        } else if name.ends_with("-linux-gnu") || name.ends_with("-linux-musl") {
            directories.push(entry.path());
        }
    }
    directories
}

fn has_libclang(directory: &Path) -> bool {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| is_libclang(&entry.file_name().to_string_lossy()))
}

/// `libclang.so`, `libclang.so.14` or `libclang-14.so.1`; not `libclang-cpp.so`, which is another library. The path
/// itself may also be named.
fn is_libclang(file: &str) -> bool {
    let Some(rest) = file.strip_prefix("libclang") else {
        return false;
    };
    let rest = match rest.strip_prefix('-') {
        Some(version) => version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'),
        None => rest.strip_prefix('.').unwrap_or_default(),
    };
    rest == "so" || rest.starts_with("so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_by_its_file_names() {
        for file in [
            "libclang.so",
            "libclang.so.1",
            "libclang-14.so",
            "libclang-14.0.6.so.1",
        ] {
            assert!(is_libclang(file), "{file}");
        }
        for file in [
            "libclang-cpp.so.14",
            "libclang.a",
            "libclangBasic.so",
            "libLLVM.so",
            "clang.so",
        ] {
            assert!(!is_libclang(file), "{file}");
        }
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(in_path("sh").is_some());
        assert!(in_path("no-such-program-here").is_none());
    }
}
