//! Tasks that go through the workers' queues: by yielding, by waking each other, by starting each other.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Body, Countdown, Stage, batches};
use crate::compare::spawner::Spawner;

/// Tasks that yield.
const YIELDING: u64 = 200;
/// Pairs of tasks that are under way at once.
const PAIRS: u64 = 1_000;

/// Many tasks yield, again and again.
pub fn yield_many<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.spread::<S, _, _>(YIELDING, yielding))
}

async fn yielding(times: u64) -> u64 {
    let mut yielded = 0;
    for _ in 0..times {
        tokio::task::yield_now().await;
        yielded += 1;
    }
    yielded
}

/// A task starts another, sends it a message, and waits for the answer.
pub fn ping_pong<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.in_task::<S, _>(|n| async move {
        let mut done = 0;
        for batch in batches(n, PAIRS) {
            let countdown = Countdown::new(batch);
            for _ in 0..batch {
                S::spawn(ping::<S>(countdown.clone()));
            }
            done += countdown.ended().await;
        }
        done
    }))
}

async fn ping<S: Spawner>(countdown: Arc<Countdown>) {
    let (ping, pinged) = oneshot::channel();
    let (pong, ponged) = oneshot::channel();
    S::spawn(async move {
        if pinged.await == Ok(()) {
            let _ = pong.send(());
        }
    });
    // A lost message is not counted, so the countdown never ends, and the run is given up.
    if ping.send(()).is_ok() && ponged.await == Ok(()) {
        countdown.count();
    }
}

/// Each task starts the next and ends.
pub fn chained_spawn<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.in_boxed_task::<S, _>(|n| async move {
        let countdown = Countdown::new(n);
        link::<S>(n, countdown.clone());
        countdown.ended().await
    }))
}

fn link<S: Spawner>(left: u64, countdown: Arc<Countdown>) {
    S::spawn(async move {
        if left > 1 {
            link::<S>(left - 1, countdown.clone());
        }
        countdown.count();
    });
}
