//! Threads: the number of one, and how many the system gives, found out by asking for them.

use std::sync::{Arc, Condvar, Mutex};

/// The kernel's number of the calling thread.
pub(crate) fn own_tid() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// How many of `wanted` threads can be had at this moment. Starts them, and lets them end again.
pub(crate) fn available(wanted: usize) -> usize {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let threads: Vec<_> = (0..wanted)
        .map_while(|_| {
            let gate = gate.clone();
            std::thread::Builder::new()
                .stack_size(16 * 1024)
                .spawn(move || {
                    let (open, changed) = &*gate;
                    let open = open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    drop(changed.wait_while(open, |open| !*open));
                })
                .ok()
        })
        .collect();
    let (open, changed) = &*gate;
    *open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
    changed.notify_all();
    let available = threads.len();
    for thread in threads {
        let _ = thread.join();
    }
    available
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_few_threads_can_be_had() {
        assert_eq!(super::available(8), 8);
        assert_eq!(super::available(0), 0);
    }
}
