//! tokio's locks and what is like them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Release};

use tokio::sync::{Notify, RwLock, Semaphore};

use super::{Body, Countdown, Stage, shares};
use crate::compare::spawner::Spawner;

/// Groups of waiting tasks; in each, one is woken at a time, so that no wake is lost in another.
const RINGS: u64 = 4;
/// Tasks in each.
const WAITING: u64 = 25;
/// Permits, and tasks that want one.
const PERMITS: usize = 2;
const WANTING: u64 = 8;
/// Tasks that take the lock, of which one writes.
const LOCKING: u64 = 6;

/// Tasks that wait in one place, each of which wakes the next.
struct Ring {
    next: Notify,
    run: std::sync::Mutex<Arc<Countdown>>,
    left: AtomicU64,
}

/// A task that is woken wakes another that waits at the same place.
pub fn notify<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let rings: Vec<Arc<Ring>> = (0..RINGS).map(|_| ring::<S>(stage)).collect();
    Ok(stage.in_boxed_task::<S, _>(move |n| {
        let rings = rings.clone();
        async move {
            let begun: Vec<(Arc<Ring>, u64)> = rings
                .into_iter()
                .zip(shares(n, RINGS))
                .filter(|(_, share)| *share > 0)
                .collect();
            let countdown = Countdown::new(begun.len() as u64);
            for (ring, share) in &begun {
                if let Ok(mut run) = ring.run.lock() {
                    *run = countdown.clone();
                }
                // Release: a task that is woken, and takes one off, finds the countdown of this run.
                ring.left.store(*share, Release);
                ring.next.notify_one();
            }
            countdown.ended().await;
            let left = |(ring, share): &(Arc<Ring>, u64)| {
                share - ring.left.load(std::sync::atomic::Ordering::Acquire)
            };
            begun.iter().map(left).sum::<u64>()
        }
    }))
}

fn ring<S: Spawner>(stage: &Stage) -> Arc<Ring> {
    let ring = Arc::new(Ring {
        next: Notify::new(),
        run: std::sync::Mutex::new(Countdown::new(0)),
        left: AtomicU64::new(0),
    });
    let _context = stage.runtime.enter();
    for _ in 0..WAITING {
        let ring = ring.clone();
        S::spawn(async move {
            loop {
                ring.next.notified().await;
                // AcqRel: pairs with the store that began the run, and with the others' of this ring.
                if ring.left.fetch_sub(1, AcqRel) > 1 {
                    ring.next.notify_one();
                } else if let Ok(run) = ring.run.lock() {
                    run.count();
                }
            }
        });
    }
    ring
}

/// More tasks than permits, each of which yields while it has one.
pub fn semaphore<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let wanting = move |times: u64| {
        let semaphore = semaphore.clone();
        async move {
            let mut had = 0;
            for _ in 0..times {
                let permit = semaphore.acquire().await;
                tokio::task::yield_now().await;
                had += u64::from(permit.is_ok());
            }
            had
        }
    };
    Ok(stage.spread::<S, _, _>(WANTING, wanting))
}

/// Tasks that read beside one that writes; each yields while it has the lock. The one that writes counts, too.
pub fn rwlock<S: Spawner>(stage: &Stage) -> Result<Body, String> {
    let lock = Arc::new(RwLock::new(0_u64));
    let next = Arc::new(AtomicU64::new(0));
    let locking = move |times: u64| {
        let (lock, next) = (lock.clone(), next.clone());
        async move {
            // AcqRel: it orders nothing, but costs nothing either. Of each six that begin, one writes.
            let writes = next.fetch_add(1, AcqRel).is_multiple_of(LOCKING);
            let mut had = 0;
            for _ in 0..times {
                if writes {
                    let mut guard = lock.write().await;
                    tokio::task::yield_now().await;
                    *guard += 1;
                } else {
                    let guard = lock.read().await;
                    tokio::task::yield_now().await;
                    std::hint::black_box(*guard);
                }
                had += 1;
            }
            had
        }
    };
    Ok(stage.spread::<S, _, _>(LOCKING, locking))
}
