//! Signals: keeps them from the threads and processes that the library starts for itself.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Signals that a thread raises by a fault of its own. A thread that blocks them is killed without its handlers: the report of a
/// stack overflow is one.
const OF_FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Blocks the signals of the calling thread until this is dropped, except those of its own faults (`SIGSEGV` and the like).
///
/// A thread or process that is started meanwhile has them blocked from its first instruction, and for good.
pub struct Blocked {
    before: libc::sigset_t,
    /// The mask is the calling thread's, so this must not move to another.
    _of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks them from now on.
    #[must_use]
    pub fn begin() -> Blocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are writable, and `sigfillset` writes the first before it is read. `pthread_sigmask` concerns the
        // calling thread only; it fails for an unknown operation alone, so it writes the second.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OF_FAULTS {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Blocked {
            before,
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `begin` read. This is its thread, because the value is not `Send`.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: without a new set the call only writes the mask of this thread.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_gets_back_the_mask_that_it_had() {
        std::thread::spawn(|| {
            let masks = || [libc::SIGTERM, libc::SIGUSR1, libc::SIGSEGV].map(is_blocked);
            let before = masks();
            let blocked = Blocked::begin();
            assert_eq!(masks(), [true, true, before[2]]);
            let inherited = std::thread::spawn(|| is_blocked(libc::SIGTERM));
            assert!(inherited.join().unwrap());
            drop(blocked);
            assert_eq!(masks(), before);
        })
        .join()
        .unwrap();
    }
}
