//! Finds the kernel to boot: a file that the user names, or Debian's newest of a series, fetched once by apt.
//!
//! Apt gets a configuration of its own, in the cache, so that this machine's package sources stay as they are: the
//! machine's Debian mirror, one suite, Debian's keys. It checks the signatures.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install;
use crate::interrupt;
use crate::progress::Sink;
use crate::requirement::Version;

/// A kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// What the kernel calls itself.
    pub(super) release: String,
    /// How it was configured; libraries that load a scheduler read it.
    pub(super) config: Option<PathBuf>,
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

/// The smallest flavour. It has all that a guest here needs built in.
const FLAVOUR: &str = "-cloud-amd64";

/// The keys that Debian signs with, from its package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Finds the kernel `wanted`, a series or a file; what has to be fetched is kept in `cache`.
///
/// # Errors
///
/// There is no such series and no such file, the file is no kernel, or it cannot be fetched.
pub(super) fn find(wanted: &Path, cache: &Path, verbose: bool) -> io::Result<Kernel> {
    if let Some(series) = SERIES
        .iter()
        .find(|series| wanted == Path::new(series.name))
    {
        return of_series(*series, cache, verbose);
    }
    if wanted.is_file() {
        return of_file(wanted);
    }
    let names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
    Err(io::Error::other(format!(
        "no kernel {}: it is neither one of {} nor a file",
        wanted.display(),
        names.join(", ")
    )))
}

fn of_series(series: Series, cache: &Path, verbose: bool) -> io::Result<Kernel> {
    let directory = cache.join("kernels").join(series.name);
    if !directory.is_dir() {
        // Apt's lists are for one at a time; whoever comes second finds the kernel.
        let lock = fs::File::create(cache.join("lock"))?;
        lock.lock()?;
        if !directory.is_dir() {
            fetch(series, cache, &directory, verbose)?;
        }
    }
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if is_named(&path, "vmlinuz") {
            return of_file(&path);
        }
    }
    Err(io::Error::other(format!(
        "{} has no kernel; remove it",
        directory.display()
    )))
}

fn is_named(path: &Path, start: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// A kernel's configuration lies beside it, or at the top of the tree that it was built in.
fn of_file(image: &Path) -> io::Result<Kernel> {
    let cannot_read =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", image.display()));
    let image = &fs::canonicalize(image).map_err(cannot_read)?;
    let content = fs::read(image).map_err(cannot_read)?;
    let release = release_of(&content).ok_or_else(|| {
        let path = image.display();
        io::Error::other(format!("{path} is no kernel image (bzImage) for x86"))
    })?;
    let places = [
        image.with_file_name(format!("config-{release}")),
        image.with_file_name("config"),
        image.with_file_name("../../../.config"),
    ];
    let config = places.into_iter().find(|place| place.is_file());
    Ok(Kernel {
        image: image.clone(),
        release,
        config,
    })
}

/// The release that an image names in its header, as `Documentation/arch/x86/boot.rst` of the kernel describes it.
fn release_of(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = image.get(0x20e..0x210)?;
    let at = usize::from(u16::from_le_bytes([pointer[0], pointer[1]])) + 0x200;
    let text = image.get(at..)?.split(|&byte| byte == 0).next()?;
    let release = text.split(|&byte| byte == b' ').next()?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(byte);
    let sound = !release.is_empty() && release.len() < 65 && release.iter().all(plain);
    sound.then(|| String::from_utf8_lossy(release).into_owned())
}

/// Fetches the newest kernel of `series` into `directory`.
fn fetch(series: Series, cache: &Path, directory: &Path, verbose: bool) -> io::Result<()> {
    let mirror = mirror()?;
    let apt = Apt::configure(&cache.join("apt").join(series.suite), &mirror, series.suite)?;
    let lists = format!("lists of {} from {mirror}", series.suite);
    step(lists, apt.get().arg("update"), verbose)?;

    let pattern = format!(
        "^linux-(image|binary)-{}\\..*{FLAVOUR}$",
        series.name.replace('.', "\\.")
    );
    let found = output(apt.cache().args(["search", "--names-only", &pattern]))?;
    let newest = newest(&found, series.name).ok_or_else(|| {
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
    step(
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
            step("unpack".to_string(), &mut unpack, verbose)?;
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
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(&ready, directory)?;
    fs::remove_dir_all(&work)
}

/// A kernel that apt offers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    release: String,
    /// Whether image and configuration are in packages of their own, as from 6.19 on.
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

    fn version(&self) -> Option<Version> {
        Version::parse(self.release.strip_suffix(FLAVOUR)?)
    }

    fn packages(&self) -> Vec<String> {
        let release = &self.release;
        if self.split {
            vec![
                format!("linux-binary-{release}"),
                format!("linux-base-{release}"),
            ]
        } else {
            vec![format!("linux-image-{release}")]
        }
    }
}

/// The newest kernel of a series in what `apt-cache search` found.
fn newest(found: &str, series: &str) -> Option<Offer> {
    let mut offers: Vec<(Version, Offer)> = found
        .lines()
        .filter_map(|line| Offer::of_package(line.split_whitespace().next()?))
        .filter_map(|offer| Some((offer.version()?, offer)))
        .filter(|(version, _)| format!("{}.{}", version.major, version.minor) == series)
        .collect();
    // One kernel may be there in both forms, and rebuilt (`+deb13+1`).
    offers.sort_by_key(|(version, offer)| Reverse((*version, offer.release.clone(), offer.split)));
    offers.into_iter().next().map(|(_, offer)| offer)
}

/// The Debian mirror among this machine's package sources.
fn mirror() -> io::Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let advice = "a kernel can only be fetched on Debian; elsewhere name the file of one that has sched_ext with --kernel";
    let answer =
        output(&mut targets).map_err(|error| io::Error::other(format!("{error}; {advice}")))?;
    let mirror = debian_mirror(&answer)
        .ok_or_else(|| io::Error::other(format!("no Debian mirror in apt's sources; {advice}")))?;
    if !Path::new(KEYRING).is_file() {
        return Err(io::Error::other(format!(
            "{KEYRING} is missing; install debian-archive-keyring"
        )));
    }
    Ok(mirror.to_string())
}

/// The address of the archive itself: those of its security updates and of others' packages end differently.
fn debian_mirror(addresses: &str) -> Option<&str> {
    addresses
        .lines()
        .map(|address| address.trim().trim_end_matches('/'))
        .find(|address| address.ends_with("/debian"))
}

/// Apt with a configuration of its own.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    fn configure(directory: &Path, mirror: &str, suite: &str) -> io::Result<Apt> {
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(name))?;
        }
        fs::write(
            directory.join("sources.list"),
            format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n"),
        )?;
        // What is installed here counts as little as the machine's own sources.
        fs::write(directory.join("status"), "")?;
        fs::write(directory.join("apt.conf"), configuration(directory))?;
        Ok(Apt {
            directory: directory.to_path_buf(),
        })
    }

    fn get(&self) -> Command {
        self.command("apt-get")
    }

    fn cache(&self) -> Command {
        self.command("apt-cache")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--config-file")
            .arg(self.directory.join("apt.conf"))
            .env("LC_ALL", "C");
        command
    }
}

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"Dir::Etc::SourceList "{directory}/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "{directory}/lists";
Dir::State::Status "{directory}/status";
Dir::Cache "{directory}/cache";
APT::Architecture "amd64";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
// Apt's own user could not reach a cache below a private directory.
APT::Sandbox::User "root";
// What the machine does after its own updates.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

fn step(title: String, command: &mut Command, verbose: bool) -> io::Result<()> {
    if !interrupt::came() && install::run(title, command, Sink::Stderr, verbose) {
        return Ok(());
    }
    Err(io::Error::other("the kernel could not be fetched"))
}

fn output(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let answer = command
        .output()
        .map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if !answer.status.success() {
        let error = String::from_utf8_lossy(&answer.stderr);
        return Err(io::Error::other(format!("{program}: {}", error.trim())));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_series() {
        let found = "linux-image-6.18.9+deb13-cloud-amd64 - Linux 6.18 for x86-64 cloud (signed)\n\
            linux-image-6.18.15+deb13-cloud-amd64 - Linux 6.18 for x86-64 cloud (signed)\n\
            linux-image-6.18.15+deb13-cloud-amd64-unsigned - Linux 6.18 for x86-64 cloud\n\
            linux-image-6.18.16~rc1-cloud-amd64 - Linux 6.18\n\
            linux-image-6.1.200+deb13-cloud-amd64 - Linux 6.1\n";
        let offer = newest(found, "6.18").unwrap();
        assert_eq!(offer.release, "6.18.15+deb13-cloud-amd64");
        assert_eq!(offer.packages(), ["linux-image-6.18.15+deb13-cloud-amd64"]);
        assert_eq!(newest(found, "6.16"), None);
        assert_eq!(newest("", "6.18"), None);
    }

    #[test]
    fn later_kernels_come_in_parts() {
        let found = "linux-binary-7.2.9+deb14-cloud-amd64 - Linux image\n\
            linux-binary-7.2.13+deb14-cloud-amd64 - Linux image\n\
            linux-image-7.2.13+deb14-cloud-amd64 - Linux for 64-bit PCs\n";
        assert_eq!(
            newest(found, "7.2").unwrap().packages(),
            [
                "linux-binary-7.2.13+deb14-cloud-amd64",
                "linux-base-7.2.13+deb14-cloud-amd64"
            ]
        );
    }

    #[test]
    fn the_mirror_among_the_sources() {
        let sources = "http://mirror.example/debian-security/\n\
            https://packages.example/apt/\n\
            http://mirror.example/debian/\n";
        assert_eq!(debian_mirror(sources), Some("http://mirror.example/debian"));
        assert_eq!(debian_mirror("http://mirror.example/ubuntu/\n"), None);
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
    fn unknown_kernels_are_refused() {
        for wanted in ["6.12", "", "latest", "/no/such/file"] {
            let error = find(Path::new(wanted), Path::new("/nowhere"), false).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("6.16, 6.18, 7.2"), "{text}");
        }
        let error = find(Path::new("/proc/self/exe"), Path::new("/nowhere"), false).unwrap_err();
        assert!(error.to_string().contains("no kernel image"), "{error}");
    }
}
