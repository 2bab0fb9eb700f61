// SPDX-License-Identifier: GPL-2.0-only
//! The process database's file.
//!
//! A crash at any moment leaves the old content or the new one: it is written beside the old file, brought to the disk, and
//! only then put in its place. A checksum finds the remaining errors (a disk that lies, a file that was edited). Then the
//! file is set aside for inspection, and the scheduler starts with an empty database: it is a convenience, and no reason
//! not to schedule.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `MORPHPDB` |
//! | 4 | version: 1 |
//! | 4 | how many profiles |
//! | 8 | how many looks there have been |
//! | 44 each | profiles, in the order of their names: name (16), average run time in ns (8), look at which it was last seen (8), observations (4), how many agreed (4), tier (4) |
//! | 4 | CRC-32 (IEEE) of all before |

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{CAPACITY, COMM_BYTES, MOST_RUNTIME_NS, MOST_STEADY, ProcDb, Profile, name};
use crate::regular::{self, Content};
use morpheus_tools::tier::Tier;

const MAGIC: [u8; 8] = *b"MORPHPDB";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const PROFILE_BYTES: usize = COMM_BYTES + 28;
const CHECKSUM_BYTES: usize = 4;
/// No file is larger.
const MOST_BYTES: usize = HEADER_BYTES + CAPACITY * PROFILE_BYTES + CHECKSUM_BYTES;
/// As many files are set aside, then the last one is replaced: enough to look at, not enough to fill a disk.
const MOST_SET_ASIDE: u32 = 8;

/// Why a file's content is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is not a regular file, or a link.
    #[error("it is not a regular file")]
    NotAFile,
    /// It does not begin as one.
    #[error("it is not a process database")]
    Magic,
    /// It is from another version of this program.
    #[error("its format has version {0}, and only {VERSION} is known here")]
    Version(u32),
    /// It is shorter or longer than it says.
    #[error("its length is not what its header says")]
    Length,
    /// It is not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// It is whole, but nothing that this program writes.
    #[error("{0}")]
    Content(&'static str),
}

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It was read, and makes no sense.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The content of a file for this database.
#[must_use]
pub fn encode(database: &ProcDb) -> Vec<u8> {
    let length = HEADER_BYTES + database.len() * PROFILE_BYTES + CHECKSUM_BYTES;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    // At most CAPACITY.
    bytes.extend((database.len() as u32).to_le_bytes());
    bytes.extend(database.look.to_le_bytes());
    for (comm, profile) in &database.profiles {
        bytes.extend(comm);
        bytes.extend(profile.avg_runtime_ns.to_le_bytes());
        bytes.extend(profile.last_look.to_le_bytes());
        bytes.extend(profile.observations.to_le_bytes());
        bytes.extend(profile.steady.to_le_bytes());
        bytes.extend((profile.tier as u32).to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// The database of a file's content.
///
/// # Errors
///
/// When it is not exactly what [`encode`] makes of some database.
pub fn decode(bytes: &[u8]) -> Result<ProcDb, Invalid> {
    let mut rest = Rest(bytes);
    if rest.take()? != MAGIC {
        return Err(Invalid::Magic);
    }
    let version = rest.u32()?;
    if version != VERSION {
        return Err(Invalid::Version(version));
    }
    let count = rest.u32()? as usize;
    // Before it is multiplied, and before anything is made room for.
    if count > CAPACITY || rest.0.len() != 8 + count * PROFILE_BYTES + CHECKSUM_BYTES {
        return Err(Invalid::Length);
    }
    let (checked, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if Rest(checksum).u32()? != crc32fast::hash(checked) {
        return Err(Invalid::Checksum);
    }
    let mut database = ProcDb {
        look: rest.u64()?,
        ..ProcDb::new()
    };
    for _ in 0..count {
        let comm: [u8; COMM_BYTES] = rest.take()?;
        let profile = profile(&mut rest, database.look)?;
        if comm[0] == 0 || comm != name(comm) {
            return Err(Invalid::Content("a name in it is not one"));
        }
        let last = database.profiles.last_key_value();
        if last.is_some_and(|(last, _)| *last >= comm) {
            return Err(Invalid::Content("its names are not in order"));
        }
        database.profiles.insert(comm, profile);
    }
    Ok(database)
}

/// The fields of an entry after its name.
fn profile(rest: &mut Rest<'_>, look: u64) -> Result<Profile, Invalid> {
    let avg_runtime_ns = rest.u64()?;
    let last_look = rest.u64()?;
    let observations = rest.u32()?;
    let steady = rest.u32()?;
    let tier = Tier::from_number(rest.u32()?).ok_or(Invalid::Content("a tier in it is not one"))?;
    if avg_runtime_ns > MOST_RUNTIME_NS
        || last_look > look
        || steady > MOST_STEADY
        || steady >= observations
    {
        return Err(Invalid::Content("a number in it is out of its bounds"));
    }
    Ok(Profile {
        tier,
        avg_runtime_ns,
        observations,
        steady,
        last_look,
    })
}

/// The bytes that have not been read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Invalid::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Invalid> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Invalid> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Loads a database; none where there is no file.
///
/// Follows no link, waits for no writer, and never reads more than the largest database has.
///
/// # Errors
///
/// When the file cannot be read, or is no database.
pub fn load(path: &Path) -> Result<Option<ProcDb>, LoadError> {
    let bytes = match regular::read(path, MOST_BYTES as u64)? {
        Content::Missing => return Ok(None),
        Content::NotAFile => return Err(Invalid::NotAFile.into()),
        Content::Bytes(bytes) => bytes,
    };
    Ok(Some(decode(&bytes)?))
}

/// Loads a database, or makes an empty one. A file that is no database is set aside, under the same name with
/// `.corrupt-1`, `.corrupt-2` and so on after it. With it comes what the user should be told, if anything.
#[must_use]
pub fn load_or_set_aside(path: &Path) -> (ProcDb, Option<String>) {
    let shown = path.display();
    let message = match load(path) {
        Ok(database) => return (database.unwrap_or_default(), None),
        Err(LoadError::Io(error)) => format!(
            "the process database {shown} cannot be read ({error}): starting with an empty one"
        ),
        Err(LoadError::Invalid(invalid)) => match set_aside(path) {
            Ok(aside) => format!(
                "the process database {shown} cannot be used, {invalid}: set aside as {}, starting with an empty one",
                aside.display()
            ),
            Err(error) => format!(
                "the process database {shown} cannot be used, {invalid}, nor set aside ({error}): starting with an \
                 empty one"
            ),
        },
    };
    (ProcDb::new(), Some(message))
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = |number| with_suffix(path, &format!(".corrupt-{number}"));
    let free = (1..MOST_SET_ASIDE)
        .map(aside)
        .find(|aside| fs::symlink_metadata(aside).is_err())
        .unwrap_or_else(|| aside(MOST_SET_ASIDE));
    fs::rename(path, &free)?;
    Ok(free)
}

/// Saves a database in the place of the one that is there. Makes the directory where there is none.
///
/// # Errors
///
/// When the directory or the file cannot be written. Then the old file is what it was.
pub fn save(database: &ProcDb, path: &Path) -> io::Result<()> {
    if path.file_name().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of the process database names no file",
        ));
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory)?;
    let temporary = with_suffix(path, ".tmp");
    let saved = regular::write_new(&temporary, &encode(database))
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = saved {
        // It may not even be there; the first error says more.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // The name is in the directory, and on the disk only when that is.
    match File::open(directory)?.sync_all() {
        // A file system that cannot do that for directories.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        synced => synced,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
