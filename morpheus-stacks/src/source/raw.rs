//! Raw stacks: a few registers, and the bytes above the stack pointer, copied by the kernel.
//!
//! `process_vm_readv` on the own process reads a thread's memory, also from the thread itself
//! in its signal handler. It is a plain system call, it stops at memory that is not mapped instead of faulting, and
//! the memory may change meanwhile without a data race. So the end of a stack need not be known, and it may be any stack: a
//! small one, a coroutine's, an alternate one.

use std::mem::MaybeUninit;

/// The most that is copied of a stack, in bytes. The line is found near its top; deeper frames are cut off.
pub(crate) const MOST: usize = 32 * 1024;

/// The registers of a thread that was interrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// The frame pointer.
    pub(super) bp: u64,
    /// The link register: where the function returns to, as long as it has called no other. `None` on a machine that has
    /// none.
    pub(super) lr: Option<u64>,
}

/// A captured stack.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    /// The frame pointer; unknown of a thread that was not asked.
    pub(crate) bp: Option<u64>,
    /// The link register, likewise.
    #[cfg_attr(
        target_arch = "x86_64",
        expect(dead_code, reason = "this machine has none")
    )]
    pub(crate) lr: Option<u64>,
    /// From `sp` upwards.
    pub(crate) bytes: Box<[u8]>,
}

impl Raw {
    /// Bytes that were copied.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The word at an address, if it was copied.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// Copies memory of this process from `address` on, until the buffer is full or something is not mapped.
/// Returns how much; 0 also where the system call is refused. Async-signal-safe, but for `errno`.
pub(crate) fn read_own(address: u64, into: &mut [MaybeUninit<u8>]) -> usize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: `local` is a buffer of ours for the whole call; the kernel checks the remote side.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(read).unwrap_or(0)
}

/// The same into a vector of its own.
pub(crate) fn copy_own(address: u64, most: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(most);
    let read = read_own(address, bytes.spare_capacity_mut());
    // SAFETY: the kernel has written `read` of them.
    unsafe { bytes.set_len(read.min(bytes.capacity())) };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_ends_the_copy() {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping, of which the second half is taken away again.
        let start = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(start.byte_add(page), page, libc::PROT_NONE),
                0
            );
            start
        };
        assert_eq!(copy_own(start as u64 + 96, 2 * page - 192).len(), page - 96);
        assert_eq!(copy_own(start as u64 + page as u64, 64).len(), 0);
        assert_eq!(copy_own(8, 64).len(), 0);
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(start, 2 * page) };
    }

    #[test]
    fn words_are_found_by_their_address() {
        let raw = Raw {
            ip: 0,
            sp: 1000,
            bp: None,
            lr: None,
            bytes: (0u8..24).collect(),
        };
        assert_eq!(
            raw.word(1008),
            Some(u64::from_ne_bytes([8, 9, 10, 11, 12, 13, 14, 15]))
        );
        assert_eq!(raw.word(992), None);
        assert_eq!(raw.word(1017), None);
        assert_eq!(raw.word(u64::MAX), None);
    }
}
