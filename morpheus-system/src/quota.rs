//! Keeps a runtime's threads on the number of CPUs that a CPU quota pays for
//! (`Builder::confine_to_quota`).
//!
//! Hogs that run in parallel use up the bandwidth of a period in a part of it, and then the kernel throttles
//! every thread for the rest. On max(1, ⌊quota⌋) CPUs they alternate instead, and the workers run between
//! them. The standard library finds the quota (`available_parallelism`, cgroup v1 and v2).

use std::hash::{BuildHasher, RandomState};

use crate::affinity::Cpus;
use crate::seccomp::Call;

/// The CPUs that a runtime's threads are kept on.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// The affinity of the thread that built the runtime, which the threads that it starts inherit.
    allowed: Cpus,
    chosen: Cpus,
}

/// The number of CPUs that the affinity allows and the quota pays for, at least one.
pub fn cpus_paid_for() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the calling thread may run on more CPUs than a quota pays for.
pub fn leaves_cpus_unpaid() -> bool {
    Cpus::of(0).is_some_and(|allowed| allowed.numbers().len() > cpus_paid_for())
}

impl Mask {
    /// The mask to use, or `None` where no quota is smaller than the affinity, or a seccomp filter does not let it
    /// be set. It is a part of the current affinity and starts at a random CPU, so that several processes spread
    /// over all CPUs.
    pub fn for_quota() -> Option<Mask> {
        let allowed = Cpus::of(0)?;
        // `RandomState` has random keys in each process.
        let anywhere = RandomState::new().hash_one(std::process::id()) as usize;
        let cpus = choose(&allowed.numbers(), cpus_paid_for(), anywhere)?;
        if !Call::SetAffinity.is_allowed() {
            return None;
        }
        let chosen = cpus.into_iter().collect();
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
        let is = |tid, cpus| Cpus::of(tid) == Some(cpus);
        if is(0, self.allowed) && (witness == 0 || is(witness, self.chosen)) {
            self.chosen.apply_to(0);
        }
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
