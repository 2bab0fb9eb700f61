// SPDX-License-Identifier: GPL-2.0-only
//! Groups of tasks under the scheduler: what they get by their weights, and what they may use at most. For guests, as
//! `scheduler.rs` is.
//!
//! Threads that are compared share one CPU: with several, an emulator takes one away for longer than a slice.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::group::{Group, ROOT};
use common::guest::{can_run, cpus, state};
use common::load::{Busy, pin, pin_to};
use common::{PATIENCE, say, turn};

/// How long shares are measured.
const WINDOW: Duration = Duration::from_secs(4);
/// Until what was counted before has been forgotten.
const SETTLE: Duration = Duration::from_millis(500);

fn cpu_ns(threads: &[Busy]) -> u64 {
    threads.iter().map(Busy::cpu_ns).sum()
}

/// The share of each of these sets of threads in the CPU time of all of them.
fn shares(sets: &[&[Busy]]) -> Vec<f64> {
    std::thread::sleep(SETTLE);
    let before: Vec<u64> = sets.iter().map(|set| cpu_ns(set)).collect();
    std::thread::sleep(WINDOW);
    let used: Vec<u64> = sets
        .iter()
        .zip(before)
        .map(|(set, before)| cpu_ns(set) - before)
        .collect();
    let all = used.iter().sum::<u64>().max(1) as f64;
    used.iter().map(|used| *used as f64 / all).collect()
}

/// The part of one CPU that these threads get.
fn of_a_cpu(threads: &[Busy], window: Duration) -> f64 {
    let (before, begun) = (cpu_ns(threads), Instant::now());
    std::thread::sleep(window);
    (cpu_ns(threads) - before) as f64 / begun.elapsed().as_nanos() as f64
}

/// Waits until these threads get what their limit leaves them. They never get more; less, where a busy host lets a guest's
/// timers come late: what is not used of a period is lost.
fn assert_limited(what: &str, threads: &[Busy], due: f64, within: f64) {
    for attempt in 1.. {
        let got = of_a_cpu(threads, Duration::from_secs(2));
        say(&format!("{what}: {got:.3} of {due:.3}"));
        assert!(got <= due + within, "{what}: {got}, more than {due}");
        if got >= due - within {
            return;
        }
        assert!(attempt < 5, "{what}: {got}, less than {due}");
    }
}

fn assert_near(what: &str, is: f64, due: f64, within: f64) {
    say(&format!("{what}: {is:.3} of {due:.3}"));
    assert!((is - due).abs() <= within, "{what}: {is}, not {due}");
}

/// Whether the kernel tells a scheduler of limits; where not, it says so.
fn kernel_tells_of_limits() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let tells = version >= (6, 17);
    if !tells {
        say(&format!(
            "\nNOT TESTED HERE: Linux {} does not tell a scheduler of cpu.max\n",
            release.trim()
        ));
    }
    tells
}

#[test]
fn groups_share_by_their_weights() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for (off, due) in [(None, 0.25), (Some("cgroup-weight"), 0.75)] {
        let daemon = match off {
            None => Daemon::schedule(&[]),
            Some(off) => Daemon::schedule(&["--without", off]),
        };
        let light = Group::new("light").with_weight(100);
        let heavy = Group::new("heavy").with_weight(300);
        // By threads it would be the other way round.
        let (many, few) = (light.busy_many(6), heavy.busy_many(2));
        let share = shares(&[&many, &few])[0];
        assert_near(
            &format!("a third of the weight, thrice the threads, without {off:?}"),
            share,
            due,
            0.15 * due,
        );
        assert_eq!(daemon.counter("group_weights") > 0, off.is_none());
        drop((many, few));
        assert_eq!(state(), "enabled");
        assert!(daemon.stop().success());
    }
}

#[test]
fn groups_within_groups_share_what_is_theirs() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // There before the scheduler is.
    let outer = Group::new("outer").with_weight(100);
    let light = outer.within("light").with_weight(100);
    let heavy = outer.within("heavy").with_weight(300);
    let beside = Group::new("beside").with_weight(100);
    let daemon = Daemon::schedule(&[]);
    let sets = [light.busy_many(2), heavy.busy_many(1), beside.busy_many(1)];
    let got = shares(&[&sets[0], &sets[1], &sets[2]]);
    for (share, (what, due)) in
        got.iter()
            .zip([("light", 0.125), ("heavy", 0.375), ("beside", 0.5)])
    {
        assert_near(what, *share, due, 0.15 * due);
    }
    // A group that is alone in another one gets the whole share of that one.
    let [light_threads, heavy_threads, beside_threads] = sets;
    drop(heavy_threads);
    let got = shares(&[&light_threads, &beside_threads]);
    assert_near("light alone in outer", got[0], 0.5, 0.075);
    assert!(daemon.stop().success());
}

#[test]
fn weights_and_members_may_change() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let (one, other) = (Group::new("one"), Group::new("other"));
    let (first, second) = (one.busy_many(1), other.busy_many(1));
    assert_near("equals", shares(&[&first, &second])[0], 0.5, 0.075);
    one.set("cpu.weight", "400");
    assert_near("four times", shares(&[&first, &second])[0], 0.8, 0.12);
    // Both in one group: what it weighs makes no difference between them.
    one.take(&second[0]);
    assert_near("moved", shares(&[&first, &second])[0], 0.5, 0.075);
    other.take(&first[0]);
    assert_near("exchanged", shares(&[&first, &second])[0], 0.2, 0.03);
    assert!(daemon.stop().success());
}

#[test]
fn a_group_uses_no_more_than_it_may() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let tells = kernel_tells_of_limits();
    for off in [false, true] {
        let daemon = match off {
            false => Daemon::schedule(&[]),
            true => Daemon::schedule(&["--without", "cgroup-max"]),
        };
        let group = Group::new("limited");
        let threads = group.busy_many(1);
        let limit = group.limit("20000 100000");
        std::thread::sleep(SETTLE);
        if tells && !off {
            assert_limited("20 ms in 100 ms", &threads, 0.2, 0.04);
            let counters = daemon.numbers()["counters"].take();
            for name in ["to_limited", "from_limited", "kicks_at_limit"] {
                assert!(counters[name].as_u64().unwrap() > 0, "{name}: {counters}");
            }
            // Nothing keeps it from the CPU when the limit is lifted; another one counts at once.
            group.set("cpu.max", "max 100000");
            assert!(of_a_cpu(&threads, Duration::from_secs(1)) > 0.6);
            group.set("cpu.max", "50000 100000");
            std::thread::sleep(SETTLE);
            assert_limited("50 ms in 100 ms", &threads, 0.5, 0.1);
        } else {
            let got = of_a_cpu(&threads, Duration::from_secs(2));
            say(&format!("without a limit: {got:.3}"));
            assert!(got > 0.6, "{got}");
            assert_eq!(daemon.counter("to_limited"), 0);
        }
        drop((limit, threads));
        assert_eq!(state(), "enabled");
        assert!(daemon.stop().success());
    }
}

#[test]
fn the_tightest_limit_counts() {
    if !can_run() || !kernel_tells_of_limits() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let outer = Group::new("outer");
    let (inner, free) = (outer.within("inner"), outer.within("free"));
    let (limited, others) = (inner.busy_many(2), free.busy_many(1));
    let limits = (outer.limit("20000 100000"), inner.limit("5000 50000"));
    std::thread::sleep(SETTLE);
    let begun = (cpu_ns(&limited), cpu_ns(&others), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let all = begun.2.elapsed().as_nanos() as f64;
    let limited_part = (cpu_ns(&limited) - begun.0) as f64 / all;
    let part = limited_part + (cpu_ns(&others) - begun.1) as f64 / all;
    assert!(limited_part <= 0.13, "{limited_part} of 0.1");
    say(&format!("outer: {part:.3} of 0.2"));
    // Less where timers come late.
    assert!(part <= 0.24 && part > 0.1, "{part} of 0.2");
    // A move takes effect wherever the thread waits.
    let root = Path::new(ROOT).join("cgroup.threads");
    fs::write(root, limited[0].tid.to_string()).unwrap();
    assert!(of_a_cpu(&limited[..1], Duration::from_secs(2)) > 0.5);
    drop((limits, limited, others));
    assert!(daemon.stop().success());
}

/// The kernel ends a scheduler whose tasks wait for 5 s.
#[test]
fn the_smallest_quota_stalls_nobody() {
    if !can_run() || !kernel_tells_of_limits() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let group = Group::new("tiny");
    let mut threads = group.busy_many(4);
    // More than the quota lasts for.
    let mut crowd = group.many(200);
    crowd.begin();
    // Those that may run anywhere, too.
    let path = group.path.join("cgroup.threads");
    threads.extend((0..2 * cpus()).map(|_| {
        let path = path.clone();
        Busy::new(move || fs::write(path, "0").unwrap())
    }));
    // They have begun: with this they would need a while for that.
    let limit = group.limit("1000 1000000");
    std::thread::sleep(Duration::from_secs(2));
    // Not their time: Linux 7.2 charges who runs first after a CPU was idle nothing, and the next one for both.
    let before: Vec<u64> = threads.iter().map(Busy::runs).collect();
    let (used_ns, begun) = (group.cpu_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(9));
    let got = (group.cpu_ns() - used_ns) as f64 / begun.elapsed().as_nanos() as f64;
    assert_eq!(state(), "enabled");
    say(&format!("1 ms in a second: {:.2} ms", got * 1000.0));
    for (thread, before) in threads.iter().zip(before) {
        assert!(thread.runs() > before, "one got nothing");
    }
    // Each of them is switched in and stopped, which takes an emulated machine 0.08 ms.
    assert!(got < 0.02, "{got}");
    // They have to run to end.
    let begun = Instant::now();
    drop((limit, crowd, threads));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(daemon.counter("breaths") > 0);
    assert!(daemon.stop().success());
}

/// The parts of a CPU that a group and threads outside of it get, by seconds.
fn of_a_cpu_by_seconds(group: &Group, outside: &[Busy], seconds: u32) -> (f64, f64) {
    let (begun, first) = (Instant::now(), (group.cpu_ns(), cpu_ns(outside)));
    let mut before = first;
    for second in 1..=seconds {
        std::thread::sleep(Duration::from_secs(1));
        let after = (group.cpu_ns(), cpu_ns(outside));
        say(&format!(
            "second {second}: {} ms, others {} ms, {}",
            (after.0 - before.0) / 1_000_000,
            (after.1 - before.1) / 1_000_000,
            state()
        ));
        // The kernel ends a scheduler whose tasks wait for 5 s.
        assert_eq!(state(), "enabled");
        before = after;
    }
    let passed_ns = begun.elapsed().as_nanos() as f64;
    let part = |after, before| (after - before) as f64 / passed_ns;
    (part(before.0, first.0), part(before.1, first.1))
}

/// Nor does a crowd, each thread of which has to run for a moment in 5 s; and it does not harm those outside.
#[test]
fn a_crowd_uses_no_more_than_its_group_may() {
    const THREADS: usize = 5_000;
    if !can_run() || !kernel_tells_of_limits() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let group = Group::new("crowd");
    let mut crowd = group.many(THREADS);
    let limit = group.limit("10000 100000");
    let outside = Busy::many(cpus(), 0);
    std::thread::sleep(SETTLE);
    crowd.begin();
    // All wait since the same moment: the first round has to be shorter than later ones.
    let first = of_a_cpu_by_seconds(&group, &outside, 8);
    let later = of_a_cpu_by_seconds(&group, &outside, 10);
    say(&format!(
        "{THREADS} threads: {:.3} of 0.1 at first, then {:.3}; others {:.2} and {:.2} of {}",
        first.0,
        later.0,
        first.1,
        later.1,
        cpus()
    ));
    // An emulated machine takes 0.08 ms to switch to a thread and stop it.
    assert!(later.0 <= 0.12, "{} of 0.1", later.0);
    assert!(first.0 <= 0.18, "{} of 0.1", first.0);
    for others in [first.1, later.1] {
        assert!(others >= 0.85 * cpus() as f64, "others {others}");
    }
    // They have to run to end.
    let begun = Instant::now();
    drop((limit, crowd));
    // Only now: to start a program, this process needs locks that its threads in the crowd may hold.
    let counters = daemon.numbers()["counters"].take();
    say(&format!(
        "ended after {:.1?}; breaths {}, from_limited {}",
        begun.elapsed(),
        counters["breaths"],
        counters["from_limited"]
    ));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// Directories that are cgroups, and go when this is dropped.
struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    fn new(parent: &Path, count: usize) -> Cgroups {
        fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
        let paths = (0..count).map(|index| {
            let path = parent.join(format!("one-of-many-{index}"));
            fs::create_dir(&path).unwrap();
            path
        });
        Cgroups(paths.collect())
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir(path);
        }
    }
}

/// There are more groups than the scheduler tells apart: those with a limit have to be told apart all the same.
#[test]
fn limits_hold_however_many_groups_there_are() {
    if !can_run() || !kernel_tells_of_limits() {
        return;
    }
    let _turn = turn();
    // `MOST_GROUPS` in groups.bpf.h, and a few.
    let many = Cgroups::new(Path::new(ROOT), 4200);
    let daemon = Daemon::schedule(&[]);
    assert!(daemon.counter("groups_merged") > 0);
    let late = Group::new("late");
    let inner = late.within("inner");
    let threads = [late.busy(), inner.busy()];
    let got = of_a_cpu(&threads, Duration::from_secs(1));
    assert!(got > 0.6, "without a limit: {got}");
    let limit = late.limit("20000 100000");
    std::thread::sleep(SETTLE);
    assert_limited("a late group and one in it", &threads, 0.2, 0.04);
    late.set("cpu.max", "max 100000");
    let got = of_a_cpu(&threads, Duration::from_secs(1));
    assert!(got > 0.6, "the limit is lifted: {got}");
    drop((limit, threads));
    assert_eq!(daemon.counter("limits_lost"), 0);
    // The inner one is told apart from here on, and not as a part of this one: it is too late.
    let outer = Group::new("outer");
    let within = outer.within("within");
    within.set("cpu.max", "50000 100000");
    assert_eq!(daemon.counter("limits_lost"), 0);
    outer.set("cpu.max", "20000 100000");
    assert_eq!(daemon.counter("limits_lost"), 1);
    let said = daemon.errors.recv_timeout(PATIENCE).unwrap_or_default();
    assert!(
        said.contains("1 new limits (cpu.max) do not hold"),
        "{said}"
    );
    drop((within, outer, inner, late, many));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// A part of the tree may be a user's own. However many groups there are in it, others get their own.
#[test]
fn a_part_of_the_tree_does_not_take_all_groups() {
    if !can_run() || !kernel_tells_of_limits() {
        return;
    }
    let _turn = turn();
    let full = Cgroups::new(Path::new(ROOT), 1);
    // `share_of` in groups.bpf.c, and a few.
    let mut within = Cgroups::new(&full.0[0], 1800);
    let daemon = Daemon::schedule(&[]);
    let merged = daemon.counter("groups_merged");
    assert!((8..100).contains(&merged), "{merged}");
    let beside = Group::new("beside");
    assert_eq!(daemon.counter("groups_merged"), merged);
    // The last one is merged until another one goes. The kernel tells of that a moment later.
    let (last, first) = (within.0.pop().unwrap(), within.0.remove(0));
    let is_merged = || {
        let before = daemon.counter("groups_merged");
        fs::remove_dir(&last).unwrap();
        fs::create_dir(&last).unwrap();
        daemon.counter("groups_merged") > before
    };
    assert!(is_merged());
    fs::remove_dir(&first).unwrap();
    let end = Instant::now() + PATIENCE;
    while is_merged() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_dir(&last).unwrap();
    drop((within, beside));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    drop(full);
}

#[test]
fn groups_come_and_go_while_their_threads_compute() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let root = Path::new(ROOT).join("cgroup.threads");
    let mut threads: Vec<Busy> = (0..4).map(|_| Busy::new(|| pin(0))).collect();
    threads.extend(Busy::many(cpus(), 0));
    for round in 0..20u32 {
        let outer = Group::new("passing").with_weight(1 + round * 500);
        let inner = outer.within("inner").with_weight(10_000 - round * 500);
        inner.set("cpu.max", "2000 20000");
        for thread in &threads {
            inner.take(thread);
        }
        std::thread::sleep(Duration::from_millis(60));
        for thread in &threads {
            fs::write(&root, thread.tid.to_string()).unwrap();
        }
        // They still compute or wait; their groups go now.
    }
    assert_eq!(state(), "enabled");
    // Nothing of it is left: all are alike.
    let (one, other) = threads[..4].split_at(2);
    assert_near("afterwards", shares(&[one, other])[0], 0.5, 0.075);
    // The scheduler may go first, too.
    let group = Group::new("left");
    let _limit = group.limit("1000 100000");
    for thread in &threads {
        group.take(thread);
    }
    std::thread::sleep(SETTLE);
    assert!(daemon.stop().success());
    assert_eq!(state(), "disabled");
    for thread in &threads {
        fs::write(&root, thread.tid.to_string()).unwrap();
    }
}

/// The kernel waits for the tasks of a CPU that goes offline, also for those that wait for quota.
#[test]
fn a_cpu_goes_offline_while_its_tasks_wait_for_quota() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let group = Group::new("morpheus-offline");
    let busy = |on: &'static [usize]| {
        let path = group.path.clone();
        Busy::new(move || {
            Group::join(&path);
            pin_to(on);
        })
    };
    let mut threads = vec![busy(&[1])];
    threads.extend((0..3).map(|_| busy(&[0, 1])));
    std::thread::sleep(SETTLE);
    let limit = group.limit("1000 1000000");
    std::thread::sleep(Duration::from_millis(1200));
    let online = "/sys/devices/system/cpu/cpu1/online";
    let begun = Instant::now();
    fs::write(online, "0").unwrap();
    let took = begun.elapsed();
    fs::write(online, "1").unwrap();
    say(&format!("a CPU was offline after {took:?}"));
    drop(limit);
    drop(threads);
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}
