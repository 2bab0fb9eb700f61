// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus install` and `uninstall`: puts the program, its unit, its options, its manual and its completions where the
//! system looks for them, and removes exactly those.
//!
//! - [`place`]: where that is, below another root or another prefix, and never outside.
//! - [`manifest`]: what was written, for the next install and for uninstall.
//! - this file: what is to be done with each file, and doing it.
//!
//! An install first finds out about each file what it will do, and writes nothing if it would overwrite a file that differs
//! from what an earlier install wrote. The manifest is written before the files: an install that is interrupted can be
//! repeated or undone.

pub mod manifest;
pub mod place;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manifest::{Entry, Manifest};
use place::Place;

/// The unit and the options, as `dist/` has them.
const UNIT: &str = include_str!("../../dist/scx_morpheus.service");
const DEFAULTS: &str = include_str!("../../dist/scx_morpheus.default");
/// Where the unit in `dist/` looks for the program.
const UNIT_PROGRAM: &str = "ExecStart=/usr/bin/scx_morpheus";
/// `morpheus-doctor`: one command of the program under a name of its own. A script, so that it is never of another version than the
/// program beside it, under whichever root both lie.
const DOCTOR: &str = "#!/bin/sh\nexec \"${0%/*}/scx_morpheus\" doctor \"$@\"\n";

/// A file that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Without the root.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Its content.
    pub content: Vec<u8>,
}

/// A file that the command line is made into: a page of the manual, or completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its kind.
    pub kind: DocumentKind,
    /// The name of the file.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// The kind of a [`Document`], which decides its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// A page of the manual, in section 1.
    Manual,
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
}

/// Why nothing, or not everything, was done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A prefix or a root that cannot be one.
    #[error("{path}: {reason}", path = path.display())]
    Place {
        /// The prefix or the root.
        path: PathBuf,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// The user may not write there.
    #[error(
        "{}: no right to write there; run as root, or name directories of your own with --root or --prefix", .0.display()
    )]
    Rights(PathBuf),
    /// A link leads out of the root.
    #[error("{}: a link there leads out of the root; nothing was changed", .0.display())]
    Outside(PathBuf),
    /// No install has written these files.
    #[error(
        "{} there, and differ from what an earlier install wrote; nothing was changed. Remove them, or overwrite them with --force: {}",
        if .0.len() == 1 { "a file is".to_owned() } else { format!("{} files are", .0.len()) },
        .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Differs(Vec<PathBuf>),
    /// The list of what was installed cannot be relied on.
    #[error("{path}: {reason}; nothing was changed. Remove the files by hand", path = path.display())]
    Manifest {
        /// The list.
        path: PathBuf,
        /// Why it is invalid.
        reason: manifest::Invalid,
    },
    /// There is no such list.
    #[error(
        "{} is not there: nothing was installed below this prefix by scx_morpheus install (a package is removed by its package \
         manager)", .0.display()
    )]
    NotInstalled(PathBuf),
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    fn io(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::Rights(path.to_owned())
            }
            _ => Error::Io {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// The action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is written for the first time.
    Write,
    /// It is written in the place of what an earlier install wrote, or of anything with `force`.
    Replace,
    /// It is there as it should be.
    Same,
    /// The operator has changed it, and it stays.
    Keep,
    /// It stands in the way.
    Differs,
    /// It is removed.
    Remove,
    /// It was gone already.
    Gone,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Action::Write => "write",
            Action::Replace => "replace",
            Action::Same => "same",
            Action::Keep => "keep",
            Action::Differs => "DIFFERS",
            Action::Remove => "remove",
            Action::Gone => "gone",
        })
    }
}

/// The actions, file by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Paths as the system sees them, with the root.
    pub steps: Vec<(Action, PathBuf)>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (action, path) in &self.steps {
            writeln!(f, "{action:<8} {}", path.display())?;
        }
        Ok(())
    }
}

/// All files of an installation of `program` at `place`.
#[must_use]
pub fn files(place: &Place, program: Vec<u8>, documents: Vec<Document>) -> Vec<File> {
    let file = |path: PathBuf, content: Vec<u8>| File {
        path,
        mode: 0o644,
        content,
    };
    let program_path = place.program();
    let start = format!("ExecStart={}", program_path.display());
    let mut files = vec![
        File {
            mode: 0o755,
            ..file(program_path, program)
        },
        File {
            mode: 0o755,
            ..file(place.doctor(), DOCTOR.into())
        },
        file(place.unit(), UNIT.replace(UNIT_PROGRAM, &start).into()),
        file(place.defaults(), DEFAULTS.into()),
    ];
    files.extend(documents.into_iter().map(|document| {
        file(
            place.document(document.kind, &document.name),
            document.content,
        )
    }));
    files
}

/// An install that has been thought through.
#[derive(Debug)]
pub struct Install<'a> {
    place: &'a Place,
    files: Vec<(Action, File)>,
    before: Manifest,
}

impl<'a> Install<'a> {
    /// Finds out what is to be done so that these files are there. Changes nothing.
    ///
    /// # Errors
    ///
    /// When an earlier manifest is damaged, a link leads out of the root, or a file cannot be read.
    pub fn plan(place: &'a Place, files: Vec<File>, force: bool) -> Result<Install<'a>, Error> {
        let before = read_manifest(place)?.unwrap_or_default();
        let mut planned = Vec::new();
        for file in files {
            place.check_inside(&file.path)?;
            let wanted = Entry::of(&file.path, &file.content);
            let action = match found(place, &file.path)? {
                Found::Nothing => Action::Write,
                Found::Directory(path) => {
                    let source = io::ErrorKind::IsADirectory.into();
                    return Err(Error::Io { path, source });
                }
                Found::File(found) if found == wanted => Action::Same,
                Found::File(found) if before.entries.contains(&found) => Action::Replace,
                // Its owner is the operator.
                _ if file.path == place.defaults() => Action::Keep,
                _ if force => Action::Replace,
                _ => Action::Differs,
            };
            planned.push((action, file));
        }
        Ok(Install {
            place,
            files: planned,
            before,
        })
    }

    /// The planned actions.
    #[must_use]
    pub fn shown(&self) -> Plan {
        let steps = self.files.iter();
        Plan {
            steps: steps
                .map(|(action, file)| (*action, self.place.on_disk(&file.path)))
                .collect(),
        }
    }

    /// That all of it may be done: no file is in the way, and directories may be written.
    ///
    /// # Errors
    ///
    /// Which files differ, or where the user may not write.
    pub fn check(&self) -> Result<(), Error> {
        let with = |wanted: Action| {
            let files = self.files.iter();
            files
                .filter(move |(action, _)| *action == wanted)
                .map(|(_, file)| self.place.on_disk(&file.path))
        };
        let differs: Vec<_> = with(Action::Differs).collect();
        if !differs.is_empty() {
            return Err(Error::Differs(differs));
        }
        for path in with(Action::Write).chain(with(Action::Replace)) {
            place::check_writable(&path)?;
        }
        if self.manifest() != self.before {
            place::check_writable(&self.place.on_disk(&self.place.manifest()))?;
        }
        Ok(())
    }

    /// The manifest after this install: also files of an earlier install that this one has no more, as they are still there.
    fn manifest(&self) -> Manifest {
        let mut manifest = self.before.clone();
        for (action, file) in &self.files {
            if *action != Action::Keep {
                manifest.put(Entry::of(&file.path, &file.content));
            }
        }
        let own = self.place.manifest();
        let paths = self.files.iter().map(|(_, file)| &file.path);
        for path in paths.chain([&own]) {
            for directory in self.place.missing_directories(path) {
                manifest.put_directory(directory);
            }
        }
        manifest
    }

    /// Does it.
    ///
    /// # Errors
    ///
    /// As [`check`](Install::check), or when the system refuses in the midst of it; then it may be repeated.
    pub fn run(&self) -> Result<(), Error> {
        self.check()?;
        let manifest = self.manifest();
        // While files are replaced, the old and the new ones are installed ones.
        let mut meanwhile = manifest.clone();
        for entry in &self.before.entries {
            meanwhile.add(entry.clone());
        }
        if meanwhile != self.before {
            self.write_manifest(&meanwhile)?;
        }
        for (action, file) in &self.files {
            if matches!(action, Action::Write | Action::Replace) {
                let path = self.place.on_disk(&file.path);
                place::write(&path, file.mode, &file.content)
                    .map_err(|error| Error::io(&path, error))?;
            }
        }
        match manifest == meanwhile {
            true => Ok(()),
            false => self.write_manifest(&manifest),
        }
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), Error> {
        let path = self.place.on_disk(&self.place.manifest());
        place::write(&path, 0o644, manifest.encode().as_bytes())
            .map_err(|error| Error::io(&path, error))
    }
}

/// An uninstall that has been thought through.
#[derive(Debug)]
pub struct Uninstall<'a> {
    place: &'a Place,
    files: Vec<(Action, PathBuf)>,
    directories: Vec<PathBuf>,
}

impl<'a> Uninstall<'a> {
    /// Finds out what is to be removed. Changes nothing. Files that were changed since they were installed stay.
    ///
    /// # Errors
    ///
    /// When nothing was installed, or the manifest is damaged or names files that no install writes.
    pub fn plan(place: &'a Place) -> Result<Uninstall<'a>, Error> {
        let Some(manifest) = read_manifest(place)? else {
            return Err(Error::NotInstalled(place.on_disk(&place.manifest())));
        };
        let mut files: Vec<(Action, PathBuf)> = Vec::new();
        for entry in &manifest.entries {
            if files.iter().any(|(_, path)| *path == entry.path) {
                continue;
            }
            place.check_inside(&entry.path)?;
            let action = match found(place, &entry.path)? {
                Found::Nothing => Action::Gone,
                Found::File(found) if manifest.entries.contains(&found) => Action::Remove,
                _ => Action::Keep,
            };
            files.push((action, entry.path.clone()));
        }
        Ok(Uninstall {
            place,
            files,
            directories: manifest.directories,
        })
    }

    /// The planned actions.
    #[must_use]
    pub fn shown(&self) -> Plan {
        let steps = self.files.iter();
        Plan {
            steps: steps
                .map(|(action, path)| (*action, self.place.on_disk(path)))
                .collect(),
        }
    }

    /// Does it. The manifest goes last, with the directories that the install made and that are empty now.
    ///
    /// # Errors
    ///
    /// When the system refuses; then it may be repeated.
    pub fn run(&self) -> Result<(), Error> {
        let own = self.place.on_disk(&self.place.manifest());
        let removed = self.files.iter();
        let removed = removed
            .filter(|(action, _)| *action == Action::Remove)
            .map(|(_, path)| self.place.on_disk(path));
        let removed: Vec<_> = removed.chain([own]).collect();
        for path in &removed {
            place::check_writable(path)?;
        }
        for path in &removed {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(path, error));
                }
                _ => {}
            }
        }
        let mut directories = self.directories.clone();
        // The inner ones first.
        directories.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for directory in directories {
            // One that holds something else stays.
            let _ = fs::remove_dir(self.place.on_disk(&directory));
        }
        Ok(())
    }
}

fn read_manifest(place: &Place) -> Result<Option<Manifest>, Error> {
    let path = place.manifest();
    place.check_inside(&path)?;
    let path = place.on_disk(&path);
    let text = match manifest::read(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(manifest::ReadError::Io(source)) => return Err(Error::io(&path, source)),
        Err(manifest::ReadError::Invalid(reason)) => return Err(Error::Manifest { path, reason }),
    };
    match Manifest::decode(&text, place) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(reason) => Err(Error::Manifest { path, reason }),
    }
}

enum Found {
    Nothing,
    File(Entry),
    Directory(PathBuf),
    /// A link, a socket: nothing that an install makes.
    Other,
}

fn found(place: &Place, path: &Path) -> Result<Found, Error> {
    let on_disk = place.on_disk(path);
    let failed = |error| Error::io(&on_disk, error);
    let metadata = match fs::symlink_metadata(&on_disk) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_dir() {
        return Ok(Found::Directory(on_disk));
    }
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    let entry = Entry::of_file(path, &on_disk).map_err(failed)?;
    Ok(Found::File(entry))
}

#[cfg(test)]
mod tests;
