//! Tests a current-thread runtime: watched polls on its thread are seen, asked to yield and reported, with the settings of
//! its own builder, and `block_on` leaves the thread as it was before.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    Gate, Log, MS, PATIENCE, alone, burn, fresh_label, in_time, panic_text, settled_threads,
    threads, wait_for, within,
};
use morpheus_runtime::{
    ActiveLink, BuildError, Builder, Link, Metrics, Policy, Runtime, ShutdownReport, Watch as _,
    checkpoint_sync, critical_section, task, yield_requested,
};
use tokio::task::LocalSet;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Computes until it is asked to yield. Returns false if that takes too long.
async fn until_asked() -> bool {
    let began = Instant::now();
    while !checkpoint_sync() {
        if began.elapsed() > PATIENCE {
            return false;
        }
    }
    true
}

/// Computes for `time`. Returns whether it was asked to yield meanwhile.
async fn asked_within(time: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < time {
        if checkpoint_sync() {
            return true;
        }
    }
    false
}

#[test]
fn a_watched_poll_is_asked_to_yield_and_reported_with_its_stack() {
    let _alone = alone();
    let log = Log::global();
    let runtime = runtime();
    let (asked, stalled) = (fresh_label("on one thread"), fresh_label("on one thread"));
    assert!(runtime.block_on(async { tokio::spawn(until_asked().watched(asked)).await.unwrap() }));
    assert!(runtime.metrics().requests > 0);
    let hog = task::Builder::new()
        .label(stalled)
        .spawn_on(async { burn(60 * MS) }, runtime.handle());
    runtime.block_on(hog).unwrap();
    let stalls = runtime.stalls();
    let group = stalls.groups.iter().find(|group| group.label == stalled);
    assert!(
        group.is_some_and(|group| group.longest >= 40 * MS),
        "{stalls:?}"
    );
    assert!(
        wait_for(PATIENCE, || log
            .line_with(&[stalled, "step=\"asked to yield\""])
            .is_some()),
        "the report says what was done, and no more"
    );
    let metrics = runtime.metrics();
    assert_eq!((metrics.takeovers, metrics.spares), (0, 0), "{metrics:?}");
    assert_eq!((metrics.num_workers(), metrics.handoff_polls), (1, 0));
    // The same on a current-thread runtime of tokio.
    let label = fresh_label("on tokio's one thread");
    let plain = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    plain.block_on(async { burn(20 * MS) }.watched(label));
    assert!(wait_for(PATIENCE, || log
        .line_with(&[label, "step=\"asked to yield\""])
        .is_some()));
}

/// A slow task is still polled on the one thread, and not handed off.
#[test]
fn a_slow_task_stays_where_it_is() {
    let _alone = alone();
    let panics = common::own_panics();
    let runtime = runtime();
    let label = fresh_label("slow on one thread");
    let here = std::thread::current().id();
    for _ in 0..6 {
        let slow = async {
            for _ in 0..3 {
                burn(15 * MS);
                assert_eq!(std::thread::current().id(), here);
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(slow.watched(label));
    }
    let metrics = runtime.metrics();
    assert_eq!((metrics.handoff_polls, metrics.permits_waiting), (0, 0));
    assert!(metrics.debug.hog_tasks > 0, "{metrics:?}");
    assert_eq!(
        metrics.num_alive_tasks(),
        0,
        "and nothing was spawned for it"
    );
    assert_eq!(common::own_panics(), panics);
}

#[test]
fn the_budget_is_that_of_the_builder() {
    let _alone = alone();
    let label = fresh_label("budget of one thread");
    let patient = Builder::new_current_thread()
        .budget(Duration::from_secs(600))
        .build()
        .unwrap();
    let observes = Builder::new_current_thread()
        .policy(Policy::Observe)
        .build()
        .unwrap();
    for runtime in [&patient, &observes] {
        assert!(!runtime.block_on(asked_within(50 * MS).watched(label)));
        assert_eq!(runtime.metrics().requests, 0);
    }
    // Its controller may not have had a CPU within those 50 ms.
    let is_observed = wait_for(PATIENCE, || {
        assert!(!observes.block_on(asked_within(50 * MS).watched(label)));
        let groups = observes.stalls().groups;
        groups.iter().any(|group| group.label == label)
    });
    assert!(is_observed);
    assert!(runtime().block_on(until_asked().watched(label)));
}

/// The requests that each runtime counts tell which controller asked.
#[test]
fn a_thread_belongs_to_the_runtime_that_it_is_in() {
    let _alone = alone();
    let asked = |runtime: &Runtime| {
        let before = runtime.metrics().requests;
        assert!(runtime.block_on(until_asked().watched("which one")));
        runtime.metrics().requests - before
    };
    let (one, two) = (runtime(), runtime());
    let other_s = |runtime: &Runtime| runtime.metrics().requests;
    for _ in 0..3 {
        let before = other_s(&two);
        assert!(asked(&one) > 0);
        assert_eq!(other_s(&two), before);
        let before = other_s(&one);
        assert!(asked(&two) > 0);
        assert_eq!(other_s(&one), before);
    }
    // A panic leaves the thread as it was before, too.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        one.block_on(async { panic!("on purpose") }.watched("which one"))
    }));
    assert_eq!(panic_text(&*caught.unwrap_err()), "on purpose");
    let before = other_s(&one);
    let plain = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert!(plain.block_on(until_asked().watched("which one")));
    assert_eq!(other_s(&one), before, "the plain runtime is another's");
    assert!(asked(&two) > 0);
}

/// The poll around it still belongs to the worker's runtime.
#[test]
fn within_a_watched_poll_of_another_runtime() {
    let _alone = alone();
    let outer = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(2)
        .build()
        .unwrap();
    let inner = Arc::new(runtime());
    let entered = inner.clone();
    let counts = outer.spawn(async move {
        assert!(until_asked().await);
        let before = entered.metrics().requests;
        let asked = tokio::task::block_in_place(|| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                entered.block_on(async { panic!("on purpose") })
            }));
            assert!(caught.is_err());
            entered.block_on(async {
                assert!(!yield_requested(), "the request was to the poll around it");
                tokio::spawn(until_asked().watched("inner")).await.unwrap()
            })
        });
        assert!(yield_requested(), "it still is");
        (asked, entered.metrics().requests - before)
    });
    let (asked, requests) = outer.block_on(in_time(counts)).unwrap();
    assert!(asked && requests > 0);
    assert_eq!(outer.block_on(outer.spawn(async { 7 })).unwrap(), 7);
}

/// With `--cfg tokio_unstable` tokio's hooks mark the poll around it, too, and the mark has to end.
#[test]
fn within_a_poll_that_is_not_watched_by_itself() {
    let _alone = alone();
    let outer = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(2)
        .build()
        .unwrap();
    let inner = runtime();
    let task = outer.handle().spawn(async move {
        tokio::task::block_in_place(|| {
            inner.block_on(async { tokio::spawn(async { burn(5 * MS) }).await.unwrap() });
            inner
        })
    });
    drop(outer.block_on(in_time(task)).unwrap());
    let rests = || outer.metrics().debug.controller_sleeps;
    assert!(
        wait_for(PATIENCE, rests),
        "a poll never ended: {:?}",
        outer.stalls()
    );
}

/// A guard counts for its thread on both sides of a `block_on`.
#[test]
fn a_critical_section_goes_in_and_out() {
    let _alone = alone();
    let runtime = runtime();
    let is_in_section = |runtime: &Runtime| {
        let work = asked_within(40 * MS).watched("critical on one thread");
        !runtime.block_on(work)
    };
    let outside = critical_section();
    assert!(is_in_section(&runtime), "begun outside, it holds inside");
    runtime.block_on(async move { drop(outside) });
    assert!(!is_in_section(&runtime), "ended inside");
    let inside = runtime.block_on(async { critical_section() });
    assert!(
        is_in_section(&runtime),
        "begun inside, it holds outside, and in the next"
    );
    drop(inside);
    assert!(!is_in_section(&runtime), "ended outside");
}

#[test]
fn tasks_of_a_local_set_are_watched() {
    let _alone = alone();
    let runtime = runtime();
    let local = LocalSet::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    runtime.block_on(local.run_until(async move {
        let task = tokio::task::spawn_local(
            async move {
                let asked = until_asked().await;
                noted.borrow_mut().push(asked);
            }
            .watched("local on one thread"),
        );
        task.await.unwrap();
    }));
    assert_eq!(*seen.borrow(), [true]);
    assert!(runtime.metrics().requests > 0);
}

#[test]
fn threads_take_turns_in_one_runtime() {
    let _alone = alone();
    let runtime = Arc::new(runtime());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                for _ in 0..8 {
                    let asked = runtime.block_on(async {
                        tokio::time::sleep(MS).await;
                        let task = tokio::spawn(until_asked().watched("turns"));
                        in_time(task).await.unwrap()
                    });
                    assert!(asked);
                }
            })
        })
        .collect();
    for thread in threads {
        within(PATIENCE, move || thread.join().unwrap());
    }
    assert!(runtime.metrics().requests >= 32, "{:?}", runtime.metrics());
    assert!(
        runtime
            .metrics()
            .limitations
            .iter()
            .all(|missing| { *missing != morpheus_runtime::Limitation::Slots })
    );
}

/// The thread's slot is given back each time, and blocking threads belong to the runtime.
#[test]
fn block_on_a_thousand_times() {
    let _alone = alone();
    let runtime = runtime();
    for number in 0..1_000 {
        let same = runtime.block_on(async move { number }.watched("a thousand"));
        assert_eq!(same, number);
    }
    let missing = runtime.metrics().limitations;
    assert!(
        !missing.contains(&morpheus_runtime::Limitation::Slots),
        "{missing:?}"
    );
    let workers = runtime.block_on(async { Metrics::current().map(|metrics| metrics.workers) });
    assert_eq!(workers, Some(1));
    let blocking = runtime.spawn_blocking(|| {
        let watched = async { checkpoint_sync() }.watched("on a blocking thread");
        tokio::runtime::Handle::current().block_on(watched)
    });
    assert!(!runtime.block_on(blocking).unwrap());
}

#[test]
fn it_ends_as_tokio_s_does() {
    let _alone = alone();
    let before = settled_threads();
    // A drop cancels tasks, those that never ran too.
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    for runs in [false, true] {
        let runtime = runtime();
        let dropped = Arc::new(AtomicBool::new(false));
        let noted = Noted(dropped.clone());
        let task = runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(noted);
        });
        if runs {
            runtime.block_on(tokio::task::yield_now());
        }
        drop(runtime);
        assert!(dropped.load(Ordering::SeqCst));
        drop(task);
    }
    // A poll that is left on a blocking thread is named.
    let gate = Gate::default();
    let (held, inside) = (gate.clone(), Gate::default());
    let begun = inside.clone();
    let label = fresh_label("left on a blocking thread");
    let runtime = runtime();
    drop(runtime.spawn_blocking(move || {
        let work = async move {
            begun.open();
            held.wait();
        };
        tokio::runtime::Handle::current().block_on(work.watched(label));
    }));
    inside.wait();
    let report = within(PATIENCE, move || runtime.shutdown_and_report(50 * MS));
    assert_eq!(report.left.len(), 1, "{report:?}");
    assert_eq!(report.left[0].label, label);
    gate.open();
    let quiet = self::runtime();
    assert_eq!(
        quiet.shutdown_and_report(PATIENCE),
        ShutdownReport::default()
    );
    // In async code a drop panics, and a shutdown in the background does not.
    let outer = self::runtime();
    let inner = self::runtime();
    outer.block_on(async move { inner.shutdown_background() });
    let inner = self::runtime();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        outer.block_on(async move { drop(inner) });
    }));
    let tokio_s = catch_unwind(AssertUnwindSafe(|| {
        let inner = tokio::runtime::Runtime::new().unwrap();
        outer.block_on(async move { drop(inner) });
    }));
    assert_eq!(
        panic_text(&*caught.unwrap_err()),
        panic_text(&*tokio_s.unwrap_err())
    );
    drop(outer);
    assert!(
        wait_for(PATIENCE, || threads() <= before),
        "the controllers have ended, too"
    );
}

#[test]
fn options_of_runtimes_with_workers_have_no_effect() {
    let _alone = alone();
    let runtime = Builder::new_current_thread()
        .worker_threads(7)
        .max_spares(5_000)
        .reserve(6_000)
        .max_handoffs(3)
        .confine_to_quota(true)
        .build()
        .unwrap();
    let metrics = runtime.metrics();
    assert_eq!((metrics.workers, metrics.spares), (1, 0));
    assert_eq!(metrics.tokio().num_workers(), 1);
    assert_eq!(
        runtime
            .block_on(async { tokio::spawn(async { 7 }).await })
            .unwrap(),
        7
    );
}

/// One thread comes with it: the controller's.
#[test]
fn it_joins_no_daemon() {
    let _alone = alone();
    let before = settled_threads();
    let runtime = runtime();
    assert_eq!(runtime.link(), ActiveLink::Watchdog);
    // It gives itself its name, and so would a thread for a link.
    assert!(wait_for(PATIENCE, || threads() > before));
    std::thread::sleep(50 * MS);
    assert_eq!(threads(), before + 1);
    let mut builder = Builder::new_current_thread();
    let error = builder.link(Link::Required).try_build().unwrap_err();
    assert!(matches!(error, BuildError::LinkOnOneThread), "{error}");
    assert!(error.to_string().contains("Link::Auto"), "{error}");
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

/// A program of one thread blocks a signal when the runtime is already there, and waits for it. Any other thread that does not
/// block it would take it, and end the process.
#[test]
fn a_signal_that_the_body_blocks_goes_to_no_thread_of_the_library() {
    let _alone = alone();
    if !common::is_child() {
        let name = "a_signal_that_the_body_blocks_goes_to_no_thread_of_the_library";
        common::in_child(name, &[]);
        return;
    }
    // SAFETY: no other thread of this process has a lock that the child needs: the harness waits for this test. The child is killed
    // if it waits for ever.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
        }
        child
    };
    if child == 0 {
        // The fork has this thread alone: there is no thread of the harness that takes the signal.
        let is_received = catch_unwind(receives_a_blocked_signal).unwrap_or(false);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!is_received)) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable, and the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn receives_a_blocked_signal() -> bool {
    let before = threads();
    runtime().block_on(async {
        async { burn(60 * MS) }
            .watched(fresh_label("before the signal"))
            .await;
        // Those of the controller and of the reporter.
        assert!(wait_for(PATIENCE / 2, || threads() == before + 2));
        // SAFETY: the set and the time are valid for each call; the mask is that of this thread, and the signal goes to this process.
        unsafe {
            let mut signals = std::mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            libc::sigaddset(&raw mut signals, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGUSR1);
            let time = libc::timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            let info = std::ptr::null_mut();
            libc::sigtimedwait(&raw const signals, info, &raw const time) == libc::SIGUSR1
        }
    })
}

/// A worker gets a short one, which the application's thread must not keep.
#[test]
fn the_calling_thread_keeps_its_slice() {
    let _alone = alone();
    let slice = || {
        let sched = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
        let line = sched.lines().find(|line| line.starts_with("se.slice"));
        line.map(str::to_owned)
    };
    let before = slice();
    let runtime = runtime();
    let inside = runtime.block_on(async {
        assert!(until_asked().watched("slice").await);
        tokio::time::sleep(MS).await;
        slice()
    });
    if before.is_none() {
        morpheus_testing::skip("the kernel shows no slices of threads");
        return;
    }
    assert_eq!((inside, slice()), (before.clone(), before));
}
