//! Apt with a configuration of its own, so that this machine's package sources stay as they are: the machine's Debian
//! mirror (on Ubuntu, which has none, the address that apt's tools know), one suite, Debian's keys. It checks the signatures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::arch::Arch;
use crate::install;
use crate::interrupt;
use crate::progress::Sink;
use crate::tools::{ABOUT_DEBIAN, DEBIAN_KEYS, Tool, in_path};

/// How long to wait between attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// What a machine with apt needs to fetch something from Debian's archive.
pub(super) fn tools() -> Vec<Tool> {
    if in_path("apt-get").is_none() {
        return Vec::new();
    }
    let mut tools = vec![Tool::DebianKeys];
    if !matches!(own_mirror(), Ok(Some(_))) {
        tools.push(Tool::DebianAddress);
    }
    tools
}

/// The address of Debian's archive: that of this machine's mirror, or the one that apt's tools know.
pub(super) fn mirror() -> io::Result<String> {
    let missing = |path: &str, package: &str| {
        io::Error::other(format!("{path} is missing; install {package}"))
    };
    let mirror = match own_mirror()? {
        Some(mirror) => mirror,
        None => fs::read_to_string(ABOUT_DEBIAN)
            .ok()
            .and_then(|about| address_in(&about).map(str::to_string))
            .ok_or_else(|| {
                let why = missing(ABOUT_DEBIAN, "python-apt-common");
                io::Error::other(format!("no Debian mirror in apt's sources, and {why}"))
            })?,
    };
    if !Path::new(DEBIAN_KEYS).is_file() {
        return Err(missing(DEBIAN_KEYS, "debian-archive-keyring"));
    }
    Ok(mirror)
}

/// The Debian mirror among this machine's package sources.
fn own_mirror() -> io::Result<Option<String>> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let answer = output(&mut targets)?;
    Ok(debian_mirror(answer.lines()).map(str::to_string))
}

/// The first address in what apt's tools know of a distribution.
fn address_in(about: &str) -> Option<&str> {
    let addresses = about
        .lines()
        .filter_map(|line| line.strip_prefix("BaseURI:"));
    debian_mirror(addresses)
}

/// The address of the archive itself: those of its security updates and of others' packages end differently.
fn debian_mirror<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    addresses
        .map(|address| address.trim().trim_end_matches('/'))
        .find(|address| address.ends_with("/debian"))
}

/// Apt with a configuration of its own.
pub(super) struct Apt {
    pub(super) directory: PathBuf,
}

impl Apt {
    pub(super) fn configure(
        directory: &Path,
        mirror: &str,
        suite: &str,
        arch: Arch,
    ) -> io::Result<Apt> {
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(name))?;
        }
        fs::write(
            directory.join("sources.list"),
            format!(
                "deb [arch={} signed-by={DEBIAN_KEYS}] {mirror} {suite} main\n",
                arch.debian()
            ),
        )?;
        // The packages installed here count as little as the machine's own sources.
        fs::write(directory.join("status"), "")?;
        fs::write(directory.join("apt.conf"), configuration(directory, arch))?;
        Ok(Apt {
            directory: directory.to_path_buf(),
        })
    }

    pub(super) fn get(&self) -> Command {
        self.command("apt-get")
    }

    pub(super) fn cache(&self) -> Command {
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

fn configuration(directory: &Path, arch: Arch) -> String {
    let (directory, arch) = (directory.display(), arch.debian());
    format!(
        r#"Dir::Etc::SourceList "{directory}/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "{directory}/lists";
Dir::State::Status "{directory}/status";
Dir::Cache "{directory}/cache";
APT::Architecture "{arch}";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
// Apt's own user could not reach a cache below a private directory.
APT::Sandbox::User "root";
// What the machine does after its own updates.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

/// Runs a step of the way to a kernel.
pub(super) fn once(title: String, command: &mut Command, verbose: bool) -> io::Result<()> {
    if !interrupt::came() && install::run(title, command, Sink::Stderr, verbose) {
        return Ok(());
    }
    Err(io::Error::other("the kernel could not be fetched"))
}

/// Runs a step that goes over the network, several times where it fails: a mirror that is being updated has lists and
/// packages that do not agree.
pub(super) fn retried(title: String, command: &mut Command, verbose: bool) -> io::Result<()> {
    for pause in PAUSES {
        if once(title.clone(), command, verbose).is_ok() {
            return Ok(());
        }
        if interrupt::came() {
            break;
        }
        thread::sleep(pause);
    }
    once(title, command, verbose).map_err(|_| {
        io::Error::other(
            "the kernel could not be fetched; look at the network and apt's sources, or name the file of a kernel with \
             --kernel",
        )
    })
}

pub(super) fn output(command: &mut Command) -> io::Result<String> {
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
    fn the_mirror_among_the_sources() {
        let sources = "http://mirror.example/debian-security/\n\
            https://packages.example/apt/\n\
            http://mirror.example/debian/\n";
        assert_eq!(
            debian_mirror(sources.lines()),
            Some("http://mirror.example/debian")
        );
        let ubuntu = ["http://mirror.example/ubuntu/"];
        assert_eq!(debian_mirror(ubuntu.into_iter()), None);
    }

    #[test]
    fn the_address_that_the_tools_know() {
        let about = "ChangelogURI: https://changes.example/debian\n\n\
            Suite: forky\n\
            RepositoryType: deb\n\
            BaseURI: https://mirror.example/debian/\n\
            MatchURI: mirror.example/debian\n\n\
            Suite: trixie/updates\n\
            BaseURI: http://security.example/\n";
        assert_eq!(address_in(about), Some("https://mirror.example/debian"));
        assert_eq!(address_in("Suite: forky\n"), None);
    }
}
