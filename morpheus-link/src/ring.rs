//! The events that the kernel side sends: a BPF ring buffer, read through its two mappings.
//!
//! The kernel defines the layout (`kernel/bpf/ringbuf.c`): a page that begins with the consumer's position, which
//! this side writes; a page that begins with the producer's position; then the data, mapped twice in a row so that no
//! record is torn. A record begins with its length. The two highest bits of the length say that the record is being
//! written, and that it is void.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::area::{Access, Mapping};
use morpheus_common::abi::morpheus_event;

const BUSY: u32 = 1 << 31;
const VOID: u32 = 1 << 30;
/// Size of the length and the offset before each record, in bytes.
const RECORD_HEADER: usize = 8;
/// Largest size of a ring in bytes. No daemon hands out a larger one, so a larger number is an error.
const LARGEST: usize = 1 << 26;

/// The reading end of the events of one daemon.
#[derive(Debug)]
pub struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    bytes: usize,
    fd: OwnedFd,
}

impl Ring {
    /// Maps the ring behind a descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor is no ring of events, the ring is larger than any daemon's, or the kernel refuses the mapping.
    pub fn map(fd: OwnedFd) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let bytes = size_of_ring(&fd)?;
        Ok(Ring {
            consumer: Mapping::new(&fd, page, 0, Access::ReadWrite)?,
            producer: Mapping::new(&fd, page + 2 * bytes, page as u64, Access::Read)?,
            page,
            bytes,
            fd,
        })
    }

    /// Returns the ring's descriptor, which is readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// Takes the next event, if there is one.
    pub fn take(&mut self) -> Option<morpheus_event> {
        // SAFETY: each of the two pages begins with a position, an atomic; this side does not write the producer's.
        let (consumed, produced) = unsafe {
            (
                self.consumer.at::<AtomicU64>(0),
                self.producer.at::<AtomicU64>(0),
            )
        };
        loop {
            // Relaxed, pairs with nothing: this side's own word.
            let at = consumed.load(Ordering::Relaxed);
            if at == produced.load(Ordering::Relaxed) {
                return None;
            }
            // Acquire, pairs with the kernel's release of the producer's position: the record's length is there,
            // perhaps with the bit that says that the record is being written. A fence, because `std` promises only
            // Relaxed loads from memory that is mapped for reading only.
            fence(Ordering::Acquire);
            let offset = self.page + (at as usize & (self.bytes - 1));
            // SAFETY: an atomic that is only read.
            let length = unsafe { self.producer.at::<AtomicU32>(offset) }.load(Ordering::Relaxed);
            if length & BUSY != 0 {
                return None;
            }
            // Acquire, pairs with the kernel's exchange that clears that bit: the record is written. A fence, as
            // above.
            fence(Ordering::Acquire);
            let bytes = (length & !VOID) as usize;
            let event = (length & VOID == 0 && bytes == size_of::<morpheus_event>())
                .then(|| self.read(offset + RECORD_HEADER));
            let next = at + (RECORD_HEADER + bytes).next_multiple_of(8) as u64;
            // Release, pairs with the kernel's acquire: the record was read, and the kernel may write over it.
            consumed.store(next, Ordering::Release);
            // A record of another size belongs to another version, and is skipped.
            if event.is_some() {
                return event;
            }
        }
    }

    fn read(&self, offset: usize) -> morpheus_event {
        let word = |index: usize| {
            // SAFETY: an atomic that is only read. Relaxed: the fences in `take` order it after the length.
            unsafe { self.producer.at::<AtomicU64>(offset + 8 * index) }.load(Ordering::Relaxed)
        };
        let [kind, slot] = split(word(0));
        morpheus_event {
            kind,
            slot,
            poll_seq: word(1),
            at_ns: word(2),
            detail: word(3),
        }
    }
}

/// Splits eight bytes into the two `u32` that lie in them, in the order of memory.
fn split(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [0, 4].map(|at| {
        let four: [u8; 4] = std::array::from_fn(|byte| bytes[at + byte]);
        u32::from_ne_bytes(four)
    })
}

/// Returns a ring's size in bytes, which the kernel reports in the descriptor's `fdinfo`.
fn size_of_ring(fd: &OwnedFd) -> io::Result<usize> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    std::fs::read_to_string(path)?
        .lines()
        .find_map(|line| line.strip_prefix("max_entries:"))
        .and_then(|size| size.trim().parse::<usize>().ok())
        .filter(|&size| size.is_power_of_two() && size <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a ring of events"))
}
