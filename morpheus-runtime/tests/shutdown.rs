//! Tests how a runtime ends: with hogs running, with spares held, and by calls from places where tokio refuses them.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    Gate, Log, MS, PATIENCE, alone, burn, fresh_label, in_time, panic_text, settled_threads,
    threads, wait_for, within,
};
use morpheus_runtime::{Builder, Runtime, task};

fn runtime() -> Runtime {
    runtime_with(8)
}

fn runtime_with(spares: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(spares)
        .enable_all()
        .build()
        .unwrap()
}

/// Blocks a worker until the gate opens. Returns once the worker is blocked.
fn start_blocker(runtime: &Runtime, label: Option<&'static str>) -> Gate {
    let gate = Gate::default();
    let inside = Arc::new(AtomicBool::new(false));
    let blocker = {
        let (gate, inside) = (gate.clone(), inside.clone());
        async move {
            inside.store(true, Ordering::SeqCst);
            gate.wait();
        }
    };
    match label {
        Some(label) => task::Builder::new()
            .label(label)
            .spawn_on(blocker, runtime.handle()),
        None => runtime.handle().spawn(blocker),
    };
    assert!(wait_for(PATIENCE, || inside.load(Ordering::SeqCst)));
    gate
}

/// As on tokio, a drop waits for the polls in progress, and for nothing else, although spares are held.
#[test]
fn dropped_outside_async_code_with_a_hog_running_and_spares_held() {
    let _alone = alone();
    let panics = common::own_panics();
    for label in [None, Some(fresh_label("drop"))] {
        let before = settled_threads();
        let runtime = runtime();
        let gate = start_blocker(&runtime, label);
        assert!(runtime.metrics().spares_released < 8, "some are held");
        let dropped = Arc::new(AtomicBool::new(false));
        let dropping = std::thread::spawn({
            let dropped = dropped.clone();
            move || {
                drop(runtime);
                dropped.store(true, Ordering::SeqCst);
            }
        });
        assert!(!wait_for(100 * MS, || dropped.load(Ordering::SeqCst)));
        gate.open();
        within(PATIENCE, move || dropping.join().unwrap());
        assert!(
            wait_for(PATIENCE, || threads() <= before),
            "no thread is left"
        );
    }
    assert_eq!(common::own_panics(), panics);
}

/// A runtime is dropped right after a stall, while spares leave and enter their holds.
#[test]
fn dropped_while_spares_are_released_and_held() {
    let _alone = alone();
    let panics = common::own_panics();
    let before = settled_threads();
    for round in 0..60 {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(6)
            .build()
            .unwrap();
        for _ in 0..8 {
            let nap = MS * (round % 7);
            runtime.handle().spawn(async move {
                std::thread::sleep(nap);
                tokio::task::yield_now().await;
                std::thread::sleep(nap);
            });
            runtime.spawn(async move { burn(nap) });
        }
        std::thread::sleep(Duration::from_micros(u64::from(round) * 211));
        within(PATIENCE, move || drop(runtime));
    }
    assert!(wait_for(PATIENCE, || threads() <= before));
    assert_eq!(common::own_panics(), panics);
}

#[test]
fn shutdown_and_report_returns_and_names_the_polls_that_are_left() {
    let _alone = alone();
    let log = Log::global();
    let runtime = runtime();
    let label = fresh_label("left behind");
    let watched = start_blocker(&runtime, Some(label));
    let unwatched = start_blocker(&runtime, None);
    let began = Instant::now();
    let report = within(PATIENCE, move || runtime.shutdown_and_report(100 * MS));
    let took = began.elapsed();
    assert!((100 * MS..PATIENCE / 2).contains(&took), "{took:?}");
    // With tokio's hooks every task is watched, and named by its place.
    let all_are_watched = cfg!(tokio_unstable);
    assert_eq!(report.left.len(), 1 + usize::from(all_are_watched));
    assert_eq!(
        report.unwatched,
        usize::from(!all_are_watched),
        "{report:?}"
    );
    let left = report.left.iter().find(|left| left.label == label);
    let left = left.unwrap_or_else(|| panic!("{report:?}"));
    let comm = format!("/proc/self/task/{}/comm", left.tid);
    let name = std::fs::read_to_string(comm).expect("its thread is still there");
    assert_eq!(name.trim(), "morpheus-worker");
    assert!(
        log.line_with(&["still running after shutdown", label])
            .is_some()
    );
    watched.open();
    unwatched.open();
}

/// Such a thread has no slot, and neither has a worker that was given a task before it first parked.
#[test]
fn shutdown_and_report_counts_threads_that_never_polled_a_watched_task() {
    let _alone = alone();
    let runtime = runtime();
    let (gate, is_inside) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let (inner, inside) = (gate.clone(), is_inside.clone());
    runtime.handle().spawn_blocking(move || {
        inside.store(true, Ordering::SeqCst);
        inner.wait();
    });
    assert!(wait_for(PATIENCE, || is_inside.load(Ordering::SeqCst)));
    let report = within(PATIENCE, move || runtime.shutdown_and_report(100 * MS));
    assert_eq!((report.left.len(), report.unwatched), (0, 1), "{report:?}");
    gate.open();
}

#[test]
fn shutdown_timeout_says_nothing_but_in_events() {
    let _alone = alone();
    let log = Log::global();
    let runtime = runtime();
    let label = fresh_label("left behind");
    let gate = start_blocker(&runtime, Some(label));
    // Programs for tokio have it as the last expression of a function that returns nothing.
    fn end(runtime: Runtime) {
        runtime.shutdown_timeout(50 * MS)
    }
    within(PATIENCE, move || end(runtime));
    assert!(
        log.line_with(&["still running after shutdown", label])
            .is_some()
    );
    gate.open();
}

#[test]
fn shutdown_and_report_with_no_poll_left_is_quick() {
    let _alone = alone();
    let runtime = runtime();
    runtime.spawn(std::future::pending::<()>());
    let began = Instant::now();
    let report = within(PATIENCE, move || runtime.shutdown_and_report(PATIENCE));
    assert_eq!(report, morpheus_runtime::ShutdownReport::default());
    assert!(began.elapsed() < PATIENCE / 2);
}

#[test]
fn shutdown_background_inside_async_code() {
    let _alone = alone();
    let before = settled_threads();
    let outer = runtime();
    let inner = runtime();
    let gate = start_blocker(&inner, Some(fresh_label("background")));
    let done = outer.spawn(async move {
        inner.shutdown_background();
        7
    });
    assert_eq!(outer.block_on(in_time(done)).unwrap(), 7);
    gate.open();
    drop(outer);
    assert!(wait_for(PATIENCE, || threads() <= before), "both are gone");
}

/// The drop panics as tokio's does; the spares are released, and nothing hangs.
#[test]
fn dropped_inside_async_code_it_panics_as_tokio_does() {
    let _alone = alone();
    let before = settled_threads();
    let outer = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let tokio_s = {
        let inner = tokio::runtime::Runtime::new().unwrap();
        let task = outer.spawn(async move { drop(inner) });
        panic_text(&*outer.block_on(task).unwrap_err().into_panic())
    };
    let inner = runtime();
    let gate = start_blocker(&inner, None);
    let task = outer.spawn(async move { drop(inner) });
    let result = within(PATIENCE, move || outer.block_on(task));
    assert_eq!(panic_text(&*result.unwrap_err().into_panic()), tokio_s);
    gate.open();
    assert!(
        wait_for(PATIENCE, || threads() <= before),
        "every thread has ended"
    );
}

#[test]
fn a_panic_in_block_on() {
    let _alone = alone();
    let before = settled_threads();
    within(PATIENCE, || {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let runtime = runtime();
            runtime.block_on(async { panic!("on purpose") });
        }));
        assert_eq!(panic_text(&*result.unwrap_err()), "on purpose");
    });
    assert!(wait_for(PATIENCE, || threads() <= before));
    // One that is caught leaves a runtime that works.
    let runtime = runtime();
    let result = catch_unwind(|| {
        runtime.block_on(async { panic!("on purpose") });
    });
    assert!(result.is_err());
    assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
}

#[test]
fn spawn_after_shutdown_is_cancelled() {
    let _alone = alone();
    let runtime = runtime();
    let handle = runtime.handle().clone();
    runtime.shutdown_timeout(PATIENCE);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let label = fresh_label("late");
    let watched = task::Builder::new()
        .label(label)
        .spawn_on(async {}, &handle);
    for task in [handle.spawn(async {}), watched] {
        assert!(other.block_on(in_time(task)).unwrap_err().is_cancelled());
    }
}

#[test]
fn block_on_inside_a_worker_panics_with_tokio_s_words() {
    let _alone = alone();
    let runtime = Arc::new(runtime());
    let task = runtime.spawn({
        let runtime = runtime.clone();
        async move { runtime.block_on(async {}) }
    });
    let panic = runtime.block_on(in_time(task)).unwrap_err().into_panic();
    let text = panic_text(&*panic);
    assert!(
        text.contains("Cannot start a runtime from within a runtime"),
        "{text}"
    );
    // The task's clone may have been the last: not on a worker.
    assert!(wait_for(PATIENCE, || Arc::strong_count(&runtime) == 1));
}

#[test]
fn a_thousand_fresh_runtimes() {
    let _alone = alone();
    let panics = common::own_panics();
    let before = settled_threads();
    let began = Instant::now();
    let rounds = 1000;
    for round in 0..rounds {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_spares(2)
            .build()
            .unwrap();
        let task = runtime.spawn(async move { round });
        assert_eq!(runtime.block_on(task).unwrap(), round);
        if round % 2 == 0 {
            within(PATIENCE, move || drop(runtime));
        } else {
            let report = within(PATIENCE, move || runtime.shutdown_and_report(PATIENCE));
            assert!(report.left.is_empty());
        }
    }
    let each = began.elapsed() / rounds;
    assert!(
        wait_for(PATIENCE, || threads() <= before),
        "{} threads are left",
        threads() - before
    );
    // Measured: 2 to 4 ms.
    assert!(each < 50 * MS, "{each:?} each");
    assert_eq!(common::own_panics(), panics);
}

/// Counts the panic that drops it.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Ends runtimes while polls that were handed over compute, each of which goes on to sleep. Returns how many panicked.
fn panics_of_polls_handed_over(spares: usize, end: fn(Runtime)) -> usize {
    let label = fresh_label("handed over");
    let panics = Arc::new(AtomicUsize::new(0));
    let before = settled_threads();
    for _ in 0..10 {
        let runtime = runtime_with(spares);
        for _ in 0..3 {
            let guard = Guard(panics.clone());
            let computes = async move {
                let _guard = guard;
                loop {
                    burn(10 * MS);
                    tokio::time::sleep(MS).await;
                }
            };
            task::Builder::new()
                .label(label)
                .spawn_on(computes, runtime.handle());
        }
        assert!(wait_for(PATIENCE, || runtime.metrics().handoff_polls >= 6));
        within(PATIENCE, move || end(runtime));
        // Also those of a runtime that ends in the background.
        assert!(wait_for(PATIENCE, || threads() <= before));
    }
    panics.load(Ordering::SeqCst)
}

/// A worker of tokio ends its poll before the drivers end, so that a timer in it works. With spares, all of them may be released when
/// the runtime ends; without, that is always so.
#[test]
fn polls_that_were_handed_over_end_with_their_timers() {
    let _alone = alone();
    for end in [
        drop,
        |runtime: Runtime| runtime.shutdown_timeout(PATIENCE),
        Runtime::shutdown_background,
    ] {
        for spares in [0, 8] {
            assert_eq!(
                panics_of_polls_handed_over(spares, end),
                0,
                "{spares} spares"
            );
        }
    }
}

/// Ends a runtime while a poll that was handed over waits within `waits`.
fn ends_while_a_poll_waits(runtime: Runtime, waits: impl FnOnce() + Send + 'static) {
    let begun = Arc::new(AtomicBool::new(false));
    let has_begun = begun.clone();
    task::Builder::new()
        .label(fresh_label("waits at the end"))
        .spawn_on(
            async move {
                for _ in 0..3 {
                    burn(10 * MS);
                    tokio::task::yield_now().await;
                }
                begun.store(true, Ordering::SeqCst);
                waits();
            },
            runtime.handle(),
        );
    assert!(wait_for(PATIENCE, || has_begun.load(Ordering::SeqCst)));
    assert!(
        runtime.metrics().handoff_polls > 0,
        "it was not handed over"
    );
    within(PATIENCE, move || drop(runtime));
}

/// As on tokio: the poll waits for what another task keeps, and the end of the runtime drops that task.
#[test]
fn a_poll_that_was_handed_over_waits_for_a_task_that_is_dropped() {
    let _alone = alone();
    let runtime = runtime();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    runtime.spawn(async move {
        let _sender = sender;
        std::future::pending::<()>().await;
    });
    ends_while_a_poll_waits(runtime, move || {
        assert!(receiver.recv().is_err(), "nothing is sent");
    });
}

/// Nothing turns the drivers any more: no timer fires for a poll that waits within `block_on`, until they end, as they do on tokio.
#[test]
fn a_poll_that_was_handed_over_may_wait_for_a_timer_when_the_runtime_ends() {
    let _alone = alone();
    ends_while_a_poll_waits(runtime(), || {
        tokio::task::block_in_place(|| {
            let long = tokio::time::sleep(Duration::from_millis(300));
            tokio::runtime::Handle::current().block_on(long);
        });
    });
}
