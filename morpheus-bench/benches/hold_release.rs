//! How long a held spare worker takes to run, once it is released, and the whole cycle of release and hold.
//!
//! The runtime has one worker, which sleeps in a poll throughout, and one spare, which is held. Each turn spawns a
//! task from outside, which no active worker can run; releases the spare; waits for the task; and has the spare held
//! again, which is waited for. `released` is the time from the release to the task's first line, on the spare; `cycle`
//! that from the release until the spare sits in its hold again. `wake of a thread` is what the kernel takes for the
//! same step between two plain threads and a condition variable, with the slice of a worker: subtracted, it leaves what
//! is the runtime's and tokio's.
//!
//! The runtime's own takeovers are switched off, so that only the bench releases. Each turn checks that a worker is
//! held when it begins, and that the task ran on a thread other than the worker's.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use morpheus_runtime::{Runtime, single_step, slice};

/// The longest that a step may take on a busy machine.
const TOO_LONG: Duration = Duration::from_secs(10);
/// Before each release: who waits then sleeps in the kernel, and is not on its way there.
const FALLS_ASLEEP: Duration = Duration::from_micros(100);

/// A runtime whose worker sleeps until `wake` is dropped.
struct Staged {
    runtime: Runtime,
    worker: ThreadId,
    wake: mpsc::Sender<()>,
}

impl Staged {
    fn new() -> Self {
        let runtime = support::with_spare();
        let ((wake, sleeps), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
        drop(runtime.handle().spawn(async move {
            let _ = tell.send(thread::current().id());
            let _ = sleeps.recv();
        }));
        let worker = told.recv_timeout(TOO_LONG).expect("the worker runs");
        let staged = Self {
            runtime,
            worker,
            wake,
        };
        staged.wait_until_held();
        staged
    }

    fn wait_until_held(&self) {
        let begun = Instant::now();
        while single_step::held(&self.runtime) == 0 {
            assert!(begun.elapsed() < TOO_LONG, "no worker is held");
            thread::yield_now();
        }
    }

    /// One cycle: from the release to the waiting task, and to the next hold.
    fn turn(&self) -> [Duration; 2] {
        thread::sleep(FALLS_ASLEEP);
        assert_eq!(single_step::held(&self.runtime), 1, "the spare is held");
        let (tell, told) = mpsc::channel();
        drop(self.runtime.handle().spawn(async move {
            let _ = tell.send((Instant::now(), thread::current().id()));
        }));
        let release = Instant::now();
        assert!(single_step::release(&self.runtime), "the spare is held");
        let (ran, on) = told.recv_timeout(TOO_LONG).expect("the spare runs it");
        assert_ne!(on, self.worker, "the worker sleeps");
        single_step::hold(&self.runtime);
        self.wait_until_held();
        [ran - release, release.elapsed()]
    }

    /// The sum of `turns` turns.
    fn turns(&self, turns: u64) -> [Duration; 2] {
        (0..turns).fold([Duration::ZERO; 2], |sum, _| {
            let turn = self.turn();
            [sum[0] + turn[0], sum[1] + turn[1]]
        })
    }

    fn end(self) {
        drop(self.wake);
        drop(self.runtime);
    }
}

/// Releases a plain thread from a condition variable, `turns` times.
fn plain_threads(turns: u64) -> Duration {
    #[derive(Default)]
    struct Gate {
        opened: Mutex<u64>,
        changed: Condvar,
        passed: AtomicU64,
        /// Since `origin`.
        ran_ns: AtomicU64,
    }
    let (gate, origin) = (Arc::new(Gate::default()), Instant::now());
    let held = thread::spawn({
        let gate = gate.clone();
        move || {
            slice::set_current(slice::WORKER_SLICE_NS);
            for turn in 0..turns {
                let opened = gate.opened.lock().expect("nobody panics with it");
                let opened = gate.changed.wait_while(opened, |opened| *opened <= turn);
                let ran_ns = origin.elapsed().as_nanos() as u64;
                drop(opened);
                gate.ran_ns.store(ran_ns, Ordering::Relaxed);
                // Release: pairs with the Acquire below, so that the time is seen.
                gate.passed.store(turn + 1, Ordering::Release);
            }
        }
    });
    let mut lasted = Duration::ZERO;
    for turn in 0..turns {
        thread::sleep(FALLS_ASLEEP);
        let release = origin.elapsed();
        *gate.opened.lock().expect("nobody panics with it") += 1;
        gate.changed.notify_one();
        while gate.passed.load(Ordering::Acquire) <= turn {
            thread::yield_now();
        }
        lasted += Duration::from_nanos(gate.ran_ns.load(Ordering::Relaxed)) - release;
    }
    held.join().expect("the thread does not panic");
    lasted
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hold_release");
    group.bench_function("wake of a thread", |b| b.iter_custom(plain_threads));
    let staged = Staged::new();
    group.bench_function("released", |b| {
        b.iter_custom(|turns| staged.turns(turns)[0]);
    });
    group.bench_function("cycle", |b| b.iter_custom(|turns| staged.turns(turns)[1]));
    group.finish();
    staged.end();
}

criterion_group!(hold_release, benches);
criterion_main!(hold_release);
