//! Tests: a child of `fork` writes no slot of its parent, and goes on with its own.

use std::io;
use std::ptr;
use std::sync::atomic::Ordering;

use morpheus_link::handle;
use morpheus_link::table::Table;

use crate::poll::own_slot;
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
        let with_slots = |act: fn(&Table)| {
            own_slot::with_domain(|domain, _| act(&domain.slots)).unwrap();
        };
        let share: fn(&Table) = |slots| {
            slots.share_for_tests();
        };
        // An earlier daemon's, whose place the present one's takes.
        for act in [share, Table::use_own_memory, Table::return_memory, share] {
            with_slots(act);
            async {}.watched("fork: moves").await;
        }
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

/// A program that daemonizes after it has built its runtime goes on as a child, where the controller's thread is not.
#[test]
fn a_runtime_of_one_thread_ends_in_a_forked_child() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {});
    // SAFETY: the child ends a runtime and itself. The C library keeps its allocator usable there, and no other thread
    // of this process has a lock of the runtime. It is killed if it waits for a thread that is not there.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
        }
        child
    };
    if child == 0 {
        let _ends = EndsOnPanic;
        runtime.block_on(async {});
        drop(runtime);
        end(true);
    }
    assert_eq!(status_of(child), 0);
}
