// SPDX-License-Identifier: GPL-2.0-only
//! What a machine of several nodes of memory makes a difference to: each has queues of its own.

mod common;

use std::path::Path;
use std::time::Duration;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::Busy;
use common::{say, sleep, turn};
use morpheus_bpf::topology::{Level, SYSFS, Topology};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Long enough that many CPUs become idle, however slow they are.
const WHILE: Duration = Duration::from_secs(4);

/// CPUs of a node.
fn node(domain: u32) -> CpuSet {
    let topology = Topology::read(Path::new(SYSFS));
    assert!(
        topology.count(Level::Node) > 1,
        "this test needs a guest with two nodes (--numa 2): {topology}"
    );
    let mut set = CpuSet::new();
    for cpu in topology.online() {
        if cpu.domain(Level::Node) == domain {
            set.set(cpu.id as usize);
        }
    }
    set
}

/// More threads than CPUs compute, and go to the first node again and again, from where they may go anywhere. On each CPU
/// of the second is one that sleeps often: when it does, its CPU has nothing to do but what waits in the first node.
fn lopsided() -> Vec<Busy> {
    let (first, second) = (node(0), node(1));
    let mut all = CpuSet::new();
    (0..cpus()).for_each(|cpu| all.set(cpu));
    let computing = (0..3 * cpus()).map(|_| {
        let mut turns = 0u32;
        let again = move || {
            turns += 1;
            // Some milliseconds later it is back, or both nodes would soon have as many.
            if turns.is_multiple_of(500) {
                sched_setaffinity(None, &first).unwrap();
                sched_setaffinity(None, &all).unwrap();
            }
        };
        Busy::repeating(|| (), again)
    });
    let sleeping = (0..cpus()).map(|_| {
        Busy::repeating(
            move || sched_setaffinity(None, &second).unwrap(),
            || sleep(Duration::from_millis(2)),
        )
    });
    computing.chain(sleeping).collect()
}

#[test]
fn an_idle_cpu_takes_work_from_the_other_node() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let threads = lopsided();
    daemon.all_move(&["from_other_domains"]);
    say(&format!(
        "taken from other nodes: {}",
        daemon.counter("from_other_domains")
    ));
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

#[test]
fn switched_off_each_node_keeps_its_own() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&["--without", "steal"]);
    let threads = lopsided();
    std::thread::sleep(WHILE);
    let counters = daemon.numbers()["counters"].take();
    assert_eq!(counters["from_other_domains"], 0);
    assert!(counters["from_main"].as_u64().unwrap() > 0, "{counters}");
    // Those of each node still run.
    let before: Vec<u64> = threads.iter().map(Busy::cpu_ns).collect();
    std::thread::sleep(WHILE);
    let idle = threads.iter().zip(before);
    let idle = idle.filter(|(thread, before)| thread.cpu_ns() <= *before);
    assert_eq!(idle.count(), 0, "a thread has not run for {WHILE:?}");
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}
