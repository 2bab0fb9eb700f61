//! Tests an explicit `max_blocking_threads`: the application gets that many blocking calls at once, no more and no
//! fewer, whatever slow tasks do.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use common::{MS, PATIENCE, alone, become_hog, become_slow, burn, fresh_label};
use common::{in_time, panic_text, wait_for};
use morpheus_runtime::{Builder, Runtime, task};
use tokio::task::JoinHandle;

/// Slow tasks that run until `stop`: half of them sleep, the others compute.
struct SlowTasks {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl SlowTasks {
    fn start(runtime: &Runtime) -> SlowTasks {
        let stop = Arc::new(AtomicBool::new(false));
        let known = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let (stop, known) = (stop.clone(), known.clone());
                let slow = async move {
                    let sleeps = number % 2 == 0;
                    if sleeps {
                        become_slow().await;
                    } else {
                        become_hog().await;
                    }
                    known.fetch_add(1, Ordering::SeqCst);
                    while !stop.load(Ordering::Relaxed) {
                        if sleeps {
                            std::thread::sleep(50 * MS);
                        } else {
                            burn(20 * MS);
                        }
                        tokio::task::yield_now().await;
                    }
                };
                task::Builder::new()
                    .label(fresh_label("slow"))
                    .spawn_on(slow, runtime.handle())
            })
            .collect();
        assert!(wait_for(PATIENCE, || known.load(Ordering::SeqCst) == 6));
        SlowTasks { stop, tasks }
    }

    fn finish(self, runtime: &Runtime) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            runtime.block_on(in_time(task)).unwrap();
        }
    }
}

/// Counts blocking calls that run at once.
#[derive(Default)]
struct AtOnce {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl AtOnce {
    fn during(&self, call: impl FnOnce()) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        call();
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_spares(8);
    builder
}

#[test]
fn without_a_limit_slow_tasks_are_handed_off() {
    let _alone = alone();
    let runtime = builder().build().unwrap();
    let slow = SlowTasks::start(&runtime);
    let is_handed_off = || runtime.metrics().handoff_polls > 0;
    assert!(wait_for(PATIENCE, is_handed_off));
    slow.finish(&runtime);
}

#[test]
fn a_limit_of_one_runs_calls_one_after_another() {
    let _alone = alone();
    let runtime = builder().max_blocking_threads(1).build().unwrap();
    let slow = SlowTasks::start(&runtime);
    let at_once = Arc::new(AtOnce::default());
    let began = Instant::now();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let at_once = at_once.clone();
            let call = move || at_once.during(|| std::thread::sleep(100 * MS));
            runtime.handle().spawn_blocking(call)
        })
        .collect();
    for call in calls {
        runtime.block_on(in_time(call)).unwrap();
    }
    let took = began.elapsed();
    slow.finish(&runtime);
    assert!(took >= 1000 * MS, "{took:?}");
    assert_eq!(at_once.peak(), 1);
    assert!(runtime.metrics().handoffs_refused > 0);
}

/// The calls wait for each other: a slow task that kept one of the threads would keep all of them.
#[test]
fn slow_tasks_leave_all_threads_of_the_limit_to_the_application() {
    let _alone = alone();
    const LIMIT: usize = 4;
    let runtime = builder()
        .max_blocking_threads(LIMIT)
        .max_handoffs(64)
        .build()
        .unwrap();
    let slow = SlowTasks::start(&runtime);
    let at_once = Arc::new(AtOnce::default());
    for _ in 0..10 {
        let arrived = Arc::new(AtomicUsize::new(0));
        let calls: Vec<_> = (0..2 * LIMIT)
            .map(|_| {
                let (arrived, at_once) = (arrived.clone(), at_once.clone());
                runtime.handle().spawn_blocking(move || {
                    at_once.during(|| {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        let all = || arrived.load(Ordering::SeqCst) >= LIMIT;
                        assert!(wait_for(PATIENCE / 2, all), "{arrived:?} of {LIMIT}");
                        std::thread::sleep(2 * MS);
                    });
                })
            })
            .collect();
        for call in calls {
            runtime.block_on(in_time(call)).unwrap();
        }
    }
    slow.finish(&runtime);
    assert_eq!(at_once.peak(), LIMIT);
    assert_eq!(runtime.metrics().handoff_polls, 0);
}

#[test]
fn no_blocking_threads_at_all_panic_as_on_tokio() {
    let text = |set: fn()| panic_text(&*catch_unwind(AssertUnwindSafe(set)).unwrap_err());
    let tokio = text(|| {
        tokio::runtime::Builder::new_multi_thread().max_blocking_threads(0);
    });
    let own = text(|| {
        Builder::new_multi_thread().max_blocking_threads(0);
    });
    assert_eq!(own, tokio);
}
