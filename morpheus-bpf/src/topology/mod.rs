// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs there are and what they share: cores, caches, packages, NUMA nodes; and which are the small ones of a hybrid
//! machine.
//!
//! From sysfs, which lacks much of this in a virtual machine, in a container, and for CPUs that are offline. Missing parts
//! are derived from those that are there: a cache that is not described is taken to be the core's (L2) or the package's
//! (L3), a CPU without a node to be in the first. So a topology always can be read, and is at worst a flat one.

mod list;
mod sysfs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use list::{MOST_CPUS, parse_cpu_list};
use sysfs::Sysfs;

/// Where sysfs is.
pub const SYSFS: &str = "/sys";
/// The capacity of a machine's fastest CPU.
pub const MOST_CAPACITY: u32 = 1024;

/// How many levels there are.
const LEVELS: usize = 5;

/// The levels at which CPUs may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A core: its threads (SMT).
    Core,
    /// A second-level cache.
    L2,
    /// A third-level cache.
    L3,
    /// A package: what is in one socket.
    Package,
    /// A NUMA node.
    Node,
}

impl Level {
    /// All of them, the smaller ones first.
    pub const ALL: [Level; LEVELS] = [
        Level::Core,
        Level::L2,
        Level::L3,
        Level::Package,
        Level::Node,
    ];
}

/// The kind of a CPU's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreKind {
    /// As fast as this machine has, or nearly. All are, where it is not hybrid.
    Performance,
    /// A smaller one.
    Efficient,
}

/// One CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Whether it runs tasks at present.
    pub online: bool,
    /// The kind of its core.
    pub kind: CoreKind,
    /// How much it can do: 1024 is the machine's fastest.
    pub capacity: u32,
    domains: [u32; LEVELS],
}

impl Cpu {
    /// The number of the domain that it is in, counted from 0 on each level. Domains without CPUs that are online have the
    /// highest numbers.
    #[must_use]
    pub fn domain(&self, level: Level) -> u32 {
        self.domains[level as usize]
    }
}

/// All CPUs, and what they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// All that there may ever be, by their numbers.
    cpus: Vec<Cpu>,
    /// The kernel's numbers of the nodes.
    node_ids: Vec<u32>,
}

impl Topology {
    /// Reads it below `root`, which is [`SYSFS`] but for tests. Whatever is there or is not, some topology comes of it.
    #[must_use]
    pub fn read(root: &Path) -> Topology {
        let sysfs = Sysfs { root };
        let mut ids = sysfs.possible();
        let online = sysfs.online();
        // A list of possible CPUs without one that is online is wrong.
        ids.extend(online.iter().flatten());
        ids.sort_unstable();
        ids.dedup();
        let is_online = |cpu: &u32| online.as_ref().is_none_or(|online| online.contains(cpu));

        let nodes = sysfs.nodes();
        let keys = Keys::read(&sysfs, &ids, &nodes);
        let mut numbers: [BTreeMap<i64, u32>; LEVELS] = Default::default();
        let online_first = (ids.iter().filter(|cpu| is_online(cpu)))
            .chain(ids.iter().filter(|cpu| !is_online(cpu)));
        for cpu in online_first {
            for (numbers, key) in numbers.iter_mut().zip(keys.of(*cpu)) {
                let next = numbers.len() as u32;
                numbers.entry(key).or_insert(next);
            }
        }

        let capacities = capacities(&sysfs, &ids);
        let efficient = efficient(&sysfs, &ids, &capacities);
        let cpus = ids.iter().enumerate().map(|(index, id)| {
            let keys = keys.of(*id);
            Cpu {
                id: *id,
                online: is_online(id),
                kind: if efficient[index] {
                    CoreKind::Efficient
                } else {
                    CoreKind::Performance
                },
                capacity: capacities[index],
                domains: std::array::from_fn(|level| numbers[level][&keys[level]]),
            }
        });
        let cpus = cpus.collect();
        let mut node_ids: Vec<_> = numbers[Level::Node as usize].iter().collect();
        node_ids.sort_unstable_by_key(|(_, number)| **number);
        Topology {
            cpus,
            // From numbers of 32 bits.
            node_ids: node_ids.iter().map(|(id, _)| **id as u32).collect(),
        }
    }

    /// All CPUs that there may ever be, in the order of their numbers.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU of a number.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        let index = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        Some(&self.cpus[index])
    }

    /// The CPUs that are online.
    pub fn online(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.online)
    }

    /// The CPUs that share this with a CPU, itself among them; none where there is no such CPU.
    pub fn sharing(&self, id: u32, level: Level) -> impl Iterator<Item = &Cpu> {
        let domain = self.cpu(id).map(|cpu| cpu.domain(level));
        self.cpus
            .iter()
            .filter(move |cpu| Some(cpu.domain(level)) == domain)
    }

    /// How many domains there are that have CPUs which are online.
    #[must_use]
    pub fn count(&self, level: Level) -> u32 {
        self.online()
            .map(|cpu| cpu.domain(level) + 1)
            .max()
            .unwrap_or(0)
    }

    /// The kernel's number of a node, which may have gaps where [`Cpu::domain`] has none.
    #[must_use]
    pub fn node_id(&self, domain: u32) -> Option<u32> {
        self.node_ids.get(domain as usize).copied()
    }

    /// Whether it has cores of both kinds.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.kind != self.cpus[0].kind)
    }
}

impl fmt::Display for Topology {
    /// In a line, such as "8 CPUs online of 16: 4 cores, 4 L2, 1 L3, 1 package, 1 node".
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let online = self.online().count();
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        write!(formatter, "{online} CPU{} online", plural(online as u32))?;
        if online < self.cpus.len() {
            write!(formatter, " of {}", self.cpus.len())?;
        }
        let [cores, l2, l3, packages, nodes] = Level::ALL.map(|level| self.count(level));
        write!(
            formatter,
            ": {cores} core{}, {l2} L2, {l3} L3, {packages} package{}, {nodes} node{}",
            plural(cores),
            plural(packages),
            plural(nodes)
        )?;
        if self.is_hybrid() {
            let efficient = |cpu: &&Cpu| cpu.kind == CoreKind::Efficient;
            let efficient = self.online().filter(efficient).count();
            write!(formatter, ", {efficient} CPUs of efficient cores")?;
        }
        Ok(())
    }
}

/// The keys that tell domains apart: the same key on a level, the same domain.
struct Keys(BTreeMap<u32, [i64; LEVELS]>);

impl Keys {
    fn read(sysfs: &Sysfs<'_>, ids: &[u32], nodes: &[(u32, Vec<u32>)]) -> Keys {
        let packages: Vec<_> = ids.iter().map(|cpu| sysfs.package(*cpu)).collect();
        let first_package = packages.iter().flatten().next().copied().unwrap_or(0);
        let first_node = nodes.first().map_or(0, |(node, _)| *node);
        // Lists are told apart by their first CPU.
        let first = |cpus: Option<Vec<u32>>| cpus.map(|cpus| i64::from(cpus[0]));
        let keys = ids.iter().zip(packages).map(|(cpu, package)| {
            let package = i64::from(package.unwrap_or(first_package));
            let core = first(sysfs.core(*cpu)).unwrap_or((*cpu).into());
            let l2 = first(sysfs.cache(*cpu, 2)).unwrap_or(core);
            // Below 0, where no CPU's number is.
            let l3 = first(sysfs.cache(*cpu, 3)).unwrap_or(-1 - package);
            let node = nodes
                .iter()
                .find(|(_, cpus)| cpus.binary_search(cpu).is_ok())
                .map_or(first_node, |(node, _)| *node);
            (*cpu, [core, l2, l3, package, node.into()])
        });
        Keys(keys.collect())
    }

    fn of(&self, cpu: u32) -> [i64; LEVELS] {
        self.0[&cpu]
    }
}

/// How much each CPU can do, of [`MOST_CAPACITY`].
fn capacities(sysfs: &Sysfs<'_>, ids: &[u32]) -> Vec<u32> {
    let by = |read: &dyn Fn(u32) -> Option<u32>| -> Option<Vec<u32>> {
        let values: Vec<_> = ids.iter().map(|cpu| read(*cpu)).collect();
        let most = *values.iter().flatten().max()?;
        let share = |value| u64::from(value) * u64::from(MOST_CAPACITY) / u64::from(most);
        let capacities = values.into_iter().map(|value| {
            // At most MOST_CAPACITY.
            (share(value.unwrap_or(most)) as u32).max(1)
        });
        Some(capacities.collect())
    };
    by(&|cpu| sysfs.capacity(cpu))
        .or_else(|| by(&|cpu| sysfs.highest_performance(cpu)))
        .unwrap_or_else(|| vec![MOST_CAPACITY; ids.len()])
}

/// Which CPUs are of efficient cores: as the kernel says, else those that can do less than two thirds. Cores of one kind
/// differ too, by how well each came out of the factory, but not by as much.
fn efficient(sysfs: &Sysfs<'_>, ids: &[u32], capacities: &[u32]) -> Vec<bool> {
    if sysfs.monitored_by("cpu_core").is_some() {
        let mut small: Vec<u32> = ["cpu_atom", "cpu_lowpower"]
            .iter()
            .filter_map(|unit| sysfs.monitored_by(unit))
            .flatten()
            .collect();
        small.sort_unstable();
        let is_small = |cpu: &u32| small.binary_search(cpu).is_ok();
        return ids.iter().map(is_small).collect();
    }
    capacities
        .iter()
        .map(|capacity| *capacity < MOST_CAPACITY * 2 / 3)
        .collect()
}

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;
