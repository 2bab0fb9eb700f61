// SPDX-License-Identifier: GPL-2.0-only
//! Processes that do their worst, and another one beside them that must not notice. Needs root and a kernel with BTF.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{Client, HELLO, hello, sleep_in_poll};
use common::daemon::Daemon;
use common::guest;
use common::random::Random;
use common::wire::{ask, gettid, pidfd, send};
use common::{BUDGET, PATIENCE, can_run, in_guest, median, now_ns, say, sleep, turn};
use morpheus_common::abi;
use morpheus_common::broker::{Reply, Request};
use morpheus_common::slot::{RuntimeSlot, WorkerState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// In a guest the scheduler, which has more to lose: the CPU of every process. Else the observer.
fn start(arguments: &[&str]) -> Daemon {
    if in_guest() {
        Daemon::schedule(arguments)
    } else {
        Daemon::start(arguments)
    }
}

/// The time of each attack. Guests are booted for it; elsewhere it is part of the default run.
fn attack_for() -> Duration {
    Duration::from_millis(if in_guest() { 30_000 } else { 2_500 })
}

/// The observations of a process that has nothing to do with the attack.
#[derive(Debug, Default)]
struct Innocent {
    /// From the start of a sleep to the event, for each sleep.
    seen_ns: Vec<u64>,
    /// Events that it should not have got: about other slots, of other kinds.
    wrong: Vec<String>,
    /// Sleeps without an event.
    missed: usize,
    /// How old the heartbeat was at most.
    oldest_heartbeat_ns: u64,
}

impl Innocent {
    /// Sleeps in poll after poll until told to stop.
    fn work(client: &Client, stop: &AtomicBool) -> Innocent {
        let mut noticed = Innocent::default();
        let slot = client.register(1);
        client.ring.drain();
        while !stop.load(Ordering::Relaxed) {
            slot.unpark();
            let seq = slot.begin_poll();
            let start = now_ns();
            sleep(Duration::from_millis(2));
            slot.end_poll(seq);
            slot.park();
            noticed.read(client, seq, start);
            let age = now_ns().saturating_sub(client.heartbeat());
            noticed.oldest_heartbeat_ns = noticed.oldest_heartbeat_ns.max(age);
            sleep(Duration::from_millis(1));
        }
        slot.set_state(WorkerState::Dead);
        noticed
    }

    fn read(&mut self, client: &Client, seq: u64, start: u64) {
        let mut seen = None;
        // The event is there before the poll has ended.
        while let Some(event) = client.ring.take() {
            match event.kind {
                // Told late, where the kernel did not tell that the thread has a CPU again.
                abi::MORPHEUS_EVENT_WOKEN if event.slot == 1 && event.poll_seq + 2 == seq => {}
                _ if event.slot != 1 || event.poll_seq != seq => {
                    self.wrong.push(format!("{event:?}, in poll {seq}"));
                }
                abi::MORPHEUS_EVENT_BLOCKED => seen = Some(event.at_ns - start),
                abi::MORPHEUS_EVENT_WOKEN => {}
                _ => self.wrong.push(format!("{event:?}")),
            }
        }
        match seen {
            Some(seen_ns) => self.seen_ns.push(seen_ns),
            None => self.missed += 1,
        }
    }

    /// It went on as if nothing were.
    fn check(mut self, what: &str) {
        let polls = self.seen_ns.len();
        let seen = median(&mut self.seen_ns);
        say(&format!(
            "{what}: another process slept in {polls} polls, each seen after p50 {:.1} µs, {} missed; its heartbeat was at \
             most {:.0} ms old",
            seen as f64 / 1e3,
            self.missed,
            self.oldest_heartbeat_ns as f64 / 1e6
        ));
        assert_eq!(self.wrong, [""; 0], "{what}");
        assert!(polls >= 100, "{what}: only {polls} polls");
        // A switch that the kernel does not report is no fault of the attack.
        assert!(self.missed * 50 <= polls, "{what}: {} missed", self.missed);
        // Without an attack it is a tenth of a second and what the machine adds: a busy one, or an emulated one, adds more.
        let limit_ns = if in_guest() {
            5_000_000_000
        } else {
            3_000_000_000
        };
        assert!(self.oldest_heartbeat_ns < limit_ns, "{what}");
    }
}

/// Tells [`attacker`] which attack, and where.
const ATTACK: &str = "MORPHEUS_TEST_ATTACK";

/// Not a test: the process that attacks.
#[test]
fn attacker() {
    let Ok(variable) = std::env::var(ATTACK) else {
        return;
    };
    let (name, path) = variable.split_once('=').unwrap();
    let attack = match name {
        "socket" => attack_socket,
        "flood" => attack_with_a_flood,
        "page" => attack_page,
        "ring" => attack_ring,
        _ => panic!("no attack {name}"),
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| attack(Path::new(path), &stop));
        thread::sleep(attack_for());
        stop.store(true, Ordering::Relaxed);
    });
}

/// Lets a process attack, beside one that does not.
fn beside_an_innocent(daemon: &mut Daemon, what: &str, attack: &str) {
    let client = Client::with(&daemon.socket, hello(8, Duration::from_secs(10)));
    let stop = AtomicBool::new(false);
    let (attacked, innocent) = thread::scope(|scope| {
        let innocent = scope.spawn(|| Innocent::work(&client, &stop));
        let attacked = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attacker", "--test-threads", "1", "--nocapture"])
            .env(ATTACK, format!("{attack}={}", daemon.socket.display()))
            .stdout(Stdio::null())
            .status();
        stop.store(true, Ordering::Relaxed);
        (attacked.unwrap(), innocent.join().unwrap())
    });
    assert!(attacked.success(), "{what}: the attacker has failed");
    innocent.check(what);
    assert!(daemon.is_alive(), "{what}: the daemon has ended");
    if in_guest() {
        assert_eq!(
            guest::state(),
            "enabled",
            "{what}: the scheduler was thrown out"
        );
    }
    // And it serves an application that comes a moment later.
    drop(client);
    thread::sleep(Duration::from_millis(500));
    let later = Client::new(daemon);
    let slot = later.register(0);
    later.ring.drain();
    let seq = sleep_in_poll(slot, Duration::from_millis(5));
    let event = later.ring.next(PATIENCE).expect("nothing is seen any more");
    assert_eq!((event.slot, event.poll_seq), (0, seq));
}

/// Whatever there is to read, read; `false` once the connection is closed.
fn swallow(socket: &OwnedFd) -> bool {
    let mut packet = [0u8; 256];
    loop {
        match rustix::net::recv(socket, &mut packet[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}

/// A packet that is random, or nearly right, or right and cut.
fn packet(random: &mut Random) -> Vec<u8> {
    let own = gettid();
    let good = match random.below(4) {
        0 => hello(random.next() as u32, BUDGET),
        1 => Request::Register {
            slot: random.below(16) as u32,
            tid: if random.below(2) == 0 {
                own
            } else {
                random.next() as u32
            },
        },
        2 => Request::Unregister {
            slot: random.next() as u32,
        },
        _ => HELLO,
    };
    let good = good.encode();
    let mut bytes = good.bytes().to_vec();
    match random.below(5) {
        // As it is.
        0 => {}
        1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        2 => bytes.extend((0..random.below(4000)).map(|_| random.next() as u8)),
        3 => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        _ => {
            bytes = (0..random.below(200))
                .map(|_| random.next() as u8)
                .collect()
        }
    }
    bytes
}

/// Random packets with random descriptors, on connections that live for one packet or for many.
fn fuzz_socket(path: &Path, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let (own, first) = (pidfd(gettid()), pidfd(1));
    let fds = [file.as_fd(), own.as_fd(), first.as_fd(), first.as_fd()];
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(socket) = connect_if_there_is_room(path) else {
            continue;
        };
        // A descriptor that is a socket of the broker's own.
        let with_socket = [socket.as_fd(), own.as_fd()];
        for _ in 0..=random.below(20) {
            let count = random.below(5) as usize;
            let chosen = if random.below(8) == 0 {
                &with_socket[..count.min(2)]
            } else {
                &fds[..count.min(4)]
            };
            if send(&socket, &packet(&mut random), chosen).is_err() {
                break;
            }
            sent += 1;
            // Some read what they are told, others do not.
            if random.below(3) > 0 && !swallow(&socket) {
                break;
            }
        }
    }
    sent
}

/// The backlog may be full of others of this kind.
fn connect_if_there_is_room(path: &Path) -> Option<OwnedFd> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(path).unwrap();
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Some(socket),
        Err(_) => {
            thread::sleep(Duration::from_micros(200));
            None
        }
    }
}

fn attack_socket(path: &Path, stop: &AtomicBool) {
    let sent: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || fuzz_socket(path, stop, seed)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    say(&format!("a fuzzed socket: {sent} packets"));
    assert!(sent > 1000, "only {sent} packets were taken");
}

#[test]
fn a_fuzzed_socket() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = start(&["--processes", "40"]);
    beside_an_innocent(&mut daemon, "a fuzzed socket", "socket");
}

/// As many connections as there may be, that say nothing; and one that asks and asks, and reads no answer.
fn attack_with_a_flood(path: &Path, stop: &AtomicBool) {
    let silent = || {
        let (mut silent, mut connections) = (Vec::new(), 0);
        while !stop.load(Ordering::Relaxed) {
            silent.extend(connect_if_there_is_room(path));
            connections += 1;
            if silent.len() > 100 {
                silent.clear();
            }
        }
        connections
    };
    let deaf = || {
        let question = Request::Unregister { slot: 0 }.encode();
        let mut questions = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(socket) = connect_if_there_is_room(path) else {
                continue;
            };
            let _ = send(&socket, HELLO.encode().bytes(), &[]);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(100)
                && send(&socket, question.bytes(), &[]).is_ok()
            {
                questions += 1;
            }
        }
        questions
    };
    let (connections, questions) = thread::scope(|scope| {
        let (silent, deaf) = (scope.spawn(silent), scope.spawn(deaf));
        (silent.join().unwrap(), deaf.join().unwrap())
    });
    say(&format!(
        "a flood: {connections} connections, {questions} questions that nobody read the answers of"
    ));
    assert!(connections > 100 && questions > 100);
}

#[test]
fn a_flood() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = start(&["--processes", "64"]);
    beside_an_innocent(&mut daemon, "a flood", "flood");
}

/// Random words into every word of the runtime's area, at speed, while its workers sleep and compute.
fn attack_page(path: &Path, stop: &AtomicBool) {
    let liar = &Client::at(path);
    let lock = &Mutex::new(());
    let work = move |slot| {
        {
            // One connection, one question at a time.
            let _lock = lock.lock().unwrap();
            liar.register(slot);
        }
        while !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_micros(300));
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(300) {}
        }
    };
    let scribble = || {
        let mut random = Random::new(7);
        let area = 64 * (1 + u64::from(liar.slots));
        let mut words = 0;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                let at = random.below(area / 8) as usize * 8;
                // Small numbers mean something more often than others.
                let word = match random.below(4) {
                    0 => random.below(8),
                    1 => u64::MAX - random.below(8),
                    _ => random.next(),
                };
                // SAFETY: the area has this word, and is mapped for writing.
                let target: &AtomicU64 = unsafe { liar.runtime.at(at) };
                target.store(word, Ordering::Relaxed);
            }
            words += 1000;
            // Its ring is read, so that events about it go on.
            while liar.ring.take().is_some() {}
        }
        words
    };
    let words = thread::scope(|scope| {
        for slot in 0..3 {
            scope.spawn(move || work(slot));
        }
        scope.spawn(scribble).join().unwrap()
    });
    say(&format!("a fuzzed slot page: {words} words"));
    assert!(words > 100_000);
}

#[test]
fn a_fuzzed_slot_page() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = start(&[]);
    beside_an_innocent(&mut daemon, "a fuzzed slot page", "page");
}

/// A process that says of its ring that it has read what it has not, and what is not there yet.
fn attack_ring(path: &Path, stop: &AtomicBool) {
    let liar = &Client::at(path);
    thread::scope(|scope| {
        scope.spawn(|| {
            let slot = liar.register(0);
            while !stop.load(Ordering::Relaxed) {
                sleep_in_poll(slot, Duration::from_micros(200));
            }
        });
        scope.spawn(|| {
            let mut random = Random::new(3);
            // SAFETY: the page begins with the position up to which the process has read, by the kernel's layout of a ring.
            let consumed: &AtomicU64 = unsafe { liar.ring.consumer.at(0) };
            while !stop.load(Ordering::Relaxed) {
                consumed.store(random.next() & !7, Ordering::Relaxed);
            }
        });
    });
}

#[test]
fn a_ring_with_wrong_positions() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = start(&[]);
    beside_an_innocent(&mut daemon, "a ring with wrong positions", "ring");
}

/// A thousand workers of one process: each is seen, and each makes way for the next.
#[test]
fn a_thousand_workers() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    const WORKERS: u32 = 1000;
    let daemon = start(&[]);
    let client = Client::with(&daemon.socket, hello(WORKERS, Duration::from_secs(10)));
    let (all_registered, slept) = (Barrier::new(WORKERS as usize + 1), AtomicU32::new(0));
    let lock = Mutex::new(());
    let start = Instant::now();
    let mut seen = vec![false; WORKERS as usize];
    thread::scope(|scope| {
        for slot in 0..WORKERS {
            let (client, lock, all_registered, slept) = (&client, &lock, &all_registered, &slept);
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, move || {
                    let own: &RuntimeSlot = {
                        let _lock = lock.lock().unwrap();
                        client.register(slot)
                    };
                    all_registered.wait();
                    // Not all at once: the ring has room for 1365 events.
                    sleep(Duration::from_micros(u64::from(slot) * 500));
                    let seq = sleep_in_poll(own, Duration::from_millis(5));
                    assert_eq!(seq, 1);
                    slept.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
        }
        all_registered.wait();
        say(&format!(
            "{WORKERS} workers: registered after {:.0} ms",
            start.elapsed().as_secs_f64() * 1e3
        ));
        while slept.load(Ordering::SeqCst) < WORKERS {
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            let _ = poll(
                &mut [PollFd::new(&client.ring.fd, PollFlags::IN)],
                Some(&timeout),
            );
            while let Some(event) = client.ring.take() {
                if event.kind == abi::MORPHEUS_EVENT_BLOCKED && event.poll_seq == 1 {
                    seen[event.slot as usize] = true;
                }
            }
            assert!(start.elapsed() < 20 * PATIENCE, "it takes too long");
        }
    });
    let missed = seen.iter().filter(|seen| !**seen).count();
    say(&format!("{WORKERS} workers: {missed} sleeps not seen"));
    // Switches that the kernel does not report: see the observer.
    assert!(missed <= 10, "{missed} sleeps were not seen");
    daemon.wait_for_statistics(&format!("processes 1, workers {WORKERS},"));
    // Their threads are gone; each slot can be given to another.
    let again = ask(
        &client.socket,
        Request::Register {
            slot: WORKERS - 1,
            tid: gettid(),
        },
        &[pidfd(gettid()).as_fd()],
    );
    assert_eq!(again, Reply::Registered { slot: WORKERS - 1 });
    drop(client);
    daemon.wait_for_statistics("processes 0, workers 0,");
}
