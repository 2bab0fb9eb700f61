//! Ctrl-C: the first ends what is being measured early, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The line below a table of figures that Ctrl-C ended early.
pub const ENDED_EARLY: &str =
    "Ended early by Ctrl-C; the figures are of what was measured until then.";

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// From now on Ctrl-C (and SIGTERM) is remembered instead of ending the program, once.
pub fn install() {
    remember(&[libc::SIGINT, libc::SIGTERM]);
}

/// So is the end of the terminal, for a program that has something to put back. Where it is ignored (`nohup`), it
/// stays so.
pub fn install_for_hangup() {
    // SAFETY: all zeroes is a valid sigaction.
    let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no action is installed, and `present` outlives the call.
    let known = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut present) } == 0;
    if known && present.sa_sigaction != libc::SIG_IGN {
        remember(&[libc::SIGHUP]);
    }
}

fn remember(signals: &[libc::c_int]) {
    let handler: extern "C" fn(libc::c_int) = interrupted;
    for signal in signals {
        // SAFETY: all zeroes is a valid sigaction (empty mask, no flags).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: `action` is initialised and outlives the call; the handler only stores to an atomic.
        unsafe { libc::sigaction(*signal, &action, std::ptr::null_mut()) };
    }
}

/// These, one after the other, until the program is interrupted: none begins after that.
pub fn until<T>(items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    items.into_iter().take_while(|_| !happened())
}

/// Whether it was pressed.
#[inline]
pub fn happened() -> bool {
    INTERRUPTED.load(Relaxed)
}
