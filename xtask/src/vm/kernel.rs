//! Finds the kernel to boot: a file that the user names, or Debian's newest of a series, fetched once by apt.
//!
//! `apt` knows how.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::{Apt, mirror, once, output, retried};
use super::arch::Arch;
use crate::requirement::Version;

/// A kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// The kernel's own name of its release.
    pub(super) release: String,
    /// How it was configured; libraries that load a scheduler read it.
    pub(super) config: Option<PathBuf>,
    /// [`CPUFREQ`], where it is a module.
    pub(super) cpufreq: Option<PathBuf>,
}

/// A series of kernels that Debian has with sched_ext.
#[derive(Clone, Copy, Debug)]
struct Series {
    name: &'static str,
    /// Where its kernels are built so that schedulers load: not every suite describes 7.2's functions correctly (BTF).
    suite: &'static str,
}

const SERIES: &[Series] = &[
    Series {
        name: "6.16",
        suite: "trixie-backports",
    },
    Series {
        name: "6.18",
        suite: "trixie-backports",
    },
    Series {
        name: "7.2",
        suite: "sid",
    },
];

/// The series that is taken when none is named: the one with long-term support.
pub(super) const DEFAULT: &str = "6.18";

/// The driver that lets governors set frequencies; a module there.
pub(super) const CPUFREQ: &str = "acpi-cpufreq.ko";

/// Where the driver lies, below the directory of a kernel's modules.
const CPUFREQ_DIRECTORY: &str = "kernel/drivers/cpufreq";

/// Whether [`find`] fetches the kernel `wanted`.
pub(super) fn is_fetched(wanted: &Path, arch: Arch, cache: &Path) -> bool {
    let mut series = SERIES.iter();
    series.any(|series| {
        wanted == Path::new(series.name) && !is_whole(&directory(*series, arch, cache))
    })
}

/// Whether a kernel is kept, with all that is taken of it today.
fn is_whole(directory: &Path) -> bool {
    directory.is_dir() && !lacks_driver(directory)
}

/// Where the kernel of a series is kept.
fn directory(series: Series, arch: Arch, cache: &Path) -> PathBuf {
    let name = format!("{}{}", series.name, arch.suffix());
    cache.join("kernels").join(name)
}

/// Finds the kernel `wanted`, a series or a file, for a kind of machine; what has to be fetched is kept in `cache`.
///
/// # Errors
///
/// There is no such series and no such file, the file is no kernel, or it cannot be fetched.
pub(super) fn find(wanted: &Path, arch: Arch, cache: &Path, verbose: bool) -> io::Result<Kernel> {
    if let Some(series) = SERIES
        .iter()
        .find(|series| wanted == Path::new(series.name))
    {
        return of_series(*series, arch, cache, verbose);
    }
    if wanted.is_file() {
        return of_file(wanted, arch);
    }
    let names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
    Err(io::Error::other(format!(
        "no kernel {}: it is neither one of {} nor a file",
        wanted.display(),
        names.join(", ")
    )))
}

fn of_series(series: Series, arch: Arch, cache: &Path, verbose: bool) -> io::Result<Kernel> {
    let directory = directory(series, arch, cache);
    if !is_whole(&directory) {
        // One process at a time may use apt's lists; a second one waits, and finds the kernel.
        let lock = fs::File::create(cache.join("lock"))?;
        lock.lock()?;
        if !directory.is_dir() {
            fetch(series, arch, cache, &directory, verbose).map_err(|error| {
                io::Error::other(format!(
                    "{error}. A kernel is fetched on Debian and Ubuntu. Elsewhere, put a vmlinuz-VERSION that has sched_ext and its \
                     config-VERSION into {}, or name one: cargo xtask vm --kernel FILE",
                    directory.display()
                ))
            })?;
        } else if lacks_driver(&directory)
            && let Err(error) = fetch(series, arch, cache, &directory, verbose)
        {
            eprintln!(
                "vm: the kernel is taken without {CPUFREQ}, which cannot be fetched: {error}"
            );
        }
    }
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if is_named(&path, "vmlinuz") {
            return of_file(&path, arch);
        }
    }
    Err(io::Error::other(format!(
        "{} has no kernel; remove it",
        directory.display()
    )))
}

/// Whether a kernel was kept without the driver, which it has as a module: earlier versions of this program did so.
fn lacks_driver(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is_module = |path: &PathBuf| {
        let config = fs::read_to_string(path).unwrap_or_default();
        config
            .lines()
            .any(|line| line == "CONFIG_X86_ACPI_CPUFREQ=m")
    };
    !files.iter().any(|path| is_named(path, CPUFREQ))
        && files
            .iter()
            .any(|path| is_named(path, "config") && is_module(path))
}

fn is_named(path: &Path, start: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// A kernel's configuration lies beside it, or at the top of the tree that it was built in.
fn of_file(image: &Path, arch: Arch) -> io::Result<Kernel> {
    let cannot_read =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", image.display()));
    let image = &fs::canonicalize(image).map_err(cannot_read)?;
    let content = fs::read(image).map_err(cannot_read)?;
    let release = match arch {
        Arch::X86_64 => release_of(&content),
        Arch::Aarch64 => release_of_arm(&content),
    };
    let release = release.ok_or_else(|| {
        let (path, arch) = (image.display(), arch.name());
        io::Error::other(format!("{path} is no kernel image for {arch}"))
    })?;
    let places = [
        image.with_file_name(format!("config-{release}")),
        image.with_file_name("config"),
        image.with_file_name("../../../.config"),
    ];
    let config = places.into_iter().find(|place| place.is_file());
    let cpufreq = ["", ".xz"]
        .map(|end| image.with_file_name(format!("{CPUFREQ}{end}")))
        .into_iter()
        .find(|place| place.is_file());
    Ok(Kernel {
        image: image.clone(),
        release,
        config,
        cpufreq,
    })
}

/// The release that an image names in its header, as `Documentation/arch/x86/boot.rst` of the kernel describes it.
fn release_of(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = image.get(0x20e..0x210)?;
    let at = usize::from(u16::from_le_bytes([pointer[0], pointer[1]])) + 0x200;
    release_in(image.get(at..)?)
}

/// The release in an image for aarch64, which is the kernel as it runs (`Documentation/arch/arm64/booting.rst`): in the
/// text that it introduces itself with.
fn release_of_arm(image: &[u8]) -> Option<String> {
    const INTRODUCTION: &[u8] = b"Linux version ";
    if image.get(0x38..0x3c)? != b"ARM\x64" {
        return None;
    }
    let starts = |window: &[u8]| window.starts_with(INTRODUCTION);
    image
        .windows(INTRODUCTION.len() + 1)
        .enumerate()
        .filter(|(_, window)| starts(window) && window[INTRODUCTION.len()].is_ascii_digit())
        .find_map(|(at, _)| release_in(&image[at + INTRODUCTION.len()..]))
}

/// The release that a text begins with.
fn release_in(text: &[u8]) -> Option<String> {
    let text = text.split(|&byte| byte == 0).next()?;
    let release = text.split(|&byte| byte == b' ').next()?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(byte);
    let sound = !release.is_empty() && release.len() < 65 && release.iter().all(plain);
    sound.then(|| String::from_utf8_lossy(release).into_owned())
}

/// Fetches the newest kernel of `series` into `directory`.
fn fetch(
    series: Series,
    arch: Arch,
    cache: &Path,
    directory: &Path,
    verbose: bool,
) -> io::Result<()> {
    let mirror = mirror()?;
    let own = format!("{}{}", series.suite, arch.suffix());
    let apt = Apt::configure(&cache.join("apt").join(own), &mirror, series.suite, arch)?;
    let lists = format!("lists of {} from {mirror}", series.suite);
    retried(lists, apt.get().arg("update"), verbose)?;

    let pattern = format!(
        "^linux-(image|binary)-{}\\..*{}$",
        series.name.replace('.', "\\."),
        arch.flavour()
    );
    let found = output(apt.cache().args(["search", "--names-only", &pattern]))?;
    let newest = newest(&found, series.name, arch).ok_or_else(|| {
        io::Error::other(format!(
            "{} has no kernel {} now; take another, or name a file",
            series.suite, series.name
        ))
    })?;

    let work = apt.directory.join("work");
    if work.is_dir() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    retried(
        format!("kernel {}", newest.release),
        apt.get()
            .arg("download")
            .args(newest.packages())
            .current_dir(&work),
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
    for file in ["vmlinuz", "config"] {
        let name = format!("{file}-{}", newest.release);
        let places = [
            tree.join("boot").join(&name),
            tree.join("usr/lib/modules")
                .join(&newest.release)
                .join(file),
        ];
        let place = places.iter().find(|place| place.is_file()).ok_or_else(|| {
            let packages = newest.packages().join(", ");
            io::Error::other(format!("no {name} in {packages}"))
        })?;
        fs::rename(place, ready.join(&name))?;
    }
    // A kernel that has the driver built in, or not at all, has no such file.
    for end in ["", ".xz"] {
        let name = format!("{CPUFREQ}{end}");
        for top in ["lib/modules", "usr/lib/modules"] {
            let module = tree.join(top).join(&newest.release).join(CPUFREQ_DIRECTORY);
            let module = module.join(&name);
            if module.is_file() {
                fs::rename(module, ready.join(&name))?;
            }
        }
    }
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    if directory.is_dir() {
        fs::remove_dir_all(directory)?;
    }
    fs::rename(&ready, directory)?;
    fs::remove_dir_all(&work)
}

/// A kernel that apt offers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    release: String,
    /// Whether image, configuration and modules are in packages of their own, as from 6.19 on.
    split: bool,
}

impl Offer {
    /// From a package's name.
    fn of_package(name: &str) -> Option<Offer> {
        let (release, split) = match name.strip_prefix("linux-binary-") {
            Some(release) => (release, true),
            None => (name.strip_prefix("linux-image-")?, false),
        };
        Some(Offer {
            release: release.to_string(),
            split,
        })
    }

    fn version(&self, arch: Arch) -> Option<Version> {
        Version::parse(self.release.strip_suffix(arch.flavour())?)
    }

    fn packages(&self) -> Vec<String> {
        let release = &self.release;
        if self.split {
            vec![
                format!("linux-binary-{release}"),
                format!("linux-base-{release}"),
                format!("linux-modules-{release}"),
            ]
        } else {
            vec![format!("linux-image-{release}")]
        }
    }
}

/// The newest kernel of a series in what `apt-cache search` found.
fn newest(found: &str, series: &str, arch: Arch) -> Option<Offer> {
    let mut offers: Vec<(Version, Offer)> = found
        .lines()
        .filter_map(|line| Offer::of_package(line.split_whitespace().next()?))
        .filter_map(|offer| Some((offer.version(arch)?, offer)))
        .filter(|(version, _)| format!("{}.{}", version.major, version.minor) == series)
        .collect();
    // One kernel may be there in both forms, and rebuilt (`+deb13+1`).
    offers.sort_by_key(|(version, offer)| Reverse((*version, offer.release.clone(), offer.split)));
    offers.into_iter().next().map(|(_, offer)| offer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_was_kept_without_its_driver_is_known() {
        let directory = std::env::temp_dir().join(format!("xtask-driver-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert!(!lacks_driver(&directory) && !lacks_driver(&directory.join("none")));
        let config = directory.join("config-1");
        fs::write(
            &config,
            "# CONFIG_X86_ACPI_CPUFREQ=m\nCONFIG_X86_ACPI_CPUFREQ=y\n",
        )
        .unwrap();
        assert!(!lacks_driver(&directory), "built in");
        fs::write(&config, "CONFIG_X86_ACPI_CPUFREQ=m\n").unwrap();
        assert!(lacks_driver(&directory));
        fs::write(directory.join("acpi-cpufreq.ko.xz"), "").unwrap();
        assert!(!lacks_driver(&directory));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_newest_of_a_series() {
        let found = "linux-image-6.18.9+deb13-cloud-amd64 - Linux 6.18 for x86-64 cloud (signed)\n\
            linux-image-6.18.15+deb13-cloud-amd64 - Linux 6.18 for x86-64 cloud (signed)\n\
            linux-image-6.18.15+deb13-cloud-amd64-unsigned - Linux 6.18 for x86-64 cloud\n\
            linux-image-6.18.16~rc1-cloud-amd64 - Linux 6.18\n\
            linux-image-6.1.200+deb13-cloud-amd64 - Linux 6.1\n";
        let offer = newest(found, "6.18", Arch::X86_64).unwrap();
        assert_eq!(offer.release, "6.18.15+deb13-cloud-amd64");
        assert_eq!(offer.packages(), ["linux-image-6.18.15+deb13-cloud-amd64"]);
        assert_eq!(newest(found, "6.16", Arch::X86_64), None);
        assert_eq!(newest(found, "6.18", Arch::Aarch64), None);
        assert_eq!(newest("", "6.18", Arch::X86_64), None);
    }

    #[test]
    fn later_kernels_come_in_parts() {
        let found = "linux-binary-7.2.9+deb14-cloud-amd64 - Linux image\n\
            linux-binary-7.2.13+deb14-cloud-amd64 - Linux image\n\
            linux-image-7.2.13+deb14-cloud-amd64 - Linux for 64-bit PCs\n";
        assert_eq!(
            newest(found, "7.2", Arch::X86_64).unwrap().packages(),
            [
                "linux-binary-7.2.13+deb14-cloud-amd64",
                "linux-base-7.2.13+deb14-cloud-amd64",
                "linux-modules-7.2.13+deb14-cloud-amd64"
            ]
        );
    }

    #[test]
    fn an_image_names_its_release() {
        let mut image = vec![0; 0x300];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
        let text = b"6.18.15+deb13-cloud-amd64 (someone) #1 SMP\0";
        image[0x280..0x280 + text.len()].copy_from_slice(text);
        assert_eq!(
            release_of(&image).as_deref(),
            Some("6.18.15+deb13-cloud-amd64")
        );

        // A name that would lead elsewhere, a pointer to nowhere, no kernel.
        image[0x280] = b'/';
        assert_eq!(release_of(&image), None);
        image[0x20e..0x210].copy_from_slice(&0xffff_u16.to_le_bytes());
        assert_eq!(release_of(&image), None);
        assert_eq!(release_of(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn an_image_for_aarch64_says_its_release() {
        let mut image = vec![0; 0x100];
        image[0x38..0x3c].copy_from_slice(b"ARM\x64");
        image.extend(b"Linux version %s\0Linux version 6.18.15+deb13-cloud-arm64 (someone)\n\0");
        assert_eq!(
            release_of_arm(&image).as_deref(),
            Some("6.18.15+deb13-cloud-arm64")
        );
        assert_eq!(release_of(&image), None);
        image.truncate(0x110);
        assert_eq!(release_of_arm(&image), None);
        assert_eq!(release_of_arm(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn unknown_kernels_are_refused() {
        for wanted in ["6.12", "", "latest", "/no/such/file"] {
            let error = find(
                Path::new(wanted),
                Arch::X86_64,
                Path::new("/nowhere"),
                false,
            )
            .unwrap_err();
            let text = error.to_string();
            assert!(text.contains("6.16, 6.18, 7.2"), "{text}");
        }
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let own = Path::new("/proc/self/exe");
            let error = find(own, arch, Path::new("/nowhere"), false).unwrap_err();
            assert!(error.to_string().contains("no kernel image"), "{error}");
        }
    }
}
