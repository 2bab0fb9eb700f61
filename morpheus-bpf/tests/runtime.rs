// SPDX-License-Identifier: GPL-2.0-only
//! Applications on `morpheus-runtime`, with a daemon that comes and goes. Needs root and a kernel with BTF.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::daemon::{Daemon, Kind};
use common::load::{pin, take_precedence};
use common::{PATIENCE, can_run, in_guest, median, now_ns, say, sleep, turn};
use morpheus_runtime::{
    ActiveLink, BuildError, Builder, Health, Link, LinkError, Mechanism, Runtime,
};
use rustix::process::Signal;

/// Joins, or goes on without.
fn runtime(socket: &Path, workers: usize, reserve: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .max_spares(4)
        .reserve(reserve)
        .link_socket(socket)
        .build()
        .unwrap()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        sleep(Duration::from_millis(1));
    }
}

/// The link that a daemon gives.
fn link_of(kind: Kind) -> ActiveLink {
    match kind {
        Kind::Observer => ActiveLink::Observer,
        Kind::Scheduler => ActiveLink::Scheduler,
    }
}

/// Runs a test against each daemon that can run here.
fn with_each(test: impl Fn(Kind)) {
    let _turn = turn();
    if !can_run() {
        return;
    }
    for &kind in Kind::all() {
        say(&format!("with the {}:", link_of(kind)));
        test(kind);
    }
}

fn wait_for_link(runtime: &Runtime, link: ActiveLink) {
    wait_for(&format!("link {link}"), || runtime.link() == link);
}

/// Makes every worker pass a park, where its slot moves.
fn stir(runtime: &Runtime) {
    for _ in 0..50 {
        runtime.block_on(async {
            let _ = morpheus_runtime::spawn(async {}).await;
        });
        sleep(Duration::from_millis(1));
    }
}

/// Work that must all be done in the end: tasks that yield, sleep, compute and block, watched and not.
fn start_work(runtime: &Runtime, done: &Arc<AtomicU64>, tasks: u64) {
    for number in 0..tasks {
        let done = done.clone();
        let work = async move {
            for _ in 0..20 {
                match number % 4 {
                    0 => tokio::task::yield_now().await,
                    1 => tokio::time::sleep(Duration::from_millis(3)).await,
                    2 => sleep(Duration::from_millis(2)),
                    _ => compute(Duration::from_millis(2)),
                }
                tokio::task::yield_now().await;
            }
            done.fetch_add(1, Ordering::Relaxed);
        };
        if number % 2 == 0 {
            drop(runtime.spawn(work));
        } else {
            drop(runtime.handle().spawn(work));
        }
    }
}

fn compute(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[test]
fn a_runtime_joins_a_daemon_that_is_there() {
    with_each(|kind| {
        let daemon = kind.start();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .link(Link::Required)
            .link_socket(&daemon.socket)
            .build()
            .unwrap();
        assert_eq!(runtime.link(), link_of(kind));
        stir(&runtime);
        // A poll that computes uses up its budget, and the kernel side says so before the watchdog could.
        let (asked, checkpoints) = runtime.block_on(async {
            let task = morpheus_runtime::spawn(async {
                let begun = Instant::now();
                let mut checkpoints = 0u64;
                while !morpheus_runtime::checkpoint_sync() && begun.elapsed() < PATIENCE {
                    checkpoints += 1;
                }
                (begun.elapsed(), checkpoints)
            });
            task.await.unwrap()
        });
        // Few checkpoints: the machine stood. No look: the thread was not bound, or its CPU's timer not set.
        assert!(
            asked < PATIENCE,
            "never asked to yield in {checkpoints} checkpoints\n{:?}\n{}",
            runtime.metrics(),
            daemon.numbers()
        );
        say(&format!("asked to yield after {asked:?}"));
        // The task may be faster than the controller, which may read of a worker that blocked first.
        wait_for("the request read", || runtime.metrics().requests > 0);
        let metrics = runtime.metrics();
        assert_eq!((metrics.debug.links_joined, metrics.links_lost), (1, 0));
        assert!(
            metrics.debug.detection_latency.count > 0 && metrics.debug.link_events > 0,
            "{metrics:?}"
        );
    });
}

#[test]
fn watchdog_means_no_daemon() {
    with_each(|kind| {
        let daemon = kind.start();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .link(Link::Watchdog)
            .link_socket(&daemon.socket)
            .build()
            .unwrap();
        stir(&runtime);
        assert_eq!(runtime.link(), ActiveLink::Watchdog);
        assert_eq!(runtime.metrics().debug.link_events, 0);
    });
}

#[test]
fn required_without_a_daemon_is_an_error_that_says_what_to_do() {
    let built = Builder::new_multi_thread()
        .worker_threads(1)
        .link(Link::Required)
        .link_socket("/nowhere/broker.sock")
        .try_build();
    let error = built.expect_err("there is no daemon");
    assert!(
        matches!(error, BuildError::Link(LinkError::Absent { .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("start scx_morpheus"), "{error}");
}

#[test]
fn a_runtime_joins_a_daemon_that_starts_later_and_another_after_that() {
    with_each(|kind| {
        let first = kind.start();
        let socket = first.socket.clone();
        drop(first);
        let runtime = runtime(&socket, 2, 1);
        stir(&runtime);
        assert_eq!(runtime.link(), ActiveLink::Watchdog);
        for joined in 1..=2 {
            let daemon = Daemon::at(&socket, kind);
            let begun = Instant::now();
            wait_for_link(&runtime, link_of(kind));
            say(&format!("joined {:?} after it was there", begun.elapsed()));
            stir(&runtime);
            assert!(
                daemon.bound() > 0,
                "no worker moved, at the {joined}. daemon"
            );
            drop(daemon);
            wait_for_link(&runtime, ActiveLink::Watchdog);
        }
        let metrics = runtime.metrics();
        assert_eq!((metrics.debug.links_joined, metrics.links_lost), (2, 2));
    });
}

#[test]
fn a_daemon_that_is_killed_takes_no_task_with_it() {
    with_each(|kind| {
        let daemon = kind.start();
        let runtime = runtime(&daemon.socket, 2, 1);
        wait_for_link(&runtime, link_of(kind));
        let done = Arc::new(AtomicU64::new(0));
        start_work(&runtime, &done, 100);
        sleep(Duration::from_millis(50));
        daemon.send(Signal::KILL).unwrap();
        wait_for_link(&runtime, ActiveLink::Watchdog);
        assert_eq!(runtime.health(), Health::DaemonLost);
        start_work(&runtime, &done, 100);
        wait_for("all tasks done", || done.load(Ordering::Relaxed) == 200);
        assert_eq!(runtime.metrics().links_lost, 1);
    });
}

/// The number of mappings of a daemon's memory in this process: three or four for each link.
fn shared_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("bpf-map")).count()
}

/// It is joined again whenever it goes on, and each time the memory of the last link is given back: else a daemon that
/// hangs a few times would refuse its user's applications.
#[test]
fn a_daemon_that_hangs_is_left() {
    with_each(|kind| {
        let daemon = kind.start();
        let runtime = runtime(&daemon.socket, 2, 1);
        wait_for_link(&runtime, link_of(kind));
        let first = shared_mappings();
        let done = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        // The controller looks at the heartbeat while anything is busy.
        let busy = runtime.spawn({
            let stop = stop.clone();
            async move {
                while !stop.load(Ordering::Relaxed) {
                    compute(Duration::from_micros(100));
                    tokio::task::yield_now().await;
                }
            }
        });
        for hang in 1..=6 {
            daemon.send(Signal::STOP).unwrap();
            wait_for_link(&runtime, ActiveLink::Watchdog);
            start_work(&runtime, &done, 100);
            wait_for("all tasks done", || {
                done.load(Ordering::Relaxed) == hang * 100
            });
            daemon.send(Signal::CONT).unwrap();
            wait_for_link(&runtime, link_of(kind));
        }
        // The slot of a thread that slept all the time may have stayed in a lost link's two areas; three have one.
        let (last, most) = (shared_mappings(), first + 2 * 3);
        assert!(
            last <= most,
            "{last} mappings after six links were lost, {first} before"
        );
        stop.store(true, Ordering::Relaxed);
        runtime.block_on(busy).unwrap();
    });
}

/// One worker, no reserve: a task that was spawned before its spawner blocks waits until a spare comes.
#[test]
fn a_task_behind_a_blocked_worker_runs_within_a_moment() {
    with_each(|kind| {
        let daemon = kind.start();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(4)
            .reserve(0)
            .link_socket(&daemon.socket)
            // They would see to it as well: a poll that blocked before is polled in place, where nothing waits
            // behind it, and a late canary releases spares.
            .without(Mechanism::Handoffs)
            .without(Mechanism::Canary)
            .build()
            .unwrap();
        wait_for_link(&runtime, link_of(kind));
        stir(&runtime);
        let mut waited = Vec::new();
        for _ in 0..50 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let task = runtime.spawn(async move {
                // The second takes the LIFO slot, so that the first can be stolen.
                let waiting = tokio::spawn(async { now_ns() });
                drop(tokio::spawn(async {}));
                let blocked_ns = now_ns();
                sleep(Duration::from_millis(4));
                let _ = sender.send((blocked_ns, waiting));
            });
            runtime.block_on(async {
                task.await.unwrap();
                let (blocked_ns, waiting) = receiver.await.unwrap();
                waited.push(waiting.await.unwrap().saturating_sub(blocked_ns));
            });
            sleep(Duration::from_millis(2));
        }
        let metrics = runtime.metrics();
        let middle = median(&mut waited);
        say(&format!(
            "waited {} µs (p50), {} µs at most; events seen after {:?}",
            middle / 1000,
            waited.last().unwrap() / 1000,
            metrics.debug.detection_latency
        ));
        // In emulation the controller's sample is often there before what the event led to.
        let takeovers = match in_guest() {
            true => metrics.takeovers,
            false => metrics.debug.takeovers_kernel,
        };
        assert!(
            takeovers > 0 && metrics.debug.link_events > 0,
            "{metrics:?}"
        );
        let limit_ns = if in_guest() { 20_000_000 } else { 1_000_000 };
        assert!(middle < limit_ns, "as slow as the watchdog: {middle} ns");
    });
}

/// For who reads the guest's console; an error, so that it is printed.
fn tell_console(text: &str) {
    std::fs::write("/dev/kmsg", format!("<3>{text}")).unwrap();
}

/// Computes on the first CPU, above every thread that a scheduler could schedule.
fn real_time_hog(duration: Duration) {
    // The kernel would leave a twentieth to the others.
    std::fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1").unwrap();
    pin(0);
    take_precedence();
    compute(duration);
}

/// Shorter than the time after which the kernel throws a scheduler out, and longer. Whatever comes of it, the
/// application finishes.
#[test]
fn a_real_time_hog_is_outlived() {
    let _turn = turn();
    if !in_guest() {
        return morpheus_testing::leave_to_guest();
    }
    for seconds in [2, 8] {
        if seconds == 8 {
            // The kernel's complaint is no failure of this guest's.
            tell_console("vm: a stall is meant");
        }
        let mut daemon = Kind::Scheduler.start();
        let runtime = runtime(&daemon.socket, 2, 1);
        wait_for_link(&runtime, ActiveLink::Scheduler);
        let done = Arc::new(AtomicU64::new(0));
        let hog = std::thread::spawn(move || real_time_hog(Duration::from_secs(seconds)));
        start_work(&runtime, &done, 100);
        let until = Instant::now() + Duration::from_secs(90);
        while done.load(Ordering::Relaxed) < 100 {
            assert!(Instant::now() < until, "{seconds} s: {done:?} of 100 done");
            sleep(Duration::from_millis(50));
        }
        hog.join().unwrap();
        let said: Vec<String> = daemon.errors.try_iter().collect();
        let ejected = said.iter().any(|line| line.contains("ejection 1 of"));
        say(&format!(
            "{seconds} s: all done, ejected: {ejected}, link {}",
            runtime.link()
        ));
        tell_console("vm: no stall is meant");
        if seconds == 2 {
            assert!(!ejected);
        }
        // The daemon may have been among those that waited, and was then given up for a while; or the scheduler was ejected, and
        // starts again after a second.
        let until = Instant::now() + Duration::from_secs(60);
        while runtime.link() != ActiveLink::Scheduler {
            assert!(Instant::now() < until, "{seconds} s: not joined again");
            sleep(Duration::from_millis(10));
        }
        assert!(daemon.is_alive());
    }
}
