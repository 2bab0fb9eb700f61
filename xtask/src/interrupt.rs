//! SIGINT (Ctrl-C), SIGTERM and SIGHUP: noted here, acted on by the code that waits for a child.

use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code after Ctrl-C: 128 and the signal's number, as a shell has it.
pub(crate) const EXIT_CODE: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    // Relaxed: the flag is all there is, no other memory is read after it.
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending the process.
pub(crate) fn listen() {
    let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler, and it lives as long as
        // the program.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Whether a signal has come, since the start or the last [`take`].
pub(crate) fn came() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Whether a signal has come, and forgets it: the next one counts anew.
pub(crate) fn take() -> bool {
    INTERRUPTED.swap(false, Ordering::Relaxed)
}

/// As if a signal had come: for code that took one that other code must see, too.
pub(crate) fn put_back() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}
