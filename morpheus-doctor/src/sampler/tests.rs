//! Looks at this process itself, and at made-up polls.

use std::sync::mpsc;

use super::*;

fn ended(tid: u32, first_ns: u64, now_ns: u64) -> Ended {
    Ended {
        progress: Progress {
            now_ns,
            ..Progress::at(tid, first_ns)
        },
        has_stack: true,
        first_ns,
        seen_ns: now_ns,
        slept: None,
    }
}

#[test]
fn a_lock_is_given_by_the_poll_that_ends_with_the_wait() {
    let giver = |polls: &[Ended]| {
        let polls: VecDeque<Ended> = polls.iter().copied().collect();
        giver(&polls, 1, (10_000_000, 20_000_000), 500_000).map(|progress| progress.tid)
    };
    let holder = ended(2, 5_000_000, 20_200_000);
    assert_eq!(giver(&[holder]), Some(2));
    let others = [
        // The sleeper itself, one that began later, one that ended before, and one that ended long after.
        ended(1, 5_000_000, 20_200_000),
        ended(3, 15_000_000, 20_200_000),
        ended(4, 5_000_000, 19_000_000),
        ended(5, 5_000_000, 25_000_000),
    ];
    assert_eq!(giver(&others), None);
    assert_eq!(giver(&[&others[..], &[holder]].concat()), Some(2));
    assert_eq!(giver(&[holder, ended(6, 4_000_000, 20_300_000)]), None);
}

/// Looks at this process, and a thread of it that sleeps until something is sent to it, and then runs `then`.
fn with_sleeper(
    then: impl FnOnce() + Send + 'static,
) -> (Looks, u32, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: it takes nothing and returns a number.
        tell.send(unsafe { libc::gettid() } as u32).unwrap();
        let _ = receive.recv();
        then();
    });
    let tid = told.recv().unwrap();
    let target = Target::by_pid(std::process::id()).unwrap();
    let looks = Looks::new(target, Duration::from_millis(1));
    (looks, tid, send, thread)
}

/// The stacks of a thread that are reported in a few rounds.
fn rounds(looks: &mut Looks, tid: u32) -> Vec<(Reason, StackCopy)> {
    for _ in 0..4 {
        looks.round();
        std::thread::sleep(Duration::from_millis(1));
    }
    looks
        .events
        .drain(..)
        .filter_map(|event| match event {
            Event::Stack {
                progress,
                reason,
                copy,
                ..
            } if progress.tid == tid => Some((reason, copy)),
            _ => None,
        })
        .collect()
}

/// As soon as it is seen in them.
fn first_of(looks: &mut Looks, tid: u32, wanted: Reason) -> StackCopy {
    let found = std::cell::RefCell::new(None);
    let looks = std::cell::RefCell::new(looks);
    morpheus_testing::wait_for("the thread is not seen", || {
        let mut told = rounds(&mut looks.borrow_mut(), tid).into_iter();
        *found.borrow_mut() = told.find(|&(reason, _)| reason == wanted);
        found.borrow().is_some()
    });
    found.into_inner().expect("it was waited for").1
}

/// Makes a worker of a thread that sleeps, and tells that it is none there. Returns where that is.
fn adopt_and_leave(looks: &mut Looks, tid: u32) -> Spot {
    looks.adopt(tid, Kind::Worker, None);
    let spot = Spot::from(first_of(looks, tid, Reason::Woke).registers);
    let asleep = Some(spot);
    looks.adopt(tid, Kind::Other { asleep }, None);
    spot
}

#[test]
fn a_worker_that_was_none_for_a_while_is_one_again_when_it_wakes() {
    let sleep = || std::thread::sleep(Duration::from_secs(3));
    let (mut looks, tid, send, thread) = with_sleeper(sleep);
    let waits = adopt_and_leave(&mut looks, tid);
    assert_eq!(rounds(&mut looks, tid), [], "that sleep is no poll's");
    assert!(looks.workers[&tid].worker.progress().is_none());
    // It wakes, and sleeps elsewhere.
    drop(send);
    let polls = first_of(&mut looks, tid, Reason::Woke);
    assert_ne!(Spot::from(polls.registers), waits);
    // One that runs while it is none is looked for anew.
    looks.adopt(tid, Kind::Other { asleep: None }, None);
    assert!(!looks.workers.contains_key(&tid));
    thread.join().unwrap();
}

#[test]
fn places_of_sleep_are_remembered_up_to_a_number() {
    let (mut looks, tid, send, thread) = with_sleeper(|| {});
    looks.adopt(tid, Kind::Worker, None);
    let spot = |sp| Spot { ip: 1, sp };
    for sp in 0..10 {
        for _ in 0..2 {
            let asleep = Some(spot(sp));
            looks.adopt(tid, Kind::Other { asleep }, None);
        }
    }
    assert_eq!(looks.workers[&tid].away_at, [9, 8, 7, 6].map(spot));
    drop(send);
    thread.join().unwrap();
}

#[test]
fn workers_that_rest_for_long_are_looked_at_seldom_where_looks_are_too_many() {
    let (mut looks, tid, send, thread) = with_sleeper(|| {});
    adopt_and_leave(&mut looks, tid);
    // In how many of the turns that one in `SELDOM` is of it is looked at.
    let looked_at = |looks: &mut Looks| {
        let last_ns = |looks: &Looks| looks.workers[&tid].worker.last().map(|last| last.now_ns);
        let turn = |looks: &mut Looks| {
            let before_ns = last_ns(looks);
            looks.round();
            last_ns(looks) != before_ns
        };
        (0..SELDOM).filter(|_| turn(looks)).count() as u32
    };
    assert_eq!(rounds(&mut looks, tid), []);
    std::thread::sleep(Duration::from_nanos(LONG_REST_NS));
    assert_eq!(looked_at(&mut looks), SELDOM);
    looks.set_cost(looks.period_ns);
    assert_eq!(looked_at(&mut looks), 1);
    drop(send);
    thread.join().unwrap();
}

#[test]
fn polls_are_long_by_looks_within_a_turn_where_turns_are_far_apart() {
    let (mut looks, tid, send, thread) = with_sleeper(|| {});
    looks.adopt(tid, Kind::Worker, None);
    let turn_ns = looks.set_cost(u64::MAX / SHARE);
    assert_eq!(turn_ns, LONGEST_NS);
    looks.round();
    let began_ns = now_ns();
    let mut apart_ns = Vec::new();
    while let next_ns = looks.next_ns(began_ns, turn_ns)
        && next_ns < began_ns + turn_ns
    {
        let now = now_ns();
        apart_ns.push(next_ns.saturating_sub(now));
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now)));
        looks.follow();
    }
    // After 1, 2, 4 … ms, and by each the poll is known to be longer. Such a look costs time as well.
    assert!((1..=6).contains(&apart_ns.len()), "{apart_ns:?}");
    assert!(apart_ns[0] <= looks.threshold_ns, "{apart_ns:?}");
    let wakes = |event: &Event| matches!(event, Event::Stack { reason: Reason::Woke, progress, .. } if progress.tid == tid);
    assert!(looks.events.iter().any(wakes));
    // Near turns need no such looks, and neither does a worker that is in no poll.
    looks.set_cost(0);
    looks.round();
    let near_ns = looks.threshold_ns;
    assert_eq!(looks.next_ns(began_ns, near_ns), began_ns + near_ns);
    adopt_and_leave(&mut looks, tid);
    looks.round();
    let now = now_ns();
    assert_eq!(looks.next_ns(now, LONGEST_NS), now + LONGEST_NS);
    drop(send);
    thread.join().unwrap();
}

#[test]
fn threads_that_sleep_are_told_of_and_learned() {
    let (mut looks, tid, send, thread) = with_sleeper(|| {});
    let until = now_ns() + 60_000_000_000;
    let (copy, call) = loop {
        assert!(now_ns() < until, "the thread is not seen");
        looks.scan(now_ns());
        let mut events = looks.events.drain(..);
        let found = events.find_map(|event| match event {
            Event::Stack {
                progress,
                reason: Reason::UnknownSleep,
                copy,
                system_call: Some(call),
                ..
            } if progress.tid == tid => Some((copy, call)),
            _ => None,
        });
        if let Some(found) = found {
            break found;
        }
        std::thread::sleep(Duration::from_millis(25));
    };
    assert_eq!(call.number, libc::SYS_futex as u32);
    // As a worker, its sleep is a blocked poll,
    looks.adopt(tid, Kind::Worker, None);
    first_of(&mut looks, tid, Reason::Woke);
    assert_eq!(looks.sleepers().len(), 1);
    // and when it is known to be a park, it is none.
    looks.learn(Signature {
        ip: copy.registers.ip,
        system_call: call.number,
        return_address: copy.word(copy.registers.sp + 16).unwrap(),
        return_offset: 16,
        sleep: Sleep::Park,
        counter: None,
    });
    assert_eq!(rounds(&mut looks, tid), []);
    assert_eq!(looks.sleepers().len(), 0);
    // Threads that are gone, and numbers that never were.
    looks.adopt(1 << 23, Kind::Worker, None);
    drop(send);
    thread.join().unwrap();
    morpheus_testing::wait_for("the thread is still there", || {
        Files::open(looks.target.pid, tid).is_err()
    });
    looks.round();
    assert!(looks.workers.is_empty());
}

#[test]
fn counters_that_point_nowhere_are_unknown() {
    let looks = Looks::new(
        Target::by_pid(std::process::id()).unwrap(),
        Duration::from_millis(1),
    );
    let number = Box::new([0_u32, 77]);
    let core = Box::new(&raw const *number as u64);
    let counter = |core_at| {
        Some(Counter {
            core_at,
            tick_offset: 4,
        })
    };
    let at = &raw const *core as u64;
    let mut known = 0;
    assert_eq!(looks.tick(0, counter(at), &mut known), Tick::Is(77));
    assert_eq!(known, *core);
    assert_eq!(looks.tick(0, counter(at), &mut known), Tick::Is(77));
    for nowhere in [0, 1, u64::MAX, u64::MAX - 7] {
        assert_eq!(looks.tick(0, counter(nowhere), &mut known), Tick::Unknown);
        let core = Box::new(nowhere);
        let tick = looks.tick(0, counter(&raw const *core as u64), &mut known);
        assert_eq!(tick == Tick::NoCore, nowhere == 0, "{nowhere:#x}");
    }
    assert_eq!(looks.tick(0, None, &mut known), Tick::Unknown);
}

#[test]
fn the_thread_ends_with_the_sampler() {
    let sampler = Sampler::open(std::process::id(), Duration::from_millis(1)).unwrap();
    let looks = Arc::downgrade(&sampler.looks);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!sampler.notes().is_empty());
    drop(sampler);
    assert!(looks.upgrade().is_none());
    assert!(Sampler::open(1 << 23, Duration::from_millis(1)).is_err());
}
