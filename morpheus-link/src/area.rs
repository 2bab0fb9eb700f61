//! The memory that holds slots: this process's own, or memory that a daemon shared.
//!
//! Shared memory is two maps of the kernel. This process and the kernel side can write the runtime's area. The
//! kernel's area is mapped for reading only. Both begin with a header of one entry. A forked child has private memory
//! at these addresses instead (see `fork.rs`).

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
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed};

use super::fork::Place;

/// Size of a slot and of a header, in bytes.
const ENTRY: usize = 64;

/// The permitted accesses to a mapping of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This process reads it.
    Read,
    /// This process reads and writes it.
    ReadWrite,
}

/// A mapping that is unmapped when it is dropped. It is accessed only as atomics (`at`) and by pointers, because
/// other processes and the kernel write to it concurrently.
#[derive(Debug)]
pub struct Mapping {
    memory: ManuallyDrop<MmapRaw>,
    /// Keeps forked children out of a shared mapping; `None` for private memory.
    place: Option<&'static Place>,
}

impl Mapping {
    /// Maps the memory of a descriptor. It is shared with all processes that map it, except for forked children of
    /// this process.
    pub fn new(fd: &OwnedFd, bytes: usize, offset: u64, access: Access) -> io::Result<Mapping> {
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
        // SAFETY: the mapping is this value's own, and `drop` unmaps it between `leave` and `give_back`.
        mapping.place = Some(unsafe { Place::keep_out(mapping.start(), bytes)? });
        Ok(mapping)
    }

    /// Maps private memory, all zero. The kernel allocates each page on the first write to it.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Ok(Mapping {
            memory: ManuallyDrop::new(MmapMut::map_anon(bytes)?.into()),
            place: None,
        })
    }

    /// Returns shared memory to the kernel, and maps private memory at its addresses, all zero, which children inherit.
    /// Other threads may access these addresses meanwhile. Does nothing the second time.
    ///
    /// # Errors
    ///
    /// The kernel refuses. The memory is as before.
    fn vacate(&self) -> io::Result<()> {
        let Some(place) = self.place.filter(|place| place.is_entered()) else {
            return Ok(());
        };
        let (start, bytes) = (self.start(), self.memory.len());
        place.leave();
        // SAFETY: the range is this value's own, and zero is valid for all that is there.
        let mapped = unsafe {
            mmap_anonymous(
                start.as_ptr().cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
            )
        };
        if mapped.is_err() {
            self.must_be_mapped();
            place.enter(start);
        }
        mapped.map(drop).map_err(io::Error::from)
    }

    /// Moves the memory of `new` to the addresses of this mapping, which is vacated. Other threads may access these
    /// addresses meanwhile. `new` has the same length and was made by [`Mapping::new`], as this one was.
    ///
    /// # Errors
    ///
    /// The kernel refuses. The mapping stays vacated.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn renew(&self, new: Mapping) -> io::Result<()> {
        let (start, bytes) = (self.start(), self.memory.len());
        assert_eq!(new.memory.len(), bytes, "mappings of one length");
        self.vacate()?;
        let mut new = ManuallyDrop::new(new);
        // From now on no child gets memory at the addresses that are about to be free.
        if let Some(place) = new.place {
            place.leave();
        }
        // SAFETY: both ranges are whole mappings of these two values, of `bytes` bytes each. The kernel replaces the
        // one by the other while it lets no thread in, so an access finds the old or the new memory.
        let moved = unsafe {
            let (from, to) = (new.start().as_ptr().cast(), start.as_ptr().cast());
            mremap_fixed(from, bytes, bytes, MremapFlags::MAYMOVE, to)
        };
        match (&moved, self.place) {
            // The advice to keep children out has come with the memory.
            (Ok(_), Some(place)) => place.enter(start),
            (Ok(_), None) => {}
            (Err(_), _) => {
                self.must_be_mapped();
                // SAFETY: `new` is not used again, and no reference into it was handed out.
                unsafe { ManuallyDrop::drop(&mut new.memory) };
            }
        }
        if let Some(place) = new.place {
            place.give_back();
        }
        moved.map(drop).map_err(io::Error::from)
    }

    /// Ends the process if the kernel has unmapped the memory before it failed to replace it. Else pointers there would
    /// write to other memory, now or after a later `mmap`.
    fn must_be_mapped(&self) {
        // SAFETY: the range is this value's own. The advice is what memory has at first, and changes no access.
        let is_mapped = unsafe {
            let start = self.start().as_ptr().cast();
            madvise(start, self.memory.len(), Advice::Normal)
        };
        if is_mapped.is_err() {
            std::process::abort();
        }
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.memory.as_mut_ptr()).expect("no mapping begins at null")
    }

    /// Returns the `T` at `offset`, in bytes from the start of the mapping.
    ///
    /// # Panics
    ///
    /// If the `T` is not within the mapping, or `offset` is not aligned for it.
    ///
    /// # Safety
    ///
    /// `T` consists of atomics, for which every value is valid. The caller does not write to them if the mapping is
    /// for reading only.
    pub unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(
            offset + size_of::<T>() <= self.memory.len() && offset.is_multiple_of(align_of::<T>()),
            "{offset} is not in a mapping of {} bytes",
            self.memory.len()
        );
        // SAFETY: the assertion above keeps the reference within the mapping. The mapping begins at a page, so the
        // reference is aligned. The caller keeps the promises about `T` and about writes. The memory stays mapped
        // until `self` is dropped.
        unsafe { self.start().add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.leave();
        }
        // SAFETY: the field is not used again, and every reference into the mapping has ended with `self`.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        if let Some(place) = self.place {
            place.give_back();
        }
    }
}

/// A slice of atomics, all zero at first, whose pages the kernel allocates on the first write. An allocator would
/// touch all of it, because it clears zeroed memory whenever `T` is aligned to more than 16 bytes.
#[derive(Debug)]
pub struct Untouched<T> {
    mapping: Mapping,
    len: usize,
    of: PhantomData<T>,
}

impl<T> Untouched<T> {
    /// Makes a slice of `len` elements.
    ///
    /// # Safety
    ///
    /// `T` consists of atomics, for which every value is valid.
    pub unsafe fn new(len: usize) -> Untouched<T> {
        let layout = Layout::array::<T>(len).expect("a table that fits memory");
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
        // SAFETY: the mapping has `len` elements and begins at a page, so they are aligned. Zero is valid for `T`.
        // The only references are those made here, which end with `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().cast(), self.len) }
    }
}

/// Both halves of a table of slots: the runtime's and the kernel's.
#[derive(Debug)]
pub enum Area {
    /// Private memory: the controller writes the kernel's half.
    Own {
        /// The half that the threads write.
        runtime: Untouched<RuntimeSlot>,
        /// The half that the controller writes.
        kernel: Untouched<KernelSlot>,
    },
    /// Shared memory: the kernel side writes the kernel's half.
    Shared(SharedArea),
}

/// Memory that a daemon shared.
#[derive(Debug)]
pub struct SharedArea {
    runtime: Mapping,
    kernel: Mapping,
    slots: usize,
}

impl SharedArea {
    /// Maps the two areas, and checks the header of the kernel's area.
    pub fn map(runtime: &OwnedFd, kernel: &OwnedFd, slots: usize) -> io::Result<SharedArea> {
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
        // SAFETY: three atomics that are only read, and every value is valid.
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

    /// Makes an area as a daemon would share it, from a plain memory file.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_tests(slots: usize) -> SharedArea {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let memory = || {
            let fd = memfd_create("shared", MemfdFlags::CLOEXEC).expect("a memfd");
            let bytes = (slots + 1) * ENTRY;
            let page = rustix::param::page_size();
            ftruncate(&fd, bytes.next_multiple_of(page) as u64).expect("room for the area");
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
        // SAFETY: the mapping has room for a header, and no other thread has access to it yet.
        unsafe { start.start().cast().write(header) };
        SharedArea::map(&runtime, &kernel, slots).expect("a control block")
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the time of the kernel side's last heartbeat, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn heartbeat_ns(&self) -> u64 {
        let offset = std::mem::offset_of!(abi::morpheus_kernel_header, heartbeat_ns);
        // SAFETY: an atomic that is only read. Relaxed, pairs with nothing: the reader uses this one word.
        unsafe { self.kernel.at::<AtomicU64>(offset) }.load(Ordering::Relaxed)
    }

    fn runtime(&self, index: usize) -> &RuntimeSlot {
        // SAFETY: a slot consists of atomics.
        unsafe { self.runtime.at((index + 1) * ENTRY) }
    }

    fn kernel(&self, index: usize) -> &KernelSlot {
        // SAFETY: a slot consists of atomics. Only `Area::kernel_to_write` hands out slots to write, and it returns
        // none of these.
        unsafe { self.kernel.at((index + 1) * ENTRY) }
    }
}

impl Area {
    /// Returns the runtime's half of a slot.
    pub fn runtime(&self, index: usize) -> &RuntimeSlot {
        match self {
            Area::Own { runtime, .. } => &runtime[index],
            Area::Shared(shared) => shared.runtime(index),
        }
    }

    /// Returns the kernel's half of a slot, for reading.
    pub fn kernel(&self, index: usize) -> &KernelSlot {
        match self {
            Area::Own { kernel, .. } => &kernel[index],
            Area::Shared(shared) => shared.kernel(index),
        }
    }

    /// Returns shared memory to the kernel, and maps private memory at its addresses, all zero. Other threads may read
    /// these meanwhile. Does nothing the second time, and for private memory.
    ///
    /// # Errors
    ///
    /// The kernel refuses. Some of the memory may be as before.
    pub fn vacate(&self) -> io::Result<()> {
        match self {
            Area::Own { .. } => Ok(()),
            Area::Shared(shared) => shared.kernel.vacate().and(shared.runtime.vacate()),
        }
    }

    /// Replaces shared memory by that of another daemon, at the same addresses. Other threads may read these
    /// meanwhile, and no slot is there.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or this memory is not shared. The new memory is gone.
    ///
    /// # Panics
    ///
    /// If the numbers of slots differ.
    pub fn renew(&self, new: SharedArea) -> io::Result<()> {
        match self {
            Area::Own { .. } => Err(io::ErrorKind::InvalidInput.into()),
            Area::Shared(shared) => shared
                .kernel
                .renew(new.kernel)
                .and_then(|()| shared.runtime.renew(new.runtime)),
        }
    }

    /// Returns the kernel's half of a slot for writing, if the controller stands in for a kernel side.
    pub fn kernel_to_write(&self, index: usize) -> Option<&KernelSlot> {
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
        // SAFETY: `AtomicU64` is an atomic, for which every value is valid.
        let empty: Untouched<AtomicU64> = unsafe { Untouched::new(0) };
        assert!(empty.is_empty());
    }
}
