//! An allocator that counts what the calling thread asks for. Only the binary `footprint` is linked with it.
//!
//! By thread, so that it is exact: what workers and a controller allocate meanwhile is not in it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, and the count.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static REQUESTED: Cell<Requested> = const { Cell::new(Requested { bytes: 0, blocks: 0 }) };
}

/// The memory that a thread has requested and not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// Bytes as they were asked for: what the allocator rounds up or keeps beside them is not in it.
    pub bytes: i64,
    /// How many blocks.
    pub blocks: i64,
}

impl Requested {
    /// By the calling thread so far.
    pub fn so_far() -> Self {
        REQUESTED.get()
    }

    /// Since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            blocks: self.blocks - earlier.blocks,
        }
    }

    /// Whether this program counts at all.
    pub fn is_counted() -> bool {
        let before = Self::so_far();
        let block = std::hint::black_box(Box::new(0_u64));
        let counted = Self::so_far() != before;
        drop(block);
        counted
    }
}

fn count(bytes: i64, blocks: i64) {
    // Needs neither memory nor a destructor, so it works in a thread's first and last moments.
    let before = REQUESTED.get();
    REQUESTED.set(Requested {
        bytes: before.bytes + bytes,
        blocks: before.blocks + blocks,
    });
}

// SAFETY: each call goes to `System` as it came; counting touches no memory but two numbers of the thread's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64, 1);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64, 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as i64), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64, 0);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_no_longer_counts() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        let before = Requested::so_far();
        // SAFETY: the layout has a size; no other code uses the block, and it is given back as it came.
        let since = unsafe {
            let block = Counting.alloc(layout);
            let block = Counting.realloc(block, layout, 140);
            let since = Requested::so_far().since(before);
            Counting.dealloc(block, Layout::from_size_align(140, 8).unwrap());
            since
        };
        assert_eq!((since.bytes, since.blocks), (140, 1));
        assert_eq!(Requested::so_far(), before);
        // The tests are not linked with it.
        assert!(!Requested::is_counted());
    }
}
