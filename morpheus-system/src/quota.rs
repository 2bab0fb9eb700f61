//! Keeps a runtime's threads on the number of CPUs that a CPU quota pays for
//! (`Builder::confine_to_quota`).
//!
//! Hogs that run in parallel use up the bandwidth of a period in a part of it, and then the kernel throttles
//! every thread for the rest. On max(1, ⌊quota⌋) CPUs they alternate instead, and the workers run between
//! them. The standard library finds the quota (`available_parallelism`, cgroup v1 and v2).

use std::hash::{BuildHasher, RandomState};

use crate::seccomp::Call;

/// The CPUs that a runtime's threads are kept on.
#[derive(Clone, Copy)]
pub struct Mask {
    /// The affinity of the thread that built the runtime, which the threads that it starts inherit.
    allowed: libc::cpu_set_t,
    chosen: libc::cpu_set_t,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(cpus_in(&self.chosen)).finish()
    }
}

fn cpus_in(set: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: the index stays below CPU_SETSIZE, the size of the set.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) })
        .collect()
}

/// The affinity of a thread of this process; 0 is the calling thread.
fn affinity_of(tid: u32) -> Option<libc::cpu_set_t> {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let tid = tid as libc::pid_t;
    // SAFETY: `set` is writable for the size given; a thread that is gone gives ESRCH.
    let failed = unsafe { libc::sched_getaffinity(tid, size_of_val(&set), &raw mut set) } != 0;
    (!failed).then_some(set)
}

/// The number of CPUs that the affinity allows and the quota pays for, at least one.
pub fn cpus_paid_for() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the calling thread may run on more CPUs than a quota pays for.
pub fn leaves_cpus_unpaid() -> bool {
    affinity_of(0).is_some_and(|allowed| cpus_in(&allowed).len() > cpus_paid_for())
}

impl Mask {
    /// The mask to use, or `None` where no quota is smaller than the affinity, or a seccomp filter does not let it
    /// be set. It is a part of the current affinity and starts at a random CPU, so that several processes spread
    /// over all CPUs.
    pub fn for_quota() -> Option<Mask> {
        let allowed = affinity_of(0)?;
        // `RandomState` has random keys in each process.
        let anywhere = RandomState::new().hash_one(std::process::id()) as usize;
        let cpus = choose(&cpus_in(&allowed), cpus_paid_for(), anywhere)?;
        if !Call::SetAffinity.is_allowed() {
            return None;
        }
        // SAFETY: all zeroes is the empty set.
        let mut chosen: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpus {
            // SAFETY: `cpu` came out of a set of the same size.
            unsafe { libc::CPU_SET(cpu, &mut chosen) };
        }
        Some(Mask { allowed, chosen })
    }

    /// Keeps the calling thread, which has just started, on the mask.
    ///
    /// It does nothing where the application has set another affinity since the runtime was built. That is so
    /// if the calling thread has inherited another affinity than `allowed`, or if the lasting thread
    /// `witness` of the runtime is no longer on the mask. A `witness` of 0 means that there is none yet.
    ///
    /// A refusal of the kernel is ignored: it costs tail latency, not correctness.
    pub fn apply_to_current(&self, witness: u32) {
        // SAFETY: compares two sets by value.
        let is_equal = |a: &_, b: &_| unsafe { libc::CPU_EQUAL(a, b) };
        let is = |tid, set| affinity_of(tid).is_some_and(|own| is_equal(&own, set));
        if !is(0, &self.allowed) || (witness != 0 && !is(witness, &self.chosen)) {
            return;
        }
        let set = &self.chosen;
        // SAFETY: the set is readable for the size given; 0 is this thread.
        unsafe { libc::sched_setaffinity(0, size_of_val(set), &raw const *set) };
    }
}

/// Chooses `paid` of the CPUs, from index `start` on, cyclically; `None` where there are no more than that.
fn choose(cpus: &[usize], paid: usize, start: usize) -> Option<Vec<usize>> {
    let paid = paid.max(1);
    if cpus.len() <= paid {
        return None;
    }
    let from_start = cpus.iter().cycle().skip(start % cpus.len());
    Some(from_start.take(paid).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_the_paid_cpus_from_the_start_on() {
        assert_eq!(choose(&[0, 1], 2, 0), None);
        assert_eq!(choose(&[0, 1], 1, 1), Some(vec![1]));
        assert_eq!(choose(&[2, 5, 7], 2, 2), Some(vec![7, 2]));
        assert_eq!(choose(&[2, 5, 7], 2, 9), Some(vec![2, 5]));
        assert_eq!(choose(&[2, 5, 7], 0, 1), Some(vec![5]));
        assert_eq!(choose(&[], 1, 1), None);
    }
}
