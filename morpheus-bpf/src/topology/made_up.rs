// SPDX-License-Identifier: GPL-2.0-only
//! Machines that tests make up.

use std::fs;

use tempfile::TempDir;

use super::Topology;

/// A sysfs of files that a test writes.
pub(crate) struct Tree(pub(super) TempDir);

impl Tree {
    pub(crate) fn new(cpus: &str) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.write("devices/system/cpu/possible", cpus);
        tree.write("devices/system/cpu/online", cpus);
        tree
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn of_cpu(&self, cpu: u32, file: &str, text: &str) {
        self.write(&format!("devices/system/cpu/cpu{cpu}/{file}"), text);
    }

    pub(crate) fn core(&self, cpu: u32, package: &str, threads: &str) {
        self.of_cpu(cpu, "topology/physical_package_id", package);
        self.of_cpu(cpu, "topology/core_cpus_list", threads);
    }

    /// As x86 has them: two first-level caches, and the others after them.
    pub(crate) fn caches(&self, cpu: u32, core: &str, l2: &str, l3: Option<&str>) {
        let caches = [
            ("1", "Data", Some(core)),
            ("1", "Instruction", Some(core)),
            ("2", "Unified", Some(l2)),
            ("3", "Unified", l3),
        ];
        for (index, (level, kind, cpus)) in caches.into_iter().enumerate() {
            if let Some(cpus) = cpus {
                self.of_cpu(cpu, &format!("cache/index{index}/level"), level);
                self.of_cpu(cpu, &format!("cache/index{index}/type"), kind);
                self.of_cpu(cpu, &format!("cache/index{index}/shared_cpu_list"), cpus);
            }
        }
    }

    pub(crate) fn read(&self) -> Topology {
        Topology::read(self.0.path())
    }

    /// A machine with as many CPUs in each core, cache and node as the shape says. Nodes are packages.
    pub(crate) fn regular(shape: &Shape) -> Tree {
        let range = |cpu: u32, size: u32| {
            let first = cpu - cpu % size;
            format!("{first}-{}", (first + size).min(shape.cpus) - 1)
        };
        let tree = Tree::new(&range(0, shape.cpus));
        tree.write("devices/system/cpu/online", &range(0, shape.online));
        for first in (0..shape.cpus).step_by(shape.node as usize) {
            let file = format!("devices/system/node/node{}/cpulist", first / shape.node);
            tree.write(&file, &range(first, shape.node));
        }
        // As in a machine: nothing is said of CPUs that are offline.
        for cpu in 0..shape.online {
            let [core, l2, l3] = [shape.core, shape.l2, shape.l3].map(|size| range(cpu, size));
            tree.core(cpu, &(cpu / shape.node).to_string(), &core);
            tree.caches(cpu, &core, &l2, Some(&l3));
        }
        tree
    }
}

/// How many CPUs there are, and how many share each level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) cpus: u32,
    /// The first of them.
    pub(crate) online: u32,
    pub(crate) core: u32,
    pub(crate) l2: u32,
    pub(crate) l3: u32,
    pub(crate) node: u32,
}
