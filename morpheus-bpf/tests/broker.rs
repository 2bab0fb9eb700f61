// SPDX-License-Identifier: GPL-2.0-only
//! The daemon at its socket: whom it refuses, and what is left of who leaves. Needs root and a kernel with BTF.

mod common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{Client, HELLO, hello, sleep_in_poll};
use common::daemon::{Daemon, program};
use common::wire::{ask, connect, gettid, pidfd, receive, send};
use common::{BUDGET, PATIENCE, as_user, can_run, in_guest, median, now_ns, say, sleep, turn};
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::MapInfoIter;
use morpheus_common::abi;
use morpheus_common::broker::{Refusal, Reply, Request};
use morpheus_testing::lingering;
use rustix::process::{Pid, Signal};

/// A user other than root.
const SOMEBODY: u32 = 12_345;

/// A connection that has a lease.
fn welcomed(daemon: &Daemon) -> OwnedFd {
    let socket = connect(&daemon.socket);
    send(&socket, HELLO.encode().bytes(), &[]).unwrap();
    receive(&socket).unwrap();
    socket
}

#[test]
fn garbage_is_refused_and_the_daemon_lives() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // A rate that every machine exceeds.
    let mut daemon = Daemon::start(&["--processes", "40", "--requests-per-second", "50"]);
    let client = Client::new(&daemon);
    let refused = |packet: &[u8], fds: &[BorrowedFd<'_>]| {
        let socket = connect(&daemon.socket);
        send(&socket, packet, fds).unwrap();
        let refusal = match receive(&socket) {
            Some((Reply::Refused(refusal), fds)) => {
                assert!(fds.is_empty());
                refusal
            }
            other => panic!("{packet:?}: {other:?}"),
        };
        assert!(receive(&socket).is_none(), "and then it is closed");
        refusal
    };
    assert_eq!(refused(b"GET / HTTP/1.1\r\n", &[]), Refusal::Magic);
    assert_eq!(refused(&[0; 64], &[]), Refusal::Magic);
    assert_eq!(refused(&[0xff; 4096], &[]), Refusal::Magic);
    let good = HELLO.encode();
    assert_eq!(refused(&good.bytes()[..20], &[]), Refusal::Length);
    let long = [good.bytes(), &[0; 40]].concat();
    assert_eq!(refused(&long, &[]), Refusal::Length);
    assert_eq!(
        refused(Request::Unregister { slot: 0 }.encode().bytes(), &[]),
        Refusal::Order
    );
    assert_eq!(
        refused(hello(0, BUDGET).encode().bytes(), &[]),
        Refusal::Slots
    );
    assert_eq!(
        refused(hello(u32::MAX, BUDGET).encode().bytes(), &[]),
        Refusal::Slots
    );
    assert_eq!(
        refused(hello(1, Duration::ZERO).encode().bytes(), &[]),
        Refusal::Limits
    );
    // Descriptors that were not asked for: from 6.16 on the kernel takes none without a lease.
    let null = std::fs::File::open("/dev/null").unwrap();
    let socket = connect(&daemon.socket);
    match send(&socket, b"x", &[null.as_fd(); 8]) {
        Ok(_) => assert_eq!(refused(b"x", &[null.as_fd(); 8]), Refusal::Thread),
        Err(error) => assert_eq!(error, rustix::io::Errno::PERM),
    }

    // Descriptors that are no pidfd, a pidfd of another process, and none at all.
    let register = |tid: u32, fds: &[BorrowedFd<'_>]| {
        let request = Request::Register { slot: 0, tid };
        ask(&welcomed(&daemon), request, fds)
    };
    let thread = Reply::Refused(Refusal::Thread);
    assert_eq!(register(gettid(), &[null.as_fd(); 8]), thread);
    assert_eq!(register(gettid(), &[null.as_fd()]), thread);
    assert_eq!(register(1, &[pidfd(1).as_fd()]), thread);
    assert_eq!(register(1, &[]), thread);
    assert_eq!(register(u32::MAX, &[]), thread);
    assert_eq!(register(gettid(), &[pidfd(1).as_fd()]), thread);
    assert_eq!(register(gettid(), &[]), Reply::Registered { slot: 0 });

    // Random bytes behind a good beginning, without waiting for an answer.
    let mut state = 1u64;
    for _ in 0..500 {
        let mut bytes = good.bytes().to_vec();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 41) as u8;
        }
        // A connection that says Hello well would wait for the kernel; here it is about the others.
        if Request::decode(&bytes).is_err() {
            let _ = send(&connect(&daemon.socket), &bytes, &[]);
        }
    }
    // Too many requests.
    let socket = welcomed(&daemon);
    let last = (0..10_000)
        .map(|_| ask(&socket, Request::Unregister { slot: 0 }, &[]))
        .find(|reply| *reply != Reply::Unregistered { slot: 0 });
    assert_eq!(last, Some(Reply::Refused(Refusal::Rate)));

    // Too many connections; those that say nothing are closed after a while.
    let silent: Vec<_> = (0..50).map(|_| connect(&daemon.socket)).collect();
    let full = silent
        .iter()
        .rev()
        .take(5)
        .map(|socket| receive(socket).map(|(reply, _)| reply));
    for reply in full {
        assert_eq!(reply, Some(Reply::Refused(Refusal::Processes)));
    }
    drop(silent);

    assert!(daemon.is_alive());
    client.register(2);
    let before = client.heartbeat();
    thread::sleep(Duration::from_millis(500));
    assert!(client.heartbeat() > before);
}

/// To close such a socket its last owner waits, which the daemon would be.
#[test]
fn a_socket_that_lingers_holds_up_no_other_client() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    client.register(0);
    let packet = Request::Register { slot: 0, tid: 1 }.encode();
    let linger = Duration::from_secs(4);
    // One that the daemon receives, and one in a packet that it never reads.
    let (received, unread) = (welcomed(&daemon), welcomed(&daemon));
    let [(one, its_end), (other, others_end)] = [lingering(linger), lingering(linger)];
    // Stopped until this process has closed its own: the last one waits.
    daemon.send(Signal::STOP).unwrap();
    send(&received, packet.bytes(), &[one.as_fd()]).unwrap();
    send(&unread, b"no message", &[]).unwrap();
    send(&unread, packet.bytes(), &[other.as_fd()]).unwrap();
    drop((one, other, received, unread));
    daemon.send(Signal::CONT).unwrap();
    let begun = Instant::now();
    let mut oldest_ns = 0;
    while begun.elapsed() < linger / 2 {
        oldest_ns = oldest_ns.max(now_ns().saturating_sub(client.heartbeat()));
        sleep(Duration::from_millis(10));
    }
    // A client takes the daemon for dead after a second.
    assert!(oldest_ns < 1_000_000_000, "{oldest_ns}");
    client.register(1);
    drop((its_end, others_end));
}

#[test]
fn nothing_is_left_of_a_closed_connection() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let slot = client.register(0);
    daemon.wait_for_statistics("processes 1, workers 1,");
    let sleeps = || sleep_in_poll(slot, Duration::from_millis(2));
    client.ring.drain();
    sleeps();
    assert!(client.ring.next(PATIENCE).is_some());
    let Client {
        socket,
        ring,
        kernel,
        ..
    } = client;
    drop(socket);
    daemon.wait_for_statistics("processes 0, workers 0,");
    ring.drain();
    let offset = std::mem::offset_of!(abi::morpheus_kernel_header, heartbeat_ns);
    // SAFETY: the header has this word.
    let heartbeat = unsafe { kernel.at::<AtomicU64>(offset) };
    let last = heartbeat.load(Ordering::Relaxed);
    sleeps();
    assert!(ring.next(Duration::from_millis(300)).is_none());
    assert_eq!(heartbeat.load(Ordering::Relaxed), last);

    // The same thread can be bound again, to a new lease.
    let client = Client::new(&daemon);
    let slot = client.register(7);
    client.ring.drain();
    let seq = sleep_in_poll(slot, Duration::from_millis(2));
    let event = client.ring.next(PATIENCE).unwrap();
    assert_eq!((event.slot, event.poll_seq), (7, seq));

    let socket = daemon.socket.clone();
    assert!(daemon.stop().success());
    assert!(!socket.exists());
    assert!(receive(&client.socket).is_none());
}

#[test]
fn commands_say_what_they_find() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let run = |arguments: &[&str]| {
        let output = Command::new(program()).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let daemon = Daemon::start(&[]);
    let socket = daemon.socket.to_str().unwrap().to_owned();
    let (code, text) = run(&["status", "--json", "--socket", &socket]);
    assert!(code == Some(0) && text.contains("\"well\":true"), "{text}");
    let (code, text) = run(&["--observe", "--socket", &socket]);
    assert!(code == Some(1) && text.contains("another daemon"), "{text}");
    daemon.stop();
    let (code, text) = run(&["status", "--socket", &socket]);
    assert!(code == Some(1) && text.contains("no daemon"), "{text}");
    let (code, text) = run(&["--observe", "check"]);
    assert_eq!(code, Some(0), "{text}");
    // Without it, the scheduler is meant, which needs more.
    let sched_ext = std::path::Path::new("/sys/kernel/sched_ext").exists();
    let (code, text) = run(&["check"]);
    assert_eq!(code, Some(if sched_ext { 0 } else { 1 }), "{text}");
    if !sched_ext {
        let (code, text) = run(&["--socket", &socket]);
        assert!(code == Some(1) && text.contains("--observe"), "{text}");
        assert_eq!(text.lines().count(), 1, "one clear line: {text}");
    }
}

/// Opening and closing a lease waits for the kernel; no other connection waits for that.
#[test]
fn who_comes_and_goes_does_not_hold_up_others() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&["--requests-per-second", "100000"]);
    let client = Client::new(&daemon);
    let question = || {
        let start = Instant::now();
        let request = Request::Unregister { slot: 0 };
        let reply = ask(&client.socket, request, &[]);
        assert_eq!(reply, Reply::Unregistered { slot: 0 });
        start.elapsed().as_nanos() as u64
    };
    let mut calm: Vec<u64> = (0..200).map(|_| question()).collect();
    let calm = median(&mut calm);
    // One lease alone took longer when the daemon waited for it. On a machine that is busy with other things each lease
    // takes longer, too: one round within the limit is the proof.
    let limit_ns = if in_guest() { 100_000_000 } else { 20_000_000 };
    let is_within = (0..3).any(|_| {
        let (busy, came) = beside_others(&daemon.socket, question);
        say(&format!(
            "a question is answered in p50 {:.0} µs, while others come and go ({came} did) in p50 {:.0} µs",
            calm as f64 / 1e3,
            busy as f64 / 1e3
        ));
        assert!(came >= 8, "only {came} came");
        busy < limit_ns
    });
    assert!(is_within, "others are held up");
}

/// The median of 200 questions while four others come and go, and how often those came.
fn beside_others(path: &std::path::Path, question: impl Fn() -> u64) -> (u64, u64) {
    let stop = AtomicBool::new(false);
    let came = AtomicU64::new(0);
    let mut busy: Vec<u64> = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let socket = connect(path);
                    send(&socket, HELLO.encode().bytes(), &[]).unwrap();
                    let (reply, _) = receive(&socket).unwrap();
                    assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
                    came.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let asked = (0..200).map(|_| {
            sleep(Duration::from_millis(2));
            question()
        });
        let asked = asked.collect();
        stop.store(true, Ordering::Relaxed);
        asked
    });
    (median(&mut busy), came.load(Ordering::Relaxed))
}

/// As another user, who may not keep the others out.
#[test]
fn a_user_has_a_share_of_the_connections() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&["--processes", "6", "--processes-per-user", "2"]);
    let path = &daemon.socket;
    let outcomes = as_user(SOMEBODY, || {
        let connections: Vec<_> = (0..3).map(|_| connect(path)).collect();
        let replies = connections.iter().map(|socket| {
            // The third is closed already.
            let _ = send(socket, HELLO.encode().bytes(), &[]);
            receive(socket).map(|(reply, _)| reply)
        });
        replies.collect::<Vec<_>>()
    });
    let welcome = |reply: &Option<Reply>| matches!(reply, Some(Reply::Welcome { slots: 8, .. }));
    assert!(
        welcome(&outcomes[0]) && welcome(&outcomes[1]),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[2], Some(Reply::Refused(Refusal::Processes)));
    // Root has no such share, only what there is.
    let others: Vec<Client> = (0..3).map(|_| Client::new(&daemon)).collect();
    assert_eq!(others.len(), 3);
}

/// Each answer costs a look at every connection's areas.
#[test]
fn a_user_gets_the_numbers_now_and_then() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let _client = Client::new(&daemon);
    let path = &daemon.socket;
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let (answered, asked) = thread::scope(|scope| {
        let user = scope.spawn(|| {
            as_user(SOMEBODY, || {
                let (mut answered, mut asked) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    asked += 1;
                    if let Ok(numbers) = morpheus_tools::stats::ask(path) {
                        assert_eq!(numbers["processes"], 1);
                        answered += 1;
                    }
                }
                (answered, asked)
            })
        });
        for _ in 0..20 {
            sleep(Duration::from_millis(100));
            let numbers = morpheus_tools::stats::ask(path).unwrap();
            assert_eq!(numbers["processes"], 1, "root is answered meanwhile");
        }
        stop.store(true, Ordering::Relaxed);
        user.join().unwrap()
    });
    let took = start.elapsed();
    say(&format!(
        "{answered} of {asked} questions were answered in {took:?}"
    ));
    // Twenty at once, and twenty a second.
    let most = 20.0 + 20.0 * took.as_secs_f64() + 1.0;
    assert!(
        answered >= 20 && f64::from(answered) <= most,
        "more than {most}"
    );
    // Without a loop, a user is answered.
    thread::sleep(Duration::from_millis(500));
    as_user(SOMEBODY, || morpheus_tools::stats::ask(path)).unwrap();
}

/// Tells [`thread_of_another_namespace`] where the daemon listens.
const NAMESPACE: &str = "MORPHEUS_TEST_NAMESPACE";

/// Not a test: a process in a PID namespace of its own, which names the last of its threads by number, and again.
#[test]
fn thread_of_another_namespace() {
    let Some(path) = std::env::var_os(NAMESPACE) else {
        return;
    };
    const THREADS: usize = 500;
    let end = RwLock::new(());
    thread::scope(|scope| {
        let end = &end;
        // Until it is dropped, the threads do nothing: an emulated CPU has no time for threads that wake.
        let before_the_end = end.write().unwrap();
        for _ in 0..THREADS {
            let thread = thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, || drop(end.read())).unwrap();
        }
        let register = || {
            let socket = connect(path.as_ref());
            ask(&socket, HELLO, &[]);
            let start = Instant::now();
            let (slot, tid) = (0, gettid());
            let mut registered = 0;
            while start.elapsed() < Duration::from_secs(20) {
                let reply = ask(&socket, Request::Register { slot, tid }, &[]);
                if reply != (Reply::Registered { slot }) {
                    return (registered, start.elapsed(), Some(reply));
                }
                registered += 1;
            }
            (registered, start.elapsed(), None)
        };
        let (registered, took, last) = scope.spawn(register).join().unwrap();
        drop(before_the_end);
        println!(
            "\n{registered} times among {THREADS} threads in {} ms, then {last:?}",
            took.as_millis()
        );
    });
}

/// For each, the daemon reads in `/proc` what the numbers of the threads are.
#[test]
fn threads_of_another_namespace_are_looked_up_within_a_budget() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let unshare = |command: &mut Command| {
        // SAFETY: it is a system call, which is all that is allowed there; the next process is in the new namespace.
        let unshare = || match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: as above.
        unsafe { command.pre_exec(unshare) };
    };
    let daemon = Daemon::start(&["--requests-per-second", "100000"]);
    // The shell is outside of it, and what it starts is inside.
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "\"$0\" --exact thread_of_another_namespace --nocapture; true",
        ])
        .arg(std::env::current_exe().unwrap())
        .env(NAMESPACE, &daemon.socket);
    unshare(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("times among"));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    say(line);
    let words: Vec<&str> = line.split(' ').collect();
    let (registered, ms): (u64, u64) = (words[0].parse().unwrap(), words[6].parse().unwrap());
    // It has a budget for 8192 threads at once, and two in a millisecond.
    let most = (8192 + 2 * ms) / 500 + 1;
    assert!((1..=most).contains(&registered), "{line}");
    // An emulated CPU may be too slow to look at more threads than that.
    let is_too_slow = in_guest() && registered * 500 < 2 * ms;
    assert!(is_too_slow || line.contains("Rate"), "{line}");
}

/// Whether the daemon at this socket says how it is.
fn answers(socket: &Path) -> bool {
    let mut status = Command::new(program());
    status.args(["status", "--json", "--socket"]).arg(socket);
    status.output().unwrap().status.success()
}

/// A line that cannot be written is no reason to end: a machine would lose its scheduler when a disk is full.
#[test]
fn a_full_standard_error_ends_no_daemon() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker.sock");
    let mut daemon = Command::new(program())
        .args(["--observe", "--socket"])
        .arg(&socket)
        .stderr(File::create("/dev/full").unwrap())
        .spawn()
        .unwrap();
    morpheus_testing::wait_for("the daemon", || answers(&socket));
    drop(Client::at(&socket));
    rustix::process::kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    let ended = daemon.wait().unwrap();
    assert!(ended.success(), "{ended}");
}

/// An application that hears nothing for a second takes the daemon for dead: no reader of its lines may hold it up.
#[test]
fn a_reader_of_its_lines_that_stops_holds_no_daemon_up() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker.sock");
    let (unread, lines) = rustix::pipe::pipe().unwrap();
    // To its last byte.
    rustix::io::ioctl_fionbio(&lines, true).unwrap();
    while rustix::io::write(&lines, &[b'.'; 1024]).is_ok() {}
    while rustix::io::write(&lines, b".").is_ok() {}
    rustix::io::ioctl_fionbio(&lines, false).unwrap();
    let mut daemon = Command::new(program())
        .args(["--observe", "--stats", "1", "--socket"])
        .arg(&socket)
        .stdout(Stdio::from(lines))
        .spawn()
        .unwrap();
    morpheus_testing::wait_for("the daemon", || answers(&socket));
    // Its first line is due within.
    let begun = Instant::now();
    let mut answered = true;
    while answered && begun.elapsed() < Duration::from_secs(3) {
        answered = answers(&socket);
    }
    // One that is held up is not to stay.
    let signal = if answered { Signal::TERM } else { Signal::KILL };
    rustix::process::kill_process(Pid::from_child(&daemon), signal).unwrap();
    let ended = daemon.wait().unwrap();
    assert!(ended.success(), "{ended}");
    drop(unread);
}

/// With `--verbose` each client causes lines. One that causes lines which are not read may not hold up the others.
#[test]
fn a_reader_of_its_errors_that_stops_holds_no_daemon_up() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker.sock");
    // The daemon must not have the end that is read, too.
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (errors, its_end) = rustix::pipe::pipe_with(flags).unwrap();
    // A page.
    rustix::pipe::fcntl_setpipe_size(&its_end, 4096).unwrap();
    let mut daemon = Command::new(program())
        .args(["--observe", "--verbose", "--socket"])
        .arg(&socket)
        .stderr(Stdio::from(its_end))
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(File::from(errors));
    let mut line = String::new();
    while !line.contains("scx_morpheus: observing") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    // Each causes two lines, of 30 bytes at least.
    let answered = (0..100).all(|_| answers(&socket));
    // One that is held up is not to stay.
    let signal = if answered { Signal::TERM } else { Signal::KILL };
    rustix::process::kill_process(Pid::from_child(&daemon), signal).unwrap();
    drop(errors);
    let ended = daemon.wait().unwrap();
    assert!(ended.success(), "{ended}");
}

/// Set for the process that becomes another program: path of the daemon's socket.
const EXECUTES: &str = "MORPHEUS_TEST_EXECUTES";

/// Whether the kernel side knows a worker by this descriptor of a thread.
fn is_bound(thread: &OwnedFd) -> bool {
    MapInfoIter::default()
        .filter(|map| map.name == "workers")
        .any(|map| {
            // SAFETY: it takes a number.
            let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(map.id) };
            // SAFETY: a new descriptor, of which there is no other owner; -1 is none.
            let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
            let (key, mut value) = (thread.as_raw_fd(), vec![0_u8; map.value_size as usize]);
            // SAFETY: the keys of a task storage are descriptors of threads, and the value has the map's size.
            let found = fd.map(|fd| unsafe {
                let (key, value) = ((&raw const key).cast(), value.as_mut_ptr().cast());
                libbpf_sys::bpf_map_lookup_elem(fd.as_raw_fd(), key, value)
            });
            found == Some(0)
        })
}

/// The thread that calls `execve` goes on as its process's first, with another number. As a worker that nothing ends it
/// would be treated as one for the rest of its life, by the lease of a program that is no more.
#[test]
fn a_worker_that_becomes_another_program_is_none() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "becomes_another_program", "--nocapture"])
        .env(EXECUTES, &daemon.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let worker = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("worker ")?.parse::<u32>().ok());
    let worker = worker.expect("the worker failed");
    assert_ne!(worker, child.id(), "not the process's first thread");
    assert!(is_bound(&pidfd(worker)), "it is found while it is a worker");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    daemon.wait_for_statistics("processes 0, workers 0,");
    let program = std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
    let is_left = is_bound(&pidfd(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(program, "sleep\n");
    assert!(!is_left, "it still is a worker");
}

/// The process's first thread takes the slot of another one, which is unbound; with it the first one's number is looked at.
#[test]
fn a_slot_passes_to_the_first_thread() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    client.register(0);
    let first = std::process::id();
    assert_ne!(first, gettid());
    client.bind(0, first);
    assert!(is_bound(&pidfd(first)));
    assert!(!is_bound(&pidfd(gettid())));
}

/// The process of `a_worker_that_becomes_another_program_is_none`.
#[test]
fn becomes_another_program() {
    let Some(socket) = std::env::var_os(EXECUTES) else {
        return;
    };
    let client = Client::at(socket.as_ref());
    client.register(0);
    println!("worker {}", gettid());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    panic!("{}", Command::new("sleep").arg("60").exec());
}
