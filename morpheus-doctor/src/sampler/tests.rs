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

#[test]
fn threads_that_sleep_are_told_of_and_learned() {
    let (send, receive) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: it takes nothing and returns a number.
        tell.send(unsafe { libc::gettid() } as u32).unwrap();
        let _ = receive.recv();
    });
    let tid = told.recv().unwrap();
    let mut looks = Looks::new(
        Target::by_pid(std::process::id()).unwrap(),
        Duration::from_millis(1),
    );
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
    let rounds = |looks: &mut Looks| {
        for _ in 0..4 {
            looks.round();
            std::thread::sleep(Duration::from_millis(1));
        }
        let told: Vec<Reason> = looks
            .events
            .drain(..)
            .filter_map(|event| match event {
                Event::Stack {
                    progress, reason, ..
                } if progress.tid == tid => Some(reason),
                _ => None,
            })
            .collect();
        told
    };
    assert!(rounds(&mut looks).contains(&Reason::Woke));
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
    assert_eq!(rounds(&mut looks), []);
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
