//! An idle runtime has no wakeups at all, and wakes for work.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::{MS, PATIENCE, alone, in_time, wait_for};
use morpheus_runtime::{Builder, Mechanism, Watch as _};

/// How often every other thread of this process has gone to sleep so far, by thread.
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
            // Who was preempted did not sleep in between.
            let count = field("voluntary_ctxt_switches:").parse::<u64>().unwrap();
            (format!("{} {}", field("Name:"), field("Pid:")), count)
        })
        .collect()
}

/// How often the other threads of the process woke in `time`, and which.
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

/// In a process of its own, where nothing else runs.
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
    // Some trouble first: spares are in play, a seat was taken, blocking threads are there.
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
    // Somebody waits for something that does not come.
    runtime.spawn(std::future::pending::<()>());
    std::thread::sleep(Duration::from_secs(3));
    let (wakeups, who) = wakeups_in(Duration::from_secs(3));
    assert!(wakeups <= 2, "{wakeups} wakeups: {who:?}");
    let before = runtime.metrics();
    assert!(before.sleeps >= 1, "{before:?}");
    // It wakes for work, and for trouble.
    let late = runtime
        .handle()
        .spawn(async { tokio::time::sleep(MS).await });
    runtime.block_on(in_time(late)).unwrap();
    assert!(wait_for(PATIENCE, || runtime.metrics().samples > before.samples));
    std::thread::sleep(Duration::from_secs(1));
    let released = || runtime.metrics().takeovers + runtime.metrics().takeovers_reserve;
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
    assert!(released() > before, "it was awake for the hogs");
}

/// The same for one thread, which waits for a timer that does not end.
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
            // Trouble first, and unwatched work that begins and ends.
            tokio::spawn(async { common::burn(30 * MS) }.watched("idle: trouble"))
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
    let (wakeups, who) = wakeups_in(Duration::from_secs(3));
    assert!(wakeups <= 2, "{wakeups} wakeups: {who:?}");
    let before = runtime.metrics();
    assert!(before.sleeps >= 1 && before.controller_sleeps, "{before:?}");
    // Work that is not watched is none of the controller's business; a watched poll wakes it.
    stop.send(()).unwrap();
    waits.join().unwrap();
    runtime.block_on(async { tokio::time::sleep(MS).await });
    assert_eq!(runtime.metrics().samples, before.samples);
    runtime.block_on(async { common::burn(5 * MS) }.watched("idle: wakes"));
    assert!(runtime.metrics().requests > before.requests);
}

/// The control: the measure can tell an idle process from one that wakes.
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
