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

use crate::slot::handle;

/// One mapping that children do not inherit. Places are reused and never freed, so a child can walk the list
/// regardless of the point at which the fork stopped its parent's other threads.
#[derive(Debug)]
pub(crate) struct Place {
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
    pub(super) unsafe fn keep_out(start: NonNull<u8>, bytes: usize) -> io::Result<&'static Place> {
        register_handlers()?;
        // SAFETY: the mapping is the caller's. The advice changes nothing in this process.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork)? };
        let place = Place::taken();
        // Relaxed: the store to `start` releases it.
        place.bytes.store(bytes, Ordering::Relaxed);
        // Release, pairs with the Acquire in `replace`: a thread that reads `start` sees the length.
        place.start.store(start.as_ptr(), Ordering::Release);
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

    /// Ends the replacement of the mapping in children. The caller unmaps it afterwards.
    pub(super) fn leave(&self) {
        // Release, pairs with the Acquire in `replace`: the stores of `keep_out` come before this one.
        self.start.store(ptr::null_mut(), Ordering::Release);
    }

    /// Frees the place. The caller has unmapped the mapping.
    pub(super) fn give_back(&self) {
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
    use crate::poll::own_slot;
    use crate::slot::area::SharedArea;
    use crate::{Builder, CriticalSection, Link, Watch as _};

    /// Runs `f` on a thread whose slot is in shared memory, within a watched poll and a critical section.
    fn in_shared_memory(f: impl FnOnce(CriticalSection) + Send + 'static) {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        let runtime = builder.build().unwrap();
        let task = runtime.handle().spawn(async move {
            async {}.watched("fork: takes a slot").await;
            let slot = || ptr::from_ref(handle::current().runtime).addr();
            let own = slot();
            own_slot::with_domain(|domain, _| {
                domain
                    .slots
                    .share(SharedArea::for_tests(domain.slots.room()))
            });
            async {
                assert_ne!(slot(), own, "it moves");
                f(crate::critical_section());
            }
            .watched("fork: in shared memory")
            .await;
        });
        runtime.block_on(task).unwrap();
    }

    /// Waits for a child and returns its exit status.
    fn status_of(child: libc::pid_t) -> i32 {
        assert!(child > 0, "no child: {}", io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: `status` is writable, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    /// Ends a child without running its parent's destructors and exit handlers.
    fn end(is_good: bool) -> ! {
        // SAFETY: `_exit` ends the process at once.
        unsafe { libc::_exit(i32::from(!is_good)) }
    }

    /// Ends a child that panics, before tokio catches the panic and continues.
    struct EndsOnPanic;

    impl Drop for EndsOnPanic {
        fn drop(&mut self) {
            end(false);
        }
    }

    /// The child and its own child end a critical section and a poll that began in the parent.
    #[test]
    fn a_forked_child_writes_no_slot_of_its_parent() {
        in_shared_memory(|section| {
            let slot = handle::current().runtime;
            let seq = slot.poll_seq.load(Ordering::Relaxed);
            // SAFETY: the child makes only calls that are allowed after a fork of a process with threads: it stores,
            // forks and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let _ends = EndsOnPanic;
                // SAFETY: as above.
                let grandchild = unsafe { libc::fork() };
                let was_good = grandchild == 0 || status_of(grandchild) == 0;
                let is_same = slot.critical_depth.load(Ordering::Relaxed) == 1
                    && slot.poll_seq.load(Ordering::Relaxed) == seq;
                if !was_good || !is_same || crate::checkpoint_sync() {
                    end(false);
                }
                drop(crate::critical_section());
                drop(section);
                slot.end_poll(seq);
                end(!slot.in_critical());
            }
            assert_eq!(status_of(child), 0);
            assert_eq!(slot.critical_depth.load(Ordering::Relaxed), 1);
            assert_eq!(slot.poll_seq.load(Ordering::Relaxed), seq);
        });
    }

    /// The handlers do not run for this child.
    #[test]
    fn a_child_of_the_raw_system_call_has_no_shared_memory() {
        in_shared_memory(|_section| {
            let page = rustix::param::page_size();
            let slot = ptr::from_ref(handle::current().runtime);
            let start = slot.map_addr(|address| address & !(page - 1)).cast_mut();
            // SAFETY: the call asks whether a page is mapped, and changes nothing.
            let is_mapped = || unsafe { libc::msync(start.cast(), page, libc::MS_ASYNC) } == 0;
            assert!(is_mapped());
            // SAFETY: without flags and a stack the call is a fork. The child makes only system calls.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            if child == 0 {
                let is_there = is_mapped();
                // SAFETY: `errno` is this thread's own word.
                end(!is_there && unsafe { *libc::__errno_location() } == libc::ENOMEM);
            }
            assert_eq!(status_of(child as libc::pid_t), 0);
        });
    }

    #[test]
    fn a_place_is_used_again() {
        let page = rustix::param::page_size();
        let place = || {
            let fd = rustix::fs::memfd_create("place", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&fd, page as u64).unwrap();
            crate::slot::area::Mapping::new(&fd, page, 0, crate::slot::area::Access::Read).unwrap()
        };
        // Other tests take and free a few places at the same time.
        for _ in 0..1_000 {
            drop(place());
        }
        assert!(places().count() < 500);
    }
}
