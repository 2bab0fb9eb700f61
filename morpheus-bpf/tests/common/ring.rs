// SPDX-License-Identifier: GPL-2.0-only
//! The ring of events.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use morpheus_common::abi;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PAGE;
use super::memory::Mapping;

/// The events, read as a process without rights would: by its two mappings.
pub struct Ring {
    pub fd: OwnedFd,
    pub consumer: Mapping,
    pub producer: Mapping,
    bytes: usize,
}

impl Ring {
    pub fn map(fd: OwnedFd) -> Ring {
        let bytes = max_entries(&fd);
        Ring {
            consumer: Mapping::new(&fd, PAGE, 0).unwrap(),
            producer: Mapping::for_reading(&fd, PAGE + 2 * bytes, PAGE as u64).unwrap(),
            fd,
            bytes,
        }
    }

    /// The next event, if one comes in this time.
    pub fn next(&self, within: Duration) -> Option<abi::morpheus_event> {
        let until = Instant::now() + within;
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let left = until.checked_duration_since(Instant::now())?;
            // Some events wake no reader: looked for now and then.
            let left = left.min(Duration::from_millis(1));
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout));
        }
    }

    pub fn take(&self) -> Option<abi::morpheus_event> {
        // SAFETY: each page begins with a position, by the kernel's layout of a ring.
        let (consumed, produced) = unsafe {
            (
                self.consumer.at::<AtomicU64>(0),
                self.producer.at::<AtomicU64>(0),
            )
        };
        let at = consumed.load(Ordering::Relaxed);
        // Acquire, pairs with the kernel's release: the record's length is there.
        if at >= produced.load(Ordering::Acquire) {
            return None;
        }
        let offset = PAGE + (at as usize & (self.bytes - 1));
        // SAFETY: a record begins there with its length; the data is mapped twice in a row.
        let length = unsafe { self.producer.at::<AtomicU32>(offset) }.load(Ordering::Acquire);
        // It is still being written.
        if length >> 31 == 1 {
            return None;
        }
        assert_eq!(length as usize, size_of::<abi::morpheus_event>());
        let word = |index: usize| {
            // SAFETY: within the record, whose length was checked.
            unsafe { self.producer.at::<AtomicU64>(offset + 8 + 8 * index) }.load(Ordering::Relaxed)
        };
        let event = abi::morpheus_event {
            kind: word(0) as u32,
            slot: (word(0) >> 32) as u32,
            poll_seq: word(1),
            at_ns: word(2),
            detail: word(3),
        };
        consumed.store(at + 8 + u64::from(length), Ordering::Release);
        Some(event)
    }

    pub fn drain(&self) {
        while self.next(Duration::from_millis(20)).is_some() {}
    }
}

/// A map's size, from its descriptor alone.
pub fn max_entries(fd: &OwnedFd) -> usize {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("max_entries:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}
