//! The cost of capturing the stack of a stalled thread.
//!
//! `the stalled thread, computing` is what the thread loses itself: it reads the clock in a loop, and between the two
//! readings around the signal there is the handler, with the kernel's part. `none` is the longest such gap in as much
//! time without a signal: what the machine takes anyway. `the controller, …` is what looking costs the one who looks:
//! a computing thread is asked and its answer waited for (the controller does not wait, it comes back a millisecond
//! later), a blocked one is read from outside; that one loses nothing.
//!
//! Each turn checks that it was the way it says: the thread was asked, or was not, and some stack came.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::single_step;

/// Between two signals, so that each finds the thread computing.
const PAUSE: Duration = Duration::from_micros(200);

/// A thread that reads the clock all the time, some calls deep.
struct Busy {
    tid: u32,
    gap_ns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn own_tid() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// Enough of a stack that a whole copy is made.
#[inline(never)]
fn deep<R>(calls: u32, inner: &mut dyn FnMut() -> R) -> R {
    let room = black_box([calls as u8; 1024]);
    let result = match calls {
        0 => inner(),
        calls => deep(calls - 1, inner),
    };
    black_box(room);
    result
}

impl Busy {
    fn start() -> Self {
        let (gap_ns, stop, tid) = (
            Arc::<AtomicU64>::default(),
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU32>::default(),
        );
        let thread = thread::spawn({
            let (gap_ns, stop, tid) = (gap_ns.clone(), stop.clone(), tid.clone());
            move || {
                deep(40, &mut || {
                    tid.store(own_tid(), Ordering::Relaxed);
                    let mut before = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        let now = Instant::now();
                        let gap = (now - before).as_nanos() as u64;
                        // The main thread resets it; a reset that is missed here counts one turn twice.
                        if gap > gap_ns.load(Ordering::Relaxed) {
                            gap_ns.store(gap, Ordering::Relaxed);
                        }
                        before = now;
                    }
                });
            }
        });
        while tid.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        Self {
            tid: tid.load(Ordering::Relaxed),
            gap_ns,
            stop,
            thread,
        }
    }

    /// The sum of the longest gaps around `turns` calls of `turn`, computed as their median times their number: a turn
    /// in which the machine took the CPU away says nothing about ours.
    fn gaps(&self, turns: u64, mut turn: impl FnMut(u32)) -> Duration {
        let mut gaps: Vec<u64> = (0..turns)
            .map(|_| {
                thread::sleep(PAUSE);
                self.gap_ns.store(0, Ordering::Relaxed);
                turn(self.tid);
                thread::sleep(PAUSE / 4);
                self.gap_ns.load(Ordering::Relaxed)
            })
            .collect();
        gaps.sort_unstable();
        Duration::from_nanos(gaps[gaps.len() / 2] * turns)
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the loop does not panic");
    }
}

fn asked(tid: u32) {
    let (bytes, was_asked) = single_step::stack_of(tid).expect("a stack");
    assert!(
        was_asked && bytes > 30_000,
        "{bytes} bytes, asked: {was_asked}"
    );
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capture");
    let busy = Busy::start();
    group.bench_function("none", |b| {
        b.iter_custom(|turns| busy.gaps(turns, |_| {}));
    });
    group.bench_function("the stalled thread, computing", |b| {
        b.iter_custom(|turns| busy.gaps(turns, asked));
    });
    group.bench_function("the controller, a computing thread", |b| {
        b.iter_custom(|turns| {
            let mut lasted = Duration::ZERO;
            for _ in 0..turns {
                thread::sleep(PAUSE);
                let begun = Instant::now();
                asked(busy.tid);
                lasted += begun.elapsed();
            }
            lasted
        });
    });
    busy.finish();
    let ((tell, told), (wake, sleeps)) = (mpsc::channel(), mpsc::channel::<()>());
    let blocked = thread::spawn(move || {
        deep(40, &mut || {
            let _ = tell.send(own_tid());
            let _ = sleeps.recv();
        });
    });
    let tid = told.recv().expect("the thread runs");
    while single_step::stack_of(tid).is_none_or(|(_, was_asked)| was_asked) {
        thread::sleep(PAUSE);
    }
    group.bench_function("the controller, a blocked thread", |b| {
        b.iter_custom(|turns| {
            let begun = Instant::now();
            for _ in 0..turns {
                let (bytes, was_asked) = single_step::stack_of(tid).expect("a stack");
                assert!(!was_asked && bytes > 30_000);
            }
            begun.elapsed()
        });
    });
    drop(wake);
    blocked.join().expect("it only waits");
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
