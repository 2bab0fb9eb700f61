//! Tests a runtime under a CPU quota: the CPUs that its threads may use, and when spares are released.

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Gate, burn, in_time, wait_for};
use common::{MS, PATIENCE};
use morpheus_runtime::{Builder, Link, Runtime};

const PERIOD_US: u64 = 100_000;

/// A group with a CPU quota that this process is in while it lives.
struct Quota {
    group: PathBuf,
    parent: PathBuf,
}

impl Quota {
    /// Returns `None`, and prints why, if no group can be made.
    fn enter(cpus: f64) -> Option<Quota> {
        let limit_us = (cpus * PERIOD_US as f64) as u64;
        let version_1 = (
            "/sys/fs/cgroup/cpu",
            "cpu.cfs_quota_us",
            limit_us.to_string(),
        );
        let version_2 = (
            "/sys/fs/cgroup",
            "cpu.max",
            format!("{limit_us} {PERIOD_US}"),
        );
        for (parent, file, limit) in [version_1, version_2] {
            let parent = PathBuf::from(parent);
            let group = parent.join(format!("morpheus-test-{}", std::process::id()));
            if !parent.join("cgroup.procs").exists() || fs::create_dir(&group).is_err() {
                continue;
            }
            let quota = Quota { group, parent };
            let joined = fs::write(quota.group.join(file), limit)
                .and_then(|()| move_to(&quota.group, std::process::id()));
            if joined.is_ok() {
                return Some(quota);
            }
        }
        morpheus_testing::skip("needs root and a writable cgroup with the CPU controller");
        None
    }
}

fn move_to(group: &Path, process: u32) -> std::io::Result<()> {
    fs::write(group.join("cgroup.procs"), process.to_string())
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = move_to(&self.parent, std::process::id());
        wait_for(PATIENCE, || fs::remove_dir(&self.group).is_ok());
    }
}

/// Runs the rest of the test `name` in a child with a quota, and with as many CPUs as there are.
fn under_quota(name: &str, cpus: f64, test: impl FnOnce()) {
    if !common::is_child() {
        common::in_child(name, &[]);
        return;
    }
    if affinity_of(0).len() < 2 {
        morpheus_testing::skip("needs two CPUs");
        return;
    }
    let quota = Quota::enter(cpus);
    if quota.is_some() {
        assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
        test();
    }
}

fn affinity_of(thread: libc::pid_t) -> Vec<usize> {
    // SAFETY: all zeroes is the empty set; it is writable for the size given, and indices stay below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(thread, size_of_val(&set), &raw mut set),
            0
        );
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
            .collect()
    }
}

fn set_affinity_of(thread: libc::pid_t, cpus: &[usize]) {
    // SAFETY: as above; the set is readable.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        let failed = libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
        assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    }
}

fn on_a_worker<T: Send + 'static>(
    runtime: &Runtime,
    what: impl FnOnce() -> T + Send + 'static,
) -> T {
    let task = runtime.handle().spawn(async { what() });
    runtime.block_on(in_time(task)).unwrap()
}

/// The affinities of `count` blocking threads that a task asks for at once, after `first` on its worker.
fn of_blocking_threads(
    runtime: &Runtime,
    count: usize,
    first: impl FnOnce() + Send + 'static,
) -> HashSet<Vec<usize>> {
    let task = runtime.handle().spawn(async move {
        first();
        let gate = Gate::default();
        let calls: Vec<_> = (0..count)
            .map(|_| {
                let gate = gate.clone();
                tokio::task::spawn_blocking(move || {
                    gate.wait();
                    affinity_of(0)
                })
            })
            .collect();
        gate.open();
        let mut affinities = HashSet::new();
        for call in calls {
            affinities.insert(in_time(call).await.unwrap());
        }
        affinities
    });
    runtime.block_on(in_time(task)).unwrap()
}

fn of_a_child_process() -> usize {
    let output = Command::new("nproc").output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn by_default_a_quota_confines_nothing() {
    under_quota("by_default_a_quota_confines_nothing", 1.5, || {
        let all = affinity_of(0);
        let runtime = Builder::new_multi_thread().max_spares(4).build().unwrap();
        assert_eq!(runtime.metrics().workers, 1);
        assert_eq!(on_a_worker(&runtime, || affinity_of(0)), all);
        assert_eq!(on_a_worker(&runtime, of_a_child_process), all.len());
        let blocking = of_blocking_threads(&runtime, 4, || ());
        assert_eq!(blocking, HashSet::from([all]));
    });
}

#[test]
fn confined_threads_share_the_cpus_that_the_quota_pays_for() {
    let name = "confined_threads_share_the_cpus_that_the_quota_pays_for";
    under_quota(name, 1.9, || {
        let all = affinity_of(0);
        let runtime = Builder::new_multi_thread()
            .max_spares(4)
            .confine_to_quota(true)
            .build()
            .unwrap();
        assert_eq!(affinity_of(0), all);
        let worker = on_a_worker(&runtime, || affinity_of(0));
        assert_eq!(worker.len(), 1);
        assert!(all.contains(&worker[0]));
        let blocking = of_blocking_threads(&runtime, 4, || ());
        assert_eq!(blocking, HashSet::from([worker.clone()]));
        let calls = (0..8).map(|_| runtime.handle().spawn_blocking(|| affinity_of(0)));
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(runtime.block_on(in_time(call)).unwrap(), worker);
        }
    });
}

#[test]
fn runtimes_that_start_on_one_cpu_choose_different_ones() {
    let name = "runtimes_that_start_on_one_cpu_choose_different_ones";
    under_quota(name, 1.0, || {
        let chosen: HashSet<_> = (0..30)
            .map(|_| {
                let runtime = Builder::new_multi_thread()
                    .max_spares(0)
                    .confine_to_quota(true)
                    .build()
                    .unwrap();
                on_a_worker(&runtime, || affinity_of(0))
            })
            .collect();
        assert!(chosen.len() > 1, "{chosen:?}");
    });
}

#[test]
fn an_affinity_that_is_set_later_wins() {
    under_quota("an_affinity_that_is_set_later_wins", 1.0, || {
        let all = affinity_of(0);
        let mut builder = Builder::new_multi_thread();
        builder.max_spares(4).confine_to_quota(true);

        // On one worker, by the application.
        let runtime = builder.build().unwrap();
        let worker = on_a_worker(&runtime, || affinity_of(0));
        let others: Vec<_> = all
            .iter()
            .copied()
            .filter(|cpu| !worker.contains(cpu))
            .collect();
        let own = others.clone();
        let blocking = of_blocking_threads(&runtime, 16, move || set_affinity_of(0, &own));
        assert!(blocking.contains(&others), "{blocking:?}");
        drop(runtime);

        // On every thread, by an operator.
        let runtime = builder.build().unwrap();
        std::thread::sleep(20 * MS);
        for thread in fs::read_dir("/proc/self/task").unwrap() {
            let thread = thread.unwrap().file_name();
            set_affinity_of(thread.to_str().unwrap().parse().unwrap(), &all);
        }
        let blocking = of_blocking_threads(&runtime, 16, || ());
        assert_eq!(blocking, HashSet::from([all]));
    });
}

/// A second thread that computes beside the worker uses up the quota in half of its period.
#[test]
fn tasks_that_yield_and_use_all_of_the_quota_get_no_spare() {
    let name = "tasks_that_yield_and_use_all_of_the_quota_get_no_spare";
    under_quota(name, 1.0, || {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder
            .max_spares(4)
            .watch_every_task(false)
            .build()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(3);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                runtime.handle().spawn(async move {
                    while Instant::now() < until {
                        burn(Duration::from_micros(20));
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(in_time(task)).unwrap();
        }
        let metrics = runtime.metrics();
        // The controller has sampled, a quarter as often as without a quota, and released no spare.
        assert!(metrics.debug.canaries > 10, "{metrics:?}");
        assert!(metrics.debug.samples < 1_500, "{metrics:?}");
        let released = metrics.takeovers + metrics.debug.takeovers_reserve;
        assert_eq!(released, 0, "{metrics:?}");
    });
}

/// Beside a stalled poll a spare is released, because no other worker serves the other tasks.
#[test]
fn a_stalled_poll_is_worked_around_under_a_quota() {
    let name = "a_stalled_poll_is_worked_around_under_a_quota";
    under_quota(name, 1.0, || {
        let runtime = Builder::new_multi_thread().max_spares(4).build().unwrap();
        let hog = runtime.handle().spawn(async { burn(400 * MS) });
        std::thread::sleep(20 * MS);
        let before = Instant::now();
        runtime
            .block_on(in_time(runtime.handle().spawn(async {})))
            .unwrap();
        let waited = before.elapsed();
        assert!(!hog.is_finished() && waited < 300 * MS, "{waited:?}");
        // The controller counts the release after it has woken the spare.
        let is_counted = || {
            let metrics = runtime.metrics();
            metrics.takeovers + metrics.debug.takeovers_reserve > 0
        };
        assert!(wait_for(PATIENCE, is_counted), "{:?}", runtime.metrics());
        runtime.block_on(in_time(hog)).unwrap();
    });
}

/// Nothing tells then whether the worker's thread sleeps, and without a sign of a stall no spare is released under a quota.
#[test]
fn a_blocked_poll_is_worked_around_under_a_quota_without_descriptors() {
    let name = "a_blocked_poll_is_worked_around_under_a_quota_without_descriptors";
    under_quota(name, 1.0, || {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.max_spares(4).watch_every_task(false);
        let runtime = builder.link(Link::Watchdog).build().unwrap();
        common::limit_descriptors(64);
        let all: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let blocked = runtime.handle().spawn(async move { woken.recv().is_ok() });
        std::thread::sleep(20 * MS);
        let (tell, told) = std::sync::mpsc::channel();
        runtime.handle().spawn(async move { tell.send(()) });
        let is_served = told.recv_timeout(PATIENCE).is_ok();
        wake.send(()).unwrap();
        // With them the group can be left.
        drop(all);
        assert!(is_served, "{:?}", runtime.metrics());
        assert!(runtime.block_on(in_time(blocked)).unwrap());
    });
}
