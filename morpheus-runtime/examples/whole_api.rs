//! Uses the whole public API once, on any system; prints what it found, and exits with 0 if that is right.
//!
//! ```sh
//! cargo run -p morpheus-runtime --example whole_api
//! RUSTFLAGS="--cfg morpheus_passthrough" CARGO_TARGET_DIR=target/passthrough cargo run -p morpheus-runtime --example whole_api
//! ```
//!
//! The second builds on Linux what other systems have: tokio without protection. `cargo xtask test --all` runs that, and checks
//! that this example builds for macOS, Windows and another architecture of Linux.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use morpheus_runtime::runtime::{self, Handle, RuntimeFlavor};
use morpheus_runtime::task::{self, Handoff};
use morpheus_runtime::tower::WatchLayer;
use morpheus_runtime::{
    ActiveLink, BuildError, Builder, Critical, CriticalSection, DebugMetrics, Frame, Health,
    LatencySummary, Leftover, Limitation, Link, LinkError, Mechanism, Metrics, NoStack, Policy,
    Runtime, ShutdownReport, StallGroup, StallKind, Stalls, StripMine as _, UnknownMechanism,
    Watch as _, Watched, checkpoint, checkpoint_sync, critical, critical_section, slice, spawn,
    strip, strips, watch, yield_requested,
};
use tower_layer::Layer as _;
use tower_service::Service;

const MS: Duration = Duration::from_millis(1);
/// Whether there is more than tokio.
const IS_PROTECTED: bool = cfg!(all(target_os = "linux", not(morpheus_passthrough)));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = build()?;
    println!("{runtime:?}");
    runtime.block_on(futures());
    runtime.block_on(critical_sections());
    runtime.block_on(loops());
    runtime.block_on(service());
    tasks(&runtime)?;
    numbers(&runtime);
    stalls(&runtime)?;
    refusals();
    mechanisms()?;
    shutdowns(runtime)?;
    current_thread()?;
    attributes();
    slices();
    println!("all of it is as it should be, protected: {IS_PROTECTED}");
    Ok(())
}

/// Every option that tokio was not built specially for.
fn build() -> io::Result<Runtime> {
    let started = Arc::new(AtomicUsize::new(0));
    let (at_start, at_park) = (started.clone(), Arc::new(AtomicUsize::new(0)));
    let unparked = at_park.clone();
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .max_spares(4)
        .reserve(1)
        .budget(MS)
        .grace(MS)
        .report_after(10 * MS)
        .policy(Policy::Demote)
        .link(Link::Watchdog)
        .link_socket("no-daemon-listens-here")
        .demotable(true)
        .nice_hogs(false)
        .confine_hogs(true)
        .confine_to_quota(false)
        .max_blocking_threads(8)
        .max_handoffs(8)
        .event_interval(61)
        .global_queue_interval(31)
        .thread_name("whole-api")
        .thread_name_fn(|| "whole-api".into())
        .name("whole-api")
        .thread_stack_size(1 << 20)
        .thread_keep_alive(Duration::from_secs(1))
        .on_thread_start(move || _ = at_start.fetch_add(1, Ordering::Relaxed))
        .on_thread_stop(|| ())
        .on_thread_park(move || _ = at_park.fetch_add(1, Ordering::Relaxed))
        .on_thread_unpark(move || _ = unparked.fetch_add(1, Ordering::Relaxed))
        .watch_every_task(false)
        .disable_lifo_slot(false)
        .without(Mechanism::Poke)
        .enable_all()
        .enable_io()
        .enable_time()
        .tokio(|tokio| _ = tokio.max_io_events_per_tick(256));
    println!("{builder:?}");
    let runtime = builder.build()?;
    let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(
        runtime.block_on(name).unwrap().as_deref(),
        Some("whole-api")
    );
    // On tokio alone the second may still be starting.
    let until = Instant::now() + Duration::from_secs(10);
    while started.load(Ordering::Relaxed) < 2 && Instant::now() < until {
        std::thread::sleep(MS);
    }
    let threads = started.load(Ordering::Relaxed);
    println!("{threads} threads started");
    assert!(threads >= 2);
    Ok(runtime)
}

async fn futures() {
    let watched: Watched<_> = watch(async { 1 });
    let values = [
        watched.await,
        async { 2 }.watched("a name").await,
        async { 3 }
            .watched_as(&format!("a name of {}", "today"))
            .await,
        spawn(async { 4 }).await.unwrap(),
        task::Builder::new()
            .label("labelled")
            .demotable(false)
            .handoff(Handoff::Never)
            .watch(async { 5 })
            .await,
        task::Builder::default()
            .name("named")
            .handoff(Handoff::Allowed)
            .spawn(async { 6 })
            .await
            .unwrap(),
        task::Builder::new()
            .spawn_on(async { 7 }, &Handle::current())
            .await
            .unwrap(),
    ];
    assert_eq!(values, [1, 2, 3, 4, 5, 6, 7]);
    // A future that is pending, is woken, and has what it awaited.
    let (give, got) = tokio::sync::oneshot::channel();
    let waiting = spawn(async move { got.await.unwrap() });
    tokio::time::sleep(MS).await;
    give.send("woken").unwrap();
    assert_eq!(waiting.await.unwrap(), "woken");
    println!("watched futures had their values");
}

/// Computes for 20 ms in one poll, and says whether it was asked to yield.
fn compute() -> bool {
    let began = Instant::now();
    let mut asked = false;
    while began.elapsed() < 20 * MS {
        asked |= yield_requested() | checkpoint_sync();
    }
    asked
}

async fn critical_sections() {
    let asked = async { compute() }.watched("computes").await;
    // On Linux that depends on whether the controller got the CPU.
    assert!(IS_PROTECTED || !asked);
    let in_section: Critical<_> = critical(async {
        let outer: CriticalSection = critical_section();
        let inner = critical_section();
        drop(outer);
        let asked = checkpoint_sync();
        drop(inner);
        asked
    });
    assert!(!in_section.await);
    checkpoint().await;
    println!("asked to yield after a budget: {asked}");
}

async fn loops() {
    let numbers: Vec<u64> = (0..100_000).collect();
    let wanted: u64 = numbers.iter().sum();
    assert_eq!(numbers.iter().strip().sum::<u64>(), wanted);
    let mut sum = 0;
    let mut parts = strips(&numbers[..]);
    while let Some(part) = parts.next_or_yield().await {
        sum += part.iter().sum::<u64>();
    }
    assert_eq!(sum, wanted);
    let mut sum = 0;
    strip!(for number in numbers.iter() {
        sum += number;
    });
    assert_eq!(sum, wanted);
    let mut tuner = morpheus_runtime::strip::Tuner::new();
    println!("a strip begins with {} turns", tuner.begin());
}

struct Greets;

impl Service<http::Request<()>> for Greets {
    type Response = String;
    type Error = Infallible;
    type Future = Ready<Result<String, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<()>) -> Self::Future {
        ready(Ok(format!("hello {}", request.uri())))
    }
}

async fn service() {
    let by_route = WatchLayer::by_route(|head| Some(head.uri().path()));
    for layer in [WatchLayer::new(), by_route] {
        let mut service = layer.layer(Greets);
        let request = http::Request::get("/you").body(()).unwrap();
        assert_eq!(service.call(request).await, Ok("hello /you".to_owned()));
    }
    println!("a watched service answered");
}

fn tasks(runtime: &Runtime) -> io::Result<()> {
    let blocking = runtime.spawn_blocking(|| "blocking");
    assert_eq!(runtime.block_on(blocking).unwrap(), "blocking");
    assert_eq!(
        runtime.handle().runtime_flavor(),
        RuntimeFlavor::MultiThread
    );
    let entered: runtime::EnterGuard<'_> = runtime.enter();
    let id: runtime::Id = Handle::current().id();
    drop(entered);
    assert_eq!(id, runtime.handle().id());
    let worker = runtime.spawn(async { runtime::worker_index().is_some() });
    assert!(runtime.block_on(worker).unwrap());
    let without_core = runtime.spawn(async { tokio::task::block_in_place(|| 8) });
    assert_eq!(runtime.block_on(without_core).unwrap(), 8);
    assert!(
        Runtime::new()?
            .block_on(async { Metrics::current() })
            .is_some()
    );
    println!("tasks, blocking calls and handles work");
    Ok(())
}

fn numbers(runtime: &Runtime) {
    let metrics: Metrics = runtime.metrics();
    assert_eq!((metrics.workers, metrics.num_workers()), (2, 2));
    let _tasks = metrics.num_alive_tasks() + metrics.global_queue_depth();
    let _busy = (metrics.total_busy_duration(), metrics.total_park_count());
    let _debug: &DebugMetrics = &metrics.debug;
    let tokio: &runtime::RuntimeMetrics = metrics.tokio();
    assert_eq!(tokio.num_workers(), metrics.workers + metrics.spares);
    assert_eq!(metrics.spares > 0, IS_PROTECTED);
    assert!(metrics.active_workers() >= 2);
    assert_eq!(
        metrics.limitations.contains(&Limitation::Protection),
        !IS_PROTECTED
    );
    if !IS_PROTECTED {
        assert_eq!(
            (
                metrics.debug.samples,
                metrics.debug.canaries,
                metrics.requests
            ),
            (0, 0, 0)
        );
        assert_eq!((metrics.takeovers, metrics.handoff_polls), (0, 0));
        assert_eq!(metrics.canary_lateness, LatencySummary::default());
        assert_eq!(metrics.debug.sample_age_ns, 0);
    }
    metrics.publish();
    metrics.publish_as("whole api");
    metrics.publish_debug();
    metrics.publish_debug_as("whole api");
    for limitation in &metrics.limitations {
        println!("missing: {limitation}");
    }
    let expected = if IS_PROTECTED {
        ActiveLink::Watchdog
    } else {
        ActiveLink::None
    };
    assert_eq!(runtime.link(), expected);
    assert_ne!(runtime.health(), Health::DaemonLost);
    println!("link {}, {:?}", runtime.link(), runtime.health());
}

fn stalls(runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    let slow = async { std::thread::sleep(60 * MS) };
    runtime.block_on(runtime.handle().spawn(slow.watched("sleeps")))?;
    let stalls: Stalls = runtime.stalls();
    if !IS_PROTECTED {
        assert!(stalls.groups.is_empty());
        assert_eq!((stalls.other_groups, stalls.not_captured), (0, 0));
    }
    let describe = |group: &StallGroup| {
        let kind: StallKind = group.kind;
        let line: Option<&Frame> = group.culprit();
        let why: Option<NoStack> = group.no_stack;
        format!("{} × {} {kind}: {line:?} {why:?}", group.count, group.label)
    };
    stalls
        .groups
        .iter()
        .for_each(|group| println!("{}", describe(group)));
    println!("{stalls}");
    assert!(Stalls::current().is_none(), "on no runtime");
    assert!(runtime.block_on(async { Stalls::current() }).is_some());
    Ok(())
}

fn refusals() {
    let mut builder = Builder::new_multi_thread();
    builder
        .link(Link::Required)
        .link_socket("no-daemon-listens-here");
    let error = builder.try_build().unwrap_err();
    println!("no link: {error}");
    let is_expected = match &error {
        BuildError::Link(LinkError::Absent { .. }) => IS_PROTECTED,
        BuildError::Link(LinkError::Unsupported) => !IS_PROTECTED,
        _ => false,
    };
    assert!(is_expected, "{error:?}");
    let kind = if IS_PROTECTED {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Unsupported
    };
    assert_eq!(io::Error::from(error).kind(), kind);
    let no_workers = Builder::new_multi_thread().worker_threads(0).try_build();
    assert!(matches!(no_workers, Err(BuildError::NoWorkers)));
    let no_budget = Builder::new_current_thread()
        .budget(Duration::ZERO)
        .try_build();
    assert!(matches!(no_budget, Err(BuildError::NoBudget)));
    let on_one_thread = Builder::new_current_thread()
        .link(Link::Required)
        .try_build();
    assert!(matches!(on_one_thread, Err(BuildError::LinkOnOneThread)));
}

fn mechanisms() -> Result<(), UnknownMechanism> {
    for mechanism in Mechanism::ALL {
        assert_eq!(mechanism.to_string().parse::<Mechanism>()?, mechanism);
    }
    assert!("no such mechanism".parse::<Mechanism>().is_err());
    Ok(())
}

fn shutdowns(runtime: Runtime) -> io::Result<()> {
    let report: ShutdownReport = runtime.shutdown_and_report(Duration::from_secs(10));
    let left: &[Leftover] = &report.left;
    assert_eq!((left.len(), report.unwatched), (0, 0));
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).policy(Policy::Observe);
    builder.build()?.shutdown_timeout(Duration::from_secs(10));
    builder.build()?.shutdown_background();
    println!("runtimes shut down");
    Ok(())
}

fn current_thread() -> io::Result<()> {
    let runtime = Builder::new_current_thread().start_paused(true).build()?;
    let began = Instant::now();
    runtime.block_on(async { tokio::time::sleep(Duration::from_secs(3600)).await });
    assert!(began.elapsed() < Duration::from_secs(60));
    let asked = runtime.block_on(async { compute() }.watched("computes on one thread"));
    assert!(IS_PROTECTED || !asked);
    let metrics = runtime.metrics();
    assert_eq!((metrics.workers, metrics.spares), (1, 0));
    println!("a current-thread runtime works, with a paused clock too");
    Ok(())
}

#[morpheus_runtime::main(worker_threads = 1, max_spares = 1, budget_us = 1_000)]
async fn attributes() {
    let task = spawn(async { Handle::current().runtime_flavor() });
    assert_eq!(task.await.unwrap(), RuntimeFlavor::MultiThread);
    println!("the attribute builds a runtime");
}

fn slices() {
    println!("the slice of this thread: {:?}", slice::current());
    let took = slice::set_current(slice::WORKER_SLICE_NS);
    assert!(IS_PROTECTED || !took);
}
