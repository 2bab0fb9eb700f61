// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is shared with the kernel.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::PAGE;

/// A mapping that lives as long as the test program, unless it is unmapped: a thread may still look at its slot.
pub struct Mapping {
    pub start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is shared memory that lives until `unmap`, whose caller promises that nobody uses it, and is used as atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(
        fd: &OwnedFd,
        bytes: usize,
        offset: u64,
        protection: ProtFlags,
    ) -> rustix::io::Result<Mapping> {
        // SAFETY: the kernel chooses where, so that nothing is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )?
        };
        Ok(Mapping {
            start: NonNull::new(start.cast()).unwrap(),
            bytes,
        })
    }

    /// Ends the mapping.
    ///
    /// # Safety
    ///
    /// Nothing that [`Mapping::at`] returned is used from now on.
    pub unsafe fn unmap(self) {
        // SAFETY: the mapping is this one's alone, and the caller promises that no reference into it is used again.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) }.unwrap();
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    ///
    /// The mapping has a `T` there, which consists of atomics. If it is read-only, they are not written.
    pub unsafe fn at<T>(&self, offset: usize) -> &'static T {
        // SAFETY: the caller's promise, and that of `unmap`'s caller.
        unsafe { &*self.start.as_ptr().add(offset).cast::<T>() }
    }
}

pub fn area_bytes(slots: u32) -> usize {
    ((slots as usize + 1) * 64).next_multiple_of(PAGE)
}
