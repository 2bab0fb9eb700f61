// SPDX-License-Identifier: GPL-2.0-only
//! A log file that takes no more than a fixed part of the disk: at its most it becomes `NAME.1`, that one `NAME.2`, and so
//! on to the last, which is replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The most that one file holds.
const MOST_BYTES: u64 = 1 << 20;
/// How many old ones are kept.
const OLD_FILES: u32 = 4;

/// A file that is written at its end.
#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    /// `None` after it could not be opened anew.
    file: Option<File>,
    bytes: u64,
    most_bytes: u64,
    /// Text that was not written, since the last that was.
    lost_bytes: u64,
}

impl Rotated {
    /// Goes on behind what an earlier run wrote. Makes the directory.
    pub(super) fn open(path: &Path) -> io::Result<Rotated> {
        Rotated::with_most(path, MOST_BYTES)
    }

    fn with_most(path: &Path, most_bytes: u64) -> io::Result<Rotated> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let (file, bytes) = append(path)?;
        Ok(Rotated {
            path: path.to_owned(),
            file: Some(file),
            bytes,
            most_bytes,
            lost_bytes: 0,
        })
    }

    /// Writes this whole, to the next file if it has no room in this one. Text that cannot be written is lost, and the next
    /// text that can be says so.
    pub(super) fn write(&mut self, text: &[u8]) {
        if self.bytes > 0 && self.bytes + text.len() as u64 > self.most_bytes {
            self.rotate();
        }
        let lost = match self.lost_bytes {
            0 => String::new(),
            bytes => format!("{bytes} bytes could not be written here\n"),
        };
        let cut = &text[..text.len().min(self.most_bytes as usize)];
        let whole = [lost.as_bytes(), cut].concat();
        let written = match &mut self.file {
            Some(file) => file.write_all(&whole),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        if written.is_ok() {
            self.bytes += whole.len() as u64;
            self.lost_bytes = 0;
        } else {
            self.lost_bytes += text.len() as u64;
        }
    }

    fn rotate(&mut self) {
        let old = |number: u32| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..OLD_FILES).rev() {
            // There may be fewer yet.
            let _ = fs::rename(old(number), old(number + 1));
        }
        let moved = fs::rename(&self.path, old(1));
        // Where it cannot be moved it is begun anew: the bound is kept.
        if moved.is_err()
            && let Some(file) = &self.file
        {
            let _ = file.set_len(0);
        }
        match append(&self.path) {
            Ok((file, bytes)) => (self.file, self.bytes) = (Some(file), bytes),
            Err(_) => (self.file, self.bytes) = (None, 0),
        }
    }
}

/// A regular file, made if there is none, and its length. Follows no link and waits for no reader.
fn append(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn sizes(directory: &Path) -> Vec<(String, u64)> {
        let mut sizes: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().len())
            })
            .collect();
        sizes.sort();
        sizes
    }

    #[test]
    fn it_is_bounded_and_the_newest_text_stays() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("x/kernel.log");
        let mut file = Rotated::with_most(&path, 100).unwrap();
        for number in 0..200 {
            file.write(format!("line {number:03}\n").as_bytes());
        }
        // Eleven of nine bytes are in each.
        let names = ["", ".1", ".2", ".3", ".4"].map(|end| format!("kernel.log{end}"));
        let found = sizes(path.parent().unwrap());
        assert_eq!(found.len(), names.len(), "{found:?}");
        for ((name, bytes), expected) in found.iter().zip(names) {
            assert_eq!(*name, expected);
            assert!(*bytes <= 100, "{found:?}");
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("line 199\n"), "{text}");
        let before = fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(before.ends_with("line 197\n"), "{before}");
        // Another run goes on where this one has ended.
        drop(file);
        let mut again = Rotated::with_most(&path, 100).unwrap();
        again.write(b"again\n");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("line 199\nagain\n"), "{text}");
        // A text that is longer than a file is cut off.
        again.write(&[b'x'; 1000]);
        assert!(
            sizes(path.parent().unwrap())
                .iter()
                .all(|(_, bytes)| *bytes <= 100)
        );
    }

    #[test]
    fn links_and_others_files_are_not_written() {
        let directory = TempDir::new().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "x").unwrap();
        let path = directory.path().join("kernel.log");
        symlink(&victim, &path).unwrap();
        assert!(Rotated::open(&path).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"x");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(Rotated::open(&path).is_err());
        // A directory that goes away in the midst of it costs the text and nothing else.
        fs::remove_dir(&path).unwrap();
        let mut file = Rotated::with_most(&path, 10).unwrap();
        file.write(b"1234567\n");
        drop(directory);
        file.write(b"1234567\n");
        file.write(b"1234567\n");
        assert_eq!(file.lost_bytes, 16);
    }
}
