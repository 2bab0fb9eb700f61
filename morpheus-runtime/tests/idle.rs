//! Tests that an idle runtime has no wakeups, and that it wakes for work.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::{MS, PATIENCE, alone, in_time, wait_for};
use morpheus_runtime::{Builder, Mechanism, Watch as _};

/// Returns how often each other thread of this process has gone to sleep so far.
fn switches() -> HashMap<String, u64> {
    // SAFETY: gettid has no preconditions.
    let own = unsafe { libc::gettid() }.to_string();
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy() != own)
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok())
        .map(|status| {
            let field = |name: &str| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap_or("")
                    .trim()
                    .to_owned()
            };
            // A thread that was preempted did not sleep, so only voluntary switches count.
            let count = field("voluntary_ctxt_switches:").parse::<u64>().unwrap();
            (format!("{} {}", field("Name:"), field("Pid:")), count)
        })
        .collect()
}

/// Returns how often the other threads of the process woke in `time`, and which threads did.
fn wakeups_in(time: Duration) -> (u64, Vec<String>) {
    let before = switches();
    std::thread::sleep(time);
    let woke: Vec<(String, u64)> = switches()
        .into_iter()
        .map(|(thread, count)| {
            let more = count - before.get(&thread).copied().unwrap_or(0);
            (thread, more)
        })
        .filter(|(_, more)| *more > 0)
        .collect();
    let sum = woke.iter().map(|(_, more)| more).sum();
    (
        sum,
        woke.into_iter()
            .map(|(thread, more)| format!("{thread}: {more}"))
            .collect(),
    )
}

/// Runs in a process of its own, without threads of other tests.
#[test]
fn an_idle_runtime_has_no_wakeups() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("an_idle_runtime_has_no_wakeups", &[]);
        return;
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    // First some stalls, so that spares are active, a slot is in use, and blocking threads exist.
    for _ in 0..4 {
        let watched = runtime.spawn(async { common::burn(30 * MS) });
        let unwatched = runtime
            .handle()
            .spawn(async { std::thread::sleep(30 * MS) });
        runtime.block_on(in_time(async {
            watched.await.unwrap();
            unwatched.await.unwrap();
        }));
    }
    // This task waits for ever.
    runtime.spawn(std::future::pending::<()>());
    std::thread::sleep(Duration::from_secs(3));
    let (wakeups, threads) = wakeups_in(Duration::from_secs(3));
    assert!(wakeups <= 2, "{wakeups} wakeups: {threads:?}");
    let before = runtime.metrics();
    assert!(before.debug.sleeps >= 1, "{before:?}");
    // It wakes for work, and for stalled polls.
    let late = runtime
        .handle()
        .spawn(async { tokio::time::sleep(MS).await });
    runtime.block_on(in_time(late)).unwrap();
    assert!(wait_for(PATIENCE, || runtime.metrics().debug.samples
        > before.debug.samples));
    std::thread::sleep(Duration::from_secs(1));
    let released = || runtime.metrics().takeovers + runtime.metrics().debug.takeovers_reserve;
    let before = released();
    let hogs: Vec<_> = (0..6)
        .map(|_| {
            runtime
                .handle()
                .spawn(async { std::thread::sleep(200 * MS) })
        })
        .collect();
    for hog in hogs {
        runtime.block_on(in_time(hog)).unwrap();
    }
    assert!(released() > before, "it woke for the hogs");
}

/// Tests the same on a current-thread runtime, which waits for a distant timer.
#[test]
fn an_idle_current_thread_runtime_has_no_wakeups() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("an_idle_current_thread_runtime_has_no_wakeups", &[]);
        return;
    }
    let runtime = Arc::new(Builder::new_current_thread().build().unwrap());
    let (stop, stops) = tokio::sync::oneshot::channel::<()>();
    let idles = runtime.clone();
    let waits = std::thread::spawn(move || {
        idles.block_on(async {
            // First a stalled poll, and unwatched work that begins and ends.
            tokio::spawn(async { common::burn(30 * MS) }.watched("idle: stalls"))
                .await
                .unwrap();
            for _ in 0..50 {
                tokio::time::sleep(MS).await;
            }
            tokio::select! {
                _ = stops => {}
                () = tokio::time::sleep(PATIENCE) => {}
            }
        });
    });
    std::thread::sleep(Duration::from_secs(3));
    let (wakeups, threads) = wakeups_in(Duration::from_secs(3));
    assert!(wakeups <= 2, "{wakeups} wakeups: {threads:?}");
    let before = runtime.metrics();
    assert!(
        before.debug.sleeps >= 1 && before.debug.controller_sleeps,
        "{before:?}"
    );
    // The controller sleeps on while unwatched work runs; a watched poll wakes it.
    stop.send(()).unwrap();
    waits.join().unwrap();
    runtime.block_on(async { tokio::time::sleep(MS).await });
    assert_eq!(runtime.metrics().debug.samples, before.debug.samples);
    runtime.block_on(async { common::burn(5 * MS) }.watched("idle: wakes"));
    assert!(runtime.metrics().requests > before.requests);
}

/// The control: the measure tells an idle process from one that wakes.
#[test]
fn the_measure_sees_wakeups() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("the_measure_sees_wakeups", &[]);
        return;
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .without(Mechanism::Canary)
        .build()
        .unwrap();
    runtime.handle().spawn(async {
        loop {
            tokio::time::sleep(50 * MS).await;
        }
    });
    std::thread::sleep(Duration::from_secs(1));
    let (wakeups, _) = wakeups_in(Duration::from_secs(1));
    assert!(wakeups > 10, "{wakeups} wakeups");
}
