// SPDX-License-Identifier: GPL-2.0-only
//! Where an installation goes: a root, which packages and tests set, and a prefix.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Access;

use super::{DocumentKind, Error};
use crate::regular;
use crate::run_log;
use crate::start::OPTIONS;

/// Prefixes whose `lib/systemd/system` systemd searches.
const PREFIXES_OF_UNITS: [&str; 2] = ["/usr", "/usr/local"];
/// Where it searches always.
const UNITS_OF_THE_MACHINE: &str = "/etc/systemd/system";
/// The unit's `StateDirectory`.
const STATE: &str = "/var/lib/morpheus";
/// How the name of each installed file begins.
const NAMES: [&str; 2] = ["scx_morpheus", "_scx_morpheus"];

/// Where an installation goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
    prefix: PathBuf,
}

impl Place {
    /// Files go below `prefix`, and to `/etc`; all of that below `root`, which makes no difference to what the unit says.
    ///
    /// # Errors
    ///
    /// When the prefix is not absolute, or holds what would have to be quoted in a unit.
    pub fn new(root: &Path, prefix: &Path) -> Result<Place, Error> {
        let wrong = |reason| {
            Err(Error::Place {
                path: prefix.to_owned(),
                reason,
            })
        };
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(byte);
        if !prefix.is_absolute() {
            return wrong("a prefix begins with /");
        }
        if !prefix.as_os_str().as_encoded_bytes().iter().all(plain) {
            return wrong(
                "a prefix has letters, digits and / . _ + - alone: systemd reads it in the unit",
            );
        }
        if !is_plain(prefix) {
            return wrong("a prefix goes down from /, without ..");
        }
        Ok(Place {
            root: root.to_owned(),
            // Without a / at its end, and without . in it.
            prefix: prefix.components().collect(),
        })
    }

    /// The root that it was made with.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path with the root.
    #[must_use]
    pub fn on_disk(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.prefix.join("bin/scx_morpheus")
    }

    /// The program's command `doctor` as a program.
    #[must_use]
    pub fn doctor(&self) -> PathBuf {
        self.prefix.join("bin/morpheus-doctor")
    }

    /// The unit.
    #[must_use]
    pub fn unit(&self) -> PathBuf {
        let is_searched = PREFIXES_OF_UNITS
            .iter()
            .any(|prefix| self.prefix == Path::new(prefix));
        let directory = if is_searched {
            self.prefix.join("lib/systemd/system")
        } else {
            UNITS_OF_THE_MACHINE.into()
        };
        directory.join("scx_morpheus.service")
    }

    /// The operator's options, which the unit reads.
    #[must_use]
    pub fn defaults(&self) -> PathBuf {
        OPTIONS.into()
    }

    /// The list of what was installed.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.prefix.join("lib/scx_morpheus/manifest")
    }

    /// The existing paths that an uninstall leaves, each with a description.
    #[must_use]
    pub fn left(&self) -> Vec<(&'static str, PathBuf)> {
        let kept = [
            ("your options", OPTIONS),
            ("what was learnt of processes", STATE),
            ("logs of runs", run_log::DIRECTORY),
        ];
        let paths = kept.map(|(what, path)| (what, self.on_disk(Path::new(path))));
        paths
            .into_iter()
            .filter(|(_, path)| path.exists())
            .collect()
    }

    /// A document of this name.
    #[must_use]
    pub fn document(&self, kind: DocumentKind, name: &str) -> PathBuf {
        self.documents(kind).join(name)
    }

    fn documents(&self, kind: DocumentKind) -> PathBuf {
        self.prefix.join(match kind {
            DocumentKind::Manual => "share/man/man1",
            DocumentKind::Bash => "share/bash-completion/completions",
            DocumentKind::Zsh => "share/zsh/site-functions",
            DocumentKind::Fish => "share/fish/vendor_completions.d",
        })
    }

    /// Whether an install to this place could have written this file: it is in one of the directories above, and has a name
    /// of ours.
    pub(super) fn may_hold(&self, path: &Path) -> bool {
        let fixed = [self.program(), self.doctor(), self.unit(), self.defaults()];
        if fixed.iter().any(|fixed| fixed == path) {
            return true;
        }
        let name = path.file_name().map(|name| name.to_string_lossy());
        let is_ours = name.is_some_and(|name| NAMES.iter().any(|begin| name.starts_with(begin)));
        let kinds = [
            DocumentKind::Manual,
            DocumentKind::Bash,
            DocumentKind::Zsh,
            DocumentKind::Fish,
        ];
        let mut directories = kinds.map(|kind| self.documents(kind)).into_iter();
        // Compared as written: `a/./b` and `a/b` are the same to `Path`, and `..` is in none of these.
        is_ours && is_plain(path) && directories.any(|directory| path.parent() == Some(&directory))
    }

    /// Refuses a path that a link leads out of the root.
    pub(super) fn check_inside(&self, path: &Path) -> Result<(), Error> {
        let on_disk = self.on_disk(path);
        let failed = |error| Error::io(&on_disk, error);
        let Some(directory) = nearest_directory(&on_disk) else {
            return Ok(());
        };
        let directory = fs::canonicalize(directory).map_err(failed)?;
        // A root that is not there yet has no links below it.
        let root = match fs::canonicalize(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            root => root.map_err(failed)?,
        };
        if directory.starts_with(root) {
            Ok(())
        } else {
            Err(Error::Outside(on_disk))
        }
    }

    /// Directories that have to be made for this file, the outer ones first, without the root's own.
    pub(super) fn missing_directories(&self, path: &Path) -> Vec<PathBuf> {
        let above = path.ancestors().skip(1);
        let mut missing: Vec<PathBuf> = above
            .take_while(|directory| !self.on_disk(directory).exists())
            .filter(|directory| *directory != Path::new("/"))
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        missing
    }
}

/// Absolute, and down from there.
pub(super) fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    components.next() == Some(Component::RootDir)
        && components.all(|component| matches!(component, Component::Normal(_)))
}

/// The directory of a file, or the nearest above it that is there.
fn nearest_directory(path: &Path) -> Option<&Path> {
    let mut above = path.ancestors().skip(1);
    above
        .find(|directory| fs::symlink_metadata(directory).is_ok())
        .map(|directory| {
            // The one above "x" is "".
            if directory == Path::new("") {
                Path::new(".")
            } else {
                directory
            }
        })
}

/// Refuses a file that the user may not make, or not replace.
pub(super) fn check_writable(path: &Path) -> Result<(), Error> {
    let directory = nearest_directory(path).unwrap_or(Path::new("."));
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| Error::io(directory, error.into()))
}

/// Writes a file so that a crash leaves the old one or the new one, and a program that runs goes on. Makes its directories.
pub(super) fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(directory)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let beside = directory.join(beside);
    let written = (|| {
        let file = regular::write_new(&beside, content)?;
        // Whatever the user's umask is.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        // The first error says more.
        let _ = fs::remove_file(&beside);
    }
    written
}
