// SPDX-License-Identifier: GPL-2.0-only
//! Isolation of a process from another one, and of the kernel's half from processes. Needs root and a kernel with BTF.

mod common;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::client::{Client, sleep_in_poll};
use common::daemon::Daemon;
use common::memory::{Mapping, area_bytes};
use common::wire::{ask, gettid, pidfd};
use common::{PAGE, PATIENCE, can_run, now_ns, say, turn};
use morpheus_common::abi;
use morpheus_common::broker::{Refusal, Reply, Request};
use morpheus_common::slot::WorkerState;
use rustix::mm::MprotectFlags;

#[test]
fn the_kernels_area_cannot_be_written() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    assert!(Mapping::new(&client.kernel_fd, PAGE, 0).is_err());
    // SAFETY: the mapping is this test's, and would only gain a right.
    let more = unsafe {
        rustix::mm::mprotect(
            client.kernel.start().cast(),
            PAGE,
            MprotectFlags::READ | MprotectFlags::WRITE,
        )
    };
    assert!(more.is_err());
    // Not even by root through the system call.
    let (key, value) = (0u32, [0u64; 8]);
    // SAFETY: the map's keys have four bytes and its values 64.
    let update = unsafe {
        libbpf_rs::libbpf_sys::bpf_map_update_elem(
            client.kernel_fd.as_raw_fd(),
            (&raw const key).cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    assert!(update < 0);

    // It is filled in, and the daemon goes on writing.
    // SAFETY: the header's first words.
    let (magic, version) = unsafe {
        (
            client.kernel.at::<AtomicU64>(0),
            client.kernel.at::<AtomicU32>(8),
        )
    };
    assert_eq!(magic.load(Ordering::Relaxed), abi::MORPHEUS_ABI_MAGIC);
    assert_eq!(version.load(Ordering::Relaxed), abi::MORPHEUS_ABI_VERSION);
    let first = client.heartbeat();
    assert!(first != 0 && first <= now_ns());
    thread::sleep(Duration::from_millis(500));
    let second = client.heartbeat();
    assert!(second > first && now_ns() - second < 300_000_000);
}

const SECOND_CLIENT: &str = "MORPHEUS_TEST_SECOND_CLIENT";

/// From here on this process is an ordinary user's.
fn give_up_rights() {
    const SOMEBODY: u32 = 12_345;
    // SAFETY: they take numbers. The last lets the process read its own files in /proc, as if it had been started so.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setgid(SOMEBODY),
            libc::setuid(SOMEBODY),
            libc::prctl(libc::PR_SET_DUMPABLE, 1),
        ]
    };
    assert_eq!(results, [0; 4]);
    assert!(!rustix::process::geteuid().is_root());
}

/// Not a test: the other process of the next one, which starts this program with a variable set.
#[test]
fn second_client() {
    let Ok(variable) = std::env::var(SECOND_CLIENT) else {
        return;
    };
    give_up_rights();
    let (socket, foreign) = variable.split_once('=').unwrap();
    let foreign: u32 = foreign.parse().unwrap();
    let path = Path::new(socket);
    let client = Client::at(path);
    client.register(0);
    // The parent's thread, with a pidfd of it and without.
    for fds in [&[][..], &[pidfd(foreign).as_fd()][..]] {
        let attempt = Client::at(path);
        let request = Request::Register {
            slot: 0,
            tid: foreign,
        };
        let reply = ask(&attempt.socket, request, fds);
        assert_eq!(reply, Reply::Refused(Refusal::Thread));
    }
    reach_for_more(&client);
    say(&format!("second client: {}", gettid()));
    thread::sleep(PATIENCE);
}

/// Everything that a process without rights can try with what it was given. Fails when something works.
fn reach_for_more(client: &Client) {
    // Its own area, to the last byte that is mapped; the other process finds its own unchanged.
    for word in 0..area_bytes(client.slots) / 8 {
        // SAFETY: the mapping has this word, and may be written.
        unsafe { client.runtime.at::<AtomicU64>(8 * word) }.store(u64::MAX, Ordering::Relaxed);
    }
    // The memory behind its area, and before: other maps of the kernel.
    let end = area_bytes(client.slots) as u64;
    for offset in [end, 16 * end, 1 << 40] {
        assert!(Mapping::new(&client.runtime_fd, PAGE, offset).is_err());
        assert!(Mapping::for_reading(&client.kernel_fd, PAGE, offset).is_err());
    }
    assert!(Mapping::new(&client.runtime_fd, 2 * end as usize, 0).is_err());
    // The kernel's half, for writing; and what the kernel writes of the ring.
    assert!(Mapping::new(&client.kernel_fd, PAGE, 0).is_err());
    assert!(Mapping::new(&client.ring.fd, PAGE, PAGE as u64).is_err());
    for mapping in [&client.kernel, &client.ring.producer] {
        // SAFETY: the mapping is this test's, and would only gain a right.
        let more = unsafe {
            rustix::mm::mprotect(
                mapping.start().cast(),
                PAGE,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        };
        assert!(more.is_err());
    }
    // Maps of others, by their numbers.
    for id in 0..100_000 {
        // SAFETY: it takes a number.
        let map = unsafe { libbpf_rs::libbpf_sys::bpf_map_get_fd_by_id(id) };
        assert!(map < 0, "map {id}");
    }
}

#[test]
fn threads_of_others_are_out_of_reach() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let own = client.register(0);
    let variable = format!("{}={}", daemon.socket.display(), gettid());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "second_client"])
        .env(SECOND_CLIENT, variable)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let foreign = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("second client: ")?.parse::<u32>().ok());
    let foreign = foreign.expect("the second client failed");
    daemon.wait_for_statistics("processes 2, workers 2,");
    for fds in [&[][..], &[pidfd(foreign).as_fd()][..]] {
        let attempt = Client::new(&daemon);
        let request = Request::Register {
            slot: 0,
            tid: foreign,
        };
        let reply = ask(&attempt.socket, request, fds);
        assert_eq!(reply, Reply::Refused(Refusal::Thread));
    }
    // It has written all that it can.
    for slot in (0..client.slots).filter(|slot| *slot != 0) {
        let words: [u64; 8] = std::array::from_fn(|word| {
            // SAFETY: the area has this slot, which has eight words.
            let word: &AtomicU64 =
                unsafe { client.runtime.at(64 * (1 + slot as usize) + 8 * word) };
            word.load(Ordering::Relaxed)
        });
        assert_eq!(words, [0; 8], "slot {slot}");
    }
    // Killed: its lease ends without a word.
    child.kill().unwrap();
    child.wait().unwrap();
    daemon.wait_for_statistics("processes 1, workers 1,");
    // And ours works on.
    client.ring.drain();
    let seq = sleep_in_poll(own, Duration::from_millis(2));
    assert_eq!(client.ring.next(PATIENCE).unwrap().poll_seq, seq);
}

const NAMESPACE: &str = "MORPHEUS_TEST_NAMESPACE";

/// Not a test: the process of the next one, in a PID namespace of its own.
#[test]
fn client_in_a_namespace() {
    let Ok(socket) = std::env::var(NAMESPACE) else {
        return;
    };
    let own = gettid();
    assert!(own < 100, "no new namespace: thread {own}");
    let client = Client::at(Path::new(&socket));
    // By its pidfd, and by its number there, which means another thread here.
    for (slot, thread) in [(0, Some(pidfd(own))), (1, None)] {
        let fds: Vec<_> = thread.iter().map(AsFd::as_fd).collect();
        let request = Request::Register { slot, tid: own };
        let reply = ask(&client.socket, request, &fds);
        assert_eq!(reply, Reply::Registered { slot });
        let runtime = client.runtime_slot(slot);
        runtime.park();
        runtime.set_state(WorkerState::Running);
        // Just after a boot others may take the CPU for some milliseconds when it is about to sleep: then it would not sleep.
        let seq = sleep_in_poll(runtime, Duration::from_millis(50));
        // In emulation it may have been over its budget before it slept, which comes first then.
        let blocked = loop {
            let event = client.ring.next(PATIENCE).expect("no event");
            assert_eq!((event.slot, event.poll_seq), (slot, seq));
            if event.kind != abi::MORPHEUS_EVENT_BUDGET {
                break event;
            }
        };
        assert_eq!(blocked.kind, abi::MORPHEUS_EVENT_BLOCKED);
        client.ring.drain();
    }
    // The first process out there is no thread of this one, though there is a 1 here, too.
    for fds in [&[][..], &[pidfd(own).as_fd()][..]] {
        let attempt = Client::at(Path::new(&socket));
        let request = Request::Register {
            slot: 0,
            tid: own + 50,
        };
        let reply = ask(&attempt.socket, request, fds);
        assert_eq!(reply, Reply::Refused(Refusal::Thread));
    }
    say("client in a namespace: done");
}

#[test]
fn a_process_in_a_pid_namespace_is_served() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let output = Command::new("unshare")
        .args(["--pid", "--fork"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "client_in_a_namespace", "--test-threads", "1"])
        .env(NAMESPACE, &daemon.socket)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("client in a namespace: done"), "{text}");
}
