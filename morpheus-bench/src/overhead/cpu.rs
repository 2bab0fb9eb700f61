//! Where a thread runs and how: its CPU, real-time priority, locked memory, the switches it has made.

use std::fs;
use std::io;

/// Above everything but the kernel's own threads that must not wait.
const PRIORITY: libc::c_int = 80;

/// A set of CPUs, made before it is needed so that only the call is measured.
#[derive(Clone, Copy)]
pub struct Set(libc::cpu_set_t);

impl Set {
    fn empty() -> Self {
        // SAFETY: all zeroes is the empty set.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Only this CPU.
    pub fn only(cpu: usize) -> Self {
        let mut set = Self::empty();
        if cpu < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is within the set.
            unsafe { libc::CPU_SET(cpu, &mut set.0) };
        }
        set
    }

    /// Makes it the set of the calling thread. When this returns, the thread runs on one of them.
    ///
    /// # Errors
    /// When the kernel refuses, for example because this process may not use them.
    #[inline]
    pub fn take(&self) -> io::Result<()> {
        // SAFETY: the pointer and the size are those of a set that outlives the call; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The CPUs that the calling thread may use, in ascending order.
pub fn allowed() -> Vec<usize> {
    let mut set = Set::empty();
    // SAFETY: the pointer and the size are those of a set that outlives the call; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set.0), &raw mut set.0) } != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is within the set.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set.0) })
        .collect()
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// Says which CPU, and why not.
pub fn pin(cpu: usize) -> Result<(), String> {
    Set::only(cpu)
        .take()
        .map_err(|error| format!("cannot run on CPU {cpu}: {error}"))
}

/// The CPU on which the calling thread runs.
pub fn current() -> Option<usize> {
    // SAFETY: sched_getcpu takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Who is served before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Real-time: runs until it waits or yields.
    Fifo,
    /// The lowest of the real-time ones: above ordinary threads, below those of [`Policy::Fifo`].
    LowestFifo,
    /// Only where nobody else wants to run.
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
    // SAFETY: all zeroes is a valid sched_param, on C libraries where it has more fields, too.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: `parameter` outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
        let cpus = allowed();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for cpu in &cpus {
                    pin(*cpu).unwrap();
                    assert_eq!(current(), Some(*cpu));
                }
                let error = pin(100_000).unwrap_err();
                assert!(error.contains("CPU 100000"), "{error}");
            });
        });
    }
}
