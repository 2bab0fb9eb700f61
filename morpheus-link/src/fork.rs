//! Keeps a forked child out of memory that a daemon shared.
//!
//! The child of a `fork` inherits a shared mapping, and with it the parent's slots: the end of a critical section in
//! the child would end the parent's. So `MADV_DONTFORK` makes the kernel leave the mapping out of the child. But the
//! child still has pointers into it: in the thread-local, in a poll in progress, and in the table. A `pthread_atfork`
//! handler therefore maps private memory at the same addresses before `fork` returns in the child. It then restores
//! the words of the one slot whose thread continues. All other slots are zero there, which means that no thread has
//! them.
//!
//! **Invariant:** a mapping that is reachable through a pointer is a [`Place`] in the list, from before the first
//! such pointer until after the last. In a child of `fork` its addresses have private memory of the same size.
//!
//! The handlers do not run for the raw system calls (`clone`, `_Fork`). A child of these with memory of its own finds
//! nothing mapped at the addresses. It may call `execve` or `_exit`, and nothing of this crate. `vfork`,
//! `posix_spawn` and `clone(CLONE_VM)` share all memory with the parent, run no handlers and touch no slot.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::handle;

/// One mapping that children do not inherit. Places are reused and never freed, so a child can walk the list
/// regardless of the point at which the fork stopped its parent's other threads.
#[derive(Debug)]
pub struct Place {
    is_taken: AtomicBool,
    /// Start of the mapping; null while there is nothing to replace.
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// Written before the place is in the list, and not after that.
    next: AtomicPtr<Place>,
}

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// Iterates over all places, taken or free.
fn places() -> impl Iterator<Item = &'static Place> {
    // Acquire, pairs with the Release in `Place::taken`: the place is initialised.
    // SAFETY: null, or a leaked box, to which only shared references are made.
    let first = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
    std::iter::successors(first, |place| {
        // Relaxed, pairs with nothing: the pointer does not change after the place is in the list.
        // SAFETY: as above.
        unsafe { place.next.load(Ordering::Relaxed).as_ref() }
    })
}

impl Place {
    /// Keeps the children of later forks out of a mapping.
    ///
    /// # Errors
    ///
    /// The kernel refuses the advice, or libc has no memory for the handlers.
    ///
    /// # Safety
    ///
    /// The mapping belongs to the caller, who unmaps it between [`leave`](Place::leave) and
    /// [`give_back`](Place::give_back).
    pub(crate) unsafe fn keep_out(start: NonNull<u8>, bytes: usize) -> io::Result<&'static Place> {
        register_handlers()?;
        // SAFETY: the mapping is the caller's. The advice changes nothing in this process.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork)? };
        let place = Place::taken();
        // Relaxed: `enter` releases it.
        place.bytes.store(bytes, Ordering::Relaxed);
        place.enter(start);
        Ok(place)
    }

    /// Takes a free place, or adds a new one to the list.
    fn taken() -> &'static Place {
        let free = places().find(|place| {
            // Acquire, pairs with the Release in `give_back`: the last user has finished with the place.
            place
                .is_taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        free.unwrap_or_else(|| {
            let place = Box::leak(Box::new(Place {
                is_taken: AtomicBool::new(true),
                start: AtomicPtr::default(),
                bytes: AtomicUsize::new(0),
                next: AtomicPtr::default(),
            }));
            let place: &'static Place = place;
            // Release, pairs with the Acquire in `places`. Relaxed on failure: only the pointer is used.
            let _always = PLACES.fetch_update(Ordering::Release, Ordering::Relaxed, |first| {
                place.next.store(first, Ordering::Relaxed);
                Some(ptr::from_ref(place).cast_mut())
            });
            place
        })
    }

    /// Whether children get private memory where this mapping is.
    pub(crate) fn is_entered(&self) -> bool {
        // Relaxed, pairs with nothing: only the thread that enters and leaves asks.
        !self.start.load(Ordering::Relaxed).is_null()
    }

    /// Begins the replacement of the mapping in children, also anew after [`leave`](Place::leave), for memory of the same
    /// length at the same addresses that children do not inherit.
    pub(crate) fn enter(&self, start: NonNull<u8>) {
        // Release, pairs with the Acquire in `replace`: a thread that reads `start` sees the length.
        self.start.store(start.as_ptr(), Ordering::Release);
    }

    /// Ends the replacement of the mapping in children. The caller unmaps it afterwards.
    pub(crate) fn leave(&self) {
        // Release, pairs with the Acquire in `replace`: the stores of `keep_out` come before this one.
        self.start.store(ptr::null_mut(), Ordering::Release);
    }

    /// Frees the place. The caller has unmapped the mapping.
    pub(crate) fn give_back(&self) {
        // Release, pairs with the Acquire in `taken`: the next user sees that this one has finished.
        self.is_taken.store(false, Ordering::Release);
    }

    /// Maps private memory where the parent has shared memory. Called in a child, whose own children inherit that
    /// memory as usual.
    fn replace(&self) {
        // Acquire, pairs with the Release in `keep_out`: the length belongs to this mapping.
        let start = self.start.load(Ordering::Acquire);
        if start.is_null() {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        // SAFETY: the call replaces nothing (`FIXED_NOREPLACE`). The child did not inherit the parent's mapping, so
        // these addresses are free.
        let mapped = unsafe {
            mmap_anonymous(
                start.cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
            )
        };
        if !matches!(mapped, Ok(at) if ptr::eq(at.cast(), start)) {
            // Without this memory the pointers would write to other memory, now or after a later `mmap`.
            // SAFETY: `abort` may be called at any time, and so also here.
            unsafe { libc::abort() };
        }
        // Relaxed, pairs with nothing: the child has one thread.
        self.start.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Makes libc call the handlers around each fork. Does so once in a process.
fn register_handlers() -> io::Result<()> {
    static ANSWER: OnceLock<i32> = OnceLock::new();
    let answer = *ANSWER.get_or_init(|| {
        // SAFETY: both handlers may run in any thread at any time. They take no lock and allocate nothing. They touch
        // only the list above, the calling thread's slot, and a thread-local without initialiser and destructor.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) }
    });
    match answer {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Runs in the thread that forks, before the fork.
unsafe extern "C" fn before() {
    handle::save_for_child();
}

/// Runs in the one thread of the child, before `fork` returns there.
unsafe extern "C" fn in_child() {
    places().for_each(Place::replace);
    handle::restore_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::{Access, Mapping};

    #[test]
    fn a_place_is_used_again() {
        let page = rustix::param::page_size();
        let place = || {
            let fd = rustix::fs::memfd_create("place", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&fd, page as u64).unwrap();
            Mapping::new(&fd, page, 0, Access::Read).unwrap()
        };
        // Other tests take and free a few places at the same time.
        for _ in 0..1_000 {
            drop(place());
        }
        assert!(places().count() < 500);
    }
}
