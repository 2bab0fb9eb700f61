//! Finds what a guest has beside the programs under test: busybox, and for a foreign machine the C library.
//!
//! For that machine it is Debian's, fetched once by apt. It signs return addresses, as most distributions' C libraries for
//! aarch64 do; the one that comes with a cross compiler may be built without.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::{Apt, mirror, once, retried};
use super::arch::Arch;
use crate::tools::{Tool, in_path};

const PACKAGES: [&str; 3] = ["busybox-static", "libc6", "libgcc-s1"];
const SUITE: &str = "trixie";

/// The programs and libraries of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Userland {
    pub(super) busybox: PathBuf,
    /// Where the libraries of a foreign machine's programs are; this machine's loader knows where its are.
    pub(super) libraries: Option<PathBuf>,
}

/// Whether [`find`] fetches it.
pub(super) fn is_fetched(arch: Arch, cache: &Path) -> bool {
    arch != Arch::X86_64 && !directory(arch, cache).is_dir()
}

/// Where it is kept.
fn directory(arch: Arch, cache: &Path) -> PathBuf {
    cache.join(format!("userland{}", arch.suffix()))
}

/// Finds it; what has to be fetched is kept in `cache`.
///
/// # Errors
///
/// It is not there, and cannot be fetched.
pub(super) fn find(arch: Arch, cache: &Path, verbose: bool) -> io::Result<Userland> {
    if arch == Arch::X86_64 {
        let busybox = in_path(Tool::Busybox.name())
            .ok_or_else(|| io::Error::other("busybox is not in the path"))?;
        return Ok(Userland {
            busybox,
            libraries: None,
        });
    }
    let directory = directory(arch, cache);
    if !directory.is_dir() {
        // One process at a time may use apt's lists; a second one waits, and finds the directory.
        let lock = fs::File::create(cache.join("lock"))?;
        lock.lock()?;
        if !directory.is_dir() {
            fetch(arch, cache, &directory, verbose)?;
        }
    }
    Ok(Userland {
        busybox: directory.join("busybox"),
        libraries: Some(directory.join("lib")),
    })
}

fn fetch(arch: Arch, cache: &Path, directory: &Path, verbose: bool) -> io::Result<()> {
    let mirror = mirror()?;
    let own = cache.join("apt").join(format!("{SUITE}{}", arch.suffix()));
    let apt = Apt::configure(&own, &mirror, SUITE, arch)?;
    let lists = format!("lists of {SUITE} from {mirror}");
    retried(lists, apt.get().arg("update"), verbose)?;
    let work = apt.directory.join("work");
    if work.is_dir() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    retried(
        format!("{} for {}", PACKAGES.join(", "), arch.name()),
        apt.get().arg("download").args(PACKAGES).current_dir(&work),
        verbose,
    )?;
    let tree = work.join("tree");
    for entry in fs::read_dir(&work)? {
        let package = entry?.path();
        if package.extension().is_some_and(|end| end == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&package).arg(&tree);
            once("unpack".to_string(), &mut unpack, verbose)?;
        }
    }
    // Under its final name it is whole.
    let ready = work.join("ready");
    fs::create_dir(&ready)?;
    let libraries = format!("usr/lib/{}-linux-gnu", arch.name());
    for (from, to) in [("usr/bin/busybox", "busybox"), (&libraries, "lib")] {
        fs::rename(tree.join(from), ready.join(to))
            .map_err(|error| io::Error::other(format!("{from} of Debian's packages: {error}")))?;
    }
    fs::rename(&ready, directory)?;
    fs::remove_dir_all(&work)
}
