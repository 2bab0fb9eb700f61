// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that may run on one CPU only, beside others that compute.

mod common;

use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, Sleeping, Timed, cpu_ns, keep_on, pin, shares};
use common::{PAGE, say, turn, window};
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};
use rustix::process::{Pid, setpriority_process};

/// Time between two wakes.
const EVERY: Duration = Duration::from_millis(5);

/// How long wakes are measured, in seconds, if not 12.
const SECONDS: &str = "MORPHEUS_PINNED_SECONDS";

/// How late a thread on the first CPU wakes, at p99, while a thread on each CPU computes.
fn lateness(arguments: &[&str]) -> Duration {
    let daemon = Daemon::schedule(arguments);
    let computing: Vec<Busy> = (0..cpus()).map(|cpu| Busy::new(move || pin(cpu))).collect();
    // The thread that runs alone on its CPU takes the clock along from here on.
    std::thread::sleep(Duration::from_secs(1));
    let sleeping = Sleeping::new(EVERY, || pin(0));
    std::thread::sleep(window(SECONDS));
    let late = sleeping.p99();
    drop(computing);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    late
}

/// One that sleeps on the first CPU, where another computes, does not wait because one on the other CPU is ahead of both.
#[test]
fn a_pinned_task_that_sleeps_does_not_wait_for_another_cpus_clock() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let (with, without) = (lateness(&[]), lateness(&["--without", "pinned-clock"]));
    say(&format!(
        "p99 of lateness {with:?}, by the clock of all CPUs {without:?}"
    ));
    assert!(with <= Duration::from_millis(2), "{with:?}");
    assert!(without >= 5 * with, "{without:?}");
}

/// A change of a running thread takes it off its CPU and puts it back, on the CPU of the thread that makes the change. That one must
/// not be charged for it, or be rid of what it owes itself.
#[test]
fn one_that_changes_others_gets_no_more_than_its_share() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let changed = Busy::new(|| pin(0));
    // It has more CPU time than the others by then.
    std::thread::sleep(Duration::from_secs(2));
    let (mut turns, tid) = (0, Pid::from_raw(changed.tid as i32));
    let change = move || {
        turns += 1;
        if turns % 50 == 0 {
            setpriority_process(tid, turns / 50 % 2).unwrap();
        }
    };
    let changing = Busy::repeating(|| pin(1), change);
    let equal = Busy::new(|| pin(1));
    std::thread::sleep(Duration::from_millis(500));
    let shares = shares(&[&changing, &equal], Duration::from_secs(4));
    say(&format!(
        "{:.3} of the CPU for one that changes another, {:.3} for its equal",
        shares[0], shares[1]
    ));
    assert!((0.4..=0.6).contains(&shares[0]), "{shares:?}");
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// The kernel's thread that searches equal pages, kept on the first CPU and searching without a pause, until this is dropped.
struct Searching {
    pid: i32,
}

const KSM: &str = "/sys/kernel/mm/ksm";
/// Memory that is searched, in bytes: between two searches the thread sleeps.
const SEARCHED: usize = 256 << 20;

impl Searching {
    fn start() -> Searching {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at an address that the kernel chooses. It lasts as long as the process.
        let memory =
            unsafe { mmap_anonymous(std::ptr::null_mut(), SEARCHED, flags.0, flags.1) }.unwrap();
        for page in (0..SEARCHED).step_by(4096) {
            // SAFETY: within the mapping, which nothing else knows.
            unsafe { memory.cast::<usize>().byte_add(page).write(page) };
        }
        // SAFETY: the whole mapping. Equal pages that become one are copied again when one of them is written to.
        unsafe { madvise(memory, SEARCHED, Advice::LinuxMergeable) }.unwrap();
        let searching = Searching {
            pid: pid_of("ksmd"),
        };
        keep_on(Pid::from_raw(searching.pid), &[0]);
        for (name, value) in [
            ("sleep_millisecs", "0"),
            ("pages_to_scan", "1000"),
            ("run", "1"),
        ] {
            fs::write(format!("{KSM}/{name}"), value).unwrap();
        }
        searching
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        // Two: pages that were one are apart again.
        let _ = fs::write(format!("{KSM}/run"), "2");
        keep_on(Pid::from_raw(self.pid), &(0..cpus()).collect::<Vec<_>>());
    }
}

/// A kernel thread, by its name.
fn pid_of(name: &str) -> i32 {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (comm.trim() == name).then_some(pid)
    });
    pids.min().expect(name)
}

/// A kernel thread of one CPU goes first when it wakes. One that computes has no more than its share: 0.4 of two CPUs for five threads.
#[test]
fn a_kernel_thread_that_computes_has_its_share() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let searching = Searching::start();
    let pinned = Busy::new(|| pin(0));
    let movable: Vec<Busy> = (0..3).map(|_| Busy::new(|| {})).collect();
    std::thread::sleep(Duration::from_secs(1));
    let window = Duration::from_secs(4);
    let before = cpu_ns(searching.pid as u32);
    let threads: Vec<&Busy> = movable.iter().chain([&pinned]).collect();
    let shares = shares(&threads, window);
    let kernels = (cpu_ns(searching.pid as u32) - before) as f64 / window.as_nanos() as f64;
    say(&format!(
        "{kernels:.3} of a CPU for the kernel thread; of the rest {:.3} for one that is pinned, {:.3} {:.3} {:.3} for others",
        shares[3], shares[0], shares[1], shares[2]
    ));
    assert!((0.3..=0.5).contains(&kernels), "{kernels:.3}");
    assert!(shares.iter().all(|share| *share > 0.1), "{shares:?}");
    assert_eq!(state(), "enabled");
    drop(searching);
    assert!(daemon.stop().success());
}

/// Processes on one CPU that end when they are told to, each of which then frees the tables of this much memory.
struct Ending {
    pids: Vec<libc::pid_t>,
    /// They end when this is closed.
    gate: Option<std::io::PipeWriter>,
}

impl Ending {
    /// The same pages are mapped over and over: it is what a process maps that takes its time, and not what it owns.
    fn start(count: usize, cpu: usize) -> Ending {
        const PAGES: usize = 4096;
        const TIMES: usize = 64;
        let memory = rustix::fs::memfd_create("ending", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, (PAGES * PAGE) as u64).unwrap();
        let (waits, gate) = std::io::pipe().unwrap();
        let (mut ready, is_ready) = std::io::pipe().unwrap();
        let start = |_| {
            // SAFETY: the child makes system calls alone, and ends without unwinding.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid > 0 {
                return pid;
            }
            pin(cpu);
            for _ in 0..TIMES {
                let flags = MapFlags::SHARED | MapFlags::POPULATE;
                // SAFETY: at an address that the kernel chooses, and never accessed.
                let mapped =
                    unsafe { mmap(null_mut(), PAGES * PAGE, ProtFlags::READ, flags, &memory, 0) };
                if mapped.is_err() {
                    // SAFETY: ends at once.
                    unsafe { libc::_exit(1) };
                }
            }
            let mut byte = [0];
            // SAFETY: descriptors of its own; the last call ends it at once.
            unsafe {
                libc::close(gate.as_raw_fd());
                libc::write(is_ready.as_raw_fd(), byte.as_ptr().cast(), 1);
                libc::read(waits.as_raw_fd(), byte.as_mut_ptr().cast(), 1);
                libc::_exit(0)
            }
        };
        let pids = (0..count).map(start).collect();
        ready.read_exact(&mut vec![0; count]).unwrap();
        Ending {
            pids,
            gate: Some(gate),
        }
    }

    /// Ends them, and waits until they have.
    fn end(&mut self) {
        self.gate = None;
        for pid in self.pids.drain(..) {
            let mut status = 0;
            // SAFETY: the pointer is to a local that outlives the call, and the child is this one's.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
}

/// Processes that end take turns with others, however long it takes to free what they had.
#[test]
fn processes_that_end_do_not_keep_a_cpu_to_themselves() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let mut ending = Ending::start(8, 0);
    let beside = Timed::new(|| pin(0));
    std::thread::sleep(Duration::from_millis(500));
    beside.longest();
    let begun = Instant::now();
    ending.end();
    let ended = begun.elapsed();
    // A wait that is not over yet is told when it is.
    std::thread::sleep(Duration::from_millis(100));
    let longest = beside.longest();
    say(&format!(
        "while processes end for {ended:.2?}, a thread on their CPU waits for {longest:.3?} at most"
    ));
    assert!(
        ended > Duration::from_secs(2),
        "{ended:?}: too short to tell"
    );
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(state(), "enabled");
    drop(beside);
    assert!(daemon.stop().success());
}
