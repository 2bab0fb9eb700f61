//! How many instructions a spawn, a wake, a poll and a checkpoint take: see [`morpheus_bench::instructions`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space for all that the operations allocate; pages come as they are touched.
const ROOM_BYTES: usize = 1 << 30;

/// An allocator that takes as many instructions each time: it goes ahead in one piece of memory and gives nothing back.
///
/// A task is aligned to a cache line, and what the C library takes for such a piece depends on all that was allocated
/// before: 2,400 to 2,700 instructions for the same spawn. That is no difference between runtimes.
struct Ahead {
    begin: AtomicUsize,
    used: AtomicUsize,
}

impl Ahead {
    /// Where the room begins; 0 where there is none.
    fn begin(&self) -> usize {
        // Acquire and Release: only the number counts, and a thread that loses the race gives its room back.
        let begin = self.begin.load(Ordering::Acquire);
        if begin != 0 {
            return begin;
        }
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let room = unsafe { libc::mmap(ptr::null_mut(), ROOM_BYTES, access, kind, -1, 0) };
        if room == libc::MAP_FAILED {
            return 0;
        }
        let exchanged =
            self.begin
                .compare_exchange(0, room as usize, Ordering::AcqRel, Ordering::Acquire);
        match exchanged {
            Ok(_) => room as usize,
            Err(other) => {
                // SAFETY: the mapping made above, which no other code knows.
                unsafe { libc::munmap(room, ROOM_BYTES) };
                other
            }
        }
    }

    fn has(&self, place: usize) -> bool {
        // Acquire: see `begin`. A caller with an address in the room has seen where it begins.
        let begin = self.begin.load(Ordering::Acquire);
        begin != 0 && (begin..begin + ROOM_BYTES).contains(&place)
    }
}

// SAFETY: each piece of the room is handed out once, aligned, and within the room; what does not fit comes from `System`,
// and goes back to it.
unsafe impl GlobalAlloc for Ahead {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let begin = self.begin();
        let bytes = layout.size() + layout.align();
        // Relaxed: a counter; each caller has a part of its own.
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        if begin != 0 && used < ROOM_BYTES && bytes <= ROOM_BYTES - used {
            return (begin + used).next_multiple_of(layout.align()) as *mut u8;
        }
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if !self.has(place as usize) {
            // SAFETY: it is not of the room, so it is `System`'s, with this layout.
            unsafe { System.dealloc(place, layout) };
        }
    }
}

#[global_allocator]
static ALLOCATOR: Ahead = Ahead {
    begin: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
};

fn main() -> std::process::ExitCode {
    morpheus_bench::instructions::main()
}
