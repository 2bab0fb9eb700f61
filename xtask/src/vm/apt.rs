//! Apt with a configuration of its own, so that this machine's package sources stay as they are: the machine's Debian
//! mirror, one suite, Debian's keys. It checks the signatures.

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

/// The keys that Debian signs with, from its package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How long to wait between attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// The Debian mirror among this machine's package sources.
pub(super) fn mirror() -> io::Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let answer = output(&mut targets)?;
    let mirror = debian_mirror(&answer)
        .ok_or_else(|| io::Error::other("no Debian mirror in apt's sources"))?;
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
                "deb [arch={} signed-by={KEYRING}] {mirror} {suite} main\n",
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
        assert_eq!(debian_mirror(sources), Some("http://mirror.example/debian"));
        assert_eq!(debian_mirror("http://mirror.example/ubuntu/\n"), None);
    }
}
