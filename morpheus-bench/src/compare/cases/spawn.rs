//! Tasks that do next to nothing: what it takes to start one, by whom, and beside whom.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::{Body, Countdown, Stage, batches, shares};
use crate::compare::spawner::Spawner;
use crate::work;

/// Tasks that are started before any is waited for.
const IN_FLIGHT: u64 = 10_000;
/// Threads that spawn against each other.
const THREADS: u64 = 4;
/// Calls that are under way at once.
const CALLS: u64 = 16;
/// Iterations of [`work::compute`] in a poll of a busy task, about 10 µs.
const BUSY: u64 = 5_000;

/// A task starts many.
pub fn many_local<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.in_task::<S, _>(|n| async move {
        let mut done = 0;
        for batch in batches(n, IN_FLIGHT) {
            let countdown = Countdown::new(batch);
            start_counting::<S>(batch, &countdown);
            done += countdown.ended().await;
        }
        done
    }))
}

/// Starts tasks that count themselves.
fn start_counting<S: Spawner>(tasks: u64, countdown: &Arc<Countdown>) {
    for _ in 0..tasks {
        let own = countdown.clone();
        S::spawn(async move { own.count() });
    }
}

/// A thread outside of the runtime starts many, and joins them.
pub fn many_remote_idle<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let stage = stage.clone();
    let mut started = Vec::with_capacity(IN_FLIGHT as usize);
    Ok(Box::new(move |n| {
        let mut done = 0;
        for batch in batches(n, IN_FLIGHT) {
            let context = stage.runtime.enter();
            started.extend((0..batch).map(|_| S::spawn(async {})));
            drop(context);
            done += stage.runtime.block_on(async {
                let mut joined = 0;
                for task in started.drain(..) {
                    joined += u64::from(task.await.is_ok());
                }
                joined
            });
        }
        Ok(done.into())
    }))
}

/// The same, while one task a worker computes and yields, for ever. A task that yields queues behind tasks that are woken.
pub fn many_remote_busy1<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let _context = stage.runtime.enter();
    for _ in 0..stage.workers {
        S::spawn(async {
            loop {
                work::compute(BUSY);
                tokio::task::yield_now().await;
            }
        });
    }
    many_remote_idle::<S>(stage)
}

/// The same, while one task a worker computes and starts the next such task. A spawned task runs before an injected one.
pub fn many_remote_busy2<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let _context = stage.runtime.enter();
    for _ in 0..stage.workers {
        busy::<S>();
    }
    many_remote_idle::<S>(stage)
}

fn busy<S: Spawner>() {
    S::spawn(async {
        work::compute(BUSY);
        busy::<S>();
    });
}

/// One task, that yields once, is started from outside and joined, and then the next.
pub fn one<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    joined::<S>(stage, 1)
}

/// Ten at a time.
pub fn ten<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    joined::<S>(stage, 10)
}

fn joined<S: Spawner>(stage: &Stage, at_once: u64) -> Result<Body, String> {
    let stage = stage.clone();
    let mut started = Vec::with_capacity(at_once as usize);
    Ok(Box::new(move |n| {
        let done = stage.runtime.block_on(async {
            let mut done = 0;
            for batch in batches(n, at_once) {
                started.extend((0..batch).map(|_| S::spawn(something())));
                for task in started.drain(..) {
                    done += task.await.unwrap_or(0);
                }
            }
            done
        });
        Ok(done.into())
    }))
}

/// The number of the tasks that this is.
async fn something() -> u64 {
    let one = black_box(1);
    tokio::task::yield_now().await;
    one
}

/// Threads outside of the runtime spawn at the same time, so that they meet at its injection queue.
pub fn contended<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let threads: Result<Vec<Sender<Job>>, String> =
        (0..THREADS).map(|_| spawning_thread::<S>(stage)).collect();
    let (stage, threads) = (stage.clone(), threads?);
    Ok(Box::new(move |n| {
        let mut done = 0;
        for batch in batches(n, IN_FLIGHT) {
            let countdown = Countdown::new(batch);
            for (thread, tasks) in threads.iter().zip(shares(batch, THREADS)) {
                let job = (tasks, countdown.clone());
                thread
                    .send(job)
                    .map_err(|_| "a thread that spawns is gone")?;
            }
            done += stage.runtime.block_on(countdown.ended());
        }
        Ok(done.into())
    }))
}

/// How many tasks a thread is to start, and what they count.
type Job = (u64, Arc<Countdown>);

fn spawning_thread<S: Spawner>(stage: &Stage) -> Result<Sender<Job>, String> {
    let (sender, jobs) = channel::<Job>();
    let runtime = stage.runtime.clone();
    let spawning = move || {
        let _context = runtime.enter();
        for (tasks, countdown) in jobs {
            start_counting::<S>(tasks, &countdown);
        }
    };
    let named = thread::Builder::new().name("spawns".into());
    named
        .spawn(spawning)
        .map_err(|error| format!("no thread: {error}"))?;
    Ok(sender)
}

/// A task makes blocking calls, some at a time.
pub fn blocking<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.in_task::<S, _>(|n| async move {
        let (mut done, mut calls) = (0, Vec::with_capacity(CALLS as usize));
        for batch in batches(n, CALLS) {
            calls.extend((0..batch).map(|_| tokio::task::spawn_blocking(|| black_box(1))));
            for call in calls.drain(..) {
                done += call.await.unwrap_or(0);
            }
        }
        done
    }))
}
