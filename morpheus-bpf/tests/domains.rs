// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler on a machine with several last-level caches: each is a domain, with queues and a clock of its own.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, Talking, Timed, keep_on, pin, pin_to, set_nice, shares};
use common::{now_ns, say, sleep, turn};
use morpheus_bpf::topology::{Level, SYSFS, Topology};
use rustix::process::Signal;
use rustix::thread::{CpuSet, Pid, sched_getcpu, sched_setaffinity};

/// Long enough that many CPUs become idle, however slow they are.
const WHILE: Duration = Duration::from_secs(4);

/// The online CPUs of one unit of this level.
fn cpus_of(level: Level, unit: u32) -> CpuSet {
    let topology = Topology::read(Path::new(SYSFS));
    assert!(
        topology.count(level) > 1,
        "this test needs a guest with two caches and two nodes (--numa 2, --caches 2): {topology}"
    );
    let mut set = CpuSet::new();
    let own = topology.online().filter(|cpu| cpu.domain(level) == unit);
    own.for_each(|cpu| set.set(cpu.id as usize));
    set
}

/// CPUs of a last-level cache.
fn cache(domain: u32) -> CpuSet {
    cpus_of(Level::L3, domain)
}

/// More threads than CPUs compute, and go to the first domain again and again, from where they may go anywhere. On each CPU
/// of the second is one that sleeps often: when it does, its CPU has nothing to do but what waits in the first domain.
fn lopsided() -> Vec<Busy> {
    let (first, second) = (cache(0), cache(1));
    let mut all = CpuSet::new();
    (0..cpus()).for_each(|cpu| all.set(cpu));
    let computing = (0..3 * cpus()).map(|_| {
        let mut turns = 0u32;
        let again = move || {
            turns += 1;
            // Some milliseconds later it is back, or both domains would soon have as many.
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
fn an_idle_cpu_takes_work_from_another_domain() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let threads = lopsided();
    daemon.all_move(&["from_other_domains"]);
    say(&format!(
        "taken from other domains: {}",
        daemon.counter("from_other_domains")
    ));
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

#[test]
fn switched_off_each_domain_keeps_its_own() {
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

/// The least CPU time of a thread beside the most, where each CPU of the first domain has one thread and those of the second have four
/// each, and all may go anywhere.
fn evenness(arguments: &[&str]) -> f64 {
    let daemon = Daemon::schedule(arguments);
    let (first, second) = (cache(0), cache(1));
    let mut all = CpuSet::new();
    (0..cpus()).for_each(|cpu| all.set(cpu));
    let begin = |set: CpuSet, count: u32| -> Vec<Busy> {
        let prepare = move || sched_setaffinity(None, &set).unwrap();
        (0..count).map(|_| Busy::new(prepare)).collect()
    };
    let mut threads = begin(first, first.count());
    threads.extend(begin(second, 4 * second.count()));
    std::thread::sleep(Duration::from_secs(1));
    for thread in &threads {
        sched_setaffinity(Pid::from_raw(thread.tid as i32), &all).unwrap();
    }
    std::thread::sleep(WHILE);
    let shares = shares(&threads.iter().collect::<Vec<_>>(), WHILE);
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    shares.iter().copied().fold(1.0, f64::min) / shares.iter().copied().fold(0.0, f64::max)
}

/// A CPU that always has a task of its own does not look at other domains: a domain with less to do takes tasks all the same.
#[test]
fn domains_that_are_never_idle_share_their_tasks() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (with, without) = (evenness(&[]), evenness(&["--without", "steal"]));
    say(&format!(
        "the least CPU time of a thread is {with:.3} of the most; {without:.3} where each domain keeps its own"
    ));
    assert!(with >= 0.6, "{with:.3}");
    assert!(without <= 0.4, "{without:.3}");
}

/// Which part of a CPU each thread that computes has in the other domains, one for each CPU, while four times as many pairs as CPUs
/// talk that began in the first one. All may go anywhere. With this niceness those of the pairs are always eligible, and in the front
/// queue.
fn part_beside_pairs(arguments: &[&str]) -> f64 {
    let daemon = Daemon::schedule(arguments);
    let first = cache(0);
    let all: Vec<usize> = (0..cpus()).collect();
    let others = all.iter().copied().filter(|cpu| !first.is_set(*cpu));
    let computing: Vec<Busy> = others.map(|cpu| Busy::new(move || pin(cpu))).collect();
    let pairs: Vec<Talking> = (0..4 * first.count())
        .map(|_| {
            Talking::new(move || {
                set_nice(-20);
                sched_setaffinity(None, &first).unwrap();
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let talking = pairs.iter().flat_map(|pair| pair.tids);
    let tids = computing.iter().map(|thread| thread.tid).chain(talking);
    tids.for_each(|tid| keep_on(Pid::from_raw(tid as i32), &all));
    std::thread::sleep(WHILE);
    let used_ns = || computing.iter().map(Busy::cpu_ns).sum::<u64>();
    let (begun_ns, before_ns) = (now_ns(), used_ns());
    std::thread::sleep(WHILE);
    let part = (used_ns() - before_ns) as f64 / (now_ns() - begun_ns) as f64;
    let count = computing.len();
    drop((pairs, computing));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    part / count as f64
}

/// The same where those that wait are known to sleep, and are in the front queue.
#[test]
fn domains_that_are_never_idle_share_tasks_that_sleep() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (with, without) = (
        part_beside_pairs(&[]),
        part_beside_pairs(&["--without", "steal"]),
    );
    say(&format!(
        "{with:.3} of a CPU for a thread that computes beside a domain with four pairs that talk for each CPU; {without:.3} where \
         each domain keeps its own"
    ));
    assert!(with <= 0.8, "{with:.3}");
    assert!(without >= 0.95, "{without:.3}");
}

/// The longest time that one of these threads has had no CPU since this was last called.
fn longest(threads: &[Timed]) -> Duration {
    threads.iter().map(Timed::longest).max().unwrap()
}

/// CPUs that are offline, and come back when this is dropped.
struct Offline(Vec<usize>);

impl Offline {
    fn take(&mut self, cpu: usize) {
        Offline::write(cpu, "0");
        self.0.push(cpu);
    }

    fn write(cpu: usize, value: &str) {
        std::fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), value).unwrap();
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|cpu| Offline::write(cpu, "1"));
    }
}

/// How long a thread has no CPU that comes from a domain where each CPU has one thread that computes to one where each has
/// four: the median of some, each of which lived where the clock runs four times as fast.
fn wait_of_newcomers(arguments: &[&str]) -> Duration {
    let daemon = Daemon::schedule(arguments);
    let (fast, slow) = (cache(0), cache(1));
    let threads_on = |set: CpuSet, count: usize| -> Vec<Timed> {
        let pinned = move || sched_setaffinity(None, &set).unwrap();
        (0..count).map(|_| Timed::new(pinned)).collect()
    };
    let count = |set: &CpuSet| (0..cpus()).filter(|cpu| set.is_set(*cpu)).count();
    let crowd = threads_on(slow, 4 * count(&slow));
    let newcomers = threads_on(fast, count(&fast));
    std::thread::sleep(WHILE);
    let mut waits: Vec<Duration> = newcomers
        .iter()
        .map(|thread| {
            thread.longest();
            let tid = Pid::from_raw(thread.thread.tid as i32);
            sched_setaffinity(tid, &slow).unwrap();
            std::thread::sleep(Duration::from_secs(1));
            // A wait that is not over yet is told when it is.
            let mut wait = thread.longest();
            while wait.is_zero() {
                std::thread::sleep(Duration::from_millis(10));
                wait = thread.longest();
            }
            sched_setaffinity(tid, &fast).unwrap();
            wait
        })
        .collect();
    drop((crowd, newcomers));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    waits.sort_unstable();
    waits[waits.len() / 2]
}

/// Where it comes to, the others have had less CPU time since the start. That is no reason for it to wait.
#[test]
fn a_task_keeps_its_place_when_it_comes_to_another_domain() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let with = wait_of_newcomers(&[]);
    let without = wait_of_newcomers(&["--without", "domain-clock"]);
    say(&format!(
        "a newcomer waits {with:?}, by the clock of the domain that it left {without:?}"
    ));
    assert!(2 * with < without, "{with:?} {without:?}");
}

/// The kernel throws out a scheduler that lets a thread wait for 5 s; this is a fifth of it.
const MOST_WAIT: Duration = Duration::from_secs(1);

/// Beside a CPU that idles, the kernel's search gives a task that is woken by one which is about to sleep the CPU of that one. Where
/// both do so again and again, that CPU picks no task from the queues, and the kernel ejects a scheduler whose tasks wait there.
///
/// Some kernels (6.18) search so only where idle CPUs are known by node, and look at those of the waker's node.
#[test]
fn tasks_that_hand_their_cpu_over_leave_picks_to_others() {
    if !can_run() {
        return;
    }
    let own = cache(0);
    let of_own: Vec<usize> = (0..cpus()).filter(|cpu| own.is_set(*cpu)).collect();
    let &[first, second, _, ..] = &of_own[..] else {
        return;
    };
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let prepare = move || pin_to(&[first, second]);
    let pair = Talking::new(prepare);
    let beside = Timed::new(prepare);
    // They are not pinned, and share one CPU all the same. In virtual time CPUs run in turn, as long as a slice: where another one is
    // busy, with the daemon's look at the machine also, this one is interrupted, and picks.
    let mut offline = Offline(Vec::new());
    offline.take(second);
    std::thread::sleep(Duration::from_millis(500));
    daemon.send(Signal::STOP).unwrap();
    beside.longest();
    std::thread::sleep(2 * WHILE);
    daemon.send(Signal::CONT).unwrap();
    // A wait that is not over yet is told when it is.
    drop(pair);
    std::thread::sleep(Duration::from_millis(100));
    let longest = beside.longest();
    say(&format!(
        "a thread that computes beside a pair that talks waits for {longest:?} at most"
    ));
    assert_eq!(state(), "enabled");
    assert!(longest < MOST_WAIT, "{longest:?}");
    drop((beside, offline));
    assert!(daemon.stop().success());
}

/// How many domains there are at least where one that looks at another in 100 ms comes to some of them too late.
const MANY_DOMAINS: u32 = 28;

/// A task whose domain does not come to it goes to the other domain that may run it, however many there are.
#[test]
fn an_urgent_task_is_found_among_many_domains() {
    const TASKS: usize = 3;
    let domains = Topology::read(Path::new(SYSFS)).count(Level::L3);
    if !can_run() || domains < MANY_DOMAINS {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let one_of = |domain: u32| {
        let set = cache(domain);
        (0..cpus()).find(|cpu| set.is_set(*cpu)).unwrap()
    };
    let places = (0..TASKS as u32).map(|task| (one_of(task), one_of(domains - 1 - task)));
    let places: Vec<(usize, usize)> = places.collect();
    let busy: Vec<Busy> = places
        .iter()
        .map(|&(_, to)| Busy::new(move || pin(to)))
        .collect();
    let tasks: Vec<Timed> = places
        .iter()
        .map(|&(from, _)| Timed::new(move || pin(from)))
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let above: Vec<Busy> = places
        .iter()
        .map(|&(from, _)| Busy::above(from, || ()))
        .collect();
    for (task, &(from, to)) in tasks.iter().zip(&places) {
        task.longest();
        keep_on(Pid::from_raw(task.thread.tid as i32), &[from, to]);
    }
    std::thread::sleep(WHILE);
    drop(above);
    std::thread::sleep(Duration::from_millis(500));
    let waits: Vec<Duration> = tasks.iter().map(Timed::longest).collect();
    say(&format!(
        "tasks behind real-time threads, which {domains} domains do not come to: {waits:.2?}"
    ));
    drop((tasks, busy));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    // Urgent after 2.5 s, and each second scan looks at one of them.
    let most = Duration::from_millis(2500 + 200 + 200 * TASKS as u64 + 200);
    assert!(waits.iter().all(|wait| *wait < most), "{waits:?}");
}

/// The kernel ejects a scheduler that asks for the masks which it has not: by node, or of the whole machine.
#[test]
fn idle_cpus_are_found_by_node_and_without() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for arguments in [&[][..], &["--without", "idle-by-node"]] {
        let daemon = Daemon::schedule(arguments);
        let threads = Busy::displaced(Duration::from_millis(3));
        daemon.all_move(&["kicks_idle"]);
        drop(threads);
        assert_eq!(state(), "enabled", "{arguments:?}");
        assert!(daemon.stop().success());
    }
}

/// A node without a CPU that is online when the scheduler starts is not among those that it knows.
#[test]
fn idle_cpus_are_found_in_a_node_that_comes_later() {
    let nodes = Topology::read(Path::new(SYSFS)).count(Level::Node);
    // With two, the masks are those of the whole machine as long as one of them is missing.
    if !can_run() || nodes < 3 {
        return;
    }
    let _turn = turn();
    let last = cpus_of(Level::Node, nodes - 1);
    let mut offline = Offline(Vec::new());
    (0..cpus())
        .filter(|cpu| last.is_set(*cpu))
        .for_each(|cpu| offline.take(cpu));
    let daemon = Daemon::schedule(&[]);
    drop(offline);
    let others = (0..cpus()).filter(|cpu| !last.is_set(*cpu));
    let busy: Vec<Busy> = others.map(|cpu| Busy::new(move || pin(cpu))).collect();
    let runs: Arc<[AtomicU32; 2]> = Arc::default();
    let own = runs.clone();
    let wakes = Busy::repeating(
        || (),
        move || {
            sleep(Duration::from_millis(1));
            // Relaxed, here and below: counts alone.
            own[usize::from(last.is_set(sched_getcpu()))].fetch_add(1, Ordering::Relaxed);
        },
    );
    std::thread::sleep(WHILE);
    let [elsewhere, there] = [0, 1].map(|index: usize| runs[index].load(Ordering::Relaxed));
    drop((busy, wakes));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    say(&format!(
        "woken {there} times on an idle CPU of the node that came later, {elsewhere} times elsewhere"
    ));
    assert!(there > 100 && elsewhere < there / 10, "{there} {elsewhere}");
}

/// The longest wait with all nodes, without the second, and with all again. `check` is called between.
fn waits_while_a_node_goes_and_comes(check: impl Fn()) -> [Duration; 3] {
    let second = cpus_of(Level::Node, 1);
    // Some may run on the second node only: the kernel has to find them other CPUs.
    let threads: Vec<Timed> = (0..4 * cpus())
        .map(|index| {
            Timed::new(move || {
                if index % 4 == 0 {
                    sched_setaffinity(None, &second).unwrap();
                }
            })
        })
        .collect();
    std::thread::sleep(WHILE);
    let with_all = longest(&threads);
    let mut offline = Offline(Vec::new());
    let of_second: Vec<usize> = (0..cpus()).filter(|cpu| second.is_set(*cpu)).collect();
    for cpu in of_second {
        offline.take(cpu);
        std::thread::sleep(Duration::from_secs(1));
    }
    // Longer than the kernel's timeout.
    std::thread::sleep(Duration::from_secs(6));
    let without = longest(&threads);
    check();
    drop(offline);
    std::thread::sleep(WHILE);
    let again = longest(&threads);
    drop(threads);
    check();
    [with_all, without, again]
}

#[test]
fn no_thread_waits_for_a_node_whose_cpus_are_offline() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // With many CPUs that the emulator runs in turn, some waits are the machine's.
    let default = waits_while_a_node_goes_and_comes(|| ());
    let daemon = Daemon::schedule(&[]);
    let waits = waits_while_a_node_goes_and_comes(|| assert_eq!(state(), "enabled"));
    assert!(daemon.stop().success());
    say(&format!(
        "longest waits with all nodes, without the second, and with all again {waits:?}, {default:?} under the kernel's own scheduler"
    ));
    for wait in waits {
        assert!(wait <= MOST_WAIT, "{wait:?}");
    }
}

/// From how many CPUs on a machine is a large one. In an emulator they take turns, and each is slow.
const LARGE: usize = 64;

#[test]
fn no_thread_waits_in_two_minutes_of_a_large_machine() {
    if !can_run() || cpus() < LARGE {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let threads: Vec<Timed> = (0..3 * cpus())
        .map(|index| match index % 3 {
            0 => Timed::new(|| ()),
            1 => Timed::new(|| set_nice(10)),
            _ => Timed::sleeping(Duration::from_millis(100)),
        })
        .collect();
    let waits = [(); 12].map(|()| {
        std::thread::sleep(Duration::from_secs(10));
        assert_eq!(state(), "enabled");
        longest(&threads)
    });
    drop(threads);
    assert!(daemon.stop().success());
    say(&format!(
        "longest waits of each ten seconds of two minutes: {waits:?}"
    ));
    for wait in waits {
        assert!(wait <= MOST_WAIT, "{wait:?}");
    }
}
