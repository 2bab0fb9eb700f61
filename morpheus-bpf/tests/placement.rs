// SPDX-License-Identifier: GPL-2.0-only
//! Where tasks go that wake, on a machine whose CPUs share second-level caches in pairs.
//!
//! The emulator has no such machine, so the test makes one: it lays lists of its own over those that sysfs has of the guest's
//! caches, which the daemon reads when it starts. The real caches make no difference to the counts.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, compute_for, pin};
use common::{PATIENCE, say, sleep, turn};
use morpheus_tools::tier::Tier;
use rustix::thread::sched_getcpu;

const MS: Duration = Duration::from_millis(1);
/// All that placement near a CPU counts, the first two for each tier.
const COUNTERS: [&str; 4] = ["l2_hits_", "l2_misses_", "near_waits", "near_waits_over"];

/// A machine whose CPUs share second-level caches in groups of one size, until it is dropped.
struct Caches {
    laid_over: Vec<PathBuf>,
    directory: PathBuf,
}

impl Caches {
    fn in_groups_of(size: usize) -> Caches {
        let directory = std::env::temp_dir().join(format!("morpheus-l2-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut caches = Caches {
            laid_over: Vec::new(),
            directory,
        };
        for cpu in 0..cpus() {
            let first = cpu - cpu % size;
            caches.lay_over(cpu, 2, &format!("{first}-{}\n", first + size - 1));
            caches.lay_over(cpu, 3, &format!("0-{}\n", cpus() - 1));
        }
        caches
    }

    fn lay_over(&mut self, cpu: usize, level: u32, list: &str) {
        let of_cpu = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cache"));
        let cache = (0..8)
            .map(|index| of_cpu.join(format!("index{index}")))
            .find(|cache| {
                fs::read_to_string(cache.join("level"))
                    .is_ok_and(|found| found.trim() == level.to_string())
            });
        let cache = cache.unwrap_or_else(|| panic!("the guest's CPU {cpu} has no L{level}"));
        let own = self.directory.join(format!("cpu{cpu}-l{level}"));
        fs::write(&own, list).unwrap();
        let file = cache.join("shared_cpu_list");
        let mut mount = Command::new("mount");
        mount.args(["-o", "bind"]).arg(&own).arg(&file);
        assert!(mount.status().unwrap().success(), "{}", file.display());
        self.laid_over.push(file);
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        for file in &self.laid_over {
            let _ = Command::new("umount").arg(file).status();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Does this, computes for a millisecond, and sleeps, again and again.
fn often_after(mut first: impl FnMut() + Send + 'static, pause: Duration) -> impl FnMut() + Send {
    move || {
        first();
        compute_for(MS);
        sleep(pause);
    }
}

/// Computes for a millisecond at a time, between pauses, on one CPU or on any.
fn often(place: Option<usize>, pause: Duration) -> Busy {
    Busy::repeating(
        move || place.into_iter().for_each(pin),
        often_after(|| (), pause),
    )
}

/// Threads that find their last CPU busy when they wake, and others idle, again and again: some that stay on their CPUs,
/// and others that do not. All of them sleep more than they compute, and not often enough to be LAT_CRITICAL, so that they
/// may wait.
fn restless() -> Vec<Busy> {
    let bound = (0..cpus()).map(|cpu| often(Some(cpu), 5 * MS));
    let free = (0..2 * cpus()).map(|index| often(None, 5 * MS + MS / 4 * index as u32));
    bound.chain(free).collect()
}

/// Of the wakes that moved a thread to another CPU, the share that moved it to the one that shares its cache.
fn share_of_moves_near(arguments: &[&str]) -> f64 {
    let daemon = Daemon::schedule(arguments);
    let moves: Arc<[AtomicU64; 2]> = Arc::default();
    let bound = (0..cpus()).map(|cpu| often(Some(cpu), 5 * MS));
    let free = (0..cpus()).map(|index| {
        let (moves, mut last) = (Arc::clone(&moves), None);
        let look = move || {
            let cpu = sched_getcpu();
            let before = last.replace(cpu).unwrap_or(cpu);
            if cpu != before {
                let is_far = cpu / 2 != before / 2;
                // Relaxed: counts, which guard nothing.
                moves[usize::from(is_far)].fetch_add(1, Ordering::Relaxed);
            }
        };
        Busy::repeating(|| (), often_after(look, 3 * MS + MS / 4 * index as u32))
    });
    let threads: Vec<Busy> = bound.chain(free).collect();
    std::thread::sleep(Duration::from_secs(4));
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    // Relaxed: the threads have ended.
    let [near, far] = [0, 1].map(|index: usize| moves[index].load(Ordering::Relaxed));
    assert!(near + far > 100, "{near} and {far} moves only");
    near as f64 / (near + far) as f64
}

/// By where the threads find themselves, and not by what the scheduler counts.
#[test]
fn most_moves_stay_within_a_cache() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _caches = Caches::in_groups_of(2);
    let with = share_of_moves_near(&[]);
    let without = share_of_moves_near(&["--without", "l2-affinity"]);
    say(&format!(
        "{with:.2} of all moves stay within a cache, {without:.2} without the search"
    ));
    assert!(with > 1.3 * without, "{with} {without}");
}

/// The counts, in the order of `COUNTERS`.
fn counted(daemon: &Daemon) -> [u64; 4] {
    let counters = daemon.numbers()["counters"].take();
    let count = |name: &str| {
        counters[name]
            .as_u64()
            .unwrap_or_else(|| panic!("there is no counter {name}"))
    };
    COUNTERS.map(|name| match name.strip_suffix('_') {
        Some(_) => {
            let tiers = Tier::ALL.iter();
            tiers
                .map(|tier| count(&format!("{name}{}", tier.name())))
                .sum()
        }
        None => count(name),
    })
}

/// Waits until these are above 0; they are positions in `COUNTERS`.
fn all_move(daemon: &Daemon, which: &[usize]) -> [u64; 4] {
    let until = Instant::now() + 8 * PATIENCE;
    loop {
        let counted = counted(daemon);
        if which.iter().all(|index| counted[*index] > 0) {
            return counted;
        }
        assert!(Instant::now() < until, "{COUNTERS:?}: {counted:?}");
        std::thread::sleep(100 * MS);
    }
}

#[test]
fn who_wakes_goes_near_its_last_cpu() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _caches = Caches::in_groups_of(2);
    // Without the loop the mode is weak.
    let daemon = Daemon::schedule(&["--without", "adapt"]);
    assert_eq!(daemon.numbers()["knobs"]["affinity_mode"], "weak");
    let threads = restless();
    let weak = all_move(&daemon, &[0, 1]);
    assert_eq!(weak[2..], [0, 0], "nobody waits in this mode");
    drop(threads);
    assert!(daemon.stop().success());
    say(&format!("weak, {COUNTERS:?}: {weak:?}"));
}

#[test]
fn who_wakes_may_wait_near_its_last_cpu() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _caches = Caches::in_groups_of(2);
    let daemon = Daemon::schedule(&["--affinity", "strong"]);
    assert_eq!(daemon.numbers()["knobs"]["affinity_mode"], "strong");
    let threads = restless();
    let strong = all_move(&daemon, &[0, 2, 3]);
    // Tasks that wait are not forgotten: all of them still come to run.
    let before: Vec<u64> = threads.iter().map(Busy::cpu_ns).collect();
    std::thread::sleep(PATIENCE);
    for (thread, before) in threads.iter().zip(before) {
        assert!(thread.cpu_ns() > before, "a thread does not run any more");
    }
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    say(&format!("strong, {COUNTERS:?}: {strong:?}"));
}

/// Of the kicks of idle CPUs for what real-time threads displace, those of one that shares the cache, and all.
fn kicks_near(arguments: &[&str]) -> [u64; 2] {
    let daemon = Daemon::schedule(arguments);
    let threads = Busy::displaced(MS);
    daemon.all_move(&["kicks_idle", "reenqueues"]);
    std::thread::sleep(Duration::from_secs(2));
    let kicks = ["near_kicks", "kicks_idle"].map(|name| daemon.counter(name));
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    kicks
}

#[test]
fn a_displaced_task_goes_on_near_its_last_cpu() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _caches = Caches::in_groups_of(2);
    let [near, all] = kicks_near(&[]);
    let [without, others] = kicks_near(&["--affinity", "off"]);
    say(&format!(
        "{near} of {all} idle CPUs that were kicked share the cache; {without} of {others} were looked for there, without the search"
    ));
    assert!(near > 0 && near <= all, "{near} of {all}");
    assert_eq!(without, 0);
}

#[test]
fn switched_off_or_of_no_use_it_does_nothing() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // All have one, which is their last-level cache as well; and each its own.
    for (size, without) in [(2, "l2-affinity"), (cpus(), "adapt"), (1, "adapt")] {
        let _caches = Caches::in_groups_of(size);
        let daemon = Daemon::schedule(&["--without", without]);
        let threads = restless();
        std::thread::sleep(Duration::from_secs(2));
        let numbers = daemon.numbers();
        assert!(numbers["counters"]["to_idle_cpu"].as_u64().unwrap() > 0);
        assert_eq!(counted(&daemon), [0; 4], "groups of {size}");
        drop(threads);
        assert!(daemon.stop().success());
    }
}
