//! Tests the stacks of stalled polls: which line they name, and what a capture must not disturb.

mod common;

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{MS, PATIENCE, alone, burn, fresh_label, wait_for};
use morpheus_runtime::{
    Builder, Mechanism, NoStack, Runtime, StallGroup, StallKind, Stalls, Watch as _, single_step,
    task,
};

/// Whether this build can capture stacks on this machine.
const STACKS: bool = cfg!(all(
    feature = "stacks",
    any(target_arch = "x86_64", target_arch = "aarch64")
));

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(8)
        .build()
        .unwrap()
}

/// Returns the number of the line in this file that ends with this comment.
fn line_of(marker: &str) -> u32 {
    let ending = format!("// LINE {marker}");
    let mut lines = include_str!("stalls.rs").lines();
    let index = lines.position(|line| line.ends_with(&ending)).unwrap();
    u32::try_from(index).unwrap() + 1
}

/// Runs a future under a label on a worker, until it is done.
fn run<F>(runtime: &Runtime, label: &'static str, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = task::Builder::new()
        .label(label)
        .spawn_on(future, runtime.handle());
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, task).await })
        .expect("ended in time")
        .unwrap()
}

fn groups_of(stalls: &Stalls, label: &str) -> Vec<StallGroup> {
    let mut groups = stalls.groups.clone();
    groups.retain(|group| group.label == label);
    groups
}

/// Waits for a group of a label, and returns all of them.
fn wait_for_group(runtime: &Runtime, label: &str) -> Vec<StallGroup> {
    let mut groups = Vec::new();
    wait_for(PATIENCE, || {
        groups = groups_of(&runtime.stalls(), label);
        !groups.is_empty()
    });
    assert!(!groups.is_empty(), "{}", runtime.stalls());
    groups
}

/// Fails unless a stall of the label is found in the line with the marker. Tries again, because on a busy machine
/// a thread may not be on a CPU, or not yet asleep, at the time of the sample.
#[track_caller]
fn names_the_line(kind: StallKind, marker: &str, stall: fn()) {
    if !STACKS {
        return;
    }
    let runtime = runtime();
    let line = line_of(marker);
    let mut seen = String::new();
    for _ in 0..5 {
        let label = fresh_label(marker);
        run(&runtime, label, async move { stall() });
        let groups = wait_for_group(&runtime, label);
        let group = &groups[0];
        let culprit = group.culprit();
        if group.kind == kind
            && culprit.is_some_and(|frame| {
                frame.line == Some(line)
                    && frame
                        .file
                        .as_deref()
                        .is_some_and(|file| file.ends_with("tests/stalls.rs"))
            })
        {
            assert!(group.longest >= 10 * MS, "{group:?}");
            return;
        }
        seen += &runtime.stalls().to_string();
    }
    panic!("line {line} was not named: {seen}");
}

#[inline(never)]
fn sleeps() {
    std::thread::sleep(60 * MS); // LINE sleeps
    // Else an optimized build leaves this function before it sleeps.
    std::hint::black_box(());
}

#[inline(never)]
fn waits_for_a_lock() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let (tx, rx) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        let _guard = LOCK.lock().unwrap();
        tx.send(()).unwrap();
        std::thread::sleep(80 * MS);
    });
    rx.recv().unwrap();
    *LOCK.lock().unwrap() += 1; // LINE waits for a lock
    holder.join().unwrap();
}

#[inline(never)]
fn reads_from_a_pipe() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let closer = std::thread::spawn(move || {
        std::thread::sleep(60 * MS);
        drop(writer);
    });
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap(); // LINE reads from a pipe
    closer.join().unwrap();
}

#[inline(never)]
fn computes() {
    let (begun, mut sum) = (Instant::now(), 0u64);
    while begun.elapsed() < 100 * MS {
        sum = sum.wrapping_add((0..50_000u64).fold(0, |sum, x| std::hint::black_box(sum ^ x))); // LINE computes
    }
    std::hint::black_box(sum);
}

#[test]
fn a_sleeper_s_line_is_named() {
    let _alone = alone();
    names_the_line(StallKind::Blocked, "sleeps", sleeps);
}

/// Whether functions of the C library keep a frame pointer, as those of Ubuntu 24.04 do (`push %rbp; mov %rsp, %rbp`).
fn c_library_has_frame_pointers() -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    // SAFETY: the beginning of a function that is loaded, which is longer.
    let code = unsafe { std::slice::from_raw_parts(libc::clock_nanosleep as *const u8, 16) };
    code.windows(4).any(|code| code == [0x55, 0x48, 0x89, 0xe5])
}

/// The frame pointer of a blocked thread is not known, so it is computed, because functions of std need it. Where the function that
/// sleeps needs it, too, there is nothing to compute it from.
#[test]
fn nothing_is_searched_for_in_a_sleeper_s_stack() {
    let _alone = alone();
    if !STACKS {
        return;
    }
    if c_library_has_frame_pointers() {
        return morpheus_testing::skip("the C library's functions keep frame pointers");
    }
    let runtime = runtime();
    let by_tables = wait_for(PATIENCE, || {
        let label = fresh_label("not searched");
        run(&runtime, label, async { sleeps() });
        let group = &wait_for_group(&runtime, label)[0];
        let to_culprit = group.stack.iter().take_while(|frame| !frame.is_application);
        group.culprit().is_some_and(|frame| !frame.searched)
            && to_culprit.clone().count() >= 2
            && to_culprit.clone().all(|frame| !frame.searched)
    });
    assert!(by_tables, "{}", runtime.stalls());
}

#[test]
fn a_lock_s_line_is_named() {
    let _alone = alone();
    names_the_line(StallKind::Blocked, "waits for a lock", waits_for_a_lock);
}

#[test]
fn a_reader_s_line_is_named() {
    let _alone = alone();
    names_the_line(StallKind::Blocked, "reads from a pipe", reads_from_a_pipe);
}

#[test]
fn a_computing_line_is_named() {
    let _alone = alone();
    names_the_line(StallKind::Computing, "computes", computes);
}

/// An unwatched task stalls its worker: the line is found through the thread of the worker's core.
#[test]
fn an_unwatched_line_is_named() {
    let _alone = alone();
    if !STACKS {
        return;
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_spares(8);
    let runtime = builder.watch_every_task(false).build().unwrap();
    let line = line_of("unwatched");
    let named = wait_for(PATIENCE, || {
        let task = runtime.handle().spawn(async {
            std::thread::sleep(400 * MS); // LINE unwatched
        });
        runtime.block_on(task).unwrap();
        groups_of(&runtime.stalls(), "not watched")
            .iter()
            .any(|group| {
                group
                    .culprit()
                    .is_some_and(|frame| frame.line == Some(line))
            })
    });
    assert!(named, "{}", runtime.stalls());
}

#[test]
fn polls_at_one_line_are_one_group_per_label() {
    let _alone = alone();
    let runtime = runtime();
    let (one, two) = (fresh_label("one group"), fresh_label("another"));
    for _ in 0..4 {
        run(&runtime, one, async { sleeps() });
    }
    run(&runtime, two, async { sleeps() });
    let counted = |label| {
        let groups = groups_of(&runtime.stalls(), label);
        groups.iter().map(|group| group.count).sum::<u64>()
    };
    assert!(wait_for(PATIENCE, || counted(one) == 4 && counted(two) == 1));
    let groups = groups_of(&runtime.stalls(), one);
    if STACKS {
        // A thread that was not asleep yet at the time of the sample may be in another group.
        let longest = groups.iter().max_by_key(|group| group.count).unwrap();
        assert!(longest.count >= 2, "{groups:?}");
        assert!(longest.total >= 2 * 20 * MS, "{groups:?}");
    }
}

/// A poll that has not ended has a group already, and its time grows.
#[test]
fn a_poll_that_has_not_ended_is_there_already() {
    let _alone = alone();
    let runtime = runtime();
    let gate = common::Gate::default();
    let label = fresh_label("not ended");
    let inside = gate.clone();
    let task = task::Builder::new()
        .label(label)
        .spawn_on(async move { inside.wait() }, runtime.handle());
    let first = wait_for_group(&runtime, label)[0].longest;
    let grew = wait_for(PATIENCE, || {
        groups_of(&runtime.stalls(), label)[0].longest > first + 5 * MS
    });
    gate.open();
    runtime.block_on(task).unwrap();
    assert!(grew);
    let groups = groups_of(&runtime.stalls(), label);
    assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), 1);
}

/// Counts the handlers of real-time signals that are not the default ones.
fn real_time_handlers() -> usize {
    (libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|&signal| {
            // SAFETY: all-zero is a valid `sigaction`; this only asks.
            let action = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                action
            };
            action.sa_sigaction != libc::SIG_DFL
        })
        .count()
}

#[test]
fn switched_off_there_is_no_stack_and_no_handler() {
    let _alone = alone();
    const NAME: &str = "switched_off_there_is_no_stack_and_no_handler";
    if !common::is_child() {
        common::in_child(NAME, &[]);
        return;
    }
    let off = Builder::new_multi_thread()
        .worker_threads(2)
        .without(Mechanism::Stacks)
        .build()
        .unwrap();
    let label = fresh_label("off");
    for _ in 0..3 {
        run(&off, label, async { burn(40 * MS) });
        run(&off, label, async { sleeps() });
    }
    let groups = wait_for_group(&off, label);
    assert!(
        groups
            .iter()
            .all(|group| group.stack.is_empty() && group.no_stack == Some(NoStack::Off)),
        "{groups:?}"
    );
    assert_eq!(real_time_handlers(), 0);
    if STACKS {
        // The control: with stacks switched on a handler is installed.
        let on = runtime();
        assert_eq!(real_time_handlers(), 0, "no poll is stalled yet");
        let installed = wait_for(PATIENCE, || {
            run(&on, fresh_label("on"), async { computes() });
            real_time_handlers() == 1
        });
        assert!(installed);
    }
}

#[test]
fn short_polls_are_no_stalls() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .report_after(Duration::from_secs(30))
        .build()
        .unwrap();
    run(&runtime, fresh_label("short"), async { sleeps() });
    assert!(runtime.stalls().groups.is_empty(), "{}", runtime.stalls());
}

/// A capture ends no system call early, not even calls that a signal interrupts whatever the flags of its handler.
#[test]
fn no_call_is_interrupted() {
    let _alone = alone();
    static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);
    INTERRUPTED.store(0, Ordering::Relaxed);
    let runtime = runtime();
    let note = |result: isize| {
        let error = std::io::Error::last_os_error();
        if result < 0 && error.kind() == std::io::ErrorKind::Interrupted {
            INTERRUPTED.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (reader, _writer) = UnixStream::pair().unwrap();
    reader.set_read_timeout(Some(40 * MS)).unwrap();
    let descriptor = reader.as_raw_fd();
    let label = fresh_label("calls");
    let mut calls = 0;
    for _ in 0..5 {
        run(&runtime, label, async move {
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 40_000_000,
            };
            // SAFETY: readable for the call.
            note(unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) } as isize);
        });
        run(&runtime, label, async move {
            let mut poll = libc::pollfd {
                fd: descriptor,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one element, writable for the call.
            note(unsafe { libc::poll(&raw mut poll, 1, 40) } as isize);
        });
        run(&runtime, label, async move {
            let mut byte = 0u8;
            // SAFETY: one byte, writable for the call.
            note(unsafe { libc::recv(descriptor, (&raw mut byte).cast(), 1, 0) });
        });
        calls += 3;
    }
    let counted = || {
        let groups = groups_of(&runtime.stalls(), label);
        groups.iter().map(|group| group.count).sum::<u64>()
    };
    // At least half of the calls were sampled.
    assert!(
        wait_for(PATIENCE, || counted() >= calls / 2),
        "{}",
        runtime.stalls()
    );
    assert_eq!(INTERRUPTED.load(Ordering::Relaxed), 0);
}

/// Blocks every signal for a closure.
fn with_signals_blocked(inside: impl FnOnce()) {
    // SAFETY: signal sets of the calling thread, initialised before they are used.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        inside();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

#[test]
fn a_thread_with_signals_blocked_is_reported_without_a_stack() {
    let _alone = alone();
    if !STACKS {
        return;
    }
    let runtime = runtime();
    let label = fresh_label("blocked signals");
    let said = wait_for(PATIENCE, || {
        run(&runtime, label, async { with_signals_blocked(computes) });
        groups_of(&runtime.stalls(), label)
            .iter()
            .any(|group| group.no_stack == Some(NoStack::SignalsBlocked))
    });
    assert!(said, "{}", runtime.stalls());
}

/// Watched futures run on threads of the application that have the smallest stacks and end at once.
#[test]
fn threads_that_end_and_have_small_stacks() {
    let _alone = alone();
    let label = fresh_label("small stack");
    for round in 0..20u64 {
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                std::thread::Builder::new()
                    .stack_size(64 * 1024)
                    .spawn(move || {
                        let cpu = Duration::from_micros(9_000 + 500 * (round + number));
                        let mut future = std::pin::pin!(async { burn(cpu) }.watched(label));
                        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                        assert!(future.as_mut().poll(&mut context).is_ready());
                    })
                    .unwrap()
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    assert_eq!(common::own_panics(), 0);
}

/// A signal with any value from another sender, or without a request, does nothing.
#[test]
fn a_signal_without_a_request_does_nothing() {
    let _alone = alone();
    if !STACKS {
        return;
    }
    let runtime = runtime();
    let installed = wait_for(PATIENCE, || {
        run(&runtime, fresh_label("installs"), async { computes() });
        real_time_handlers() > 0
    });
    assert!(installed);
    let ours = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
        // SAFETY: all-zero is a valid `sigaction`; this only asks.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action.sa_sigaction != libc::SIG_DFL
        }
    });
    let ours = ours.unwrap();
    for value in (0..64).chain([usize::MAX, usize::MAX / 8]) {
        let value = libc::sigval {
            sival_ptr: value as *mut libc::c_void,
        };
        // SAFETY: numbers only, to this process.
        unsafe {
            libc::sigqueue(libc::getpid(), ours, value);
            libc::raise(ours);
        }
    }
    run(&runtime, fresh_label("afterwards"), async { computes() });
}

/// A child process has none of its parent's sampled threads, and can have stalls of its own.
#[test]
fn a_fork_in_between() {
    let _alone = alone();
    const NAME: &str = "a_fork_in_between";
    if !common::is_child() {
        common::in_child(NAME, &[]);
        return;
    }
    let runtime = runtime();
    let tasks: Vec<_> = (0..4)
        .map(|_| runtime.spawn(async { burn(300 * MS) }))
        .collect();
    std::thread::sleep(12 * MS);
    for _ in 0..20 {
        // SAFETY: the child does what is allowed after a fork of a process with threads: computes, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let begun = Instant::now();
            while begun.elapsed() < 2 * MS {
                std::hint::spin_loop();
            }
            // SAFETY: ends at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable; the child is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let label = fresh_label("after forks");
    run(&runtime, label, async { sleeps() });
    wait_for_group(&runtime, label);
}

/// A capture costs its thread at most 5 ms: the gap between two readings of the clock around the signal, the median
/// of many. The bar is 1 ms; the test allows five times that, because other tests run beside it. With `--nocapture`
/// it prints the times.
#[test]
fn a_stack_costs_its_thread_little() {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    let _alone = alone();
    if !STACKS {
        return;
    }
    static TID: AtomicU32 = AtomicU32::new(0);
    static GAP_NS: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let busy = std::thread::spawn(|| {
        // More stack than is copied.
        let room = std::hint::black_box([1u8; 64 * 1024]);
        // SAFETY: gettid has no preconditions.
        TID.store(unsafe { libc::gettid() } as u32, Ordering::Relaxed);
        let mut before = Instant::now();
        while !STOP.load(Ordering::Relaxed) {
            let now = Instant::now();
            GAP_NS.fetch_max((now - before).as_nanos() as u64, Ordering::Relaxed);
            before = now;
        }
        std::hint::black_box(room);
    });
    assert!(wait_for(PATIENCE, || TID.load(Ordering::Relaxed) != 0));
    let median = |asks: bool| {
        let mut gaps: Vec<u64> = (0..101)
            .map(|_| {
                std::thread::sleep(MS / 2);
                GAP_NS.store(0, Ordering::Relaxed);
                if asks {
                    let found = single_step::stack_of(TID.load(Ordering::Relaxed));
                    let (bytes, was_asked) = found.expect("a stack");
                    assert!(was_asked && bytes == 32 * 1024, "{bytes} {was_asked}");
                }
                std::thread::sleep(MS / 20);
                GAP_NS.load(Ordering::Relaxed)
            })
            .collect();
        gaps.sort_unstable();
        Duration::from_nanos(gaps[gaps.len() / 2])
    };
    let (without, with) = (median(false), median(true));
    STOP.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    println!("the thread is away for {with:.1?}, without a signal for {without:.1?}");
    assert!(with < 5 * MS, "{with:?}");
}

/// A process that has become another user is not dumpable: the files in `/proc` with its stack pointers belong to root.
#[test]
fn a_process_that_is_not_dumpable_has_stacks_of_threads_that_compute() {
    let _alone = alone();
    const NAME: &str = "a_process_that_is_not_dumpable_has_stacks_of_threads_that_compute";
    if !STACKS {
        return;
    }
    if !common::is_child() {
        if common::is_root() {
            common::in_child(NAME, &[]);
        } else {
            morpheus_testing::skip("needs root, to become another user");
        }
        return;
    }
    common::become_unprivileged(64_125);
    assert!(std::fs::File::open("/proc/thread-self/syscall").is_err());
    let runtime = runtime();
    // Again, because on a busy machine the thread may not be on a CPU.
    let has_stack = (0..5).any(|_| {
        let label = fresh_label("not dumpable");
        run(&runtime, label, async { computes() });
        let group = &wait_for_group(&runtime, label)[0];
        group.kind == StallKind::Computing && !group.stack.is_empty()
    });
    assert!(has_stack, "{}", runtime.stalls());
}

/// Many stalls of all kinds happen at once, with numbers from one seed.
#[test]
fn a_storm_of_stalls() {
    let _alone = alone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .max_spares(16)
        .report_after(2 * MS)
        .build()
        .unwrap();
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let lock = Arc::new(Mutex::new(()));
    let labels = [
        fresh_label("storm"),
        fresh_label("storm"),
        fresh_label("storm"),
    ];
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (kind, micros, label) = (random(4), random(8_000), labels[random(3) as usize]);
            let lock = lock.clone();
            task::Builder::new().label(label).spawn_on(
                async move {
                    let time = Duration::from_micros(micros);
                    match kind {
                        0 => std::thread::sleep(time),
                        1 => burn(time),
                        2 => {
                            let _guard = lock.lock().unwrap();
                            std::thread::sleep(time / 4);
                        }
                        _ => with_signals_blocked(|| burn(time)),
                    }
                },
                runtime.handle(),
            )
        })
        .collect();
    // The application reads the groups all the while.
    while !tasks.iter().all(|task| task.is_finished()) {
        let stalls = runtime.stalls();
        assert!(stalls.groups.len() <= 256);
        std::thread::sleep(5 * MS);
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let stalls = runtime.stalls();
    let counted: u64 = stalls.groups.iter().map(|group| group.count).sum();
    assert!(
        counted > 0 && counted + stalls.not_captured <= 200 * 4,
        "{stalls}"
    );
    assert_eq!(common::own_panics(), 0);
}

#[test]
fn the_summary_has_the_lines() {
    let _alone = alone();
    const NAME: &str = "the_summary_has_the_lines";
    if common::is_child() {
        let runtime = runtime();
        // A controller that gets no CPU for the whole poll does not see it.
        assert!(wait_for(PATIENCE, || {
            run(&runtime, "summarised", async { sleeps() });
            !runtime.stalls().groups.is_empty()
        }));
        // A forked child that exits with its parent's handlers. It is killed if it waits for a lock.
        // SAFETY: the child makes no call but these, and the status is not asked for.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::exit(0);
            }
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
        return;
    }
    let said = common::in_child(NAME, &[("MORPHEUS_SUMMARY", "1")]);
    let tables = said
        .matches("polls that were stalled, by label and line")
        .count();
    assert_eq!(tables, 1, "{said}");
    assert!(said.contains("summarised: "), "{said}");
    let silent = common::in_child(NAME, &[]);
    assert!(!silent.contains("by label and line"), "{silent}");
}

/// A panic at exit would end a program that aborts on panics with a signal.
#[test]
fn a_summary_that_cannot_be_written_is_no_panic() {
    let _alone = alone();
    const NAME: &str = "a_summary_that_cannot_be_written_is_no_panic";
    if !common::is_child() {
        common::in_child(NAME, &[("MORPHEUS_SUMMARY", "1")]);
        return;
    }
    drop(runtime());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    // SAFETY: both descriptors are open, and standard error stays open.
    let is_full = unsafe { libc::dup2(full.unwrap().as_raw_fd(), libc::STDERR_FILENO) };
    assert_eq!(is_full, libc::STDERR_FILENO);
    // At exit, because the harness sets hooks of its own. Handlers run in the reverse order.
    extern "C" fn fail_on_panics() {
        // SAFETY: ends the process at once.
        std::panic::set_hook(Box::new(|_| unsafe { libc::_exit(3) }));
    }
    // SAFETY: the function lives as long as the process, and does not panic.
    assert_eq!(unsafe { libc::atexit(fail_on_panics) }, 0);
}
