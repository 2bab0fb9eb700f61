//! Under a CPU quota, keep the runtime's threads on as many CPUs as the quota pays for.
//!
//! Hogs that run in parallel burn the quota of a period in a part of it, and then everybody is frozen
//! for the rest. On max(1, ⌊quota⌋) CPUs they take turns instead, and the workers run between them.
//! The quota itself is found by the standard library (`available_parallelism`, cgroup v1 and v2).

/// The CPUs a runtime's threads are kept on.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::cpu_set_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(cpus_in(&self.0)).finish()
    }
}

fn cpus_in(set: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: the index stays below CPU_SETSIZE, the size of the set.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) })
        .collect()
}

fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable for the size given; 0 is this thread.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0;
    (!failed).then_some(set)
}

/// CPUs that the affinity and the quota together pay for, at least one.
pub(crate) fn cpus_paid_for() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Mask {
    /// The mask to use, or `None` where no quota is smaller than the affinity. Never reaches outside
    /// the affinity in force, and starts at the CPU it is called on, so that processes spread.
    pub(crate) fn for_quota() -> Option<Mask> {
        let allowed = affinity()?;
        let cpus = cpus_in(&allowed);
        // SAFETY: sched_getcpu has no preconditions.
        let here = unsafe { libc::sched_getcpu() };
        let chosen = choose(&cpus, cpus_paid_for(), usize::try_from(here).unwrap_or(0))?;
        // SAFETY: all zeroes is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in chosen {
            // SAFETY: `cpu` came out of a set of the same size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        Some(Mask(set))
    }

    /// Keeps the calling thread, and the threads it starts, on the mask. Best effort: a refusal costs
    /// tail latency, not correctness.
    pub(crate) fn apply_to_current(&self) -> bool {
        // SAFETY: the set is readable for the size given; 0 is this thread.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) == 0 }
    }
}

/// `paid` of the CPUs, starting at `here`; `None` where there are no more than that anyway.
fn choose(cpus: &[usize], paid: usize, here: usize) -> Option<Vec<usize>> {
    let paid = paid.max(1);
    if cpus.len() <= paid {
        return None;
    }
    let start = cpus.iter().position(|&cpu| cpu >= here).unwrap_or(0);
    Some(
        cpus.iter()
            .cycle()
            .skip(start)
            .take(paid)
            .copied()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_cpus_as_are_paid_for_from_here_on() {
        assert_eq!(choose(&[0, 1], 2, 0), None);
        assert_eq!(choose(&[0, 1], 1, 1), Some(vec![1]));
        assert_eq!(choose(&[2, 5, 7], 2, 7), Some(vec![7, 2]));
        assert_eq!(choose(&[2, 5, 7], 2, 9), Some(vec![2, 5]));
        assert_eq!(choose(&[2, 5, 7], 0, 3), Some(vec![5]));
    }
}
