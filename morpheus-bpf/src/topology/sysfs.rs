// SPDX-License-Identifier: GPL-2.0-only
//! Single values of the topology, as sysfs has them. A value that is missing or makes no sense is none.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::list::{MOST_CPUS, parse_cpu_list};

/// No file that is read here is longer, on no machine.
const MOST_BYTES: u64 = 1 << 16;
/// No CPU has more caches.
const MOST_CACHES: u32 = 16;

/// A sysfs, or a tree that looks like it.
#[derive(Debug)]
pub(super) struct Sysfs<'a> {
    pub(super) root: &'a Path,
}

impl Sysfs<'_> {
    /// The CPUs that there may ever be. There is always one.
    pub(super) fn possible(&self) -> Vec<u32> {
        ["possible", "present", "online"]
            .iter()
            .find_map(|file| self.some_cpus(&format!("devices/system/cpu/{file}")))
            .unwrap_or_else(|| {
                let cpus = self.numbered("devices/system/cpu", "cpu");
                if cpus.is_empty() { vec![0] } else { cpus }
            })
    }

    /// The CPUs that are online, if that is known.
    pub(super) fn online(&self) -> Option<Vec<u32>> {
        self.some_cpus("devices/system/cpu/online")
    }

    /// The threads of the core that a CPU is one of.
    pub(super) fn core(&self, cpu: u32) -> Option<Vec<u32>> {
        ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|file| self.cpus_with(cpu, &format!("topology/{file}")))
    }

    /// The package that a CPU is in. Some machines do not know and say -1.
    pub(super) fn package(&self, cpu: u32) -> Option<u32> {
        self.text(&of_cpu(cpu, "topology/physical_package_id"))?
            .parse()
            .ok()
    }

    /// The CPUs that share a data cache of this level with a CPU.
    pub(super) fn cache(&self, cpu: u32, level: u32) -> Option<Vec<u32>> {
        (0..MOST_CACHES).find_map(|index| {
            let cache = format!("cache/index{index}");
            let found: u32 = self
                .text(&of_cpu(cpu, &format!("{cache}/level")))?
                .parse()
                .ok()?;
            let kind = self.text(&of_cpu(cpu, &format!("{cache}/type")));
            if found != level || kind.as_deref() == Some("Instruction") {
                return None;
            }
            self.cpus_with(cpu, &format!("{cache}/shared_cpu_list"))
        })
    }

    /// The NUMA nodes that have CPUs, with these, in the order of the nodes' numbers.
    pub(super) fn nodes(&self) -> Vec<(u32, Vec<u32>)> {
        self.numbered("devices/system/node", "node")
            .into_iter()
            .filter_map(|node| {
                let cpus = self.some_cpus(&format!("devices/system/node/node{node}/cpulist"))?;
                Some((node, cpus))
            })
            .collect()
    }

    /// How much a CPU can do, by what the kernel's scheduler goes by.
    pub(super) fn capacity(&self, cpu: u32) -> Option<u32> {
        self.positive(&of_cpu(cpu, "cpu_capacity"))
    }

    /// How fast a CPU can be, by what its firmware says.
    pub(super) fn highest_performance(&self, cpu: u32) -> Option<u32> {
        self.positive(&of_cpu(cpu, "acpi_cppc/highest_perf"))
    }

    /// The CPUs that a performance monitoring unit of this name is for: hybrid Intel CPUs have one for each kind of core.
    pub(super) fn monitored_by(&self, unit: &str) -> Option<Vec<u32>> {
        self.some_cpus(&format!("devices/{unit}/cpus"))
    }

    fn text(&self, file: &str) -> Option<String> {
        let mut text = String::new();
        let file = File::open(self.root.join(file)).ok()?;
        file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
        text.truncate(text.trim_end().len());
        Some(text)
    }

    fn positive(&self, file: &str) -> Option<u32> {
        self.text(file)?
            .parse()
            .ok()
            .filter(|capacity| *capacity > 0)
    }

    fn some_cpus(&self, file: &str) -> Option<Vec<u32>> {
        parse_cpu_list(&self.text(file)?).filter(|cpus| !cpus.is_empty())
    }

    /// A list of a CPU that has the CPU itself; another one is no such list.
    fn cpus_with(&self, cpu: u32, file: &str) -> Option<Vec<u32>> {
        self.some_cpus(&of_cpu(cpu, file))
            .filter(|cpus| cpus.contains(&cpu))
    }

    /// The numbers of the entries of a directory that are called so, in order.
    fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let entries = fs::read_dir(self.root.join(directory));
        let mut numbers: Vec<u32> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                let number = name.to_str()?.strip_prefix(prefix)?;
                number.parse().ok().filter(|number| *number < MOST_CPUS)
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

fn of_cpu(cpu: u32, file: &str) -> String {
    format!("devices/system/cpu/cpu{cpu}/{file}")
}
