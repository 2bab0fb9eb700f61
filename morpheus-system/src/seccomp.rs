//! Whether the process may make a system call, or a seccomp filter would end it for the call.
//!
//! The action of a filter may be to kill, and then there is no error to go on with: `SystemCallFilter=~@resources` in a systemd
//! unit does that to `sched_setattr`. So where the calling thread has a filter, a child process makes the call first, in a form
//! that changes nothing. A call that kills the child is never made by the process, as if the kernel had refused it.
//!
//! The first answer about a call is the answer for the whole process. Where the system has no child at the moment there is none yet: the call
//! is not made, and the question is answered a second later at the earliest. A filter that is installed later, or for another thread
//! alone, is not known. A process without a filter reads one file. A process with a filter starts one child, and where the filter kills
//! two for each call.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::clock;
use crate::signals::Blocked;
use crate::threads::status_field;

/// A system call that filters are known to kill for, and that the library can do without.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `sched_setattr`, for slices.
    SetAttributes,
    /// `setpriority`, for niceness.
    SetPriority,
    /// `sched_setaffinity`, for quotas and for CPU hogs.
    SetAffinity,
    /// `process_vm_readv`, for stacks.
    ReadMemory,
}

const UNKNOWN: u8 = 0;
const ALLOWED: u8 = 1;
const REFUSED: u8 = 2;
/// The pause after a question for which the system had no child.
const NO_CHILD_NS: u64 = 1_000_000_000;

/// What is known of the calls.
struct Answers {
    /// By [`Call`]: [`UNKNOWN`], [`ALLOWED`] or [`REFUSED`].
    calls: [AtomicU8; 4],
    /// When to try to find more out, on the clock of [`clock::now_ns`].
    next_try_ns: AtomicU64,
}

static ANSWERS: Answers = Answers::new();

impl Answers {
    const fn new() -> Answers {
        Answers {
            calls: [const { AtomicU8::new(UNKNOWN) }; 4],
            next_try_ns: AtomicU64::new(0),
        }
    }

    fn of(&self, call: Call) -> u8 {
        // Relaxed, and no partner is needed, here and below: the word is all that there is to know. Threads that ask at the same
        // time each find out for themselves, because a lock would stay locked in a child that another thread forks meanwhile.
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    /// Notes an answer where there is none yet: an error may have come first.
    fn note(&self, call: Call, answer: u8) {
        let place = &self.calls[call as usize];
        let _ = place.compare_exchange(UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Finds out about a call, and about all where none kills. `are_survived` has no answer where there is no child to try them: then
    /// nothing is noted.
    fn find_out(&self, call: Call, are_survived: impl Fn(&[Call]) -> Option<bool>) {
        let answer = match are_survived(&Call::ALL) {
            Some(true) => {
                Call::ALL.iter().for_each(|&call| self.note(call, ALLOWED));
                return;
            }
            Some(false) => are_survived(&[call]),
            None => None,
        };
        match answer {
            Some(true) => self.note(call, ALLOWED),
            Some(false) => self.note(call, REFUSED),
            None => {
                let next_try_ns = clock::now_ns() + NO_CHILD_NS;
                self.next_try_ns.store(next_try_ns, Ordering::Relaxed);
            }
        }
    }
}

impl Call {
    const ALL: [Call; 4] = [
        Call::SetAttributes,
        Call::SetPriority,
        Call::SetAffinity,
        Call::ReadMemory,
    ];

    /// Whether the call may be made. The kernel may still refuse it with an error. The first question is answered for all calls, where
    /// no filter kills for any of them.
    pub fn is_allowed(self) -> bool {
        let is_known = ANSWERS.of(self) != UNKNOWN;
        if !is_known && clock::now_ns() >= ANSWERS.next_try_ns.load(Ordering::Relaxed) {
            let has_no_filter = !may_have_filter();
            ANSWERS.find_out(self, |calls| match has_no_filter {
                true => Some(true),
                false => are_survived(calls),
            });
        }
        ANSWERS.of(self) == ALLOWED
    }

    /// Notes that the kernel refuses the call to the process with an error: it is not made again.
    pub fn note_refusal(self) {
        // Relaxed, as above.
        ANSWERS.calls[self as usize].store(REFUSED, Ordering::Relaxed);
    }

    /// Makes the call in a form that changes nothing, or changes this process alone, which is a child that ends.
    fn make(self) {
        let null = std::ptr::null::<libc::c_void>();
        // SAFETY: the calls concern this process alone, which ends. They touch no memory: the kernel refuses the null pointer and
        // the empty set, and reads an empty list of ranges.
        unsafe {
            match self {
                Call::SetAttributes => libc::syscall(libc::SYS_sched_setattr, 0, null, 0),
                Call::SetPriority => libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, 0),
                Call::SetAffinity => libc::syscall(libc::SYS_sched_setaffinity, 0, 0, null),
                Call::ReadMemory => libc::syscall(
                    libc::SYS_process_vm_readv,
                    libc::getpid(),
                    null,
                    0_usize,
                    null,
                    0_usize,
                    0_usize,
                ),
            };
        }
    }
}

/// Makes the calls in a child process. Returns whether the child went on after them; false also where a filter refuses a child, and
/// None where the system has none at this moment.
fn are_survived(calls: &[Call]) -> Option<bool> {
    // The child has the handlers of the application, which must not run twice.
    let _blocked = Blocked::begin();
    // SAFETY: without flags and a stack the call is a fork. The child makes only calls that are allowed in a signal handler,
    // and ends. Without a signal at its end the application's handler of SIGCHLD and its `wait` know nothing of it.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        0 => make_and_end(calls),
        child @ 1.. => has_exited(child as libc::pid_t),
        _ => {
            // At a limit of processes or of memory.
            let error = std::io::Error::last_os_error().raw_os_error();
            (!matches!(error, Some(libc::EAGAIN | libc::ENOMEM))).then_some(false)
        }
    }
}

/// Makes the calls in the child, and ends the child.
fn make_and_end(calls: &[Call]) -> ! {
    // A death for a call is expected, and leaves no core file.
    // SAFETY: the call takes numbers, and concerns this process, which ends.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    calls.iter().for_each(|call| call.make());
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// Waits for a child that gives no signal at its end. Returns whether it ended by itself; None where the application waited for it.
fn has_exited(child: libc::pid_t) -> Option<bool> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable, and the child is this process's.
        let waited = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
        if waited == child {
            return Some(libc::WIFEXITED(status));
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Whether the calling thread may have a filter. Where the file cannot be read, it may.
fn may_have_filter() -> bool {
    std::fs::read("/proc/thread-self/status").map_or(true, |status| has_filter(&status))
}

/// Reads the mode of seccomp in a thread's `status`. A kernel without seccomp has no such field.
fn has_filter(status: &[u8]) -> bool {
    status_field(status, "Seccomp").is_some_and(|mode| mode != b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_seccomp_is_found() {
        assert!(!has_filter(
            b"Name:\t\xff\nSeccomp:\t0\nSeccomp_filters:\t0\n"
        ));
        assert!(has_filter(
            b"Name:\t\xff\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_filter(b"Name:\ta\n"));
    }

    #[test]
    fn each_call_is_survived_and_changes_nothing() {
        let is_survived = |calls: &[Call]| may_have_filter() || are_survived(calls) == Some(true);
        assert!(is_survived(&Call::ALL));
        for call in Call::ALL {
            assert!(is_survived(&[call]), "{call:?}");
        }
    }

    #[test]
    fn a_lack_of_children_is_no_answer() {
        let (one, other) = (Call::SetPriority, Call::ReadMemory);
        let answers = Answers::new();
        answers.find_out(one, |_| None);
        assert_eq!(answers.of(one), UNKNOWN);
        assert!(answers.next_try_ns.load(Ordering::Relaxed) > 0);
        // The last child is the one for all calls.
        answers.find_out(one, |calls| (calls.len() > 1).then_some(false));
        assert_eq!(answers.of(one), UNKNOWN);
        answers.find_out(one, |_| Some(false));
        assert_eq!((answers.of(one), answers.of(other)), (REFUSED, UNKNOWN));
        answers.find_out(other, |_| Some(true));
        assert_eq!((answers.of(one), answers.of(other)), (REFUSED, ALLOWED));
    }
}
