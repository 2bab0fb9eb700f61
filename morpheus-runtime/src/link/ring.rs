//! The events that the kernel side sends: a ring buffer of BPF, read by its two mappings.
//!
//! The layout is the kernel's (`kernel/bpf/ringbuf.c`): a page that begins with the consumer's position,
//! which this side writes; a page that begins with the producer's; then the data, mapped twice in a row so
//! that no record is torn. A record begins with its length, whose two highest bits say that it is still
//! being written, and that it is void.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::slot::area::{Access, Mapping};
use morpheus_common::abi::morpheus_event;

const BUSY: u32 = 1 << 31;
const VOID: u32 = 1 << 30;
/// Length and offset, before each record.
const RECORD_HEADER: usize = 8;
/// No ring that a daemon hands out is larger; a number beyond that is nonsense.
const LARGEST: usize = 1 << 26;

#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    bytes: usize,
    fd: OwnedFd,
}

impl Ring {
    pub(crate) fn map(fd: OwnedFd) -> io::Result<Ring> {
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

    /// Readable when there are events.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// The next event, if there is one. Only one thread may ask.
    pub(crate) fn take(&mut self) -> Option<morpheus_event> {
        // SAFETY: each of the two pages begins with a position.
        let (consumed, produced) = unsafe {
            (
                self.consumer.at::<AtomicU64>(0),
                self.producer.at::<AtomicU64>(0),
            )
        };
        loop {
            // Relaxed: this side's own word.
            let at = consumed.load(Ordering::Relaxed);
            if at == produced.load(Ordering::Relaxed) {
                return None;
            }
            // Acquire, pairs with the kernel's release of the producer's position: the record's length is there, if
            // only with the mark that it is being written. A fence, because `std` promises nothing but Relaxed loads
            // from memory that is mapped for reading only.
            fence(Ordering::Acquire);
            let offset = self.page + (at as usize & (self.bytes - 1));
            // SAFETY: an atomic, read only.
            let length = unsafe { self.producer.at::<AtomicU32>(offset) }.load(Ordering::Relaxed);
            if length & BUSY != 0 {
                return None;
            }
            // Acquire, pairs with the kernel's exchange that takes the mark away: the record is written. A fence, as
            // above.
            fence(Ordering::Acquire);
            let bytes = (length & !VOID) as usize;
            let event = (length & VOID == 0 && bytes == size_of::<morpheus_event>())
                .then(|| self.read(offset + RECORD_HEADER));
            let next = at + (RECORD_HEADER + bytes).next_multiple_of(8) as u64;
            // Release, pairs with the kernel's acquire: the record was read, and its place may be written.
            consumed.store(next, Ordering::Release);
            // A record of another size is of another version, and is passed over.
            if event.is_some() {
                return event;
            }
        }
    }

    fn read(&self, offset: usize) -> morpheus_event {
        let word = |index: usize| {
            // SAFETY: an atomic, read only. Relaxed: ordered by the length, above.
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

/// The two `u32` that lie in these eight bytes, in the order of memory.
fn split(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [0, 4].map(|at| {
        let four: [u8; 4] = std::array::from_fn(|byte| bytes[at + byte]);
        u32::from_ne_bytes(four)
    })
}

/// A ring's size, which the kernel tells of its descriptor to whoever has it.
fn size_of_ring(fd: &OwnedFd) -> io::Result<usize> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    std::fs::read_to_string(path)?
        .lines()
        .find_map(|line| line.strip_prefix("max_entries:"))
        .and_then(|size| size.trim().parse::<usize>().ok())
        .filter(|&size| size.is_power_of_two() && size <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a ring of events"))
}
