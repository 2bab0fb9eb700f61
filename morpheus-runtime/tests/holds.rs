//! Tests that holding spares loses no task and no driver.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{MS, PATIENCE, alone, in_time};
use morpheus_runtime::{Builder, Mechanism, Runtime};
use tokio::task::JoinHandle;

/// Longer than any task waits that is not lost, on a machine that is busy with other things.
const LATE: Duration = Duration::from_secs(2);
/// How many runtimes hold and release beside each other: each holds ten spares a second at most.
const RUNTIMES: usize = 16;
/// A debug build takes ten seconds for a hundred. The thousand are asked of the release build.
const HOLDS: u64 = if cfg!(debug_assertions) { 60 } else { 1000 };

/// A runtime with tasks that are woken by timers, by each other (which is the way into a LIFO slot), from
/// outside, and that yield.
struct Busy {
    runtime: Runtime,
    tasks: Vec<JoinHandle<()>>,
    outside: Vec<Arc<tokio::sync::Notify>>,
}

/// The longest that any task waited for its wake, in microseconds.
type Worst = Arc<AtomicU64>;

impl Busy {
    fn start(stop: &Arc<AtomicBool>, worst: &Worst) -> Busy {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_spares(12)
            .build()
            .unwrap();
        let mut tasks = Vec::new();
        let mut outside = Vec::new();
        for turn in 0..6u32 {
            let (stop, worst) = (stop.clone(), worst.clone());
            tasks.push(runtime.handle().spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let due = Instant::now() + MS * (2 + turn);
                    tokio::time::sleep_until(due.into()).await;
                    note(&worst, due);
                }
            }));
        }
        for _ in 0..3 {
            // Pairs of tasks: each wakes the other and waits for it.
            let (tx, mut rx) = tokio::sync::mpsc::channel::<Instant>(1);
            let (back_tx, mut back_rx) = tokio::sync::mpsc::channel::<Instant>(1);
            let (stop, worst) = (stop.clone(), worst.clone());
            let their_worst = worst.clone();
            tasks.push(runtime.handle().spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if tx.send(Instant::now()).await.is_err() {
                        return;
                    }
                    let Some(sent) = back_rx.recv().await else {
                        return;
                    };
                    note(&worst, sent);
                    tokio::time::sleep(MS).await;
                }
            }));
            tasks.push(runtime.handle().spawn(async move {
                while let Some(sent) = rx.recv().await {
                    note(&their_worst, sent);
                    if back_tx.send(Instant::now()).await.is_err() {
                        return;
                    }
                }
            }));
        }
        for turn in 0..2u32 {
            // Tokio keeps a task that yields in a list of its thread, from which no worker can steal.
            let (stop, worst) = (stop.clone(), worst.clone());
            tasks.push(runtime.handle().spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let since = Instant::now();
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    note(&worst, since);
                    tokio::time::sleep(MS * (1 + turn)).await;
                }
            }));
        }
        for _ in 0..2 {
            let notify = Arc::new(tokio::sync::Notify::new());
            outside.push(notify.clone());
            let stop = stop.clone();
            tasks.push(runtime.handle().spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    notify.notified().await;
                }
            }));
        }
        Busy {
            runtime,
            tasks,
            outside,
        }
    }

    /// Blocks several workers for a moment, so that spares are released.
    fn burst(&self) {
        for _ in 0..4 {
            drop(
                self.runtime
                    .handle()
                    .spawn(async { std::thread::sleep(4 * MS) }),
            );
        }
        for notify in &self.outside {
            notify.notify_one();
        }
    }
}

fn note(worst: &Worst, since: Instant) {
    let us = Instant::now().saturating_duration_since(since).as_micros() as u64;
    worst.fetch_max(us, Ordering::Relaxed);
}

#[test]
fn many_holds_lose_no_task() {
    let _alone = alone();
    let (stop, worst) = (Arc::new(AtomicBool::new(false)), Worst::default());
    let runtimes: Vec<Busy> = (0..RUNTIMES).map(|_| Busy::start(&stop, &worst)).collect();
    let holds = || -> u64 {
        let of = |busy: &Busy| busy.runtime.metrics().debug.holds;
        runtimes.iter().map(of).sum()
    };
    let began = Instant::now();
    let mut round = 0;
    while holds() < HOLDS && began.elapsed() < 2 * PATIENCE {
        // Each has a burst in every third second, and is held back in the other two.
        for (number, busy) in runtimes.iter().enumerate() {
            if (round + number * 2) % 30 == 0 {
                busy.burst();
            }
        }
        round += 1;
        std::thread::sleep(100 * MS);
    }
    // A slow or busy machine does fewer holds in that time; the checks below hold for those, too.
    assert!(
        holds() >= HOLDS / 10,
        "{} holds in {:?}",
        holds(),
        began.elapsed()
    );
    // From here on no spare is released: a task that waits behind a held spare would wait for ever.
    stop.store(true, Ordering::Relaxed);
    for busy in runtimes {
        for notify in &busy.outside {
            notify.notify_one();
        }
        for task in busy.tasks {
            busy.runtime.block_on(in_time(task)).unwrap();
        }
    }
    let worst = Duration::from_micros(worst.load(Ordering::Relaxed));
    assert!(worst < LATE, "a task waited for {worst:?}");
    assert_eq!(common::own_panics(), 0);
}

/// Spares are held again when no poll is stalled any more, and the reserve stays released.
#[test]
fn released_spares_are_held_again() {
    spares_are_held_again(false, 1);
}

/// One poll that blocks for ever keeps a spare, and the reserve that its signs of pressure ask for.
#[test]
fn released_spares_are_held_again_beside_a_poll_that_blocks_for_ever() {
    spares_are_held_again(true, 2);
}

/// Ten hogs have spares released, of which in the end `released` stay so, beside a task that blocks all the time if `blocks`.
fn spares_are_held_again(blocks: bool, released: usize) {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(12)
        .watch_every_task(false)
        .build()
        .unwrap();
    let hogs: Vec<_> = (0..10)
        .map(|_| {
            runtime
                .handle()
                .spawn(async { std::thread::sleep(200 * MS) })
        })
        .collect();
    for hog in hogs {
        runtime.block_on(in_time(hog)).unwrap();
    }
    let peak = runtime.metrics().debug.spares_peak;
    assert!(peak >= 8, "{peak}");
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let blocking = blocks.then(|| {
        morpheus_runtime::task::Builder::new()
            .label("blocks for ever")
            .spawn_on(
                async move { assert!(receiver.recv().is_err()) },
                runtime.handle(),
            )
    });
    // This task keeps workers and the controller awake.
    let stop = Arc::new(AtomicBool::new(false));
    let work = runtime.handle().spawn({
        let stop = stop.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(MS).await;
            }
        }
    });
    let held = common::wait_for(PATIENCE, || runtime.metrics().spares_released <= released);
    assert!(held, "{:?}", runtime.metrics());
    assert!(runtime.metrics().debug.holds >= (peak - released) as u64);
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(in_time(work)).unwrap();
    drop(sender);
    if let Some(task) = blocking {
        runtime.block_on(in_time(task)).unwrap();
    }
}

/// Returns how many of ten timers were late because the worker that had the driver was stalled. See
/// `tokio_assumptions.rs`.
fn orphaned_driver(builder: &mut Builder) -> u32 {
    const HOG: Duration = Duration::from_millis(300);
    builder.worker_threads(4).max_spares(4);
    let runtime = builder.watch_every_task(false).build().unwrap();
    let mut stalled = 0;
    for _ in 0..10 {
        std::thread::sleep(50 * MS);
        let began = Instant::now();
        runtime.handle().spawn(async move {
            tokio::time::sleep_until((began + 30 * MS).into()).await;
            let begun = Instant::now();
            while begun.elapsed() < HOG {
                std::hint::spin_loop();
            }
        });
        let timer = runtime.handle().spawn(async move {
            let due = began + 60 * MS;
            tokio::time::sleep_until(due.into()).await;
            Instant::now().saturating_duration_since(due)
        });
        let late = runtime.block_on(in_time(timer)).unwrap();
        stalled += u32::from(late > HOG / 2);
        std::thread::sleep((began + 40 * MS + HOG).saturating_duration_since(Instant::now()));
    }
    stalled
}

#[test]
fn an_orphaned_driver_finds_a_worker() {
    let _alone = alone();
    let stalled = orphaned_driver(&mut Builder::new_multi_thread());
    assert!(stalled <= 1, "{stalled} of 10 timers stalled");
    let control = orphaned_driver(
        Builder::new_multi_thread()
            .without(Mechanism::Poke)
            .without(Mechanism::Canary)
            .without(Mechanism::Reserve),
    );
    assert!(
        control >= 3,
        "without poke and canary only {control} of 10 stalled"
    );
}
