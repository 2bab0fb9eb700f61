//! Runs a random mix of everything, repeatable by its seed, and accounts for every task at the end.
//!
//! `MORPHEUS_SEED` repeats a run, `MORPHEUS_STRESS_SECS` makes it longer (default 3).

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{MS, PATIENCE, alone, burn, wait_for, within};
use morpheus_runtime::{Builder, Mechanism, Policy, Runtime, Watch as _, task};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Marsaglia's xorshift64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn ms(&mut self, limit: u64) -> Duration {
        Duration::from_micros(self.below(limit * 1000))
    }

    /// A generator of its own for a task, so that what a task does depends on the seed alone.
    fn fork(&mut self) -> Random {
        Random(self.next() | 1)
    }
}

#[derive(Debug, Default)]
struct Tally {
    begun: AtomicUsize,
    dropped: AtomicUsize,
    finished: AtomicUsize,
    panicked: AtomicUsize,
}

/// Counts a future of a task, and its drop.
struct Alive(Arc<Tally>);

impl Alive {
    fn new(tally: &Arc<Tally>) -> Alive {
        tally.begun.fetch_add(1, Ordering::SeqCst);
        Alive(tally.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Does one of the things that tasks do.
async fn step(random: &mut Random, channel: &mpsc::Sender<u64>) {
    match random.below(16) {
        0 => tokio::time::sleep(random.ms(5)).await,
        1 => std::thread::sleep(random.ms(12)),
        2 => burn(random.ms(12)),
        3 | 4 => tokio::task::yield_now().await,
        5 => {
            let nap = random.ms(5);
            tokio::task::block_in_place(|| std::thread::sleep(nap));
        }
        6 => {
            let nap = random.ms(5);
            tokio::task::spawn_blocking(move || std::thread::sleep(nap))
                .await
                .unwrap();
        }
        7 => {
            let (nap, hog) = (random.ms(3), random.ms(6));
            async move {
                burn(hog);
                tokio::time::sleep(nap).await;
            }
            .watched("stress inner")
            .await;
        }
        8 => drop(channel.try_send(random.next())),
        9 => {
            let nap = random.ms(3);
            let _ = tokio::time::timeout(nap, common::always_ready(Arc::default())).await;
        }
        10 => {
            let (one, two) = (random.ms(4), random.ms(4));
            let slow = async {
                burn(one);
                tokio::time::sleep(one).await;
            };
            tokio::select! {
                () = slow.watched("stress branch") => {}
                () = tokio::time::sleep(two) => {}
            }
        }
        11 => {
            let work = random.ms(3);
            for _ in 0..8 {
                burn(work / 8);
                morpheus_runtime::checkpoint().await;
            }
        }
        12 => {
            let work = random.ms(2);
            morpheus_runtime::critical(async { burn(work) }).await;
        }
        13 => {
            // No timer: with every thread of the pool in here, no thread would be left to drive it, as in
            // tokio.
            let handle = tokio::runtime::Handle::current();
            let hog = random.ms(2);
            let nested = async move {
                burn(hog);
                tokio::task::yield_now().await;
            };
            tokio::task::block_in_place(|| handle.block_on(nested.watched("stress nested")));
        }
        14 => {
            let nap = random.ms(2);
            let inner = tokio::spawn(async move { tokio::time::sleep(nap).await });
            inner.await.unwrap();
        }
        _ => drop(morpheus_runtime::spawn(async {})),
    }
}

fn body(
    mut random: Random,
    tally: Arc<Tally>,
    channel: mpsc::Sender<u64>,
) -> impl Future<Output = ()> + Send {
    let alive = Alive::new(&tally);
    async move {
        let alive = alive;
        for _ in 0..random.below(12) {
            step(&mut random, &channel).await;
        }
        if random.below(12) == 0 {
            tally.panicked.fetch_add(1, Ordering::SeqCst);
            std::panic::panic_any("stress, on purpose");
        }
        tally.finished.fetch_add(1, Ordering::SeqCst);
        drop(alive);
    }
}

/// Builds a runtime with random options, and describes them.
fn build(random: &mut Random) -> (Runtime, String) {
    let mut builder = Builder::new_multi_thread();
    let (workers, spares) = (1 + random.below(3) as usize, random.below(12) as usize);
    let (handoffs, blocking) = (random.below(20) as usize, 1 + random.below(16) as usize);
    let policy = match random.below(5) {
        0 => Policy::Observe,
        1 => Policy::Request,
        2 => Policy::Takeover,
        3 => Policy::Demote,
        _ => Policy::Throttle,
    };
    builder
        .worker_threads(workers)
        .max_spares(spares)
        .reserve(spares.min(random.below(3) as usize))
        .max_handoffs(handoffs)
        .max_blocking_threads(blocking)
        .policy(policy)
        .nice_hogs(random.below(2) == 0);
    let off: Vec<Mechanism> = Mechanism::ALL
        .into_iter()
        .filter(|_| random.below(8) == 0)
        .collect();
    for &mechanism in &off {
        builder.without(mechanism);
    }
    let built = format!(
        "{workers} workers, {spares} spares, {handoffs} handoffs, {blocking} blocking, {policy:?}, without {off:?}"
    );
    (builder.build().unwrap(), built)
}

/// Runs many tasks on one runtime, and checks that none is lost.
fn round(random: &mut Random, time: Duration) {
    let (runtime, built) = build(random);
    let tally = Arc::new(Tally::default());
    let (tx, mut rx) = mpsc::channel(8);
    let received = runtime.handle().spawn(async move {
        let mut count = 0u64;
        while rx.recv().await.is_some() {
            count += 1;
        }
        count
    });
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    let mut aborted = 0;
    let until = Instant::now() + time;
    while Instant::now() < until {
        for _ in 0..random.below(8) {
            let body = body(random.fork(), tally.clone(), tx.clone());
            tasks.push(match random.below(5) {
                0 => runtime.handle().spawn(body),
                1 => runtime.spawn(body),
                2 => task::Builder::new()
                    .label("stress slow")
                    .spawn_on(body, runtime.handle()),
                3 => task::Builder::new()
                    .label("stress exempt")
                    .demotable(false)
                    .handoff(task::Handoff::Never)
                    .spawn_on(body, runtime.handle()),
                _ => runtime.handle().spawn(body.watched("stress watched")),
            });
        }
        if !tasks.is_empty() && random.below(3) == 0 {
            let victim = random.below(tasks.len() as u64) as usize;
            tasks[victim].abort();
        }
        if tasks.len() > 64 {
            let victim = random.below(64) as usize;
            let task = tasks.swap_remove(victim);
            runtime.block_on(async { aborted += u32::from(is_cancelled(task).await) });
        }
        std::thread::sleep(random.ms(3));
    }
    drop(tx);
    let all = runtime.block_on(async {
        let all = async {
            for task in tasks {
                aborted += u32::from(is_cancelled(task).await);
            }
            received.await.unwrap();
        };
        tokio::time::timeout(PATIENCE, all).await
    });
    if all.is_err() {
        let (metrics, alive) = (
            runtime.metrics(),
            runtime.metrics().tokio().num_alive_tasks(),
        );
        // A task that still waits would keep the runtime from ending.
        runtime.shutdown_background();
        panic!("{alive} tasks never end with {built}: {metrics:?}, {tally:?}");
    }
    let get = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    let (begun, ended) = (
        get(&tally.begun),
        get(&tally.finished) + get(&tally.panicked) + aborted as usize,
    );
    assert_eq!(begun, get(&tally.dropped), "every future was dropped once");
    // An abort may come between the last step and the end.
    assert!(ended >= begun, "{begun} begun, {ended} ended");
    let metrics = runtime.metrics();
    let is_idle = wait_for(PATIENCE, || {
        let metrics = runtime.metrics();
        (metrics.permits_waiting, metrics.debug.handoffs_now) == (0, 0)
    });
    assert!(is_idle, "{metrics:?}");
    drop(runtime);
}

async fn is_cancelled(task: JoinHandle<()>) -> bool {
    match task.await {
        Ok(()) => false,
        Err(error) => error.is_cancelled(),
    }
}

#[test]
fn everything_at_once() {
    let _alone = alone();
    let seed = std::env::var("MORPHEUS_SEED").map_or_else(
        |_| {
            let now = std::time::SystemTime::now();
            let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
            since.as_nanos() as u64 | 1
        },
        |seed| seed.parse().expect("MORPHEUS_SEED is a number"),
    );
    let seconds = std::env::var("MORPHEUS_STRESS_SECS").map_or(3, |seconds| {
        seconds.parse().expect("MORPHEUS_STRESS_SECS is a number")
    });
    eprintln!("MORPHEUS_SEED={seed} MORPHEUS_STRESS_SECS={seconds}");
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let on_purpose = info.payload().downcast_ref::<&str>();
        if on_purpose != Some(&"stress, on purpose") {
            default(info);
        }
    }));
    let mut random = Random(seed | 1);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0;
    while Instant::now() < until {
        let mut fork = random.fork();
        let own_seed = fork.0;
        within(2 * PATIENCE, move || {
            let round = std::panic::AssertUnwindSafe(|| round(&mut fork, 400 * MS));
            if let Err(panic) = std::panic::catch_unwind(round) {
                panic!(
                    "round {rounds} (its seed {own_seed}): {}",
                    common::panic_text(&*panic)
                );
            }
        });
        rounds += 1;
    }
    assert!(rounds > 0);
    assert_eq!(common::own_panics(), 0, "no panic of Morpheus's own");
}
