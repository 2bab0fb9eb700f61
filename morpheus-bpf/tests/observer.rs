// SPDX-License-Identifier: GPL-2.0-only
//! The observer's view of a worker. Needs root and a kernel with BTF.

mod common;

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use common::client::{Client, hello};
use common::daemon::Daemon;
use common::load::{pin, take_precedence};
use common::wire::{ask, gettid, pidfd};
use common::{BUDGET, PATIENCE, can_run, in_guest, median, now_ns, say, sleep, turn};
use morpheus_common::abi;
use morpheus_common::broker::{Reply, Request};
use morpheus_common::slot::{RuntimeSlot, SlotFlag, VerdictFlags, WorkerState};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often the calling thread gave its CPU away by itself.
fn voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_worker_that_blocks_is_seen() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    const POLLS: usize = 300;
    let daemon = Daemon::start(&[]);
    // In a guest a virtual CPU waits for the others, which counts as CPU time: here it is about sleep.
    let client = Client::with(&daemon.socket, hello(8, Duration::from_secs(1)));
    assert_eq!(client.mode, abi::MORPHEUS_MODE_OBSERVE);
    let client = &client;
    let before_ns = AtomicU64::new(0);
    let (mut seen, mut woken, mut slept) = (Vec::new(), Vec::new(), Vec::new());
    let mut never_slept = 0;
    thread::scope(|scope| {
        let (go, going) = channel::<()>();
        let (done, finished) = channel::<bool>();
        let before_ns = &before_ns;
        scope.spawn(move || {
            let slot = client.register(3);
            while going.recv().is_ok() {
                let switches = voluntary_switches();
                slot.unpark();
                let seq = slot.begin_poll();
                before_ns.store(now_ns(), Ordering::SeqCst);
                sleep(Duration::from_millis(2));
                slot.end_poll(seq);
                slot.park();
                done.send(voluntary_switches() > switches).unwrap();
            }
            slot.set_state(WorkerState::Dead);
        });
        for poll in 0..POLLS as u64 {
            go.send(()).unwrap();
            let event = match client.ring.next(PATIENCE) {
                Some(event) => event,
                // It was preempted, or its machine stood still, until the 2 ms were over.
                None if finished.try_recv() == Ok(false) => {
                    never_slept += 1;
                    continue;
                }
                None => panic!("no event of poll {poll}"),
            };
            let now = now_ns();
            assert_eq!(event.kind, abi::MORPHEUS_EVENT_BLOCKED);
            assert_eq!((event.slot, event.poll_seq), (3, 2 * poll + 1));
            let before = before_ns.load(Ordering::SeqCst);
            seen.push(event.at_ns - before);
            woken.push(now - before);
            let end = client.ring.next(PATIENCE).expect("it does not wake");
            assert_eq!(end.kind, abi::MORPHEUS_EVENT_WOKEN);
            assert_eq!((end.slot, end.poll_seq), (3, event.poll_seq));
            slept.push(end.detail);
            let kernel = client.kernel_slot(3);
            assert!(
                kernel
                    .verdict_for(event.poll_seq)
                    .contains(VerdictFlags::BLOCKED)
            );
            assert!(!kernel.requested(event.poll_seq), "it does not compute");
            assert!(finished.recv().unwrap(), "it was seen to sleep");
        }
    });
    assert!(never_slept < 5, "{never_slept} of {POLLS} never slept");
    let (seen, woken, slept) = (median(&mut seen), median(&mut woken), median(&mut slept));
    say(&format!(
        "blocked in a poll ({POLLS} polls): the kernel's event p50 {:.1} µs, the application has it p50 {:.1} µs, \
         slept p50 {:.0} µs",
        seen as f64 / 1e3,
        woken as f64 / 1e3,
        slept as f64 / 1e3
    ));
    assert!(seen < 1_000_000, "half of the events are later than 1 ms");
    // From when it gave its CPU away, which takes an emulated machine a while.
    let shortest = if in_guest() { 1_000_000 } else { 1_900_000 };
    assert!(slept >= shortest, "half of them slept for less");
    assert!(daemon.stop().success());
}

#[test]
fn a_worker_that_computes_is_asked() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    const POLLS: usize = 100;
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let slot = client.register(0);
    let kernel = client.kernel_slot(0);
    let mut asked = Vec::new();
    for _ in 0..POLLS {
        slot.unpark();
        let start = now_ns();
        let seq = slot.begin_poll();
        while !kernel.requested(seq) {
            assert!(now_ns() - start < PATIENCE.as_nanos() as u64, "not asked");
        }
        asked.push(now_ns() - start);
        slot.acknowledge(seq);
        assert!(kernel.verdict_for(seq).contains(VerdictFlags::STALLED));
        assert!(kernel.oncpu_ns.load(Ordering::Relaxed) >= BUDGET.as_nanos() as u64);
        slot.end_poll(seq);
        slot.park();
        let event = client.ring.next(PATIENCE).expect("no event");
        assert_eq!(event.kind, abi::MORPHEUS_EVENT_BUDGET);
        assert_eq!((event.slot, event.poll_seq), (0, seq));
        assert!(event.detail >= BUDGET.as_nanos() as u64);
    }
    assert!(
        asked.iter().all(|asked| *asked >= BUDGET.as_nanos() as u64),
        "nobody is asked before the budget's end"
    );
    say(&format!(
        "computing in a poll with a budget of 1 ms ({POLLS} polls): asked p50 {:.2} ms",
        median(&mut asked) as f64 / 1e6
    ));

    // Control: polls within their budget, one after the other, for several budgets.
    client.ring.drain();
    slot.unpark();
    let (start, mut long) = (Instant::now(), 0);
    while start.elapsed() < 20 * BUDGET {
        let poll = Instant::now();
        let seq = slot.begin_poll();
        while poll.elapsed() < BUDGET / 5 {}
        let requested = kernel.requested(seq);
        slot.end_poll(seq);
        // The machine may have made it longer: the time that an emulated CPU waits counts as its own.
        let is_long = poll.elapsed() >= BUDGET;
        assert!(!requested || is_long);
        long += usize::from(is_long);
    }
    slot.park();
    assert!(
        long < 10,
        "the machine is too slow for this: {long} long polls"
    );
    let mut events = 0;
    while client.ring.next(Duration::from_millis(20)).is_some() {
        events += 1;
    }
    assert!(events <= long, "{events} events, {long} long polls");
}

/// The control: what the slot says of itself decides whether a sleep is news.
#[test]
fn parked_and_held_workers_are_left_alone() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let blocked = |prepare: fn(&RuntimeSlot)| {
        thread::scope(|scope| {
            let client = &client;
            scope
                .spawn(move || {
                    let slot = client.register(1);
                    client.ring.drain();
                    prepare(slot);
                    for _ in 0..20 {
                        sleep(Duration::from_millis(1));
                    }
                    slot.clear_flag(SlotFlag::Held);
                    slot.set_state(WorkerState::Dead);
                    let mut blocked = Vec::new();
                    while let Some(event) = client.ring.next(Duration::from_millis(20)) {
                        if event.kind == abi::MORPHEUS_EVENT_BLOCKED {
                            blocked.push(event.poll_seq);
                        }
                    }
                    blocked
                })
                .join()
                .unwrap()
        })
    };
    let parked = blocked(|_| {});
    assert_eq!(parked.len(), 0, "parked");
    let held = blocked(|slot| {
        slot.set_flag(SlotFlag::Held);
        slot.unpark();
    });
    assert_eq!(held.len(), 0, "held");
    let quiescing = blocked(|slot| {
        slot.set_state(WorkerState::Dead);
        slot.unpark();
    });
    assert_eq!(quiescing.len(), 0, "not running");
    let neither = blocked(RuntimeSlot::unpark);
    assert!(neither.len() >= 20, "in play: {}", neither.len());
    assert!(neither.iter().all(|seq| *seq == 0), "no poll was watched");
}

#[test]
fn many_threads_come_and_go() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let failed = AtomicBool::new(false);
    // One connection, one question at a time.
    let lock = Mutex::new(());
    for _ in 0..25 {
        thread::scope(|scope| {
            for slot in 0..8 {
                let (client, failed, lock) = (&client, &failed, &lock);
                scope.spawn(move || {
                    let own = {
                        let _lock = lock.lock().unwrap();
                        client.register(slot)
                    };
                    own.unpark();
                    let seq = own.begin_poll();
                    // An emulated CPU may get to it when the time is over already: then no thread sleeps.
                    let is_seen = (0..20).any(|_| {
                        sleep(Duration::from_millis(1));
                        let verdict = client.kernel_slot(slot).verdict_for(seq);
                        verdict.contains(VerdictFlags::BLOCKED)
                    });
                    if !is_seen {
                        failed.store(true, Ordering::Relaxed);
                    }
                    // Half of them die in their poll, and leave no word.
                    if slot % 2 == 0 {
                        own.end_poll(seq);
                    }
                    own.set_state(WorkerState::Dead);
                });
            }
        });
    }
    assert!(!failed.load(Ordering::Relaxed), "a block was not seen");
    daemon.wait_for_statistics("processes 1, workers 8,");
    assert!(daemon.stop().success());
}

/// A thread that computes and is bound by another one: nothing on its CPU switches it out or in.
#[test]
fn a_thread_that_runs_when_it_is_bound_is_timed() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    const ROUNDS: usize = 20;
    // All other threads stay away from the CPU of the thread that computes.
    let everywhere = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| everywhere.is_set(*cpu))
        .collect();
    let [here, .., there] = cpus[..] else {
        return morpheus_testing::skip("needs two CPUs");
    };
    pin(here);
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let mut asked = Vec::new();
    for _ in 0..ROUNDS {
        let (slot, kernel) = (client.runtime_slot(5), client.kernel_slot(5));
        let (tell, told) = channel();
        let bound_ns = AtomicU64::new(0);
        let asked_ns = thread::scope(|scope| {
            let bound_ns = &bound_ns;
            let hog = scope.spawn(move || {
                pin(there);
                take_precedence();
                slot.unpark();
                slot.set_state(WorkerState::Running);
                let seq = slot.begin_poll();
                tell.send(gettid()).unwrap();
                let start = Instant::now();
                while !kernel.requested(seq) {
                    assert!(start.elapsed() < PATIENCE, "not asked");
                }
                let now = now_ns();
                slot.acknowledge(seq);
                slot.end_poll(seq);
                slot.park();
                now
            });
            let tid = told.recv().unwrap();
            // It computes for longer than its budget before it is bound: that does not count.
            sleep(3 * BUDGET);
            bound_ns.store(now_ns(), Ordering::SeqCst);
            let thread = pidfd(tid);
            let request = Request::Register { slot: 5, tid };
            let reply = ask(&client.socket, request, &[thread.as_fd()]);
            assert_eq!(reply, Reply::Registered { slot: 5 });
            hog.join().unwrap()
        });
        asked.push(asked_ns - bound_ns.load(Ordering::SeqCst));
        let request = Request::Unregister { slot: 5 };
        assert_eq!(
            ask(&client.socket, request, &[]),
            Reply::Unregistered { slot: 5 }
        );
    }
    assert!(
        asked.iter().all(|asked| *asked >= BUDGET.as_nanos() as u64),
        "nobody is asked for what it did before"
    );
    let asked = median(&mut asked);
    say(&format!(
        "bound while it computes, with a budget of 1 ms ({ROUNDS} rounds): asked p50 {:.2} ms after",
        asked as f64 / 1e6
    ));
    sched_setaffinity(None, &everywhere).unwrap();
    // A tick is at most 10 ms (CONFIG_HZ=100).
    assert!(asked < 20_000_000, "half of them later than a tick");
}

/// A thread that sleeps in its poll and is bound by another one: its switch was not seen, and it counts all the same.
#[test]
fn a_thread_that_sleeps_when_it_is_bound_is_seen() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let slot = client.runtime_slot(3);
    slot.set_state(WorkerState::Running);
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let seq = slot.begin_poll();
            tell.send((gettid(), seq)).unwrap();
            sleep(Duration::from_millis(100));
            slot.end_poll(seq);
            slot.park();
            // The kernel may not report the switch to a thread (watch.bpf.c): the next switch from it then shows that it was
            // woken. A thread that ends has none that counts.
            sleep(Duration::from_millis(10));
        });
        let (tid, seq) = told.recv().unwrap();
        // It gets there in a moment.
        sleep(Duration::from_millis(20));
        let thread = pidfd(tid);
        let request = Request::Register { slot: 3, tid };
        let reply = ask(&client.socket, request, &[thread.as_fd()]);
        assert_eq!(reply, Reply::Registered { slot: 3 });
        let event = client.ring.next(PATIENCE).expect("it sleeps");
        assert_eq!(event.kind, abi::MORPHEUS_EVENT_BLOCKED);
        assert_eq!((event.slot, event.poll_seq), (3, seq));
        let event = client.ring.next(PATIENCE).expect("it is woken");
        assert_eq!(event.kind, abi::MORPHEUS_EVENT_WOKEN);
    });
}
