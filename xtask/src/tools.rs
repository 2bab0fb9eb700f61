//! The tools that steps need beside a Rust toolchain: how each is found, and where it comes from.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::Context;

/// Older ones cannot compile the BPF programs.
const OLDEST_CLANG: u32 = 18;

/// The oldest Rust that builds what is published: `rust-version` of the workspace.
pub(crate) const OLDEST_RUST: &str = "1.92";

/// The target of programs that run on the foreign machine.
pub(crate) const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The keys that Debian signs with.
pub(crate) const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where apt's own tools look up what is known of Debian, its archive's address among it. Ubuntu has this file, too.
pub(crate) const ABOUT_DEBIAN: &str = "/usr/share/python-apt/templates/Debian.info";

/// Chromium and its kin.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

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
    /// The same for a kernel of aarch64.
    QemuAarch64,
    /// Links programs for that machine; with it come `readelf` and `strip` for them.
    GccAarch64,
    /// The C library of that machine, and what programs are linked with.
    LibcAarch64,
    /// The standard library for that machine.
    RustAarch64,
    /// The programs beside the one under test, in that machine.
    Busybox,
    /// Compiles that machine's table of frequencies.
    Iasl,
    /// The address of Debian's archive, for a machine whose package sources do not have it: [`ABOUT_DEBIAN`].
    DebianAddress,
    /// The keys of that archive.
    DebianKeys,
    /// For BPF programs.
    Clang,
    /// Libraries that a loader of BPF programs is linked with, as headers.
    Libelf,
    Zlib,
    /// Finds them.
    PkgConfig,
    /// Builds libbpf.
    Make,
    /// For the test that opens the benchmarks' page.
    Browser,
    /// The server that the tests of the client `redis` start.
    Redis,
    /// Counts instructions.
    Valgrind,
    /// Builds the guide.
    Mdbook,
    Rustfmt,
    Clippy,
    /// Interprets code of `morpheus-common`, and finds undefined behaviour.
    Miri,
    /// The standard library's sources, which miri and the thread sanitizer build anew.
    RustSrc,
    /// The oldest toolchain that is supported.
    OldestRust,
    /// The standard library for another target triple.
    Target(&'static str),
}

/// Where a tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The system's package, as it is called on Debian and Ubuntu, on Fedora, and on Arch.
    Package {
        /// The first of these that the release has.
        debian: &'static [&'static str],
        fedora: &'static str,
        arch: &'static str,
    },
    /// A package that only machines with apt need.
    Apt(&'static str),
    /// A component of the Rust toolchain.
    Component(&'static str),
    /// A component of the nightly toolchain.
    Nightly(&'static str),
    /// A toolchain.
    Toolchain(&'static str),
    /// A target of the Rust toolchain.
    Target(&'static str),
    /// A crate with a program of its name, which cargo builds into [`installed`].
    Crate(&'static str),
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Libclang => "libclang",
            Tool::Objdump => "objdump",
            Tool::Setpriv => "setpriv",
            Tool::Gcc => "gcc",
            Tool::Qemu => "qemu-system-x86_64",
            Tool::QemuAarch64 => "qemu-system-aarch64",
            Tool::GccAarch64 => "aarch64-linux-gnu-gcc",
            Tool::LibcAarch64 => "libc for aarch64",
            Tool::RustAarch64 => "Rust's standard library for aarch64",
            Tool::Busybox => "busybox",
            Tool::Iasl => "iasl",
            Tool::DebianAddress => "the address of Debian's archive",
            Tool::DebianKeys => "the keys of Debian's archive",
            Tool::Clang => "clang 18 or newer",
            Tool::Libelf => "libelf's headers",
            Tool::Zlib => "zlib's headers",
            Tool::PkgConfig => "pkg-config",
            Tool::Make => "make",
            Tool::Browser => "chromium",
            Tool::Redis => "redis-server",
            Tool::Valgrind => "valgrind",
            Tool::Mdbook => "mdbook",
            Tool::Rustfmt => "rustfmt",
            Tool::Clippy => "clippy",
            Tool::Miri => "miri",
            Tool::RustSrc => "rust-src",
            Tool::OldestRust => "the oldest supported Rust",
            Tool::Target(triple) => triple,
        }
    }

    pub(crate) fn source(self) -> Source {
        let package = |debian, fedora, arch| Source::Package {
            debian,
            fedora,
            arch,
        };
        match self {
            Tool::Libclang => package(&["libclang-dev"], "clang-devel", "clang"),
            Tool::Objdump => package(&["binutils"], "binutils", "binutils"),
            Tool::Setpriv => package(&["util-linux"], "util-linux", "util-linux"),
            Tool::Gcc => package(&["gcc"], "gcc", "gcc"),
            Tool::Qemu => package(&["qemu-system-x86"], "qemu-system-x86", "qemu-system-x86"),
            Tool::QemuAarch64 => package(
                &["qemu-system-arm"],
                "qemu-system-aarch64",
                "qemu-system-aarch64",
            ),
            Tool::GccAarch64 => package(
                &["gcc-aarch64-linux-gnu"],
                "gcc-aarch64-linux-gnu",
                "aarch64-linux-gnu-gcc",
            ),
            Tool::LibcAarch64 => package(
                &["libc6-dev-arm64-cross"],
                "sysroot-aarch64-fc-glibc",
                "aarch64-linux-gnu-glibc",
            ),
            Tool::RustAarch64 => Source::Target(AARCH64),
            Tool::Busybox => package(&["busybox-static"], "busybox", "busybox"),
            Tool::Iasl => package(&["acpica-tools"], "acpica-tools", "acpica"),
            Tool::DebianAddress => Source::Apt("python-apt-common"),
            Tool::DebianKeys => Source::Apt("debian-archive-keyring"),
            // Built and tested with 19; no release has all of them.
            Tool::Clang => package(
                &["clang-19", "clang-20", "clang-21", "clang-22", "clang-18"],
                "clang",
                "clang",
            ),
            Tool::Libelf => package(&["libelf-dev"], "elfutils-libelf-devel", "libelf"),
            Tool::Zlib => package(&["zlib1g-dev"], "zlib-devel", "zlib"),
            Tool::PkgConfig => package(&["pkg-config"], "pkgconf-pkg-config", "pkgconf"),
            Tool::Make => package(&["make"], "make", "make"),
            Tool::Browser => package(&["chromium"], "chromium", "chromium"),
            Tool::Valgrind => package(&["valgrind"], "valgrind", "valgrind"),
            Tool::Redis => package(&["redis-server"], "valkey-compat-redis", "valkey"),
            Tool::Mdbook => Source::Crate("mdbook"),
            Tool::Rustfmt => Source::Component("rustfmt"),
            Tool::Clippy => Source::Component("clippy"),
            Tool::Miri => Source::Nightly("miri"),
            Tool::RustSrc => Source::Nightly("rust-src"),
            Tool::OldestRust => Source::Toolchain(OLDEST_RUST),
            Tool::Target(triple) => Source::Target(triple),
        }
    }

    /// A variable for the steps that need the tool, when it is there: a test that would skip itself without the tool
    /// must fail instead.
    pub(crate) fn required(self) -> Option<(&'static str, &'static str)> {
        match self {
            Tool::Libclang => Some(("MORPHEUS_REQUIRE_LIBCLANG", "1")),
            Tool::Browser => Some(("MORPHEUS_REQUIRE_BROWSER", "1")),
            Tool::Redis => Some(("MORPHEUS_REQUIRE_REDIS", "1")),
            _ => None,
        }
    }

    pub(crate) fn present(self, context: &Context) -> bool {
        match self {
            Tool::Libclang => libclang_directories().iter().any(|path| has_libclang(path)),
            Tool::Objdump
            | Tool::Setpriv
            | Tool::Gcc
            | Tool::Qemu
            | Tool::QemuAarch64
            | Tool::GccAarch64
            | Tool::Busybox
            | Tool::Iasl
            | Tool::PkgConfig
            | Tool::Make
            | Tool::Redis
            | Tool::Valgrind => in_path(self.name()).is_some(),
            Tool::DebianAddress => Path::new(ABOUT_DEBIAN).is_file(),
            Tool::DebianKeys => Path::new(DEBIAN_KEYS).is_file(),
            Tool::LibcAarch64 => Path::new("/usr/aarch64-linux-gnu/lib/libc.so.6").is_file(),
            Tool::RustAarch64 => has_target(AARCH64),
            Tool::Clang => has_clang(),
            Tool::Mdbook => {
                let own = installed(context).join("bin").join(self.name());
                own.is_file() || in_path(self.name()).is_some()
            }
            // The names that the test tries.
            Tool::Browser => BROWSERS.iter().any(|name| tells_version(name)),
            Tool::Libelf => has_header("libelf.h"),
            Tool::Zlib => has_header("zlib.h"),
            Tool::Rustfmt => answers(context, "fmt"),
            Tool::Clippy => answers(context, "clippy"),
            Tool::Miri | Tool::RustSrc => nightly_has(self.name()),
            Tool::OldestRust => has_toolchain(OLDEST_RUST),
            Tool::Target(triple) => has_target(triple),
        }
    }
}

/// Where cargo puts programs that only this project needs: beside the builds, not into the user's own.
pub(crate) fn installed(context: &Context) -> PathBuf {
    context.target.join("tools")
}

/// The file that a shell would run for `program`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Whether a program runs: a stand-in that asks for a snap is in the path, too.
fn tells_version(program: &str) -> bool {
    let call = Command::new(program).arg("--version").output();
    call.is_ok_and(|answer| answer.status.success())
}

fn answers(context: &Context, subcommand: &str) -> bool {
    context
        .cargo()
        .args([subcommand, "--version"])
        .output()
        .is_ok_and(|answer| answer.status.success())
}

fn has_toolchain(version: &str) -> bool {
    Command::new("rustup")
        .args(["run", version, "rustc", "--version"])
        // A question must not install a toolchain.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output()
        .is_ok_and(|answer| answer.status.success())
}

/// Whether the toolchain has the standard library of a target.
fn has_target(target: &str) -> bool {
    // The one that rustup chose for this program's cargo, by the environment.
    let mut ask = Command::new("rustc");
    ask.args(["--print", "target-libdir", "--target", target]);
    ask.output().is_ok_and(|answer| {
        let directory = String::from_utf8_lossy(&answer.stdout).trim().to_string();
        answer.status.success()
            && fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some())
    })
}

/// Whether the nightly toolchain is there, with this component.
fn nightly_has(component: &str) -> bool {
    Command::new("rustup")
        .args(["component", "list", "--toolchain", "nightly", "--installed"])
        // A question must not install a toolchain.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output()
        .is_ok_and(|answer| {
            answer.status.success() && lists(&String::from_utf8_lossy(&answer.stdout), component)
        })
}

/// Whether a component is in rustup's list, in which most have a target triple behind their name.
fn lists(installed: &str, component: &str) -> bool {
    installed.lines().any(|line| {
        line.trim()
            .strip_prefix(component)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Whether there is a clang that the build script of `morpheus-bpf` takes: it tries the same names.
fn has_clang() -> bool {
    const NAMES: [&str; 6] = [
        "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18",
    ];
    // A user who names one knows why.
    env::var_os("CLANG").is_some()
        || NAMES.iter().any(|name| {
            Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|answer| {
                    clang_version(&String::from_utf8_lossy(&answer.stdout))
                        .is_some_and(|version| version >= OLDEST_CLANG)
                })
        })
}

/// The major version, from a line such as "Debian clang version 19.1.7 (3)".
fn clang_version(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("clang version ")?;
    rest.split('.').next()?.parse().ok()
}

/// Whether C finds a header without being told where.
fn has_header(name: &str) -> bool {
    ["/usr/include", "/usr/local/include"]
        .iter()
        .any(|directory| Path::new(directory).join(name).is_file())
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
    fn the_oldest_rust_is_the_workspace_s() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("rust-version = \"{OLDEST_RUST}\"\n")));
    }

    #[test]
    fn components_of_nightly() {
        let installed = "cargo-x86_64-unknown-linux-gnu\nmiri-x86_64-unknown-linux-gnu\nrust-src\n";
        assert!(lists(installed, "miri") && lists(installed, "rust-src"));
        assert!(!lists(installed, "clippy") && !lists(installed, "car") && !lists("", "miri"));
    }

    #[test]
    fn clang_says_its_version() {
        let text = "Debian clang version 19.1.7 (3)\nTarget: x86_64-pc-linux-gnu\n";
        assert_eq!(clang_version(text), Some(19));
        assert_eq!(clang_version("clang version 22.0.0git"), Some(22));
        assert_eq!(clang_version("gcc (Debian) 12.2.0"), None);
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(in_path("sh").is_some());
        assert!(in_path("no-such-program-here").is_none());
    }
}
