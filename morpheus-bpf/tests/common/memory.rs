// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is shared with the kernel.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use memmap2::{MmapOptions, MmapRaw};

use super::PAGE;

/// A mapping that lives as long as the test program, unless it is unmapped: a thread may still look at its slot.
pub struct Mapping(ManuallyDrop<MmapRaw>);

impl Mapping {
    /// For reading and writing.
    pub fn new(fd: &OwnedFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        let memory = MmapOptions::new().len(bytes).offset(offset).map_raw(fd)?;
        Ok(Mapping(ManuallyDrop::new(memory)))
    }

    pub fn for_reading(fd: &OwnedFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        let mut options = MmapOptions::new();
        let memory = options.len(bytes).offset(offset).map_raw_read_only(fd)?;
        Ok(Mapping(ManuallyDrop::new(memory)))
    }

    pub fn start(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Ends the mapping.
    ///
    /// # Safety
    ///
    /// Nothing that [`Mapping::at`] returned is used from now on.
    pub unsafe fn unmap(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    ///
    /// The mapping has a `T` there, which consists of atomics. If it is read-only, they are not written.
    pub unsafe fn at<T>(&self, offset: usize) -> &'static T {
        // SAFETY: the caller's promise, and that of `unmap`'s caller.
        unsafe { &*self.start().add(offset).cast::<T>() }
    }
}

pub fn area_bytes(slots: u32) -> usize {
    ((slots as usize + 1) * 64).next_multiple_of(PAGE)
}
