// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs are near to which, for tasks that wake (`src/bpf/options/near.bpf.c`).

use crate::topology::{Cpu, Level, Topology};

/// CPUs in a word of the programs' table.
const WORD: u32 = 64;

/// The CPUs near one: those of other cores that share its second-level cache, as far as their numbers are of the same 64.
/// The bit of a CPU is its number modulo 64.
///
/// None where the kernel's own search for an idle CPU knows as much: where only the threads of a core share that cache,
/// since a whole idle core is better than a thread of a busy one, and where all do that share the last-level cache.
pub(crate) fn near(topology: &Topology, cpu: &Cpu) -> u64 {
    let sharing = |level| topology.sharing(cpu.id, level);
    if sharing(Level::L2).count() >= sharing(Level::L3).count() {
        return 0;
    }
    sharing(Level::L2)
        .filter(|other| other.domain(Level::Core) != cpu.domain(Level::Core))
        .filter(|other| other.id / WORD == cpu.id / WORD)
        .fold(0, |near, other| near | 1 << (other.id % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::made_up::{Shape, Tree};

    /// The masks of a machine of `cpus` CPUs: `core` of them share a core, `l2` a second-level cache, `l3` a last-level
    /// cache.
    fn machine(cpus: u32, core: u32, l2: u32, l3: u32) -> Vec<u64> {
        let topology = Tree::regular(&Shape {
            cpus,
            online: cpus,
            core,
            l2,
            l3,
            node: cpus,
        })
        .read();
        let cpus = topology.cpus().iter();
        cpus.map(|cpu| near(&topology, cpu)).collect()
    }

    #[test]
    fn clusters_of_cores() {
        let near = machine(8, 1, 4, 8);
        assert_eq!(
            near,
            [0b1110, 0b1101, 0b1011, 0b0111, 0xe0, 0xd0, 0xb0, 0x70]
        );
    }

    #[test]
    fn other_cores_with_all_their_threads() {
        let near = machine(8, 2, 4, 8);
        assert_eq!(near[..4], [0b1100, 0b1100, 0b0011, 0b0011]);
        assert_eq!(near[4..], [0xc0, 0xc0, 0x30, 0x30]);
    }

    #[test]
    fn nobody_where_it_makes_no_difference() {
        for (core, l2, l3) in [(1, 1, 8), (2, 2, 8), (1, 4, 4), (1, 8, 8), (2, 8, 8)] {
            let near = machine(8, core, l2, l3);
            assert!(near.iter().all(|near| *near == 0), "{core} {l2} {l3}");
        }
    }

    #[test]
    fn numbers_beyond_the_first_word() {
        let near = machine(132, 1, 6, 132);
        // 60 to 65 are one group in two words.
        assert_eq!(near[60], 0xe << 60);
        assert_eq!(near[64], 0b10);
        assert_eq!(near[65], 0b01);
        // As are 126 to 131, of which the last four begin a word.
        assert_eq!(near[126], 1 << 63);
        assert_eq!(near[131], 0b0111);
        for (cpu, near) in near.iter().enumerate() {
            assert_eq!(near >> (cpu % 64) & 1, 0, "{cpu} is not near itself");
        }
    }
}
