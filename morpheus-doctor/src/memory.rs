//! The memory of the process, read from outside while it runs.
//!
//! `process_vm_readv` copies what is there at the moment; nothing is stopped and nothing is written. Each value read is a claim: the
//! process may have changed it, and it may be anything.

use std::fs;
use std::io;
use std::ops::Range;

/// A part of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it lies.
    pub range: Range<u64>,
    /// It can be written.
    pub is_writable: bool,
    /// It can be executed.
    pub is_executable: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file, as the process sees it; `[heap]` and the like; empty for memory without a file.
    pub path: String,
}

impl Mapping {
    /// It is of no file, and may be written: a heap, a stack.
    #[must_use]
    pub fn is_data(&self) -> bool {
        self.is_writable && !self.is_executable && !self.path.starts_with('/')
    }
}

/// The address space of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pid: u32,
}

impl Memory {
    /// Of the process with this number.
    #[must_use]
    pub fn of(pid: u32) -> Memory {
        Memory { pid }
    }

    /// The mapped ranges, in the order of addresses.
    ///
    /// # Errors
    ///
    /// Without the right to see it.
    pub fn mappings(self) -> io::Result<Vec<Mapping>> {
        let maps = fs::read(format!("/proc/{}/maps", self.pid))?;
        let maps = String::from_utf8_lossy(&maps);
        Ok(maps.lines().filter_map(mapping).collect())
    }

    /// Copies from `address` on, until the buffer is full or something cannot be read. Returns the number of bytes.
    #[must_use]
    pub fn read(self, address: u64, into: &mut [u8]) -> usize {
        let (Ok(pid), Ok(start)) = (i32::try_from(self.pid), usize::try_from(address)) else {
            return 0;
        };
        let mut done = 0;
        // A transfer stops before the first page that cannot be read only where it begins a new element.
        while done < into.len() {
            let Some(at) = start.checked_add(done) else {
                break;
            };
            let in_page = PAGE - at % PAGE;
            let length = in_page.min(into.len() - done);
            let rest = &mut into[done..];
            let mut remote = Vec::with_capacity(16);
            let mut covered = 0;
            for _ in 0..16 {
                if covered == rest.len() {
                    break;
                }
                let length = match covered {
                    0 => length,
                    _ => PAGE.min(rest.len() - covered),
                };
                let Some(base) = at.checked_add(covered) else {
                    break;
                };
                remote.push(libc::iovec {
                    iov_base: base as *mut libc::c_void,
                    iov_len: length,
                });
                covered += length;
            }
            let local = libc::iovec {
                iov_base: rest.as_mut_ptr().cast(),
                iov_len: covered,
            };
            // SAFETY: `local` is `rest`, of which `covered` bytes exist; the other side is another process's memory, or this one's,
            // which is only read; the kernel checks its addresses.
            let copied = unsafe {
                libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), remote.len() as u64, 0)
            };
            let Ok(copied) = usize::try_from(copied) else {
                break;
            };
            done += copied;
            if copied < covered {
                break;
            }
        }
        done
    }

    /// The word at an address.
    #[must_use]
    pub fn word(self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_ne_bytes)
    }

    /// The bytes at an address.
    #[must_use]
    pub fn array<const BYTES: usize>(self, address: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        (self.read(address, &mut bytes) == BYTES).then_some(bytes)
    }

    /// The words at two addresses, at one go: the second one only if the first can be read.
    #[must_use]
    pub fn words(self, addresses: [u64; 2]) -> Option<[u64; 2]> {
        let pid = i32::try_from(self.pid).ok()?;
        let mut words = [0_u64; 2];
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 8,
        }; 2];
        for (remote, address) in remote.iter_mut().zip(addresses) {
            remote.iov_base = usize::try_from(address).ok()? as *mut libc::c_void;
        }
        let local = libc::iovec {
            iov_base: words.as_mut_ptr().cast(),
            iov_len: 16,
        };
        // SAFETY: `local` is `words`; the other side is only read, and the kernel checks its addresses.
        let copied = unsafe { libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), 2, 0) };
        (copied == 16).then_some(words)
    }

    /// Whether the kernel lets this process read that one's memory.
    ///
    /// # Errors
    ///
    /// The kernel's error where it does not.
    pub fn check(self) -> io::Result<()> {
        let mappings = self.mappings()?;
        let Some(first) = mappings.iter().find(|mapping| mapping.is_executable) else {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        };
        match self.word(first.range.start) {
            Some(_) => Ok(()),
            None => Err(io::Error::last_os_error()),
        }
    }
}

const PAGE: usize = 4096;

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let _device = fields.next()?;
    let _inode = fields.next()?;
    Some(Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        is_writable: rights.get(1) == Some(&b'w'),
        is_executable: rights.get(2) == Some(&b'x'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: fields.next().unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line =
            "7f00-8000 r-xp 00001000 fe:01 42                         /opt/my app/lib.so (deleted)";
        let read = mapping(line).unwrap();
        assert_eq!(read.range, 0x7f00..0x8000);
        assert!(read.is_executable && !read.is_writable);
        assert_eq!(read.offset, 0x1000);
        assert_eq!(read.path, "/opt/my app/lib.so (deleted)");
        assert_eq!(mapping("1000-2000 rw-p 00000000 00:00 0").unwrap().path, "");
        for line in ["", "x", "1-2", "1-2 r", "zz-2 rwxp 0 0 0"] {
            assert_eq!(mapping(line), None, "{line}");
        }
    }

    #[test]
    fn memory_is_read_until_it_ends() {
        let own = Memory::of(std::process::id());
        let there: Vec<u8> = (0..200_000u32).map(|byte| byte as u8).collect();
        let mut copy = vec![0; there.len()];
        assert_eq!(own.read(there.as_ptr() as u64, &mut copy), there.len());
        assert_eq!(copy, there);
        assert_eq!(own.read(0, &mut copy), 0);
        assert_eq!(own.read(u64::MAX - 4, &mut copy), 0);
        let mappings = own.mappings().unwrap();
        let stack = mappings.iter().find(|one| one.path == "[stack]").unwrap();
        let mut copy = vec![0; 64 * 1024];
        assert_eq!(own.read(stack.range.end - 100, &mut copy), 100);
        own.check().unwrap();
        let (one, two) = (11_u64, 22_u64);
        let addresses = [&raw const one as u64, &raw const two as u64];
        assert_eq!(own.words(addresses), Some([11, 22]));
        assert_eq!(own.words([addresses[0], 8]), None);
        assert_eq!(own.words([8, addresses[0]]), None);
    }
}
