// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is shared with the kernel.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::PAGE;

/// A mapping that lives as long as the test program: a thread may still look at its slot.
pub struct Mapping {
    pub start: NonNull<u8>,
}

// SAFETY: it is shared memory that lives for ever, and is used as atomics only.
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
        })
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    ///
    /// The mapping has a `T` there, which consists of atomics. If it is read-only, they are not written.
    pub unsafe fn at<T>(&self, offset: usize) -> &'static T {
        // SAFETY: the caller's promise, and the mapping is never undone.
        unsafe { &*self.start.as_ptr().add(offset).cast::<T>() }
    }
}

pub fn area_bytes(slots: u32) -> usize {
    ((slots as usize + 1) * 64).next_multiple_of(PAGE)
}
