// SPDX-License-Identifier: GPL-2.0-only
//! Threads that want the CPU, and how much of it they got.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::guest::cpus;
use super::wire::gettid;
use super::{now_ns, sleep};

/// A thread that computes until it is dropped.
pub struct Busy {
    pub tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// `prepare` runs in the thread before it begins.
    pub fn new(prepare: impl FnOnce() + Send + 'static) -> Busy {
        Busy::repeating(prepare, || ())
    }

    /// Does `again` over and over, about every 20 µs.
    pub fn repeating(
        prepare: impl FnOnce() + Send + 'static,
        mut again: impl FnMut() + Send + 'static,
    ) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, ready) = channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            prepare();
            sender.send(gettid()).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                compute();
                again();
            }
        });
        Busy {
            tid: ready.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    /// A real-time thread that keeps to this CPU, and does `again` over and over.
    pub fn above(cpu: usize, again: impl FnMut() + Send + 'static) -> Busy {
        let prepare = move || {
            pin(cpu);
            take_precedence();
        };
        Busy::repeating(prepare, again)
    }

    /// Threads that compute, half as many as CPUs, and on each CPU a real-time thread that computes for this time and sleeps for
    /// 5 ms: what it displaces finds another CPU idle, again and again.
    pub fn displaced(time: Duration) -> Vec<Busy> {
        let again = move || {
            compute_for(time);
            sleep(Duration::from_millis(5));
        };
        let above = (0..cpus()).map(|cpu| Busy::above(cpu, again));
        let computing = (0..cpus() / 2).map(|_| Busy::new(|| ()));
        above.chain(computing).collect()
    }

    /// As many of them, with this niceness.
    pub fn many(count: usize, nice: i32) -> Vec<Busy> {
        (0..count)
            .map(|_| Busy::new(move || set_nice(nice)))
            .collect()
    }

    /// CPU time so far.
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns(self.tid)
    }

    /// How often it was switched in so far.
    pub fn runs(&self) -> u64 {
        schedstat(self.tid, 2)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread that computes, and the longest time in ns between two of its readings of the clock; or one that sleeps, and the longest
/// that it was late.
pub struct Timed {
    pub thread: Busy,
    longest_ns: Arc<AtomicU64>,
}

impl Timed {
    /// `prepare` runs in the thread before it begins.
    pub fn new(prepare: impl FnOnce() + Send + 'static) -> Timed {
        let mut last = None;
        Timed::repeating(prepare, move || {
            let now = now_ns();
            now - last.replace(now).unwrap_or(now)
        })
    }

    /// Sleeps for this time, again and again.
    pub fn sleeping(every: Duration) -> Timed {
        Timed::repeating(
            || (),
            move || {
                let begun_ns = now_ns();
                sleep(every);
                (now_ns() - begun_ns).saturating_sub(every.as_nanos() as u64)
            },
        )
    }

    /// `time` returns what is timed, in ns.
    fn repeating(
        prepare: impl FnOnce() + Send + 'static,
        mut time: impl FnMut() -> u64 + Send + 'static,
    ) -> Timed {
        let longest_ns = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&longest_ns);
        Timed {
            // Relaxed: a maximum, which guards nothing.
            thread: Busy::repeating(prepare, move || {
                own.fetch_max(time(), Ordering::Relaxed);
            }),
            longest_ns,
        }
    }

    /// The longest time since this was last called.
    pub fn longest(&self) -> Duration {
        // Relaxed: as above.
        Duration::from_nanos(self.longest_ns.swap(0, Ordering::Relaxed))
    }
}

/// A thread that sleeps for the same time again and again, and how late it wakes.
pub struct Sleeping {
    thread: Busy,
    late_ns: Arc<Mutex<Vec<u64>>>,
}

impl Sleeping {
    /// `prepare` runs in the thread before it begins.
    pub fn new(every: Duration, prepare: impl FnOnce() + Send + 'static) -> Sleeping {
        let late_ns = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&late_ns);
        let wake = move || {
            let begun_ns = now_ns();
            sleep(every);
            let slept_ns = now_ns() - begun_ns;
            let late_ns = slept_ns.saturating_sub(every.as_nanos() as u64);
            own.lock().unwrap().push(late_ns);
        };
        Sleeping {
            thread: Busy::repeating(prepare, wake),
            late_ns,
        }
    }

    /// The 99th percentile so far. Ends the thread.
    pub fn p99(self) -> Duration {
        drop(self.thread);
        let mut late = self.late_ns.lock().unwrap();
        late.sort_unstable();
        assert!(late.len() > 100, "woke {} times only", late.len());
        Duration::from_nanos(late[late.len() * 99 / 100])
    }
}

/// Two threads that pass a byte to and fro through pipes until they are dropped.
pub struct Talking {
    pub tids: [u32; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Talking {
    /// `prepare` runs in both threads before they begin.
    pub fn new(prepare: impl Fn() + Clone + Send + 'static) -> Talking {
        let (ping, mut to_ping) = pipe().unwrap();
        let (pong, to_pong) = pipe().unwrap();
        to_ping.write_all(&[0]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, ready) = channel();
        let start = |(mut from, mut to): (PipeReader, PipeWriter)| {
            let (prepare, stop, sender) = (prepare.clone(), Arc::clone(&stop), sender.clone());
            std::thread::spawn(move || {
                prepare();
                sender.send(gettid()).unwrap();
                let mut byte = [0];
                // Relaxed: the flag is all that is told. One that ends closes its pipes, and so ends the other.
                while !stop.load(Ordering::Relaxed)
                    && from.read_exact(&mut byte).is_ok()
                    && to.write_all(&byte).is_ok()
                {}
            })
        };
        let threads = [(ping, to_pong), (pong, to_ping)].map(start).into();
        Talking {
            tids: [(); 2].map(|()| ready.recv().unwrap()),
            stop,
            threads,
        }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A gate that is closed while the guard lives, and then open for all at once. A barrier is left by one thread after the other, each
/// with its lock: of thousands, the first would compute while the others wait for that.
pub fn closed_gate() -> (&'static RwLock<()>, RwLockWriteGuard<'static, ()>) {
    // As long-lived as the threads may be: a test makes a few.
    let gate: &'static RwLock<()> = Box::leak(Box::default());
    (gate, gate.write().unwrap())
}

/// Threads by the thousand that compute from one moment on, until they are dropped.
pub struct Many {
    /// Held until they may begin.
    gate: Option<RwLockWriteGuard<'static, ()>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Many {
    /// Starts them; they wait for [`Many::begin`].
    pub fn start(count: usize) -> Many {
        let (gate, closed) = closed_gate();
        let mut many = Many {
            gate: Some(closed),
            stop: Arc::default(),
            threads: Vec::with_capacity(count),
        };
        for _ in 0..count {
            let stop = Arc::clone(&many.stop);
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            let thread = thread.spawn(move || {
                drop(gate.read());
                // Relaxed: the flag is all that is told.
                while !stop.load(Ordering::Relaxed) {
                    compute();
                }
            });
            many.threads.push(thread.unwrap());
        }
        many
    }

    pub fn begin(&mut self) {
        self.gate = None;
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.begin();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A little work that the compiler does not remove.
///
/// With a pause at its end: an emulator that gives its virtual CPUs turns on one of the host's goes on with the next one
/// there. Without any, each time that one CPU waits for another takes a tenth of a second beside a thread that computes.
pub fn compute() {
    for word in 0..2000u64 {
        std::hint::black_box(word);
    }
    std::hint::spin_loop();
}

/// Computes until the calling thread has had this much CPU time.
pub fn compute_for(time: Duration) {
    let until = own_cpu_ns() + time.as_nanos() as u64;
    while own_cpu_ns() < until {
        compute();
    }
}

/// CPU time of the calling thread, to the nanosecond.
pub fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of a thread, also of the kernel, up to the last tick.
pub fn cpu_ns(tid: u32) -> u64 {
    schedstat(tid, 0)
}

/// CPU time, time spent waiting, and how often it was switched in.
fn schedstat(tid: u32, field: usize) -> u64 {
    std::fs::read_to_string(format!("/proc/{tid}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(field)?.parse().ok())
        .unwrap_or(0)
}

/// No thread that a scheduler could schedule takes the calling thread's CPU from now on.
pub fn take_precedence() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a local that outlives the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    assert_eq!(result, 0, "root may");
}

/// Of the calling thread.
pub fn set_nice(nice: i32) {
    rustix::process::setpriority_process(None, nice).unwrap();
}

/// Keeps the calling thread, and what it starts, on one CPU.
pub fn pin(cpu: usize) {
    pin_to(&[cpu]);
}

/// Keeps the calling thread, and what it starts, on these CPUs.
pub fn pin_to(cpus: &[usize]) {
    keep_on(None, cpus);
}

/// Keeps a thread on these CPUs.
pub fn keep_on(thread: Option<rustix::process::Pid>, cpus: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(thread, &set).unwrap();
}

/// The share of each thread in the CPU time of all of them, in this time.
pub fn shares(threads: &[&Busy], window: Duration) -> Vec<f64> {
    let before: Vec<u64> = threads.iter().map(|thread| thread.cpu_ns()).collect();
    std::thread::sleep(window);
    let used: Vec<u64> = threads
        .iter()
        .zip(before)
        .map(|(thread, before)| thread.cpu_ns() - before)
        .collect();
    let all = used.iter().sum::<u64>().max(1) as f64;
    used.iter().map(|used| *used as f64 / all).collect()
}
