//! CPU affinity: the CPUs that a thread may run on.
//!
//! A process may change the affinity of its own threads, and of other processes of its user, in both directions. Threads and
//! processes that a thread starts inherit its affinity.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

/// A set of CPUs, by the kernel's numbers.
#[derive(Clone, Copy)]
pub struct Cpus(libc::cpu_set_t);

impl Cpus {
    /// The CPUs that a thread may run on; 0 is the calling thread. `None` where the thread is gone, and on a machine with more
    /// than 1,024 CPUs.
    pub fn of(tid: u32) -> Option<Cpus> {
        let mut cpus = Cpus::none();
        let (tid, set) = (tid as libc::pid_t, &mut cpus.0);
        // SAFETY: `set` is writable for the size given; a thread that is gone gives ESRCH.
        let failed = unsafe { libc::sched_getaffinity(tid, size_of_val(set), &raw mut *set) } != 0;
        (!failed).then_some(cpus)
    }

    /// Lets a thread run on these CPUs alone; 0 is the calling thread. Returns whether the kernel did so.
    ///
    /// A seccomp filter may kill for the call: see [`Call::SetAffinity`](crate::seccomp::Call::SetAffinity).
    pub fn apply_to(&self, tid: u32) -> bool {
        let (tid, set) = (tid as libc::pid_t, &self.0);
        // SAFETY: `set` is readable for the size given.
        unsafe { libc::sched_setaffinity(tid, size_of_val(set), &raw const *set) == 0 }
    }

    /// The numbers of the CPUs, the least first.
    pub fn numbers(&self) -> Vec<usize> {
        // SAFETY: the index stays below CPU_SETSIZE, the size of the set.
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) })
            .collect()
    }

    /// Whether a CPU is one of these.
    pub fn contains(&self, cpu: usize) -> bool {
        // SAFETY: the index is below CPU_SETSIZE, the size of the set.
        cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &self.0) }
    }

    /// How many CPUs these are.
    pub fn count(&self) -> usize {
        // SAFETY: it reads a set by value.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        let in_other = |cpu: &usize| {
            // SAFETY: a number of a set is below CPU_SETSIZE.
            unsafe { libc::CPU_ISSET(*cpu, &other.0) }
        };
        self.numbers().into_iter().filter(in_other).collect()
    }

    /// Every number that a set can hold: a thread with this affinity has no limit of its own.
    #[must_use]
    pub fn every() -> Cpus {
        (0..libc::CPU_SETSIZE as usize).collect()
    }

    fn none() -> Cpus {
        // SAFETY: all zeroes is the empty set.
        Cpus(unsafe { std::mem::zeroed() })
    }
}

/// These CPUs, core by core: those that the kernel calls siblings of one core stand together. Each is a core of its own where the kernel
/// does not tell.
#[must_use]
pub fn cores(cpus: &Cpus) -> Vec<Vec<usize>> {
    let first_of_core = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = fs::read_to_string(path).ok()?;
        let first = siblings.split(|end: char| !end.is_ascii_digit()).next();
        first?.parse().ok()
    };
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cpu in cpus.numbers() {
        let core = first_of_core(cpu).unwrap_or(cpu);
        cores.entry(core).or_default().push(cpu);
    }
    cores.into_values().collect()
}

impl FromIterator<usize> for Cpus {
    /// Numbers from 1,024 on are left out.
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Cpus {
        let mut cpus = Cpus::none();
        for cpu in numbers
            .into_iter()
            .filter(|&cpu| cpu < libc::CPU_SETSIZE as usize)
        {
            // SAFETY: the index is below CPU_SETSIZE, the size of the set.
            unsafe { libc::CPU_SET(cpu, &mut cpus.0) };
        }
        cpus
    }
}

impl PartialEq for Cpus {
    fn eq(&self, other: &Cpus) -> bool {
        // SAFETY: compares two sets by value.
        unsafe { libc::CPU_EQUAL(&self.0, &other.0) }
    }
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.numbers()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asleep::ThreadStat;
    use crate::threads::own_tid;

    #[test]
    fn a_set_has_the_numbers_that_it_was_made_of() {
        let cpus: Cpus = [5, 0, 1_023, 1_024].into_iter().collect();
        assert_eq!(cpus.numbers(), [0, 5, 1_023]);
        assert_eq!(cpus, [0, 5, 1_023].into_iter().collect());
        assert_ne!(cpus, [0, 5].into_iter().collect());
        assert_eq!(format!("{cpus:?}"), "[0, 5, 1023]");
        assert_eq!(cpus.count(), 3);
        assert!(cpus.contains(1_023) && !cpus.contains(1) && !cpus.contains(1_024));
        let others: Cpus = [5, 7, 1_023].into_iter().collect();
        assert_eq!(cpus.and(&others).numbers(), [5, 1_023]);
        assert_eq!(Cpus::every().and(&cpus), cpus);
    }

    #[test]
    fn each_cpu_is_in_one_core() {
        let all = Cpus::of(0).unwrap();
        let mut numbers = cores(&all).concat();
        numbers.sort_unstable();
        assert_eq!(numbers, all.numbers());
    }

    #[test]
    fn a_thread_is_kept_to_one_cpu_and_let_go() {
        let all = Cpus::of(0).unwrap();
        let one: Cpus = all.numbers().into_iter().take(1).collect();
        std::thread::spawn(move || {
            assert!(one.apply_to(own_tid()));
            assert_eq!(Cpus::of(0), Some(one));
            let cpu = ThreadStat::open(own_tid()).and_then(|stat| stat.cpu());
            assert_eq!(cpu, one.numbers().first().copied());
            assert!(all.apply_to(0));
            assert_eq!(Cpus::of(own_tid()), Some(all));
        })
        .join()
        .unwrap();
        assert_eq!(Cpus::of(0), Some(all), "no other thread's");
        assert!(!Cpus::none().apply_to(0), "no CPU at all");
        assert_eq!(Cpus::of(i32::MAX as u32), None);
        assert!(ThreadStat::open(i32::MAX as u32).is_none());
    }
}
