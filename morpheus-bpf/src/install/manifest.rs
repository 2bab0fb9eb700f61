// SPDX-License-Identifier: GPL-2.0-only
//! The list of what an install has written.
//!
//! Lines of text, which an operator can read:
//!
//! ```text
//! scx_morpheus manifest 1
//! file <length in bytes> <CRC-32 of the content> <path>
//! directory <path>
//! end <CRC-32 of all lines before>
//! ```
//!
//! It may have been edited or damaged, and root removes what it names: so it is taken as a whole or not at all, and a path
//! that no install to the same place writes makes it invalid. The checksums find changes, not forgeries.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::place::{Place, is_plain};
use crate::regular::{self, Content};

const FIRST_LINE: &str = "scx_morpheus manifest 1";
/// An install writes some 25 lines of 100 bytes.
const MOST_BYTES: u64 = 1 << 16;

/// Why a manifest is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is a link, or no file.
    #[error("the list of installed files is no regular file")]
    NotAFile,
    /// It is too long, or no text.
    #[error("the list of installed files is longer than {MOST_BYTES} bytes, or no text")]
    NotText,
    /// It begins otherwise.
    #[error("this is no list of installed files that this version can read")]
    Version,
    /// It has lost its end, or was edited.
    #[error("the list of installed files is cut off or was changed: its checksum is wrong")]
    Checksum,
    /// A line that means nothing.
    #[error("line {0} of the list of installed files means nothing")]
    Line(usize),
    /// A path that no install writes.
    #[error("the list of installed files names {}, which no install to this prefix writes", .0.display())]
    Path(PathBuf),
}

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not one.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A file, and what was in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Without the root.
    pub path: PathBuf,
    bytes: u64,
    checksum: u32,
}

impl Entry {
    /// Of a file that holds this.
    #[must_use]
    pub fn of(path: &Path, content: &[u8]) -> Entry {
        Entry {
            path: path.to_owned(),
            bytes: content.len() as u64,
            checksum: crc32fast::hash(content),
        }
    }

    /// Of the file at `on_disk`, whatever its size.
    pub(super) fn of_file(path: &Path, on_disk: &Path) -> io::Result<Entry> {
        let mut file = File::open(on_disk)?;
        let mut hasher = crc32fast::Hasher::new();
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            hasher.update(&buffer[..length]);
            bytes += length as u64;
        }
        Ok(Entry {
            path: path.to_owned(),
            bytes,
            checksum: hasher.finalize(),
        })
    }
}

/// The installed files, and the directories made for them. Of a file that an install was about to replace there are two
/// entries, until the install has come to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The files.
    pub entries: Vec<Entry>,
    /// The directories that were made for them.
    pub directories: Vec<PathBuf>,
}

impl Manifest {
    /// Adds a file, in the place of those of the same path.
    pub(super) fn put(&mut self, entry: Entry) {
        let first = self.entries.iter().position(|old| old.path == entry.path);
        self.entries.retain(|old| old.path != entry.path);
        self.entries
            .insert(first.unwrap_or(self.entries.len()), entry);
    }

    /// Adds a file beside those of the same path: one of them is there, and it is not known which.
    pub(super) fn add(&mut self, entry: Entry) {
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }

    /// Adds a directory, once.
    pub(super) fn put_directory(&mut self, directory: PathBuf) {
        if !self.directories.contains(&directory) {
            self.directories.push(directory);
        }
    }

    /// As text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for entry in &self.entries {
            text += &format!(
                "file {} {:08x} {}\n",
                entry.bytes,
                entry.checksum,
                entry.path.display()
            );
        }
        for directory in &self.directories {
            text += &format!("directory {}\n", directory.display());
        }
        text += &format!("end {:08x}\n", crc32fast::hash(text.as_bytes()));
        text
    }

    /// From text, for an installation at `place`.
    ///
    /// # Errors
    ///
    /// When it is not exactly what [`encode`](Manifest::encode) makes of what an install to `place` writes.
    pub fn decode(text: &str, place: &Place) -> Result<Manifest, Invalid> {
        if !text.starts_with(&format!("{FIRST_LINE}\n")) {
            return Err(Invalid::Version);
        }
        let (body, end) = text.split_once("\nend ").ok_or(Invalid::Checksum)?;
        let body = format!("{body}\n");
        if end != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
            return Err(Invalid::Checksum);
        }
        let mut manifest = Manifest::default();
        for (index, line) in body.lines().enumerate().skip(1) {
            let invalid = Invalid::Line(index + 1);
            match line.split_once(' ') {
                Some(("file", rest)) => {
                    let entry = entry(rest).ok_or(invalid)?;
                    if !place.may_hold(&entry.path) {
                        return Err(Invalid::Path(entry.path));
                    }
                    manifest.add(entry);
                }
                Some(("directory", path)) => manifest.put_directory(path.into()),
                _ => return Err(invalid),
            }
        }
        let fixed = [place.manifest(), place.defaults()];
        let files = || manifest.entries.iter().map(|entry| &entry.path);
        let is_above_a_file = |directory: &Path| {
            is_plain(directory)
                && files()
                    .chain(&fixed)
                    .any(|path| path != directory && path.starts_with(directory))
        };
        match manifest
            .directories
            .iter()
            .find(|path| !is_above_a_file(path))
        {
            Some(path) => Err(Invalid::Path(path.clone())),
            None => Ok(manifest),
        }
    }
}

fn entry(text: &str) -> Option<Entry> {
    let (bytes, rest) = text.split_once(' ')?;
    let (checksum, path) = rest.split_once(' ')?;
    Some(Entry {
        path: path.into(),
        bytes: bytes.parse().ok()?,
        checksum: u32::from_str_radix(checksum, 16).ok()?,
    })
}

/// The text of the manifest at `path`; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, ReadError> {
    let bytes = match regular::read(path, MOST_BYTES)? {
        Content::Missing => return Ok(None),
        Content::NotAFile => return Err(Invalid::NotAFile.into()),
        Content::Bytes(bytes) if bytes.len() as u64 > MOST_BYTES => {
            return Err(Invalid::NotText.into());
        }
        Content::Bytes(bytes) => bytes,
    };
    let text = String::from_utf8(bytes).map_err(|_| Invalid::NotText)?;
    Ok(Some(text))
}
