// SPDX-License-Identifier: GPL-2.0-only
//! The daemon as an application sees it: its socket, its areas, its events. Needs root and a kernel with BTF.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use morpheus_common::abi;
use morpheus_common::broker::{Refusal, Reply, Request};
use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, VerdictFlags, WorkerState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::clock_gettime;

const PAGE: usize = 4096;
const BUDGET: Duration = Duration::from_millis(1);
/// Whoever waits longer has waited in vain. A machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a test says whether or not it passes; `eprintln!` would be kept back.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says so, loudly, where the tests cannot run.
fn can_run() -> bool {
    let root = rustix::process::geteuid().is_root();
    let btf = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if root && btf {
        return true;
    }
    let why = if root { "a kernel with BTF" } else { "root" };
    say(&format!(
        "\nSKIPPED: this test of morpheus-bpf needs {why}\n"
    ));
    false
}

/// One test at a time: they measure.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn sleep(duration: Duration) {
    let request = Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    };
    let _ = clock_nanosleep_relative(ClockId::Monotonic, &request);
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// The daemon, as a child; stopped when it is dropped.
struct Daemon {
    child: Child,
    socket: PathBuf,
    lines: Receiver<String>,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Daemon {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir()
            .join(format!("morpheus-test-{}-{number}", std::process::id()))
            .join("broker.sock");
        let mut child = Command::new(env!("CARGO_BIN_EXE_scx_morpheus"))
            .args(["--observe", "--stats", "1", "--socket"])
            .arg(&socket)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = errors.next().and_then(Result::ok).unwrap_or_default();
        assert!(first.contains("observing"), "the daemon says: {first}");
        // Read on, so that it never finds the pipe closed or full.
        thread::spawn(move || errors.for_each(drop));
        Daemon {
            child,
            socket,
            lines,
        }
    }

    /// Waits for a line of statistics that begins so.
    fn wait_for_statistics(&self, beginning: &str) {
        let until = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < until {
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                last = line;
                if last.starts_with(beginning) {
                    return;
                }
            }
        }
        panic!("no statistics {beginning:?}, the last are {last:?}");
    }

    fn stop(mut self) -> ExitStatus {
        self.signal();
        self.child.wait().unwrap()
    }

    fn signal(&self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.socket.parent().unwrap());
    }
}

/// A mapping that lives as long as the test program: a thread may still look at its slot.
struct Mapping {
    start: NonNull<u8>,
}

// SAFETY: it is shared memory that lives for ever, and is used as atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(
        fd: &OwnedFd,
        bytes: usize,
        offset: u64,
        protection: ProtFlags,
    ) -> rustix::io::Result<Mapping> {
        // SAFETY: the kernel chooses where, so that nothing is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )?
        };
        Ok(Mapping {
            start: NonNull::new(start.cast()).unwrap(),
        })
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    ///
    /// The mapping has a `T` there, which consists of atomics. If it is read-only, they are not written.
    unsafe fn at<T>(&self, offset: usize) -> &'static T {
        // SAFETY: the caller's promise, and the mapping is never undone.
        unsafe { &*self.start.as_ptr().add(offset).cast::<T>() }
    }
}

fn area_bytes(slots: u32) -> usize {
    ((slots as usize + 1) * 64).next_multiple_of(PAGE)
}

/// The events, read as a process without rights would: by its two mappings.
struct Ring {
    fd: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
    bytes: usize,
}

impl Ring {
    fn map(fd: OwnedFd) -> Ring {
        let bytes = max_entries(&fd);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        Ring {
            consumer: Mapping::new(&fd, PAGE, 0, both).unwrap(),
            producer: Mapping::new(&fd, PAGE + 2 * bytes, PAGE as u64, ProtFlags::READ).unwrap(),
            fd,
            bytes,
        }
    }

    /// The next event, if one comes in this time.
    fn next(&self, within: Duration) -> Option<abi::morpheus_event> {
        let until = Instant::now() + within;
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let left = until.checked_duration_since(Instant::now())?;
            // Some events wake nobody: looked for now and then.
            let left = left.min(Duration::from_millis(1));
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout));
        }
    }

    fn take(&self) -> Option<abi::morpheus_event> {
        // SAFETY: each page begins with a position, by the kernel's layout of a ring.
        let (consumed, produced) = unsafe {
            (
                self.consumer.at::<AtomicU64>(0),
                self.producer.at::<AtomicU64>(0),
            )
        };
        let at = consumed.load(Ordering::Relaxed);
        // Acquire, pairs with the kernel's release: the record's length is there.
        if at >= produced.load(Ordering::Acquire) {
            return None;
        }
        let offset = PAGE + (at as usize & (self.bytes - 1));
        // SAFETY: a record begins there with its length; the data is mapped twice in a row.
        let length = unsafe { self.producer.at::<AtomicU32>(offset) }.load(Ordering::Acquire);
        // It is still being written.
        if length >> 31 == 1 {
            return None;
        }
        assert_eq!(length as usize, size_of::<abi::morpheus_event>());
        let word = |index: usize| {
            // SAFETY: within the record, whose length was checked.
            unsafe { self.producer.at::<AtomicU64>(offset + 8 + 8 * index) }.load(Ordering::Relaxed)
        };
        let event = abi::morpheus_event {
            kind: word(0) as u32,
            slot: (word(0) >> 32) as u32,
            poll_seq: word(1),
            at_ns: word(2),
            detail: word(3),
        };
        consumed.store(at + 8 + u64::from(length), Ordering::Release);
        Some(event)
    }

    fn drain(&self) {
        while self.next(Duration::from_millis(20)).is_some() {}
    }
}

/// A map's size, from its descriptor alone.
fn max_entries(fd: &OwnedFd) -> usize {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("max_entries:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn connect(daemon: &PathBuf) -> OwnedFd {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(daemon).unwrap()).unwrap();
    socket
}

fn send(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(packet)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
}

/// The next reply; `None` once the connection is closed.
fn receive(socket: &OwnedFd) -> Option<(Reply, Vec<OwnedFd>)> {
    let timeout = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let answered = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
    assert_eq!(answered, Ok(1), "the daemon does not answer");
    let mut packet = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received.bytes == 0 {
        return None;
    }
    Some((Reply::decode(&packet[..received.bytes]).unwrap(), fds))
}

fn ask(socket: &OwnedFd, request: Request, fds: &[BorrowedFd<'_>]) -> Reply {
    send(socket, request.encode().bytes(), fds).unwrap();
    receive(socket).expect("the daemon closed").0
}

fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// A pidfd of a thread (`PIDFD_THREAD`).
fn pidfd(tid: u32) -> OwnedFd {
    const PIDFD_THREAD: u32 = rustix::fs::OFlags::EXCL.bits();
    let flags = PidfdFlags::from_bits_retain(PIDFD_THREAD);
    pidfd_open(Pid::from_raw(tid as i32).unwrap(), flags).unwrap()
}

/// A watched poll in which the calling thread, whose slot it is, sleeps.
fn sleep_in_poll(slot: &RuntimeSlot, duration: Duration) -> u64 {
    slot.unpark();
    let seq = slot.begin_poll();
    sleep(duration);
    slot.end_poll(seq);
    slot.park();
    seq
}

/// An application.
struct Client {
    socket: OwnedFd,
    slots: u32,
    runtime: Mapping,
    kernel: Mapping,
    kernel_fd: OwnedFd,
    ring: Ring,
}

const HELLO: Request = hello(8, BUDGET);

const fn hello(slots: u32, budget: Duration) -> Request {
    Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots,
        policy: abi::MORPHEUS_POLICY_TAKEOVER,
        budget_ns: budget.as_nanos() as u64,
        grace_ns: 1_000_000,
    }
}

impl Client {
    fn new(daemon: &Daemon) -> Client {
        Client::at(&daemon.socket)
    }

    fn at(path: &PathBuf) -> Client {
        let socket = connect(path);
        send(&socket, HELLO.encode().bytes(), &[]).unwrap();
        let (reply, fds) = receive(&socket).unwrap();
        let Reply::Welcome { mode, slots } = reply else {
            panic!("not welcome: {reply:?}");
        };
        assert_eq!((mode, slots), (abi::MORPHEUS_MODE_OBSERVE, 8));
        let [runtime, kernel, ring] = fds.try_into().unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        Client {
            runtime: Mapping::new(&runtime, area_bytes(slots), 0, both).unwrap(),
            kernel: Mapping::new(&kernel, area_bytes(slots), 0, ProtFlags::READ).unwrap(),
            kernel_fd: kernel,
            ring: Ring::map(ring),
            socket,
            slots,
        }
    }

    /// Registers the calling thread, parked: else each of its waits, for an event too, would be an event.
    fn register(&self, slot: u32) -> &'static RuntimeSlot {
        let tid = gettid();
        let pidfd = pidfd(tid);
        let reply = ask(
            &self.socket,
            Request::Register { slot, tid },
            &[pidfd.as_fd()],
        );
        assert_eq!(reply, Reply::Registered { slot });
        let runtime = self.runtime_slot(slot);
        runtime.park();
        runtime.set_state(WorkerState::Running);
        runtime
    }

    fn runtime_slot(&self, slot: u32) -> &'static RuntimeSlot {
        assert!(slot < self.slots);
        // SAFETY: the area has `slots` entries after its header, and is mapped for writing.
        unsafe { self.runtime.at(64 * (1 + slot as usize)) }
    }

    fn kernel_slot(&self, slot: u32) -> &'static KernelSlot {
        assert!(slot < self.slots);
        // SAFETY: as above; only words are read here.
        unsafe { self.kernel.at(64 * (1 + slot as usize)) }
    }

    fn heartbeat(&self) -> u64 {
        let offset = std::mem::offset_of!(abi::morpheus_kernel_header, heartbeat_ns);
        // SAFETY: the header has this word.
        unsafe { self.kernel.at::<AtomicU64>(offset) }.load(Ordering::Relaxed)
    }
}

#[test]
fn a_worker_that_blocks_is_seen() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    const POLLS: usize = 300;
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let client = &client;
    let before_ns = AtomicU64::new(0);
    let (mut seen, mut woken, mut slept) = (Vec::new(), Vec::new(), Vec::new());
    thread::scope(|scope| {
        let (go, going) = channel::<()>();
        let before_ns = &before_ns;
        scope.spawn(move || {
            let slot = client.register(3);
            while going.recv().is_ok() {
                slot.unpark();
                let seq = slot.begin_poll();
                before_ns.store(now_ns(), Ordering::SeqCst);
                sleep(Duration::from_millis(2));
                slot.end_poll(seq);
                slot.park();
            }
            slot.set_state(WorkerState::Dead);
        });
        for poll in 0..POLLS as u64 {
            go.send(()).unwrap();
            let event = client.ring.next(PATIENCE).expect("no event");
            let now = now_ns();
            assert_eq!(event.kind, abi::MORPHEUS_EVENT_BLOCKED);
            assert_eq!((event.slot, event.poll_seq), (3, 2 * poll + 1));
            let before = before_ns.load(Ordering::SeqCst);
            seen.push(event.at_ns - before);
            woken.push(now - before);
            let end = client.ring.next(PATIENCE).expect("it does not wake");
            assert_eq!(end.kind, abi::MORPHEUS_EVENT_WOKEN);
            assert_eq!((end.slot, end.poll_seq), (3, event.poll_seq));
            assert!(end.detail >= 1_900_000, "slept {} ns", end.detail);
            slept.push(end.detail);
            let kernel = client.kernel_slot(3);
            assert!(
                kernel
                    .verdict_for(event.poll_seq)
                    .contains(VerdictFlags::BLOCKED)
            );
            assert!(!kernel.requested(event.poll_seq), "it does not compute");
        }
    });
    let (seen, woken, slept) = (median(&mut seen), median(&mut woken), median(&mut slept));
    say(&format!(
        "blocked in a poll ({POLLS} polls): the kernel's event p50 {:.1} µs, the application has it p50 {:.1} µs, \
         slept p50 {:.0} µs",
        seen as f64 / 1e3,
        woken as f64 / 1e3,
        slept as f64 / 1e3
    ));
    assert!(seen < 1_000_000, "half of the events are later than 1 ms");
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
        assert!(kernel.verdict_for(seq).contains(VerdictFlags::STUCK));
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
    let start = Instant::now();
    while start.elapsed() < 20 * BUDGET {
        let seq = slot.begin_poll();
        let poll = Instant::now();
        while poll.elapsed() < BUDGET / 5 {}
        assert!(!kernel.requested(seq));
        slot.end_poll(seq);
    }
    slot.park();
    assert!(client.ring.next(Duration::from_millis(20)).is_none());
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
        slot.set_state(WorkerState::Quiescing);
        slot.unpark();
    });
    assert_eq!(quiescing.len(), 0, "not running");
    let neither = blocked(RuntimeSlot::unpark);
    assert!(neither.len() >= 20, "in play: {}", neither.len());
    assert!(neither.iter().all(|seq| *seq == 0), "no poll was watched");
}

#[test]
fn the_kernels_area_cannot_be_written() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::start(&[]);
    let client = Client::new(&daemon);
    let both = ProtFlags::READ | ProtFlags::WRITE;
    assert!(Mapping::new(&client.kernel_fd, PAGE, 0, both).is_err());
    // SAFETY: the mapping is this test's, and would only gain a right.
    let more = unsafe {
        rustix::mm::mprotect(
            client.kernel.start.as_ptr().cast(),
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

#[test]
fn garbage_is_refused_and_the_daemon_lives() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = Daemon::start(&["--processes", "40"]);
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
    // Descriptors that nobody asked for.
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(refused(b"x", &[null.as_fd(); 8]), Refusal::Magic);

    // Descriptors that are no pidfd, and a pidfd of somebody else, and of nobody.
    let register = |tid: u32, fds: &[BorrowedFd<'_>]| {
        let socket = connect(&daemon.socket);
        send(&socket, HELLO.encode().bytes(), &[]).unwrap();
        receive(&socket).unwrap();
        ask(&socket, Request::Register { slot: 0, tid }, fds)
    };
    let thread = Reply::Refused(Refusal::Thread);
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
    let socket = connect(&daemon.socket);
    send(&socket, HELLO.encode().bytes(), &[]).unwrap();
    receive(&socket).unwrap();
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

const SECOND_CLIENT: &str = "MORPHEUS_TEST_SECOND_CLIENT";

/// Not a test: the other process of the next one, which starts this program with a variable set.
#[test]
fn second_client() {
    let Ok(variable) = std::env::var(SECOND_CLIENT) else {
        return;
    };
    let (socket, foreign) = variable.split_once('=').unwrap();
    let foreign: u32 = foreign.parse().unwrap();
    let path = PathBuf::from(socket);
    let client = Client::at(&path);
    client.register(0);
    // The parent's thread, with a pidfd of it and without.
    for fds in [&[][..], &[pidfd(foreign).as_fd()][..]] {
        let attempt = Client::at(&path);
        let request = Request::Register {
            slot: 0,
            tid: foreign,
        };
        let reply = ask(&attempt.socket, request, fds);
        assert_eq!(reply, Reply::Refused(Refusal::Thread));
    }
    say(&format!("second client: {}", gettid()));
    thread::sleep(PATIENCE);
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
    // Killed: its lease ends without a word.
    child.kill().unwrap();
    child.wait().unwrap();
    daemon.wait_for_statistics("processes 1, workers 1,");
    // And ours works on.
    client.ring.drain();
    let seq = sleep_in_poll(own, Duration::from_millis(2));
    assert_eq!(client.ring.next(PATIENCE).unwrap().poll_seq, seq);
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
                    sleep(Duration::from_micros(200));
                    let verdict = client.kernel_slot(slot).verdict_for(seq);
                    if !verdict.contains(VerdictFlags::BLOCKED) {
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

#[test]
fn commands_say_what_they_find() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_scx_morpheus"))
            .args(arguments)
            .output()
            .unwrap();
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
    let (code, text) = run(&["check"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&[]);
    assert!(code == Some(2) && text.contains("--observe"), "{text}");
}
