//! The memory that slots live in: this process's own, or what a daemon shared.
//!
//! Shared memory is two maps of the kernel's: the runtime's area, which this process and the kernel side can
//! write, and the kernel's area, which is mapped for reading. Both begin with a header of one entry. A forked child has
//! private memory there instead (see [`fork`](super::fork)).

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use morpheus_common::abi;
use morpheus_common::slot::{KernelSlot, RuntimeSlot};

use super::fork::Place;

/// Bytes of a slot and of a header.
const ENTRY: usize = 64;

/// What may be done with a mapping of memory that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// A mapping, undone when it is dropped. It is accessed as atomics only (`at`), and by pointers: other processes and the
/// kernel write there meanwhile.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: ManuallyDrop<MmapRaw>,
    /// For a mapping that is shared: what keeps forked children out of it.
    place: Option<&'static Place>,
}

impl Mapping {
    /// Memory of a descriptor, shared with all that map it, except for forked children of this process.
    pub(crate) fn new(
        fd: &OwnedFd,
        bytes: usize,
        offset: u64,
        access: Access,
    ) -> io::Result<Mapping> {
        let mut options = MmapOptions::new();
        options.len(bytes).offset(offset);
        let memory = match access {
            Access::Read => options.map_raw_read_only(fd)?,
            Access::ReadWrite => options.map_raw(fd)?,
        };
        let mut mapping = Mapping {
            memory: ManuallyDrop::new(memory),
            place: None,
        };
        // SAFETY: this mapping, which unmaps itself as it should.
        mapping.place = Some(unsafe { Place::keep_out(mapping.start(), bytes)? });
        Ok(mapping)
    }

    /// Memory of nobody else's, all zero. Its pages are there when they are first written, not before.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Ok(Mapping {
            memory: ManuallyDrop::new(MmapMut::map_anon(bytes)?.into()),
            place: None,
        })
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.memory.as_mut_ptr()).expect("no mapping begins at null")
    }

    /// The `T` at an offset.
    ///
    /// # Panics
    ///
    /// When it is not within the mapping, or not aligned.
    ///
    /// # Safety
    ///
    /// `T` consists of atomics, for which every value is valid. Where the mapping is for reading, they are
    /// not written.
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(
            offset + size_of::<T>() <= self.memory.len() && offset.is_multiple_of(align_of::<T>()),
            "{offset} is not in a mapping of {} bytes",
            self.memory.len()
        );
        // SAFETY: within the mapping, which begins at a page, so that it is aligned; the rest is the
        // caller's promise. The memory stays until `self` goes.
        unsafe { self.start().add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.leave();
        }
        // SAFETY: not used again, and every reference to it has ended with `self`.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        if let Some(place) = self.place {
            place.give_back();
        }
    }
}

/// A slice of atomics, all zero at first, whose pages are there when they are first written. An allocator clears what
/// it hands out, and so touches all of it: always where `T` is aligned to more than 16 bytes.
#[derive(Debug)]
pub(crate) struct Untouched<T> {
    mapping: Mapping,
    len: usize,
    of: PhantomData<T>,
}

impl<T> Untouched<T> {
    /// # Safety
    ///
    /// `T` consists of atomics, for which every value is valid.
    pub(crate) unsafe fn new(len: usize) -> Untouched<T> {
        let layout = Layout::array::<T>(len).expect("a table of some thousand");
        // The kernel maps no empty range.
        let bytes = layout.size().max(1);
        let mapping = Mapping::anonymous(bytes).unwrap_or_else(|_| handle_alloc_error(layout));
        Untouched {
            mapping,
            len,
            of: PhantomData,
        }
    }
}

impl<T> Deref for Untouched<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `len` of them and begins at a page, so that they are aligned; zero is valid for `T`, and
        // nobody has a reference but by this one, which ends with `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().cast(), self.len) }
    }
}

/// Slots of both halves.
#[derive(Debug)]
pub(crate) enum Area {
    /// The controller writes the kernel's half.
    Own {
        runtime: Untouched<RuntimeSlot>,
        kernel: Untouched<KernelSlot>,
    },
    /// The kernel side writes it.
    Shared(SharedArea),
}

/// What a daemon shared.
#[derive(Debug)]
pub(crate) struct SharedArea {
    runtime: Mapping,
    kernel: Mapping,
    slots: usize,
}

impl SharedArea {
    /// Maps the two areas, and believes them only if they are what they should be.
    pub(crate) fn map(runtime: &OwnedFd, kernel: &OwnedFd, slots: usize) -> io::Result<SharedArea> {
        let page = rustix::param::page_size();
        let bytes = ((slots + 1) * ENTRY).next_multiple_of(page);
        let shared = SharedArea {
            runtime: Mapping::new(runtime, bytes, 0, Access::ReadWrite)?,
            kernel: Mapping::new(kernel, bytes, 0, Access::Read)?,
            slots,
        };
        let expected = (
            abi::MORPHEUS_ABI_MAGIC,
            abi::MORPHEUS_ABI_VERSION,
            slots as u32,
        );
        let offsets = (
            std::mem::offset_of!(abi::morpheus_kernel_header, magic),
            std::mem::offset_of!(abi::morpheus_kernel_header, abi_version),
            std::mem::offset_of!(abi::morpheus_kernel_header, slots),
        );
        // SAFETY: three atomics, read only.
        let found = unsafe {
            (
                shared
                    .kernel
                    .at::<AtomicU64>(offsets.0)
                    .load(Ordering::Relaxed),
                shared
                    .kernel
                    .at::<AtomicU32>(offsets.1)
                    .load(Ordering::Relaxed),
                shared
                    .kernel
                    .at::<AtomicU32>(offsets.2)
                    .load(Ordering::Relaxed),
            )
        };
        if found != expected {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the control block begins with {found:x?} and not with {expected:x?}"),
            ));
        }
        Ok(shared)
    }

    /// As a daemon would share it, but of plain shared memory.
    #[cfg(test)]
    pub(crate) fn for_tests(slots: usize) -> SharedArea {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let memory = || {
            let fd = memfd_create("shared", MemfdFlags::CLOEXEC).expect("a memfd");
            let bytes = (slots + 1) * ENTRY;
            let page = rustix::param::page_size();
            ftruncate(&fd, bytes.next_multiple_of(page) as u64).expect("room");
            fd
        };
        let (runtime, kernel) = (memory(), memory());
        let header = abi::morpheus_kernel_header {
            magic: abi::MORPHEUS_ABI_MAGIC,
            abi_version: abi::MORPHEUS_ABI_VERSION,
            slots: slots as u32,
            ..Default::default()
        };
        let start = Mapping::new(&kernel, ENTRY, 0, Access::ReadWrite).expect("the header's page");
        assert!(size_of_val(&header) <= ENTRY);
        // SAFETY: the mapping has room for a header, and nobody else looks at it yet.
        unsafe { start.start().cast().write(header) };
        SharedArea::map(&runtime, &kernel, slots).expect("a control block")
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// When the kernel side last said that it is there.
    pub(crate) fn heartbeat_ns(&self) -> u64 {
        let offset = std::mem::offset_of!(abi::morpheus_kernel_header, heartbeat_ns);
        // SAFETY: an atomic, read only. Relaxed: it is this one word.
        unsafe { self.kernel.at::<AtomicU64>(offset) }.load(Ordering::Relaxed)
    }

    fn runtime(&self, index: usize) -> &RuntimeSlot {
        // SAFETY: a slot consists of atomics.
        unsafe { self.runtime.at((index + 1) * ENTRY) }
    }

    fn kernel(&self, index: usize) -> &KernelSlot {
        // SAFETY: a slot consists of atomics; they are written through `Area::kernel_to_write` alone,
        // which gives out none of these.
        unsafe { self.kernel.at((index + 1) * ENTRY) }
    }
}

impl Area {
    pub(crate) fn runtime(&self, index: usize) -> &RuntimeSlot {
        match self {
            Area::Own { runtime, .. } => &runtime[index],
            Area::Shared(shared) => shared.runtime(index),
        }
    }

    /// To read.
    pub(crate) fn kernel(&self, index: usize) -> &KernelSlot {
        match self {
            Area::Own { kernel, .. } => &kernel[index],
            Area::Shared(shared) => shared.kernel(index),
        }
    }

    /// The kernel's half, where there is no kernel side and the controller stands in for it.
    pub(crate) fn kernel_to_write(&self, index: usize) -> Option<&KernelSlot> {
        match self {
            Area::Own { kernel, .. } => Some(&kernel[index]),
            Area::Shared(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_zero_and_keeps_what_is_written() {
        // SAFETY: atomics.
        let slice: Untouched<AtomicU64> = unsafe { Untouched::new(5_000) };
        assert!(slice.len() == 5_000 && slice.iter().all(|n| n.load(Ordering::Relaxed) == 0));
        slice[4_999].store(7, Ordering::Relaxed);
        assert_eq!(slice[4_999].load(Ordering::Relaxed), 7);
        // SAFETY: as above.
        let empty: Untouched<AtomicU64> = unsafe { Untouched::new(0) };
        assert!(empty.is_empty());
    }
}
