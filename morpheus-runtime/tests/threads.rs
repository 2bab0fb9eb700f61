//! Tests a runtime on a system without enough threads, without `/proc` or without a system call: it works, reports what
//! is missing, and is never worse than tokio.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    Gate, MS, PATIENCE, TimerProbe, alone, become_hog, become_slow, burn, fresh_label, in_time,
    wait_for,
};
use morpheus_runtime::{BuildError, Builder, Limitation, Mechanism, Runtime, task};

/// A user that nothing else on this machine runs as, so that only the child's threads count.
const UID: u32 = 64_123;

/// Runs the rest of a test in a child process as root. Without root it skips the test and says why.
fn only_in_child(name: &str) -> bool {
    if common::is_child() {
        return true;
    }
    if !common::is_root() {
        morpheus_testing::skip("needs root, to become a user with limits");
        return false;
    }
    common::in_child(name, &[]);
    false
}

/// Measures slow tasks beside blocking calls of the application that fill the pool: how late timers are, how long a
/// new blocking call waits, and how many polls the hogs did.
fn with_a_full_pool(builder: &mut Builder, pool: usize) -> (common::Lateness, Duration, usize) {
    let runtime = builder
        .worker_threads(2)
        .max_spares(8)
        .max_blocking_threads(pool)
        .build()
        .unwrap();
    // Twice what the pool holds, for half a second each.
    let calls: Vec<_> = (0..2 * pool.min(64))
        .map(|_| {
            runtime
                .handle()
                .spawn_blocking(|| std::thread::sleep(500 * MS))
        })
        .collect();
    let (stop, polls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let label = fresh_label("full pool");
    let hogs: Vec<_> = (0..6)
        .map(|_| {
            let (stop, polls) = (stop.clone(), polls.clone());
            let hog = async move {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(50 * MS);
                    polls.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            };
            task::Builder::new()
                .label(label)
                .spawn_on(hog, runtime.handle())
        })
        .collect();
    std::thread::sleep(300 * MS);
    let probe = TimerProbe::start(runtime.handle());
    let asked = Instant::now();
    let call = runtime.handle().spawn_blocking(move || asked.elapsed());
    let waited = runtime.block_on(in_time(call)).unwrap();
    std::thread::sleep(500 * MS);
    let late = probe.finish();
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(in_time(async {
        for task in hogs.into_iter().chain(calls) {
            task.await.unwrap();
        }
    }));
    (late, waited, polls.load(Ordering::Relaxed))
}

#[test]
fn a_full_blocking_pool_is_never_worse_than_tokio() {
    let _alone = alone();
    for pool in [1, 4, 512] {
        let (late, waited, polls) = with_a_full_pool(&mut Builder::new_multi_thread(), pool);
        let mut tokio = Builder::new_multi_thread();
        for mechanism in Mechanism::ALL {
            tokio.without(mechanism);
        }
        let (tokio_late, tokio_waited, tokio_polls) = with_a_full_pool(&mut tokio, pool);
        let figures = format!(
            "{pool} threads: {late:?}, blocking call {waited:?}, {polls} polls; \
             tokio {tokio_late:?}, {tokio_waited:?}, {tokio_polls}"
        );
        assert!(late.median <= tokio_late.median + 10 * MS, "{figures}");
        assert!(late.median < 20 * MS, "{figures}");
        assert!(waited <= tokio_waited + Duration::from_secs(1), "{figures}");
        assert!(10 * polls >= 8 * tokio_polls, "{figures}");
    }
}

/// Handoff polls never take the application's blocking threads: with all handoff polls asleep, a blocking call
/// starts at once.
#[test]
fn handoff_polls_leave_the_blocking_threads_alone() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(16)
        .max_handoffs(4)
        .build()
        .unwrap();
    let gate = Gate::default();
    let label = fresh_label("handed off");
    let sleepers: Vec<_> = (0..8)
        .map(|_| {
            let gate = gate.clone();
            let sleeper = async move {
                become_slow().await;
                gate.wait();
            };
            task::Builder::new()
                .label(label)
                .spawn_on(sleeper, runtime.handle())
        })
        .collect();
    assert!(
        wait_for(PATIENCE, || runtime.metrics().debug.handoffs_now == 4),
        "{:?}",
        runtime.metrics()
    );
    let call = runtime.handle().spawn_blocking(|| 7);
    assert_eq!(runtime.block_on(in_time(call)).unwrap(), 7);
    let other = runtime
        .handle()
        .spawn(async { tokio::time::sleep(MS).await });
    runtime.block_on(in_time(other)).unwrap();
    assert!(runtime.metrics().debug.handoffs_peak <= 4);
    gate.open();
    for sleeper in sleepers {
        runtime.block_on(in_time(sleeper)).unwrap();
    }
}

/// Handoff polls sleep until another slow task has run, which finds every permit taken. It is polled inline, as on
/// tokio, whether it asked before or after the last permit was granted.
#[test]
fn handoff_polls_that_wait_for_a_task_that_finds_no_permit() {
    let _alone = alone();
    for spares in [16, 1] {
        let runtime = Builder::new_multi_thread()
            .worker_threads(12)
            .max_spares(spares)
            .max_handoffs(6)
            .build()
            .unwrap();
        let arrived = Arc::new(AtomicUsize::new(0));
        let label = fresh_label("wait for each other");
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let arrived = arrived.clone();
                let waits = async move {
                    become_slow().await;
                    arrived.fetch_add(1, Ordering::SeqCst);
                    wait_for(PATIENCE / 2, || arrived.load(Ordering::SeqCst) == 10)
                };
                task::Builder::new()
                    .label(label)
                    .spawn_on(waits, runtime.handle())
            })
            .collect();
        for task in tasks {
            let met = runtime.block_on(in_time(task)).unwrap();
            assert!(
                met,
                "{spares} spares: {} of 10 came",
                arrived.load(Ordering::SeqCst)
            );
        }
    }
}

/// Checks that tasks, timers and watched hogs work.
fn works(runtime: &Runtime) {
    let label = fresh_label("works");
    let task = task::Builder::new().label(label).spawn_on(
        async {
            become_hog().await;
            tokio::time::sleep(MS).await;
            tokio::spawn(async { 7 }).await.unwrap()
        },
        runtime.handle(),
    );
    assert_eq!(runtime.block_on(in_time(task)).unwrap(), 7);
}

#[test]
fn a_thread_limit_at_start_means_fewer_spares_or_an_error() {
    let _alone = alone();
    if !only_in_child("a_thread_limit_at_start_means_fewer_spares_or_an_error") {
        return;
    }
    common::become_unprivileged(UID);
    let mut outcomes = Vec::new();
    for limit in 2..=40 {
        common::limit_threads(limit);
        let mut builder = Builder::new_multi_thread();
        let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            builder.worker_threads(4).max_spares(8).try_build()
        }));
        let built = built.unwrap_or_else(|panic| {
            panic!("limit {limit}: {}", common::panic_text(&*panic));
        });
        match built {
            Ok(runtime) => {
                let metrics = runtime.metrics();
                assert_eq!(metrics.spares + metrics.debug.spares_unavailable, 8);
                let missing = metrics.limitations.contains(&Limitation::Spares);
                assert_eq!(missing, metrics.debug.spares_unavailable > 0, "{metrics:?}");
                works(&runtime);
                if metrics.spares > 0 {
                    // Plain tokio has a thread for it.
                    let call = runtime.spawn_blocking(|| 7);
                    assert_eq!(runtime.block_on(in_time(call)).unwrap(), 7);
                }
                outcomes.push(Some(metrics.spares));
            }
            Err(error @ BuildError::TooFewThreads { .. }) => {
                assert!(error.to_string().contains("ulimit -u"), "{error}");
                outcomes.push(None);
            }
            Err(error) => panic!("limit {limit}: {error}"),
        }
        assert!(
            wait_for(PATIENCE, || common::threads() == 0),
            "nothing is left"
        );
    }
    assert_eq!(outcomes.first(), Some(&None), "{outcomes:?}");
    assert_eq!(outcomes.last(), Some(&Some(8)), "{outcomes:?}");
    assert!(
        outcomes
            .iter()
            .any(|spares| spares.is_some_and(|spares| spares < 8)),
        "{outcomes:?}"
    );
    assert_eq!(common::own_panics(), 0);
}

/// The thread limit is reached as soon as the runtime is built: no further thread can start.
#[test]
fn a_thread_limit_later_makes_no_handoff_poll_panic() {
    let _alone = alone();
    if !only_in_child("a_thread_limit_later_makes_no_handoff_poll_panic") {
        return;
    }
    common::become_unprivileged(UID);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(8)
        .build()
        .unwrap();
    // A plain tokio runtime, for `watch` there: its pool has no thread at all.
    let plain = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(in_time(runtime.handle().spawn(async {})))
        .unwrap();
    // The controller of plain threads is there already, as in a program that has watched before.
    let first = plain.spawn(morpheus_runtime::watch(async {}));
    plain.block_on(in_time(first)).unwrap();
    common::limit_threads(1);
    assert!(
        std::thread::Builder::new().spawn(|| ()).is_err(),
        "no thread can be had"
    );
    let tasks_of = |label| {
        (0..4).map(move |turn| {
            let slow = async move {
                for _ in 0..3 {
                    match turn % 2 {
                        0 => become_hog().await,
                        _ => become_slow().await,
                    }
                }
                7
            };
            morpheus_runtime::Watch::watched(slow, label)
        })
    };
    let probe = TimerProbe::start(runtime.handle());
    let label = fresh_label("no thread");
    let tasks: Vec<_> = tasks_of(label)
        .map(|task| runtime.handle().spawn(task))
        .collect();
    for task in tasks {
        assert_eq!(runtime.block_on(in_time(task)).unwrap(), 7);
    }
    let late = probe.finish();
    assert!(late.median < 50 * MS, "others go on: {late:?}");
    let label = fresh_label("no thread, plain");
    let tasks: Vec<_> = tasks_of(label).map(|task| plain.spawn(task)).collect();
    for task in tasks {
        assert_eq!(plain.block_on(in_time(task)).unwrap(), 7);
    }
    // All cores are back: everything still runs, several at once too.
    for handle in [runtime.handle(), plain.handle()] {
        let barrier = Arc::new(tokio::sync::Barrier::new(8));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let barrier = barrier.clone();
                handle.spawn(async move { barrier.wait().await.is_leader() })
            })
            .collect();
        for task in tasks {
            plain.block_on(in_time(task)).unwrap();
        }
    }
    assert_eq!(common::own_panics(), 0);
}

/// `/proc` covered by an empty file system, in a mount namespace of the child's own.
#[test]
fn without_proc_it_works_and_says_so() {
    let _alone = alone();
    if !only_in_child("without_proc_it_works_and_says_so") {
        return;
    }
    // Threads that exist keep their own view: this needs to be the thread that starts the others.
    // SAFETY: the arguments are constants, nul-terminated.
    let covered = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/proc".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                std::ptr::null(),
            ) == 0
    };
    if !covered {
        return morpheus_testing::skip("mount namespaces are not allowed here");
    }
    assert!(std::fs::metadata("/proc/self").is_err());
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    assert!(
        !runtime
            .metrics()
            .limitations
            .contains(&Limitation::ThreadStates),
        "not asked for yet"
    );
    let label = fresh_label("no proc");
    let blocked = task::Builder::new().label(label).spawn_on(
        async {
            for _ in 0..3 {
                std::thread::sleep(100 * MS);
                tokio::task::yield_now().await;
            }
            7
        },
        runtime.handle(),
    );
    let probe = TimerProbe::start(runtime.handle());
    assert_eq!(runtime.block_on(in_time(blocked)).unwrap(), 7);
    let late = probe.finish();
    assert!(late.median < 20 * MS, "{late:?}");
    let missing = runtime.metrics().limitations;
    assert!(missing.contains(&Limitation::ThreadStates), "{missing:?}");
    works(&runtime);
    assert_eq!(common::own_panics(), 0);
}

/// Makes the system call fail with EPERM for this thread and those it starts.
fn refuse(call: libc::c_long) {
    filter(call, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
}

/// Gives this thread and those it starts a seccomp filter with this action for the system call.
fn filter(call: libc::c_long, action: u32) {
    const BPF_LD_W_ABS: u16 = 0x20;
    const BPF_JEQ: u16 = 0x15;
    const BPF_RET: u16 = 0x06;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call is the first word of `seccomp_data`.
        statement(BPF_LD_W_ABS, 0, 0, 0),
        statement(BPF_JEQ, 0, 1, call as u32),
        statement(BPF_RET, 0, 0, action),
        statement(BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid for the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        );
        assert_eq!(installed, 0);
    }
}

#[test]
fn without_leave_to_set_slices_it_works_and_says_so() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("without_leave_to_set_slices_it_works_and_says_so", &[]);
        return;
    }
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let without_filter = std::thread::spawn(move || {
        goes_on.recv().unwrap();
        morpheus_runtime::slice::set_current(morpheus_runtime::slice::WORKER_SLICE_NS)
    });
    refuse(libc::SYS_sched_setattr);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let missing = runtime.metrics().limitations;
    assert!(missing.contains(&Limitation::ShortSlices), "{missing:?}");
    works(&runtime);
    go_on.send(()).unwrap();
    assert!(
        !without_filter.join().unwrap(),
        "the kernel is asked once, and not at each handoff"
    );
}

/// A unit of systemd with `SystemCallFilter=~@resources @ipc` has such a filter.
#[test]
fn without_calls_that_a_filter_kills_for_it_works_and_says_so() {
    let _alone = alone();
    if !common::is_child() {
        let name = "without_calls_that_a_filter_kills_for_it_works_and_says_so";
        common::in_child(name, &[]);
        return;
    }
    for call in [
        libc::SYS_sched_setattr,
        libc::SYS_setpriority,
        libc::SYS_sched_setaffinity,
        libc::SYS_process_vm_readv,
    ] {
        filter(call, libc::SECCOMP_RET_KILL_PROCESS);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .nice_hogs(true)
        .confine_to_quota(true)
        .build()
        .unwrap();
    let missing = runtime.metrics().limitations;
    for limitation in [Limitation::ShortSlices, Limitation::ReversibleNice] {
        assert!(missing.contains(&limitation), "{missing:?}");
    }
    // Again, because a controller that gets no CPU sees no stall.
    let is_seen = wait_for(PATIENCE, || {
        works(&runtime);
        !runtime.stalls().groups.is_empty()
    });
    let stalls = runtime.stalls();
    let has_stack = |group: &morpheus_runtime::StallGroup| !group.stack.is_empty();
    assert!(is_seen && !stalls.groups.iter().any(has_stack), "{stalls}");
    // SAFETY: without a status the call writes nothing.
    let child = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    assert_eq!(child, -1, "none is left");
}

/// `limitations` describes the runtime's threads, not the thread that asks.
#[test]
fn the_scheduling_class_of_the_thread_that_asks_does_not_matter() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    works(&runtime);
    let missing = std::thread::scope(|scope| {
        let idle = scope.spawn(|| {
            // SAFETY: all zeroes is the only parameter that this class has; concerns this thread only.
            let set = unsafe {
                let parameters: libc::sched_param = std::mem::zeroed();
                libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters)
            };
            assert_eq!(set, 0);
            assert_eq!(morpheus_runtime::slice::current(), None);
            runtime.metrics().limitations
        });
        idle.join().unwrap()
    });
    assert_eq!(missing, runtime.metrics().limitations);
}

/// Without membarrier the controller sleeps with a timeout, and still notices hogs.
#[test]
fn without_membarrier_it_works_and_says_so() {
    let _alone = alone();
    if !common::is_child() {
        common::in_child("without_membarrier_it_works_and_says_so", &[]);
        return;
    }
    refuse(libc::SYS_membarrier);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let missing = runtime.metrics().limitations;
    assert!(missing.contains(&Limitation::Membarrier), "{missing:?}");
    works(&runtime);
    // The controller still holds spares, and releases them beside hogs.
    let held = common::wait_for(PATIENCE, || runtime.metrics().spares_released <= 1);
    assert!(held, "{:?}", runtime.metrics());
    let released = || runtime.metrics().takeovers + runtime.metrics().debug.takeovers_reserve;
    let before = released();
    let hogs: Vec<_> = (0..6)
        .map(|_| runtime.handle().spawn(async { burn(50 * MS) }))
        .collect();
    for hog in hogs {
        runtime.block_on(in_time(hog)).unwrap();
    }
    assert!(released() > before);
}

/// The control for all of these: without the restrictions nothing of it is missing on this machine.
#[test]
fn with_everything_there_nothing_is_missing() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    works(&runtime);
    let missing = runtime.metrics().limitations;
    for what in [
        Limitation::Spares,
        Limitation::ThreadStates,
        Limitation::Slots,
    ] {
        assert!(!missing.contains(&what), "{missing:?}");
    }
    if morpheus_runtime::slice::set_current(morpheus_runtime::slice::WORKER_SLICE_NS) {
        assert!(!missing.contains(&Limitation::ShortSlices), "{missing:?}");
    }
}

/// Hooks of the application run beside Morpheus's own.
#[test]
fn the_hooks_of_the_application_run() {
    let _alone = alone();
    let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
    let note = |what: &'static str| {
        let seen = seen.clone();
        move || seen.lock().unwrap().push(what)
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(1)
        .on_thread_start(note("start"))
        .on_thread_stop(note("stop"))
        .on_thread_park(note("park"))
        .on_thread_unpark(note("unpark"))
        .thread_name("hooked")
        .build()
        .unwrap();
    let name = runtime
        .handle()
        .spawn(async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(
        runtime.block_on(in_time(name)).unwrap().as_deref(),
        Some("hooked")
    );
    drop(runtime);
    let seen = seen.lock().unwrap();
    let count = |what| seen.iter().filter(|seen| **seen == what).count();
    // A worker, a spare, the controller.
    assert!(
        count("start") >= 3 && count("start") == count("stop"),
        "{seen:?}"
    );
    assert!(count("park") >= 1 && count("unpark") >= 1, "{seen:?}");
}
