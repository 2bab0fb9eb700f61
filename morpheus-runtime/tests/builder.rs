//! Tests that options of tokio's builder have the same effect on a Morpheus runtime.

mod common;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{MS, alone, burn, fresh_label, in_time};
use morpheus_runtime::{Builder, Link, Mechanism, Runtime, Watch as _, task};

/// Returns the size of the calling thread's stack.
fn own_stack_size() -> usize {
    // SAFETY: the attributes are initialised by `pthread_getattr_np`, read once, and destroyed.
    unsafe {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        assert_eq!(
            libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()),
            0
        );
        let (mut address, mut size) = (std::ptr::null_mut(), 0);
        assert_eq!(
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut address, &raw mut size),
            0
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        size
    }
}

/// Builds a runtime of two workers and two spares, and records the stack size of each thread that it starts.
fn with_stack(bytes: usize) -> (Runtime, Arc<Mutex<Vec<usize>>>) {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let noted = sizes.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(2)
        .thread_stack_size(bytes)
        .on_thread_start(move || noted.lock().unwrap().push(own_stack_size()))
        .build()
        .unwrap();
    (runtime, sizes)
}

#[test]
fn workers_spares_and_blocking_threads_have_the_stack_that_was_asked_for() {
    let _alone = alone();
    let bytes = 3 << 20;
    let (runtime, sizes) = with_stack(bytes);
    let blocking = runtime.handle().spawn_blocking(own_stack_size);
    assert_eq!(runtime.block_on(in_time(blocking)).unwrap(), bytes);
    let sizes = sizes.lock().unwrap();
    // Two workers, two spares, the one that is always held, the controller and one for the blocking call.
    assert_eq!(*sizes, vec![bytes; 7]);
}

/// The controller does all of its work on the smallest stack that there is.
#[test]
fn the_controller_needs_no_more_than_the_smallest_stack() {
    let _alone = alone();
    let (runtime, sizes) = with_stack(1);
    let (computes, sleeps) = (fresh_label("small stack"), fresh_label("small stack"));
    for _ in 0..4 {
        let spawn = |label, work: fn()| {
            task::Builder::new()
                .label(label)
                .spawn_on(async move { work() }, runtime.handle())
        };
        let tasks = [
            spawn(computes, || burn(30 * MS)),
            spawn(sleeps, || std::thread::sleep(30 * MS)),
            runtime.handle().spawn(async { burn(150 * MS) }),
        ];
        for task in tasks {
            runtime.block_on(in_time(task)).unwrap();
        }
    }
    let metrics = runtime.metrics();
    assert!(metrics.debug.takeovers_watched > 0, "{metrics:?}");
    assert_eq!(metrics.debug.controller_restarts, 0);
    let stalls = runtime.stalls();
    for label in [computes, sleeps] {
        assert!(
            stalls.groups.iter().any(|group| group.label == label),
            "{stalls:?}"
        );
    }
    let smallest = *sizes.lock().unwrap().iter().min().unwrap();
    assert_eq!(smallest, 64 << 10);
}

#[test]
fn threads_are_named_by_the_function() {
    let _alone = alone();
    let names = Arc::new(Mutex::new(Vec::new()));
    let noted = names.clone();
    let count = Mutex::new(0);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(1)
        .thread_name("not this one")
        .thread_name_fn(move || {
            let mut count = count.lock().unwrap();
            *count += 1;
            format!("named-{count}")
        })
        .on_thread_start(move || {
            let name = std::thread::current().name().unwrap().to_owned();
            noted.lock().unwrap().push(name);
        })
        .build()
        .unwrap();
    let blocking = runtime.handle().spawn_blocking(|| ());
    runtime.block_on(in_time(blocking)).unwrap();
    let names: HashSet<String> = names.lock().unwrap().iter().cloned().collect();
    let expected = (1..=6).map(|n| format!("named-{n}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn blocking_threads_end_when_they_were_kept_for_long_enough() {
    let _alone = alone();
    let (ended, ends) = std::sync::mpsc::channel();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(1)
        .thread_keep_alive(50 * MS)
        .on_thread_stop(move || ended.send(()).unwrap())
        .build()
        .unwrap();
    let blocking = runtime.handle().spawn_blocking(|| ());
    runtime.block_on(in_time(blocking)).unwrap();
    // By default it would be there for ten seconds.
    ends.recv_timeout(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_paused_clock_goes_on_when_nothing_else_does() {
    let _alone = alone();
    let runtime = Builder::new_current_thread()
        .start_paused(true)
        .name("paused")
        .build()
        .unwrap();
    let (began, real) = (tokio::time::Instant::now, std::time::Instant::now());
    let passed = runtime.block_on(async move {
        let began = began();
        // Watched and stalled, so that the controller has much to do meanwhile.
        tokio::spawn(async { burn(20 * MS) }.watched("beside a paused clock"))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        began.elapsed()
    });
    assert_eq!(passed, Duration::from_secs(3600));
    assert!(real.elapsed() < Duration::from_secs(60));
    let panic_of = |build: fn()| common::panic_text(&*std::panic::catch_unwind(build).unwrap_err());
    let ours = panic_of(|| {
        let _ = Builder::new_multi_thread().start_paused(true).build();
    });
    let theirs = panic_of(|| {
        let mut tokio = tokio::runtime::Builder::new_multi_thread();
        let _ = tokio.enable_all().start_paused(true).build();
    });
    assert_eq!(ours, theirs);
}

#[test]
fn io_and_time_are_enabled_whatever_is_said() {
    let _alone = alone();
    type Set = fn(&mut Builder) -> &mut Builder;
    let ways: [Set; 4] = [
        |builder| builder,
        Builder::enable_all,
        Builder::enable_io,
        Builder::enable_time,
    ];
    for set in ways {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1);
        let runtime = set(&mut builder).build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let timeout = tokio::time::timeout(MS, listener.accept()).await;
            assert!(timeout.is_err());
        });
    }
}

/// A single worker with many tasks of its own polls one from outside as often as `global_queue_interval` says.
#[test]
fn the_queue_for_all_workers_is_served_as_often_as_was_asked_for() {
    let _alone = alone();
    let polls_until_served = |interval| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(0)
            .global_queue_interval(interval)
            .without(Mechanism::Canary)
            .without(Mechanism::Poke)
            .link(Link::Watchdog)
            .build()
            .unwrap();
        let (served, is_served) = std::sync::mpsc::channel();
        let handle = runtime.handle().clone();
        // Not watched: a task that is found slow would be handed off, and its worker would serve the queue meanwhile.
        let polls = runtime.handle().spawn(async move {
            let outside = handle.clone();
            let spawn = std::thread::spawn(move || {
                outside.spawn(async move { served.send(()).unwrap() });
            });
            spawn.join().unwrap();
            let mut polls = 0_u32;
            while is_served.try_recv().is_err() {
                // The task is always ready, so the worker does not park on the driver.
                tokio::spawn(async {}).await.unwrap();
                polls += 1;
            }
            polls
        });
        runtime.block_on(in_time(polls)).unwrap()
    };
    let (often, seldom) = (polls_until_served(2), polls_until_served(1_000));
    assert!(often < 20 && seldom > 100, "{often}, {seldom}");
}

#[test]
#[should_panic(expected = "global_queue_interval must be greater than 0")]
fn the_queue_for_all_workers_cannot_be_served_never() {
    Builder::new_multi_thread().global_queue_interval(0);
}
