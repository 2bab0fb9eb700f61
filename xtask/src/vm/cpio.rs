//! Writes a cpio archive in the format that the kernel unpacks ("newc").

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being written. Directories above an entry come by themselves.
///
/// All entries belong to root and were last changed in 1970: the same input makes the same archive.
pub(super) struct Archive<W> {
    out: W,
    present: BTreeSet<PathBuf>,
    size: u64,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Archive<W> {
        Archive {
            out,
            present: BTreeSet::new(),
            size: 0,
        }
    }

    /// Whether something is at `path` already; the kernel would let a second entry replace it.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.present.contains(&relative(path))
    }

    pub(super) fn directory(&mut self, path: &Path) -> io::Result<()> {
        self.entry(path, DIRECTORY, &[], (0, 0))
    }

    /// `mode`: the permission bits.
    pub(super) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, FILE | (mode & 0o7777), content, (0, 0))
    }

    pub(super) fn symlink(&mut self, path: &Path, to: &Path) -> io::Result<()> {
        self.entry(path, SYMLINK, to.as_os_str().as_bytes(), (0, 0))
    }

    pub(super) fn character_device(
        &mut self,
        path: &Path,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE, &[], (major, minor))
    }

    /// Writes the end of the archive; returns its size in bytes.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.write(OsStr::new("TRAILER!!!"), 0, 0, &[], (0, 0))?;
        self.out.flush()?;
        Ok(self.size)
    }

    fn entry(
        &mut self,
        path: &Path,
        mode: u32,
        content: &[u8],
        device: (u32, u32),
    ) -> io::Result<()> {
        let path = relative(path);
        if path.as_os_str().is_empty() || self.present.contains(&path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        let number = u32::try_from(self.present.len() + 1).map_err(io::Error::other)?;
        self.write(path.as_os_str(), number, mode, content, device)?;
        self.present.insert(path);
        Ok(())
    }

    fn write(
        &mut self,
        name: &OsStr,
        number: u32,
        mode: u32,
        content: &[u8],
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        let too_large = |_| {
            let name = name.to_string_lossy();
            io::Error::other(format!("{name} is too large for the guest: 4 GiB at most"))
        };
        let content_size = u32::try_from(content.len()).map_err(too_large)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_large)?;
        let links = 1;
        // Number, mode, user, group, links, time, size, device, device of a node, size of the name, checksum (unused).
        let fields = [
            number,
            mode,
            0,
            0,
            links,
            0,
            content_size,
            0,
            0,
            major,
            minor,
            name_size,
            0,
        ];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08X}")?;
        }
        header.extend_from_slice(name.as_bytes());
        header.push(0);
        self.put(&header)?;
        self.put(content)
    }

    /// Headers and contents begin at multiples of four bytes.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let padding = bytes.len().wrapping_neg() % 4;
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..padding])?;
        self.size += (bytes.len() + padding) as u64;
        Ok(())
    }
}

/// The path as the archive has it: from the root, without `.`; `..` cannot lead out of it.
fn relative(path: &Path) -> PathBuf {
    let mut relative = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::ParentDir => {
                relative.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    relative
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode, content and the numbers of the device.
    type Entry = (String, u32, Vec<u8>, (u32, u32));

    fn read(archive: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut rest = archive;
        while !rest.is_empty() {
            assert_eq!(&rest[..6], b"070701");
            let field = |index: usize| {
                let digits = &rest[6 + index * 8..][..8];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let device = (field(9), field(10));
            let name = String::from_utf8(rest[110..110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(rest[110 + name_size - 1], 0);
            let content_at = (110 + name_size).next_multiple_of(4);
            let content = rest[content_at..content_at + size].to_vec();
            entries.push((name, mode, content, device));
            rest = &rest[(content_at + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive
            .file(Path::new("/usr/bin/a"), 0o755, b"hello")
            .unwrap();
        archive
            .symlink(Path::new("/usr/b"), Path::new("bin/a"))
            .unwrap();
        archive
            .character_device(Path::new("/dev/console"), 5, 1)
            .unwrap();
        // A second one changes nothing.
        archive
            .file(Path::new("usr/bin/../bin/./a"), 0o644, b"other")
            .unwrap();
        assert!(archive.has(Path::new("/usr/bin/a")) && !archive.has(Path::new("/usr/a")));
        let size = archive.finish().unwrap();

        assert_eq!(bytes.len() as u64, size);
        let entries = read(&bytes);
        let names: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(
            names,
            [
                "usr",
                "usr/bin",
                "usr/bin/a",
                "usr/b",
                "dev",
                "dev/console",
                "TRAILER!!!"
            ]
        );
        assert_eq!(entries[1].1, 0o040_755);
        assert_eq!(
            (entries[2].1, entries[2].2.as_slice()),
            (0o100_755, &b"hello"[..])
        );
        assert_eq!(
            (entries[3].1, entries[3].2.as_slice()),
            (0o120_777, &b"bin/a"[..])
        );
        assert_eq!((entries[5].1, entries[5].3), (0o020_600, (5, 1)));
    }

    #[test]
    fn no_path_leads_out() {
        assert_eq!(
            relative(Path::new("/../../etc/./passwd")),
            Path::new("etc/passwd")
        );
        assert_eq!(relative(Path::new("/")), Path::new(""));
    }
}
