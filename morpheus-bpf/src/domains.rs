// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling domains: which CPUs share queues and a clock, and where a CPU without work looks for some.
//!
//! A domain is a last-level cache, because tasks that move within one keep what they have there. A cache with more than
//! [`MOST_CPUS`] CPUs has several domains, because all CPUs of one contend for the locks of its queues. The two threads of a
//! core are in the same.

use crate::topology::{Cpu, Level, Topology};

/// As many as there are queues for: `DOMAINS` of `src/bpf/policy/policy.bpf.h`.
pub(crate) const MOST_DOMAINS: usize = 64;

/// CPUs in a domain, as far as there are domains enough.
pub(crate) const MOST_CPUS: usize = 16;

/// The CPUs of a machine in domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domains {
    /// The CPUs of each. Those that are online come first.
    pub(crate) cpus: Vec<Vec<u32>>,
    /// The other domains of each, the nearest first.
    pub(crate) nearest: Vec<Vec<u8>>,
}

impl Domains {
    /// Splits the machine.
    pub(crate) fn of(topology: &Topology) -> Domains {
        let mut most_cpus = MOST_CPUS;
        let mut groups = split(topology, most_cpus);
        while groups.len() > MOST_DOMAINS && most_cpus < topology.cpus().len() {
            most_cpus *= 2;
            groups = split(topology, most_cpus);
        }
        // More caches than domains share them.
        let mut domains: Vec<Vec<&Cpu>> = vec![Vec::new(); groups.len().clamp(1, MOST_DOMAINS)];
        let count = domains.len();
        for (index, group) in groups.into_iter().enumerate() {
            domains[index % count].extend(group);
        }
        let nearest = (0..count).map(|own| nearest(own, &domains)).collect();
        let ids = |domain: &Vec<&Cpu>| domain.iter().map(|cpu| cpu.id).collect();
        Domains {
            cpus: domains.iter().map(ids).collect(),
            nearest,
        }
    }
}

/// The CPUs of each last-level cache, in parts of at most this size. No core is split.
fn split(topology: &Topology, most_cpus: usize) -> Vec<Vec<&Cpu>> {
    let mut cpus: Vec<&Cpu> = topology.cpus().iter().collect();
    // CPUs that are online come first, so that they fill as few domains as they can: a machine may say that it could have
    // hundreds of others. `count` numbers their domains on each level first as well.
    let place = |cpu: &Cpu| (cpu.domain(Level::Node), cpu.domain(Level::L3), !cpu.online);
    cpus.sort_by_key(|cpu| (place(cpu), cpu.domain(Level::Core), cpu.id));
    let cache = |cpu: &Cpu| (cpu.domain(Level::Node), cpu.domain(Level::L3));
    let caches = cpus.chunk_by(|one, next| cache(one) == cache(next));
    caches.flat_map(|cache| parts(cache, most_cpus)).collect()
}

/// Parts of about the same number of CPUs.
fn parts<'a>(cache: &[&'a Cpu], most_cpus: usize) -> Vec<Vec<&'a Cpu>> {
    let count = cache.len().div_ceil(most_cpus);
    let size = cache.len().div_ceil(count);
    let mut parts: Vec<Vec<&Cpu>> = vec![Vec::new()];
    for core in cache.chunk_by(|one, next| one.domain(Level::Core) == next.domain(Level::Core)) {
        let is_full = |part: &Vec<&Cpu>| !part.is_empty() && part.len() + core.len() > size;
        if parts.last().is_some_and(is_full) {
            parts.push(Vec::new());
        }
        parts.last_mut().expect("there is one").extend(core);
    }
    parts
}

/// The other domains: of the same cache, package and node, and others, each kind from the next one on, so that not all look
/// into the same one first.
fn nearest(own: usize, domains: &[Vec<&Cpu>]) -> Vec<u8> {
    let distance = |other: usize| {
        let (Some(cpu), Some(there)) = (domains[own].first(), domains[other].first()) else {
            return usize::MAX;
        };
        let levels = [Level::L3, Level::Package, Level::Node];
        let shares = |level: &Level| cpu.domain(*level) == there.domain(*level);
        levels.iter().position(shares).unwrap_or(levels.len())
    };
    let count = domains.len();
    let mut others: Vec<usize> = (1..count).map(|step| (own + step) % count).collect();
    others.sort_by_key(|other| distance(*other));
    others.into_iter().map(|other| other as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::made_up::{Shape, Tree};

    /// A machine of `cpus` CPUs, of which the first `online` are online. The others say how many CPUs share each level.
    fn machine(cpus: u32, online: u32, core: u32, cache: u32, node: u32) -> Domains {
        let tree = Tree::regular(&Shape {
            cpus,
            online,
            core,
            l2: core,
            l3: cache,
            node,
        });
        Domains::of(&tree.read())
    }

    fn sizes(domains: &Domains) -> Vec<usize> {
        domains.cpus.iter().map(Vec::len).collect()
    }

    #[test]
    fn small_machines_are_one() {
        assert_eq!(machine(1, 1, 1, 1, 1).cpus, [vec![0]]);
        let pair = machine(2, 2, 1, 2, 2);
        assert_eq!(pair.cpus, [vec![0, 1]]);
        assert_eq!(pair.nearest, [Vec::<u8>::new()]);
        assert_eq!(sizes(&machine(16, 16, 2, 16, 16)), [16]);
    }

    #[test]
    fn each_cache_is_one() {
        let four = machine(16, 16, 1, 4, 8);
        assert_eq!(sizes(&four), [4; 4]);
        assert_eq!(four.cpus[1], [4, 5, 6, 7]);
        // The other cache of the node, then the other node from the next one on.
        assert_eq!(
            four.nearest,
            [vec![1, 2, 3], vec![0, 2, 3], vec![3, 0, 1], vec![2, 0, 1]]
        );
    }

    #[test]
    fn a_large_cache_is_several() {
        let two = machine(24, 24, 2, 24, 24);
        assert_eq!(sizes(&two), [12, 12]);
        let server = machine(256, 256, 2, 32, 128);
        assert_eq!(sizes(&server), [16; 16]);
        // The other part of the cache first, the other node last.
        assert_eq!(server.nearest[2][0], 3);
        assert_eq!(server.nearest[3][0], 2);
        let of_node: Vec<u8> = server.nearest[2][..7].to_vec();
        assert!(of_node.iter().all(|other| *other < 8), "{of_node:?}");
        // No core of three threads is split.
        let threes = machine(18, 18, 3, 18, 18);
        assert_eq!(sizes(&threes), [9, 9]);
    }

    #[test]
    fn cpus_that_may_come_later_fill_up() {
        let domains = machine(240, 4, 1, 4, 240);
        assert_eq!(domains.cpus[0][..4], [0, 1, 2, 3]);
        assert_eq!(sizes(&domains).iter().sum::<usize>(), 240);
        assert!(domains.cpus.len() <= MOST_DOMAINS);
    }

    #[test]
    fn more_caches_than_domains_share_them() {
        let small = machine(1024, 1024, 1, 8, 512);
        assert_eq!(sizes(&small), [16; 64]);
        let large = machine(1024, 1024, 2, 64, 512);
        assert_eq!(sizes(&large), [16; 64]);
        let each: std::collections::BTreeSet<u8> = small.nearest[5].iter().copied().collect();
        assert_eq!(each.len(), 63);
    }
}
