// SPDX-License-Identifier: GPL-2.0-only
//! Small regular files that root reads and replaces, in directories where others may have put a link, a pipe or a socket.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The content of a path at which a file should be.
#[derive(Debug)]
pub(crate) enum Content {
    /// Nothing.
    Missing,
    /// A link, or no regular file.
    NotAFile,
    /// The file's bytes: `most_bytes` and one more at most, which tells a file that is longer.
    Bytes(Vec<u8>),
}

/// Reads a file. Follows no link, waits for no writer of a pipe, and reads `most_bytes` and one more at most.
///
/// # Errors
///
/// When the system refuses.
pub(crate) fn read(path: &Path, most_bytes: u64) -> io::Result<Content> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Missing),
        // A link, or a socket: what it is says more than why it does not open.
        Err(_) if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) => {
            return Ok(Content::NotAFile);
        }
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(Content::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes)?;
    Ok(Content::Bytes(bytes))
}

/// Writes a new file, for its owner alone, in the place of one that a crash has left. It is not on the disk yet.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    Ok(file)
}
