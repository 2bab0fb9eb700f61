//! Lowers a slow task's thread by `nice`, where the process may raise it again. It is opt-in: it gives CPU
//! time to other processes too, not only to the workers.

use crate::seccomp::Call;
use crate::threads;

/// The difference in niceness. 10 leaves about a tenth of the weight. 19 would leave a sixty-eighth, which is
/// next to nothing beside a busy machine (Linux, `sched_prio_to_weight`).
const DEMOTED_BY: libc::c_int = 10;

fn niceness_of(tid: libc::id_t) -> libc::c_int {
    // SAFETY: getpriority takes no pointers. An error reads as -1, which is also a niceness; the callers only
    // ever add to the value, or restore one that they read.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, tid) }
}

fn set(tid: libc::id_t, niceness: libc::c_int) -> bool {
    // SAFETY: setpriority takes no pointers; a thread that is gone gives ESRCH.
    Call::SetPriority.is_allowed()
        && unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, niceness) == 0 }
}

thread_local! {
    /// The thread's niceness when it took its slot, which it goes back to.
    static OWN: std::cell::Cell<Option<libc::c_int>> = const { std::cell::Cell::new(None) };
}

/// Remembers the calling thread's niceness, once.
pub fn remember_own() {
    OWN.with(|own| {
        if own.get().is_none() {
            own.set(Some(niceness_of(0)));
        }
    });
}

/// Restores the niceness that the calling thread had when it took its slot. Returns whether it has that now.
pub fn undo_own() -> bool {
    OWN.with(std::cell::Cell::get)
        .is_none_or(|niceness| set(0, niceness))
}

/// Whether the calling thread took its slot with a negative niceness, which it goes back to.
pub fn is_own_negative() -> bool {
    OWN.with(std::cell::Cell::get)
        .is_some_and(|niceness| niceness < 0)
}

/// The calling thread's niceness.
#[must_use]
pub fn of_current() -> i32 {
    niceness_of(0)
}

/// Gives the calling thread this niceness, if it has another. Where that is refused, nothing changes.
pub fn become_again(niceness: i32) {
    if niceness_of(0) != niceness {
        set(0, niceness);
    }
}

/// Lowers the calling thread for the rest of its life. Where that is refused, nothing changes.
pub fn lower_current() {
    set(0, niceness_of(0) + DEMOTED_BY);
}

/// Lowers another thread. Returns its previous niceness, for [`raise_to`].
pub fn lower(tid: u32) -> Option<libc::c_int> {
    let before = niceness_of(tid);
    set(tid, before + DEMOTED_BY).then_some(before)
}

/// Raises a thread again whose poll ended while it was lowered. Returns whether it was raised, or has ended.
pub fn raise_to(tid: u32, niceness: libc::c_int) -> bool {
    set(tid, niceness) || std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether a thread of this process may lower its niceness and raise it again, tried on a thread that then
/// ends.
pub fn is_reversible() -> bool {
    // Where the system gives no thread, as `false`.
    threads::in_another(|| {
        let before = niceness_of(0);
        set(0, before + DEMOTED_BY) && set(0, before) && niceness_of(0) == before
    })
    .unwrap_or(false)
}
