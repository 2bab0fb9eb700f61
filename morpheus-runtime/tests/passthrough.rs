//! Tests a runtime without protection: its API behaves as tokio's and says so. On Linux with `--cfg morpheus_passthrough`:
//!
//! ```sh
//! RUSTFLAGS="--cfg morpheus_passthrough" cargo test --target-dir target/passthrough -p morpheus-runtime --lib --test passthrough
//! ```
#![cfg(any(not(target_os = "linux"), morpheus_passthrough))]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use morpheus_runtime::{
    ActiveLink, BuildError, Builder, Health, Limitation, Link, LinkError, Metrics, Policy, Stalls,
    Watch as _, checkpoint_sync, critical_section, yield_requested,
};

const MS: Duration = Duration::from_millis(1);

/// Computes in one poll for many budgets. Returns whether it was asked to yield.
fn compute() -> bool {
    let began = Instant::now();
    let mut asked = false;
    while began.elapsed() < 30 * MS {
        asked |= yield_requested() | checkpoint_sync();
    }
    asked
}

#[test]
fn as_many_workers_as_asked_for_and_no_spares() {
    let threads = Arc::new(AtomicUsize::new(0));
    let counted = threads.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(3)
        .max_spares(16)
        .on_thread_start(move || _ = counted.fetch_add(1, Ordering::SeqCst))
        .build()
        .unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.tokio().num_workers(), 3);
    assert_eq!((metrics.workers, metrics.active_workers()), (3, 3));
    assert_eq!((metrics.spares, metrics.debug.spares_unavailable), (0, 0));
    assert_eq!(metrics.num_alive_tasks(), 0);
    // A task on each worker, so that each thread has started.
    let all = Arc::new(tokio::sync::Barrier::new(3));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let all = all.clone();
            runtime.spawn(async move { all.wait().await.is_leader() })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    drop(runtime);
    assert_eq!(threads.load(Ordering::SeqCst), 3, "no controller, either");
}

#[test]
fn nothing_is_asked_reported_or_counted() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .report_after(MS)
        .build()
        .unwrap();
    let slow = runtime.spawn(async { compute() });
    assert!(!runtime.block_on(slow).unwrap());
    assert!(!runtime.block_on(async { compute() }.watched("passthrough: computes")));
    let metrics = runtime.metrics();
    let counted = [
        metrics.debug.samples,
        metrics.requests,
        metrics.takeovers,
        metrics.debug.canaries,
        metrics.demotions,
        metrics.debug.slow_tasks,
        metrics.debug.hog_tasks,
        metrics.handoff_polls,
        metrics.debug.sample_age_ns,
        metrics.canary_lateness.count,
    ];
    assert_eq!(counted, [0; 10]);
    assert!(!metrics.controller_off && !metrics.debug.controller_sleeps);
    assert!(runtime.stalls().groups.is_empty());
    assert_eq!(runtime.health(), Health::Healthy);
    // Tokio's own counters count.
    assert!(
        !metrics.total_busy_duration().is_zero() || metrics.total_park_count() > 0,
        "{metrics:?}"
    );
}

#[test]
fn it_says_that_protection_is_missing() {
    for mut builder in [Builder::new_multi_thread(), Builder::new_current_thread()] {
        let runtime = builder.worker_threads(1).build().unwrap();
        assert_eq!(runtime.link(), ActiveLink::None);
        assert_eq!(runtime.metrics().limitations, [Limitation::Protection]);
        runtime.block_on(async {
            let metrics = Metrics::current().expect("on a runtime of Morpheus's");
            assert_eq!(metrics.limitations, [Limitation::Protection]);
            assert!(Stalls::current().is_some());
        });
    }
    assert!(Metrics::current().is_none());
    assert!(Limitation::Protection.to_string().contains("Linux"));
}

#[test]
fn a_link_that_is_required_cannot_be_had() {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).link(Link::Required);
    let error = builder.try_build().unwrap_err();
    assert!(matches!(error, BuildError::Link(LinkError::Unsupported)));
    assert!(error.to_string().contains("needs Linux"), "{error}");
    assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Unsupported);
    let on_one_thread = Builder::new_current_thread()
        .link(Link::Required)
        .try_build();
    assert!(matches!(on_one_thread, Err(BuildError::LinkOnOneThread)));
}

#[test]
fn numbers_that_make_no_sense_are_the_same_errors() {
    let error = |set: fn(&mut Builder)| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        set(&mut builder);
        builder.try_build().unwrap_err()
    };
    let no_workers = error(|builder| _ = builder.worker_threads(0));
    assert!(matches!(no_workers, BuildError::NoWorkers));
    let no_budget = error(|builder| _ = builder.budget(Duration::ZERO));
    assert!(matches!(no_budget, BuildError::NoBudget));
    let too_many = error(|builder| _ = builder.worker_threads(100_000));
    assert!(matches!(too_many, BuildError::TooManyWorkers { .. }));
    let reserve = error(|builder| _ = builder.max_spares(1).reserve(2));
    assert!(matches!(reserve, BuildError::ReserveTooLarge { .. }));
}

#[test]
fn critical_sections_nest_and_end() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let value = runtime.block_on(morpheus_runtime::critical(async {
        let outer = critical_section();
        let inner = critical_section();
        drop(outer);
        tokio::task::yield_now().await;
        assert!(!checkpoint_sync());
        drop(inner);
        "done"
    }));
    assert_eq!(value, "done");
}

#[test]
fn hooks_and_names_are_the_application_s() {
    let counts: [Arc<AtomicUsize>; 3] = Default::default();
    let [parks, unparks, stops] = counts.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .policy(Policy::Observe)
        .thread_name("mine")
        .on_thread_park(move || _ = parks.fetch_add(1, Ordering::SeqCst))
        .on_thread_unpark(move || _ = unparks.fetch_add(1, Ordering::SeqCst))
        .on_thread_stop(move || _ = stops.fetch_add(1, Ordering::SeqCst))
        .build()
        .unwrap();
    let name = runtime.spawn(async {
        tokio::time::sleep(MS).await;
        std::thread::current().name().map(str::to_owned)
    });
    assert_eq!(runtime.block_on(name).unwrap().as_deref(), Some("mine"));
    runtime.shutdown_timeout(Duration::from_secs(60));
    for count in counts {
        assert!(count.load(Ordering::SeqCst) > 0);
    }
}

#[test]
fn a_shutdown_waits_no_longer_than_it_was_told() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (began, has_begun) = std::sync::mpsc::channel();
    drop(runtime.spawn(async move {
        began.send(()).unwrap();
        std::thread::sleep(Duration::from_secs(5));
    }));
    has_begun.recv().unwrap();
    let at = Instant::now();
    let report = runtime.shutdown_and_report(10 * MS);
    assert!(at.elapsed() < Duration::from_secs(4));
    assert!(report.left.is_empty(), "nothing is watched");
}
