//! Threads: the number of the calling thread, threads of the library's own, and how many more threads the system gives.

use crate::lock::lock;
use crate::signals::Blocked;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The kernel's number of the calling thread. Async-signal-safe.
///
/// By the call itself: glibc has the function `gettid` since 2.30 only, and a program that names it does not link with an older one.
pub fn own_tid() -> u32 {
    // SAFETY: gettid has no preconditions, and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Starts a thread that takes no signals, except those of [its own faults](Blocked).
///
/// For threads that the application does not know. An application blocks a signal in each of its threads to wait for it in one
/// place, also when the runtime is already there. The kernel would give the signal to any thread that does not block it, and its
/// default action ends the process.
///
/// # Errors
///
/// The system gives no thread.
pub fn start<T: Send + 'static>(
    thread: std::thread::Builder,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Here and not in the new thread, which would take signals until it has blocked them.
    let _blocked = Blocked::begin();
    thread.spawn(f)
}

/// The standard library's ids of threads, which tokio reports, by the kernel's numbers.
#[derive(Debug, Default)]
pub struct Ids(Mutex<std::collections::HashMap<u32, std::thread::ThreadId>>);

impl Ids {
    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::HashMap<u32, std::thread::ThreadId>> {
        lock(&self.0)
    }

    /// Records the calling thread, whose number is `tid`.
    pub fn note(&self, tid: u32) {
        self.lock().insert(tid, std::thread::current().id());
    }

    /// Removes a thread that ends.
    pub fn forget(&self, tid: u32) {
        self.lock().remove(&tid);
    }

    /// The id of the thread whose number is `tid`, if it was noted.
    pub fn of(&self, tid: u32) -> Option<std::thread::ThreadId> {
        self.lock().get(&tid).copied()
    }
}

/// The value of a field in a `status` file of `/proc`. The value of another field is the name of the thread, which may be any bytes: a name
/// of 15 bytes may end within a character.
pub fn status_field<'a>(status: &'a [u8], name: &str) -> Option<&'a [u8]> {
    status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))
        .map(<[u8]>::trim_ascii)
}

/// Reads a file of `/proc` that has the name of a thread in it. Bytes of the name that are no text are replaced: a name of 15 bytes may end
/// within a character.
///
/// # Errors
///
/// The file cannot be read.
pub fn proc_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Counts how many of `wanted` threads the system gives at this moment: it starts them and ends them again.
///
/// They are gone when this returns, so they do not count against the limits of threads started next.
/// `stack_size` (bytes; `None`: the standard library's default) should be that of the workers to come. The C
/// library keeps some of the stacks for later threads, and would keep stacks of another size resident without
/// a use.
pub fn available(wanted: usize, stack_size: Option<usize>) -> usize {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let threads: Vec<_> = (0..wanted)
        .map_while(|_| {
            let gate = gate.clone();
            let mut thread = std::thread::Builder::new();
            if let Some(bytes) = stack_size {
                thread = thread.stack_size(bytes);
            }
            let wait = move || {
                let (open, changed) = &*gate;
                let open = lock(open);
                drop(changed.wait_while(open, |open| !*open));
                own_tid()
            };
            start(thread, wait).ok()
        })
        .collect();
    let (open, changed) = &*gate;
    *lock(open) = true;
    changed.notify_all();
    let available = threads.len();
    for thread in threads {
        if let Ok(tid) = thread.join() {
            wait_until_gone(tid);
        }
    }
    available
}

/// Calls `f` on a thread of its own, which is gone when this returns: it does not count against the limits of threads
/// started next. `None`: the system gives no thread, or `f` panics.
pub(crate) fn in_another<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = start(std::thread::Builder::new(), || (own_tid(), f()));
    let (tid, result) = thread.ok()?.join().ok()?;
    wait_until_gone(tid);
    Some(result)
}

/// Waits until the kernel no longer counts a thread that has ended. A join returns when the thread has
/// released its memory, but the thread counts against the limits until the kernel releases it. The kernel
/// first decrements the count and then removes the thread from its table (`release_task` in `kernel/exit.c`).
/// The wait is bounded to 200 ms, because the number may have gone to another thread of this process.
fn wait_until_gone(tid: u32) {
    let until = Instant::now() + Duration::from_millis(200);
    while is_there(tid) && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// Whether this process has a thread with that number.
fn is_there(tid: u32) -> bool {
    let (process, thread) = (std::process::id() as libc::pid_t, tid as libc::pid_t);
    // SAFETY: tgkill takes numbers, and signal 0 only asks whether a signal could be sent.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_gives_a_few_threads() {
        assert_eq!(super::available(8, None), 8);
        assert_eq!(super::available(0, Some(128 << 10)), 0);
    }

    #[test]
    fn a_name_that_ends_within_a_character_is_read() {
        let thread = std::thread::Builder::new().name("four-teen-byteé".to_owned());
        let read = || super::proc_text("/proc/thread-self/status");
        let status = thread.spawn(read).unwrap().join().unwrap().unwrap();
        assert!(
            status.starts_with("Name:\tfour-teen-byte\u{fffd}\n"),
            "{status}"
        );
    }

    #[test]
    fn a_thread_is_gone_after_the_wait() {
        for _ in 0..200 {
            let tid = std::thread::spawn(super::own_tid).join().unwrap();
            super::wait_until_gone(tid);
            assert!(!super::is_there(tid));
        }
        assert!(super::is_there(super::own_tid()));
    }
}
