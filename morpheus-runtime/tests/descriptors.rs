//! Tests that a runtime keeps few descriptors open, and works in a process that may have only 64.

mod common;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use common::{MS, PATIENCE, alone, burn, fresh_label, in_time, limit_descriptors, wait_for};
use morpheus_runtime::{Builder, Limitation, Link, Runtime, task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Lists the open files of this process, the list itself included.
fn open_files() -> Vec<String> {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .map(|entry| std::fs::read_link(entry.path()).unwrap_or_default())
        .map(|target| target.display().to_string())
        .collect()
}

fn descriptors() -> usize {
    open_files().len()
}

/// Where a daemon listens by default. A runtime waits for one with a thread only if this is there.
const DIRECTORY: &str = "/run/morpheus";

/// Counts the descriptors of an idle runtime, after the link's thread, if there is one, has opened its own. That thread tries
/// the daemon's socket again up to 4 s after the start, and closes its descriptors for a moment.
fn settled_descriptors() -> usize {
    if !Path::new(DIRECTORY).is_dir() {
        return descriptors();
    }
    let has_inotify = |files: &Vec<String>| files.iter().any(|file| file.contains("inotify"));
    let mut files = Vec::new();
    let found = wait_for(PATIENCE, || {
        files = open_files();
        has_inotify(&files)
    });
    assert!(found, "{files:?}");
    files.len()
}

/// Runs tasks that sleep in each of `polls` polls, waits for them, and calls `meanwhile` all the time.
fn block(runtime: &Runtime, tasks: usize, polls: usize, mut meanwhile: impl FnMut()) {
    let label = fresh_label("blocks");
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let blocks = async move {
                for _ in 0..polls {
                    std::thread::sleep(50 * MS);
                    tokio::task::yield_now().await;
                }
            };
            task::Builder::new()
                .label(label)
                .spawn_on(blocks, runtime.handle())
        })
        .collect();
    let all_ended = || tasks.iter().all(tokio::task::JoinHandle::is_finished);
    assert!(wait_for(2 * PATIENCE, || {
        meanwhile();
        all_ended()
    }));
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn two_thousand_tasks_that_block_keep_no_descriptors() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("two_thousand_tasks_that_block_keep_no_descriptors", &[]);
        return;
    }
    let runtime = Builder::new_multi_thread().build().unwrap();
    let before = settled_descriptors();
    let mut most = 0;
    block(&runtime, 2_000, 2, || most = most.max(descriptors()));
    let metrics = runtime.metrics();
    println!(
        "{before} descriptors before, up to {most} while they ran; {:?} of CPU time for the controller",
        Duration::from_nanos(metrics.debug.controller_cpu_ns)
    );
    assert!(most <= before + 32, "{before}, then {most}");
    let back = wait_for(Duration::from_secs(10), || descriptors() <= before);
    assert!(back, "{before} before, 10 s after {:?}", open_files());
}

/// The controller of a busy runtime never sleeps; it closes what it no longer reads all the same.
#[test]
fn unused_descriptors_are_closed_while_the_controller_runs() {
    let _alone = alone();
    const NAME: &str = "unused_descriptors_are_closed_while_the_controller_runs";
    if !common::is_child() {
        common::in_child(NAME, &[]);
        return;
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(4)
        .watch_every_task(false)
        .build()
        .unwrap();
    let before = settled_descriptors();
    block(&runtime, 64, 2, || ());
    // Not watched, so that no state of its thread is read.
    runtime.handle().spawn(async {
        loop {
            burn(2 * MS);
            tokio::task::yield_now().await;
        }
    });
    let back = wait_for(Duration::from_secs(5), || descriptors() <= before);
    assert!(back, "{before} before, later {:?}", open_files());
}

#[test]
fn everything_works_with_sixty_four_descriptors() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("everything_works_with_sixty_four_descriptors", &[]);
        return;
    }
    limit_descriptors(64);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(8)
        .report_after(10 * MS)
        .build()
        .unwrap();
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            runtime.spawn(async {
                for _ in 0..4 {
                    burn(20 * MS);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // The application's own: ten connections, both ends here.
    let echoes = runtime.spawn(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut ends = Vec::new();
        for _ in 0..10 {
            let connect = tokio::net::TcpStream::connect(address);
            let (client, accepted) = tokio::join!(connect, listener.accept());
            ends.push((client.unwrap(), accepted.unwrap().0));
        }
        for (client, server) in &mut ends {
            client.write_all(b"hello").await.unwrap();
            let mut read = [0; 5];
            server.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"hello");
        }
    });
    block(&runtime, 100, 2, || ());
    runtime.block_on(in_time(async {
        echoes.await.unwrap();
        for hog in hogs {
            hog.await.unwrap();
        }
    }));
    let metrics = runtime.metrics();
    assert!(metrics.debug.slow_tasks > 0 && metrics.handoff_polls > 0);
    assert!(
        metrics.limitations.contains(&Limitation::Descriptors),
        "{:?}",
        metrics.limitations
    );
    assert!(
        !metrics.limitations.contains(&Limitation::ThreadStates),
        "{:?}",
        metrics.limitations
    );
    let stalls = runtime.stalls();
    if cfg!(feature = "stacks") {
        assert!(!stalls.groups.is_empty());
    }
}

#[test]
fn without_a_single_descriptor_left_states_are_guessed() {
    let _alone = alone();
    const NAME: &str = "without_a_single_descriptor_left_states_are_guessed";
    if !common::is_child() {
        common::in_child(NAME, &[]);
        return;
    }
    limit_descriptors(64);
    // Without the link's thread, which opens and closes descriptors.
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_spares(8).link(Link::Watchdog);
    let runtime = builder.build().unwrap();
    let mut all = Vec::new();
    let mut take_all = || all.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    take_all();
    block(&runtime, 50, 4, take_all);
    let missing = runtime.metrics().limitations;
    assert!(missing.contains(&Limitation::ThreadStates), "{missing:?}");
    drop(all);
    block(&runtime, 50, 2, || ());
    assert_eq!(common::own_panics(), 0);
}

fn has_link_thread() -> bool {
    std::fs::read_dir("/proc/self/task").unwrap().any(|entry| {
        let name = entry.unwrap().path().join("comm");
        std::fs::read_to_string(name).is_ok_and(|name| name.trim() == "morpheus-link")
    })
}

/// Without a daemon, a runtime with the default link has no more descriptors and threads than one with
/// [`Link::Watchdog`].
#[test]
fn a_machine_without_a_daemon_pays_nothing_for_one() {
    let _alone = alone();
    const NAME: &str = "a_machine_without_a_daemon_pays_nothing_for_one";
    if Path::new(DIRECTORY).is_dir() {
        return morpheus_testing::skip("a daemon has been here");
    }
    if std::env::var_os("MORPHEUS_SOCKET").is_some() {
        return morpheus_testing::skip("MORPHEUS_SOCKET names a daemon's socket");
    }
    if !common::is_child() {
        common::in_child(NAME, &[]);
        return;
    }
    let build = |link| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(1)
            .link(link)
            .build()
    };
    // The controller reads a file now and then, and has it open meanwhile.
    let lasting = || {
        let readings = (0..20).map(|_| {
            std::thread::sleep(MS);
            descriptors()
        });
        readings.min()
    };
    let without = build(Link::Watchdog).unwrap();
    let expected = lasting();
    drop(without);
    let runtime = build(Link::Auto).unwrap();
    assert_eq!(lasting(), expected, "{:?}", open_files());
    assert!(!has_link_thread());
    if std::fs::create_dir(DIRECTORY).is_err() {
        return morpheus_testing::skip("not root: no directory for a daemon");
    }
    // Not idle, so that the controller is awake.
    let started = wait_for(PATIENCE, || {
        let task = runtime
            .handle()
            .spawn(async { tokio::time::sleep(MS).await });
        runtime.block_on(task).unwrap();
        has_link_thread()
    });
    std::fs::remove_dir(DIRECTORY).unwrap();
    assert!(started, "a daemon may come now");
}
