// SPDX-License-Identifier: GPL-2.0-only
//! Made-up machines, and this one.

use std::fs;

use proptest::prelude::*;

use super::made_up::Tree;
use super::*;

fn counts(topology: &Topology) -> [u32; LEVELS] {
    Level::ALL.map(|level| topology.count(level))
}

fn domains(topology: &Topology, level: Level) -> Vec<u32> {
    let cpus = topology.cpus().iter();
    cpus.map(|cpu| cpu.domain(level)).collect()
}

fn sharing(topology: &Topology, cpu: u32, level: Level) -> Vec<u32> {
    topology.sharing(cpu, level).map(|cpu| cpu.id).collect()
}

/// Four cores of two threads, as many servers number them, below one third-level cache.
fn smp() -> Tree {
    let tree = Tree::new("0-7");
    for cpu in 0..8 {
        let core = format!("{},{}", cpu % 4, cpu % 4 + 4);
        tree.core(cpu, "0", &core);
        tree.caches(cpu, &core, &core, Some("0-7"));
    }
    tree.write("devices/system/node/node0/cpulist", "0-7");
    tree
}

#[test]
fn one_package() {
    let topology = smp().read();
    assert_eq!(counts(&topology), [4, 4, 1, 1, 1]);
    assert_eq!(domains(&topology, Level::L2), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(sharing(&topology, 6, Level::Core), [2, 6]);
    assert_eq!(sharing(&topology, 6, Level::L3).len(), 8);
    assert!(sharing(&topology, 8, Level::L3).is_empty());
    assert!(!topology.is_hybrid());
    assert!(topology.cpus().iter().all(|cpu| cpu.capacity == 1024));
    assert_eq!(
        topology.to_string(),
        "8 CPUs online: 4 cores, 4 L2, 1 L3, 1 package, 1 node"
    );
}

/// Two performance cores of two threads, and four small ones that share a second-level cache.
fn hybrid() -> Tree {
    let tree = Tree::new("0-7");
    for cpu in 0..8 {
        let (core, l2) = match cpu {
            0 | 1 => ("0-1".into(), "0-1"),
            2 | 3 => ("2-3".into(), "2-3"),
            _ => (cpu.to_string(), "4-7"),
        };
        tree.core(cpu, "0", &core);
        tree.caches(cpu, &core, l2, Some("0-7"));
    }
    tree
}

fn small(topology: &Topology) -> Vec<u32> {
    let small = |cpu: &&Cpu| cpu.kind == CoreKind::Efficient;
    let cpus = topology.cpus().iter().filter(small);
    cpus.map(|cpu| cpu.id).collect()
}

#[test]
fn hybrid_by_the_monitoring_units() {
    let tree = hybrid();
    assert!(!tree.read().is_hybrid());
    tree.write("devices/cpu_core/cpus", "0-3");
    tree.write("devices/cpu_atom/cpus", "4-6");
    tree.write("devices/cpu_lowpower/cpus", "7");
    let topology = tree.read();
    assert_eq!(counts(&topology), [6, 3, 1, 1, 1]);
    assert_eq!(sharing(&topology, 5, Level::L2), [4, 5, 6, 7]);
    assert_eq!(small(&topology), [4, 5, 6, 7]);
    assert!(topology.is_hybrid());
    assert!(
        topology
            .to_string()
            .ends_with(", 4 CPUs of efficient cores")
    );
}

#[test]
fn hybrid_by_capacity_and_by_what_the_firmware_says() {
    let tree = hybrid();
    for cpu in 0..8 {
        let performance = if cpu < 4 { "60" } else { "35" };
        tree.of_cpu(cpu, "acpi_cppc/highest_perf", performance);
    }
    let topology = tree.read();
    assert_eq!(small(&topology), [4, 5, 6, 7]);
    assert_eq!(topology.cpu(7).unwrap().capacity, 1024 * 35 / 60);
    // The capacities that the kernel goes by count more: one big, two nearly as big, the rest small, and one unknown.
    for (cpu, capacity) in [(0, "1024"), (1, "870"), (2, "870"), (3, "325"), (4, "325")] {
        tree.of_cpu(cpu, "cpu_capacity", capacity);
    }
    let topology = tree.read();
    assert_eq!(small(&topology), [3, 4]);
    assert_eq!(topology.cpu(4).unwrap().capacity, 325);
    assert_eq!(topology.cpu(5).unwrap().capacity, 1024);
}

#[test]
fn cores_that_came_out_better_are_not_hybrid() {
    let tree = smp();
    for cpu in 0..8 {
        tree.of_cpu(cpu, "acpi_cppc/highest_perf", &(166 + 9 * cpu).to_string());
    }
    let topology = tree.read();
    assert!(!topology.is_hybrid());
    assert!(topology.cpu(0).unwrap().capacity < topology.cpu(7).unwrap().capacity);
}

#[test]
fn two_nodes_and_two_caches_in_each_package() {
    let tree = Tree::new("0-7");
    for cpu in 0..8u32 {
        tree.core(cpu, &(cpu / 4).to_string(), &cpu.to_string());
        let first = cpu & !1;
        let l3 = format!("{first}-{}", first + 1);
        tree.caches(cpu, &cpu.to_string(), &cpu.to_string(), Some(&l3));
    }
    // Numbers with gaps, and memory without CPUs.
    tree.write("devices/system/node/node0/cpulist", "0-3");
    tree.write("devices/system/node/node1/cpulist", "");
    tree.write("devices/system/node/node10/cpulist", "4-7");
    tree.write("devices/system/node/online", "0-1,10");
    let topology = tree.read();
    assert_eq!(counts(&topology), [8, 8, 4, 2, 2]);
    assert_eq!(domains(&topology, Level::Node), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(domains(&topology, Level::L3), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(
        [0, 1, 2].map(|node| topology.node_id(node)),
        [Some(0), Some(10), None]
    );
}

#[test]
fn a_virtual_machine_without_caches() {
    let tree = Tree::new("0-3");
    for cpu in 0..4u32 {
        tree.core(cpu, &(cpu / 2).to_string(), &cpu.to_string());
    }
    let topology = tree.read();
    assert_eq!(counts(&topology), [4, 4, 2, 2, 1]);
    assert_eq!(domains(&topology, Level::L3), [0, 0, 1, 1]);
    assert_eq!(topology.node_id(0), Some(0));
}

#[test]
fn offline_cpus_have_no_topology_and_are_not_counted() {
    let tree = smp();
    tree.write("devices/system/cpu/online", "1-2,5-6");
    for cpu in [0, 3, 4, 7] {
        let path = format!("devices/system/cpu/cpu{cpu}");
        fs::remove_dir_all(tree.0.path().join(path)).unwrap();
    }
    for cpu in [1u32, 2, 5, 6] {
        let core = format!("{},{}", cpu % 4, cpu % 4 + 4);
        tree.core(cpu, "0", &core);
        tree.caches(cpu, &core, &core, Some("1-2,5-6"));
    }
    tree.write("devices/system/node/node0/cpulist", "1-2,5-6");
    let topology = tree.read();
    assert_eq!(counts(&topology), [2, 2, 1, 1, 1]);
    assert_eq!(topology.cpus().len(), 8);
    assert_eq!(domains(&topology, Level::L2), [2, 0, 1, 3, 4, 0, 1, 5]);
    assert!(!topology.cpu(0).unwrap().online);
    assert_eq!(
        topology.to_string(),
        "4 CPUs online of 8: 2 cores, 2 L2, 1 L3, 1 package, 1 node"
    );
}

#[test]
fn efficient_cores_outside_the_third_level_cache() {
    let tree = Tree::new("0-3");
    for cpu in 0..4u32 {
        tree.core(cpu, "0", &cpu.to_string());
        let (l2, l3) = if cpu < 2 {
            (cpu.to_string(), Some("0-1"))
        } else {
            ("2-3".into(), None)
        };
        tree.caches(cpu, &cpu.to_string(), &l2, l3);
    }
    let topology = tree.read();
    assert_eq!(counts(&topology), [4, 3, 2, 1, 1]);
    assert_eq!(domains(&topology, Level::L3), [0, 0, 1, 1]);
}

#[test]
fn a_cache_of_instructions_is_not_what_is_shared() {
    let tree = Tree::new("0-1");
    for cpu in 0..2u32 {
        tree.core(cpu, "0", &cpu.to_string());
        tree.caches(cpu, &cpu.to_string(), "0-1", Some("0-1"));
        tree.of_cpu(cpu, "cache/index1/level", "2");
    }
    assert_eq!(counts(&tree.read()), [2, 1, 1, 1, 1]);
}

#[test]
fn nothing_at_all_is_one_cpu() {
    let directory = tempfile::tempdir().unwrap();
    for root in [directory.path(), Path::new("/nonexistent")] {
        let topology = Topology::read(root);
        assert_eq!(counts(&topology), [1; LEVELS]);
        assert_eq!(topology.cpus().len(), 1);
    }
    // Directories of CPUs alone.
    for cpu in ["cpu0", "cpu1", "cpu10", "cpufreq", "cpu99999999"] {
        fs::create_dir_all(directory.path().join("devices/system/cpu").join(cpu)).unwrap();
    }
    let ids: Vec<_> = Topology::read(directory.path())
        .cpus()
        .iter()
        .map(|cpu| cpu.id)
        .collect();
    assert_eq!(ids, [0, 1, 10]);
}

#[test]
fn nonsense_is_as_good_as_nothing() {
    let tree = smp();
    for cpu in 0..8 {
        tree.core(cpu, "-1", "nobody");
        // A core without the CPU itself, and caches of CPUs that there are not.
        tree.of_cpu(cpu, "topology/thread_siblings_list", "99");
        tree.caches(cpu, "", "0-99999", Some("3-"));
        tree.of_cpu(cpu, "cpu_capacity", "0");
        tree.of_cpu(cpu, "acpi_cppc/highest_perf", "99999999999");
    }
    tree.write("devices/system/node/node0/cpulist", "0-7,x");
    let topology = tree.read();
    assert_eq!(counts(&topology), [8, 8, 1, 1, 1]);
    assert!(topology.cpus().iter().all(|cpu| cpu.capacity == 1024));
    fs::write(
        tree.0.path().join("devices/system/cpu/possible"),
        b"\xff\xfe",
    )
    .unwrap();
    assert_eq!(tree.read(), topology);
}

#[test]
fn this_machine() {
    let topology = Topology::read(Path::new(SYSFS));
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor"));
    assert_eq!(topology.online().count(), processors.count(), "{topology}");
    for cpu in topology.online() {
        for level in Level::ALL {
            assert!(cpu.domain(level) < topology.count(level));
            assert!(sharing(&topology, cpu.id, level).contains(&cpu.id));
        }
        // The threads of a core are in one package.
        for thread in topology.sharing(cpu.id, Level::Core) {
            assert_eq!(thread.domain(Level::Package), cpu.domain(Level::Package));
        }
        assert!((1..=MOST_CAPACITY).contains(&cpu.capacity));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_content_makes_a_topology(
        texts in proptest::collection::vec("[0-9,-]{0,12}|.{0,12}", 12),
        small in proptest::collection::vec("[0-5]|[0-5]-[0-5]", 12),
    ) {
        for texts in [&texts, &small] {
            let tree = Tree::new("0-2");
            tree.write("devices/system/cpu/possible", &texts[0]);
            tree.write("devices/system/cpu/online", &texts[1]);
            tree.write("devices/system/node/node7/cpulist", &texts[2]);
            tree.write("devices/cpu_core/cpus", &texts[3]);
            tree.write("devices/cpu_atom/cpus", &texts[4]);
            for cpu in 0..3 {
                tree.core(cpu, &texts[5], &texts[6]);
                tree.caches(cpu, &texts[7], &texts[8], Some(&texts[9]));
                tree.of_cpu(cpu, "cpu_capacity", &texts[10]);
                tree.of_cpu(cpu, "acpi_cppc/highest_perf", &texts[11]);
            }
            let topology = tree.read();
            prop_assert!(!topology.cpus().is_empty());
            for cpu in topology.online() {
                for level in Level::ALL {
                    prop_assert!(cpu.domain(level) < topology.count(level));
                }
            }
        }
    }
}
