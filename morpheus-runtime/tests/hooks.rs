//! Tests tokio's task hooks and the switch of the LIFO slot with `--cfg tokio_unstable`; without it, that the runtime
//! reports both as missing.

mod common;

use common::alone;
use morpheus_runtime::{Builder, Limitation};

#[cfg(not(tokio_unstable))]
#[test]
fn without_the_flag_both_are_reported_as_missing() {
    let _alone = alone();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).max_spares(1);
    let missing = |builder: &mut Builder| builder.build().unwrap().metrics().limitations;
    let wanted = [Limitation::TaskHooks, Limitation::LifoSwitch];
    assert!(
        !wanted
            .iter()
            .any(|what| missing(&mut builder).contains(what))
    );
    builder.watch_every_task(true).disable_lifo_slot(true);
    assert!(
        wanted
            .iter()
            .all(|what| missing(&mut builder).contains(what))
    );
    assert!(Limitation::TaskHooks.to_string().contains("tokio_unstable"));
}

#[cfg(tokio_unstable)]
mod unstable {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use morpheus_runtime::{Runtime, Watch as _, yield_requested};

    use super::common::{
        Gate, Log, MS, PATIENCE, become_hog, burn, burn_while, in_time, settled_threads, threads,
        wait_for,
    };
    use super::*;

    /// How long a test waits for an event that must not come.
    const NOTHING: Duration = Duration::from_millis(400);

    fn one_worker(watch: bool) -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .max_spares(8)
            .watch_every_task(watch);
        builder.build().unwrap()
    }

    /// Blocks a worker until the gate is open, in a task that the application does not watch.
    fn start_blocker(runtime: &Runtime, gate: &Gate) {
        let gate = gate.clone();
        runtime.block_on(async { spawn_at(async move { gate.wait() }) });
    }

    /// Spawns a task as a library would.
    #[track_caller]
    fn spawn_at(task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    #[test]
    fn a_plain_task_is_named_by_the_place_that_spawned_it() {
        let _alone = alone();
        let log = Log::global();
        let gate = Gate::default();
        let runtime = one_worker(true);
        start_blocker(&runtime, &gate);
        let named = || log.line_with(&["label=morpheus-runtime/tests/hooks.rs:", "blocked"]);
        assert!(wait_for(PATIENCE, || named().is_some()), "{}", log.text());
        // The other tasks go on.
        let nap = runtime.spawn(async { tokio::time::sleep(MS).await });
        runtime.block_on(in_time(nap)).unwrap();
        assert!(runtime.metrics().debug.takeovers_watched > 0);
        gate.open();
    }

    #[test]
    fn switched_off_no_task_is_named() {
        let _alone = alone();
        let log = Log::global();
        log.clear();
        let gate = Gate::default();
        let runtime = one_worker(false);
        start_blocker(&runtime, &gate);
        let said = || log.line_with(&["not watched"]);
        assert!(wait_for(PATIENCE, || said().is_some()), "{}", log.text());
        assert!(log.line_with(&["tests/hooks.rs"]).is_none());
        gate.open();
    }

    /// Whether a task that computes is asked to yield within `limit`.
    fn is_asked(watch: bool, limit: Duration) -> bool {
        let runtime = one_worker(watch);
        let asked = runtime.handle().spawn(async move {
            let until = std::time::Instant::now() + limit;
            while std::time::Instant::now() < until && !yield_requested() {
                std::hint::spin_loop();
            }
            yield_requested()
        });
        runtime.block_on(in_time(asked)).unwrap()
    }

    #[test]
    fn a_plain_task_is_asked_to_yield() {
        let _alone = alone();
        assert!(is_asked(true, PATIENCE / 2));
        assert!(!is_asked(false, NOTHING));
    }

    /// The task's own mark must not hide the future's: a watched future inside a marked poll would not be handed off.
    #[test]
    fn watched_hogs_are_still_handed_off() {
        let _alone = alone();
        let runtime = one_worker(true);
        let hog = runtime.handle().spawn(become_hog().watched("hooks: hog"));
        runtime.block_on(in_time(hog)).unwrap();
        let metrics = runtime.metrics();
        assert!(metrics.handoff_polls > 0, "{metrics:?}");
    }

    /// Whether the task that a hog woke last runs while the hog still computes.
    fn woken_runs_beside(disable: bool, limit: Duration) -> bool {
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(2)
            .max_spares(8)
            .disable_lifo_slot(disable);
        let runtime = builder.build().unwrap();
        let hog = runtime.handle().spawn(async move {
            let ran = Arc::new(AtomicBool::new(false));
            let woken = ran.clone();
            drop(tokio::spawn(
                async move { woken.store(true, Ordering::SeqCst) },
            ));
            wait_for(limit, || ran.load(Ordering::SeqCst))
        });
        runtime.block_on(in_time(hog)).unwrap()
    }

    #[test]
    fn without_the_lifo_slot_the_task_that_a_hog_woke_last_runs() {
        let _alone = alone();
        assert!(woken_runs_beside(true, PATIENCE / 2));
        assert!(!woken_runs_beside(false, NOTHING));
    }

    #[test]
    fn the_hooks_of_the_application_run_too() {
        let _alone = alone();
        let (before, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = Arc::new(AtomicUsize::new(0));
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1);
        let (counted, counted_too) = (before.clone(), after.clone());
        builder.on_before_task_poll(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        builder.on_after_task_poll(move |_| {
            counted_too.fetch_add(1, Ordering::SeqCst);
        });
        let counted = ended.clone();
        builder.on_task_terminate(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let runtime = builder.build().unwrap();
        let task = runtime.spawn(async { tokio::task::yield_now().await });
        runtime.block_on(in_time(task)).unwrap();
        drop(runtime);
        assert!(ended.load(Ordering::SeqCst) >= 1);
        assert!(before.load(Ordering::SeqCst) >= 2);
        assert!(after.load(Ordering::SeqCst) >= 2);
    }

    /// The poll of a held spare lasts for as long as it is held.
    #[test]
    fn the_hooks_of_the_application_see_its_own_tasks_alone() {
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(4);
        let under_way = Arc::new(Mutex::new(HashSet::new()));
        let (begun, ended) = (under_way.clone(), under_way.clone());
        let living = Arc::new(AtomicUsize::new(0));
        let (spawned, terminated) = (living.clone(), living.clone());
        builder.on_task_spawn(move |_| {
            spawned.fetch_add(1, Ordering::SeqCst);
        });
        builder.on_task_terminate(move |_| {
            terminated.fetch_sub(1, Ordering::SeqCst);
        });
        builder.on_before_task_poll(move |meta| {
            begun.lock().unwrap().insert(meta.id());
        });
        builder.on_after_task_poll(move |meta| {
            ended.lock().unwrap().remove(&meta.id());
        });
        let runtime = builder.build().unwrap();
        let task = runtime.spawn(async { tokio::task::yield_now().await });
        runtime.block_on(in_time(task)).unwrap();
        let all_ended = || under_way.lock().unwrap().is_empty();
        assert!(wait_for(PATIENCE, all_ended), "{under_way:?}");
        assert!(wait_for(PATIENCE, || living.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn nothing_is_missing() {
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1);
        builder.watch_every_task(true).disable_lifo_slot(true);
        let missing = builder.build().unwrap().metrics().limitations;
        assert!(!missing.contains(&Limitation::TaskHooks));
        assert!(!missing.contains(&Limitation::LifoSwitch));
    }

    /// Many more hogs than spares, none of them watched: their polls are handed off, a few at a time, and other tasks run on.
    #[test]
    fn hogs_that_are_not_watched_are_handed_off_and_need_permits() {
        let _alone = alone();
        let measure = |watch| {
            let mut builder = Builder::new_multi_thread();
            builder
                .worker_threads(2)
                .max_spares(4)
                .watch_every_task(watch);
            let runtime = builder.build().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let naps = runtime.block_on(async {
                for _ in 0..100 {
                    let stop = stop.clone();
                    tokio::spawn(async move {
                        while !stop.load(Ordering::Relaxed) {
                            burn(20 * MS);
                            tokio::task::yield_now().await;
                        }
                    });
                }
                let naps = tokio::spawn(async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let mut naps = Vec::new();
                    let until = std::time::Instant::now() + Duration::from_secs(2);
                    while std::time::Instant::now() < until {
                        let begun = std::time::Instant::now();
                        tokio::time::sleep(MS).await;
                        naps.push(begun.elapsed());
                    }
                    naps.sort();
                    naps
                });
                in_time(naps).await.unwrap()
            });
            let metrics = runtime.metrics();
            stop.store(true, Ordering::Relaxed);
            let median = naps[naps.len() / 2];
            let p99 = naps[naps.len() * 99 / 100];
            eprintln!(
                "watch {watch}: {} naps, median {median:?}, p99 {p99:?}, {} threads, {metrics:?}",
                naps.len(),
                threads()
            );
            (median, metrics.handoff_polls)
        };
        let (median, handoffs) = measure(true);
        assert!(handoffs > 50 && median < 10 * MS, "{median:?}, {handoffs}");
        let (control, _) = measure(false);
        assert!(control > 4 * median, "{control:?}");
    }

    /// Connections that were served before go on beside two hundred of the same place whose first request never ends. (They compute
    /// until the test is over: how fast the machine is does not matter.)
    #[test]
    fn connections_that_were_short_go_on_beside_first_hogs() {
        const HOGS: usize = 200;
        const SERVED: usize = 8;
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(4);
        let runtime = builder.build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, rounds) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let start = Arc::new(tokio::sync::Notify::new());
        runtime.block_on(async {
            for number in 0..SERVED + HOGS {
                let (stop, begun, rounds) = (stop.clone(), begun.clone(), rounds.clone());
                let start = start.clone();
                // One place for both, as that where a server spawns its connections.
                spawn_at(async move {
                    if number < SERVED {
                        while !stop.load(Ordering::Relaxed) {
                            tokio::time::sleep(MS).await;
                            rounds.fetch_add(1, Ordering::Relaxed);
                        }
                        return;
                    }
                    start.notified().await;
                    begun.fetch_add(1, Ordering::Relaxed);
                    burn_while(PATIENCE, || !stop.load(Ordering::Relaxed));
                });
            }
        });
        // More good polls than a new place needs to be healthy, and than are asked of a task.
        let has_rounds = |more: usize| {
            let until = rounds.load(Ordering::Relaxed) + more;
            wait_for(PATIENCE, || rounds.load(Ordering::Relaxed) >= until)
        };
        assert!(has_rounds(100 * SERVED));
        start.notify_waiters();
        assert!(wait_for(PATIENCE, || begun.load(Ordering::Relaxed) >= 4));
        let go_on = has_rounds(100 * SERVED);
        let begun = begun.load(Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        let metrics = runtime.metrics();
        eprintln!("{begun} hogs had begun: {metrics:?}");
        assert!(go_on, "{metrics:?}");
        // Two workers, four spares, five polls that may run, and one more each half a second.
        assert!(begun <= 40, "{begun} hogs had begun: {metrics:?}");
    }

    /// Threads that wait for a permit do not hold up the end of the runtime.
    #[test]
    fn a_runtime_ends_while_threads_wait_for_permits() {
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(4);
        let runtime = builder.build().unwrap();
        runtime.block_on(async {
            for _ in 0..200 {
                tokio::spawn(async {
                    loop {
                        burn(5 * MS);
                        tokio::task::yield_now().await;
                    }
                });
            }
        });
        assert!(wait_for(PATIENCE, || runtime.metrics().permits_waiting >= 20));
        let begun = std::time::Instant::now();
        drop(runtime);
        // The polls under way take a second of CPU time together. A thread that waited for another one of tokio's pool, which
        // starts none any more, would wait for half a second, one after the other.
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(2500), "{took:?}");
    }

    /// Tokio drops a task whose poll has not begun: a runtime with a thousand hogs in the queue ends after those under way.
    #[test]
    fn a_runtime_that_ends_polls_no_task_that_waits_for_a_permit() {
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(4);
        let runtime = builder.build().unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            for _ in 0..200 {
                let polls = polls.clone();
                tokio::spawn(async move {
                    loop {
                        polls.fetch_add(1, Ordering::SeqCst);
                        burn(20 * MS);
                        tokio::task::yield_now().await;
                    }
                });
            }
        });
        // All but those that run: a worker polls what is in its queue before it notices the end.
        let waiting = || runtime.metrics().permits_waiting >= 190;
        assert!(wait_for(PATIENCE, waiting), "{:?}", runtime.metrics());
        let before = polls.load(Ordering::SeqCst);
        drop(runtime);
        let more = polls.load(Ordering::SeqCst) - before;
        assert!(more <= 40, "{more} polls began");
    }

    /// The number of threads is bounded: further hogs run inline, are counted, and all of them finish.
    #[test]
    fn beyond_the_bound_polls_run_inline() {
        let _alone = alone();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(4).max_handoffs(8);
        let runtime = builder.build().unwrap();
        let before = settled_threads();
        let most = Arc::new(AtomicUsize::new(0));
        let ended = runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..200 {
                let most = most.clone();
                tasks.spawn(async move {
                    for _ in 0..3 {
                        burn(10 * MS);
                        most.fetch_max(threads(), Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                });
            }
            in_time(tasks.join_all()).await.len()
        });
        assert_eq!(ended, 200);
        let metrics = runtime.metrics();
        assert!(
            metrics.handoffs_refused > 0 && metrics.handoff_polls > 0,
            "{metrics:?}"
        );
        assert!(metrics.debug.handoffs_peak <= 8, "{metrics:?}");
        let more = most.load(Ordering::Relaxed) - before;
        // 13 to 17 on a quiet machine, 25 on a busy one; 66 to 117 when a thread was started for each stack.
        assert!(more <= 40, "{more} threads more, for 8 handoffs");
    }
}
