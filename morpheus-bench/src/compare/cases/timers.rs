//! Timers that are set and taken back, and such that fire.

use std::time::Duration;

use super::{Body, Stage};
use crate::compare::spawner::Spawner;

/// Tasks that set timeouts.
const GUARDED: u64 = 16;
/// Long enough never to be over.
const NEVER: Duration = Duration::from_secs(60);
/// Tasks that sleep; with fewer operations some would not.
pub const SLEEPERS: u64 = 500;
/// How long they sleep: the resolution of tokio's timer.
const SLEEP: Duration = Duration::from_millis(1);

/// Something that is soon done, under a timeout.
pub fn timeout<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.spread::<S, _, _>(GUARDED, guarded))
}

async fn guarded(times: u64) -> u64 {
    let mut in_time = 0;
    for _ in 0..times {
        let soon = tokio::time::timeout(NEVER, tokio::task::yield_now()).await;
        in_time += u64::from(soon.is_ok());
    }
    in_time
}

/// Many sleep at the same time, again and again.
pub fn sleep<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    Ok(stage.spread::<S, _, _>(SLEEPERS, sleeping))
}

async fn sleeping(times: u64) -> u64 {
    let mut slept = 0;
    for _ in 0..times {
        tokio::time::sleep(SLEEP).await;
        slept += 1;
    }
    slept
}
