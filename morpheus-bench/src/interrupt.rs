//! Ctrl-C: the first ends what is being measured early, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// From now on Ctrl-C (and SIGTERM) is remembered instead of ending the program, once.
pub fn install() {
    let handler: extern "C" fn(libc::c_int) = interrupted;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zeroes is a valid sigaction (empty mask, no flags).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` is initialised and outlives the call; the handler only stores to an atomic.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Whether it was pressed.
pub fn happened() -> bool {
    INTERRUPTED.load(Relaxed)
}
