//! Sets of CPUs, and threads that keep to them.

use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// A set of CPUs, made before it is needed so that only the call is measured.
#[derive(Clone, Copy)]
pub struct Cpus(CpuSet);

impl Cpus {
    /// These CPUs. Numbers that no kernel has are left out.
    pub fn of(cpus: &[usize]) -> Self {
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        Self(set)
    }

    /// Makes it the set of the calling thread. When this returns, the thread runs on one of them.
    ///
    /// # Errors
    /// When the kernel refuses, for example because this process may not use them, or because there is none.
    #[inline]
    pub fn take(&self) -> io::Result<()> {
        self.give_to(0)
    }

    /// Makes it the set of a thread; 0 is the calling one.
    ///
    /// # Errors
    /// As [`take`](Self::take), and when there is no such thread.
    #[inline]
    pub fn give_to(&self, thread: u32) -> io::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(thread as i32), &self.0)?)
    }
}

/// The CPUs that the calling thread may use, in ascending order; none where the kernel does not tell.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// The CPU on which the calling thread runs.
pub fn current() -> Option<usize> {
    // SAFETY: sched_getcpu takes nothing and touches no memory of ours.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The CPUs of a kernel's list such as `0-3,8`; `None` where it is none, or has numbers that no kernel has.
pub fn listed(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Keeps the calling thread to one CPU.
///
/// # Errors
/// Says which CPU, and why not.
pub fn pin(cpu: usize) -> Result<(), String> {
    Cpus::of(&[cpu])
        .take()
        .map_err(|error| format!("cannot run on CPU {cpu}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let all = allowed();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for cpu in &all {
                    pin(*cpu).unwrap();
                    assert_eq!((allowed(), current()), (vec![*cpu], Some(*cpu)));
                }
                let error = pin(100_000).unwrap_err();
                assert!(error.contains("CPU 100000"), "{error}");
                assert!(Cpus::of(&[]).take().is_err(), "no CPU at all");
            });
        });
        assert_eq!(allowed(), all, "the others are where they were");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(listed("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(listed("0"), Some(vec![0]));
        for wrong in ["", "a", "3-1", "0-", "0-99999999"] {
            assert_eq!(listed(wrong), None, "{wrong}");
        }
    }
}
