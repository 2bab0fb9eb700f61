//! How a thread runs: real-time priority, locked memory, on which CPU it is, the switches it has made.

use std::fs;
use std::io;

use crate::policy;

/// Above everything but the kernel's own threads that must not wait.
const PRIORITY: libc::c_int = 80;

/// The CPU on which the calling thread runs.
pub fn current() -> Option<usize> {
    // SAFETY: sched_getcpu takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Which threads the kernel serves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Real-time: runs until it waits or yields.
    Fifo,
    /// The lowest of the real-time ones: above ordinary threads, below those of [`Policy::Fifo`].
    LowestFifo,
    /// Only where no other thread wants to run.
    Idle,
}

/// Gives the calling thread a policy.
///
/// # Errors
/// Without the right to.
pub fn set_policy(policy: Policy) -> io::Result<()> {
    let (policy, priority) = match policy {
        Policy::Fifo => (libc::SCHED_FIFO, PRIORITY),
        Policy::LowestFifo => (libc::SCHED_FIFO, 1),
        Policy::Idle => (libc::SCHED_IDLE, 0),
    };
    policy::set(policy, priority)
}

/// Keeps all memory that this process has now in RAM.
///
/// # Errors
/// Without the right to, or beyond the limit.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: mlockall takes flags and changes no content of memory.
    match unsafe { libc::mlockall(libc::MCL_CURRENT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> libc::pid_t {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// How often a thread of this process has left a CPU to another, voluntarily or not. (A yield counts as not: the thread
/// could have gone on.)
///
/// # Errors
/// When there is no such thread, or the kernel does not tell.
pub fn switches(thread: libc::pid_t) -> Result<u64, String> {
    let path = format!("/proc/self/task/{thread}/status");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    switches_in(&text).ok_or_else(|| format!("{path} does not count context switches"))
}

fn switches_in(status: &str) -> Option<u64> {
    let number = |name| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.trim().parse().ok()
    };
    Some(number("voluntary_ctxt_switches")? + number("nonvoluntary_ctxt_switches")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn switches_are_both_kinds_together() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n";
        assert_eq!(switches_in(status), Some(42));
        assert_eq!(switches_in("Name:\tx\n"), None);
        assert_eq!(switches_in("voluntary_ctxt_switches:\t12\n"), None);
    }

    #[test]
    fn sleeping_is_counted_as_a_switch() {
        let before = switches(thread_id()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(switches(thread_id()).unwrap() > before);
        assert!(switches(1 << 22).is_err());
    }

    #[test]
    fn a_thread_is_where_it_was_pinned() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for cpu in cpus::allowed() {
                    cpus::pin(cpu).unwrap();
                    assert_eq!(current(), Some(cpu));
                }
            });
        });
    }
}
