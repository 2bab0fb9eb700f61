//! Tests tokio-metrics: its task monitor counts polls as it does on tokio; its runtime monitor sees tokio as it is, spares included.

use std::time::Duration;

use morpheus_ecosystem::hog::{Kind, POLL, Until};
use morpheus_ecosystem::stage::HOGS;
use morpheus_ecosystem::{Hogs, Scene, WORKERS, in_time, neighbour};
use tokio_metrics::{RuntimeMonitor, TaskMonitor};

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_and_delays_of_tasks() {
    let monitor = TaskMonitor::builder()
        .with_slow_poll_threshold(POLL / 2)
        .clone()
        .build();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            tokio::spawn(monitor.instrument(async move {
                for _ in 0..9 {
                    tokio::task::yield_now().await;
                }
                if number < 2 {
                    std::thread::sleep(POLL);
                }
            }))
        })
        .collect();
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let seen = monitor.cumulative();
    assert_eq!((seen.instrumented_count, seen.dropped_count), (20, 20));
    assert_eq!((seen.first_poll_count, seen.total_poll_count), (20, 200));
    // A machine that is stopped for a while makes it more than two.
    assert!(seen.total_slow_poll_count >= 2, "{seen:?}");
    assert!(seen.total_slow_poll_duration >= 2 * POLL, "{seen:?}");
    assert!(
        seen.total_poll_duration >= seen.total_slow_poll_duration,
        "{seen:?}"
    );
}

#[test]
fn workers_and_tasks_of_a_runtime() {
    let runtime = morpheus_runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_spares(6)
        .build()
        .unwrap();
    let monitor = RuntimeMonitor::new(runtime.handle());
    let mut intervals = monitor.intervals();
    runtime.block_on(async {
        let sleeps: Vec<_> = (0..50)
            .map(|ms| tokio::spawn(tokio::time::sleep(Duration::from_millis(ms))))
            .collect();
        for sleep in sleeps {
            in_time(sleep).await.unwrap();
        }
    });
    let seen = intervals.next().unwrap();
    assert_eq!(
        seen.workers_count,
        WORKERS + 6 + 1,
        "spares are workers of tokio, and so is the one that is always held"
    );
    assert!(seen.total_park_count > 0, "{seen:?}");
    assert!(seen.elapsed >= Duration::from_millis(49), "{seen:?}");
}

/// The monitor shows that no task waits for a worker while hogs stall all workers.
#[test]
fn the_monitor_sees_that_no_task_waits() {
    let runtime = morpheus_runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .build()
        .unwrap();
    let hogs = Hogs::new(Kind::Sleeps, Until::Answered, HOGS);
    let (hogging, quick) = (TaskMonitor::new(), TaskMonitor::new());
    runtime.block_on(async {
        let stalled: Vec<_> = (0..HOGS)
            .map(|_| {
                let hogs = hogs.clone();
                tokio::spawn(hogging.instrument(async move { hogs.hog().await }))
            })
            .collect();
        hogs.begin(HOGS);
        while hogs.entered() < HOGS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..100 {
            in_time(tokio::spawn(quick.instrument(tokio::task::yield_now())))
                .await
                .unwrap();
        }
        assert_eq!(hogs.left(), 0);
        hogs.answered();
        for hog in stalled {
            in_time(hog).await.unwrap();
        }
    });
    let (hogging, quick) = (hogging.cumulative(), quick.cumulative());
    assert!(hogging.mean_slow_poll_duration() >= POLL, "{hogging:?}");
    // A hundred in a row: if only one in two waited for a hog's poll, the mean would be half of it.
    assert!(quick.mean_first_poll_delay() < POLL / 4, "{quick:?}");
    assert!(quick.mean_scheduled_duration() < POLL / 4, "{quick:?}");
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "polls, slow polls and delays of tasks; workers of the runtime";
    let monitor = TaskMonitor::new();
    neighbour("tokio-metrics", does, async |stage| {
        let hogs = stage.hogs.clone();
        let (hogging, quick) = (monitor.clone(), monitor.clone());
        let hog = move || {
            let hogs = hogs.clone();
            hogging.instrument(async move { hogs.hog().await })
        };
        let ping = move || quick.instrument(tokio::task::yield_now());
        Scene::of_tasks(&stage, hog, ping)
    });
    let seen = monitor.cumulative();
    assert!(seen.total_slow_poll_count >= 4 * HOGS as u64, "{seen:?}");
}
