//! Operations that start by the clock.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::progress::Progress;
use morpheus_harness::settle::Settle;
use morpheus_harness::thread::lock;
use morpheus_harness::{host, interrupt, thread};
use tokio::sync::Notify;

use super::config::Options;
use crate::executor::{Executor, Spawn, morpheus::Morpheus};
use crate::neighbours::Neighbours;
use crate::pace::Pace;
use crate::work;

/// The iterations of one operation.
pub const ITERATIONS: usize = 1_000;
/// How often the warm-up looks at the median, and the bar moves.
const LOOK: Duration = Duration::from_millis(100);
/// Looks after which it begins, whether the median has settled or not.
const WARMUP_LOOKS: usize = 20;

/// The latencies and counts of one run.
#[derive(Debug, Default)]
pub struct Measured {
    /// From the intended start of an operation to its end.
    pub response: Latencies,
    /// From its start.
    pub service: Latencies,
    /// How late the thread was that starts them.
    pub clock: Latencies,
    /// Operations done within the time.
    pub done: u64,
    /// Operations that were meant to be started within it.
    pub asked: u64,
    /// For how long.
    pub lasted: Duration,
    /// Of warm-up before.
    pub warmup: Duration,
    /// Whether the median had settled by then.
    pub settled: bool,
}

impl Measured {
    /// Operations done a second.
    pub fn per_s(&self) -> f64 {
        self.done as f64 / self.lasted.as_secs_f64().max(1e-9)
    }
}

/// The results of one task.
#[derive(Default)]
struct Done {
    response: Latencies,
    service: Latencies,
    /// Response times since the warm-up last looked.
    warming: Latencies,
    operations: u64,
    counted: u64,
    closed: bool,
}

/// The state that tasks share with the thread that starts operations.
struct Shared {
    /// Operations that were meant to start before do not count.
    from_ns: AtomicU64,
    stop: AtomicBool,
    /// Only its task locks one, but for a look ten times a second.
    tasks: Vec<Mutex<Done>>,
    /// Tells a task that an operation of its is due.
    due: Vec<Notify>,
    checkpoints: bool,
    every: usize,
}

/// Computes for one operation, with checkpoints or without: the same loop, so that nothing else differs.
pub async fn operate<const CHECKPOINTS: bool>(every: usize) {
    let mut left = ITERATIONS;
    while left > 0 {
        let now = left.min(every);
        work::compute(now as u64);
        left -= now;
        if CHECKPOINTS {
            morpheus_runtime::checkpoint().await;
        }
    }
}

impl Shared {
    /// Does every operation of a task, each when it is due: as late ones are no less due, nothing needs to be
    /// remembered of them.
    async fn serve(self: Arc<Self>, task: usize, pace: Pace) {
        for number in 0.. {
            let due_ns = due_ns(&pace, number, task, self.tasks.len());
            while monotonic_ns() < due_ns {
                self.due[task].notified().await;
            }
            if self.stop.load(Relaxed) {
                return;
            }
            let start_ns = monotonic_ns();
            if self.checkpoints {
                operate::<true>(self.every).await;
            } else {
                operate::<false>(self.every).await;
            }
            self.count(task, due_ns, start_ns, monotonic_ns());
            // As a channel or a socket would: a task that is behind lets others run now and then.
            tokio::task::consume_budget().await;
        }
    }

    fn count(&self, number: usize, due_ns: u64, start_ns: u64, end_ns: u64) {
        let mut done = lock(&self.tasks[number]);
        if done.closed {
            return;
        }
        done.operations += 1;
        if due_ns < self.from_ns.load(Relaxed) {
            done.warming.record_ns(end_ns - due_ns);
        } else {
            done.counted += 1;
            done.response.record_ns(end_ns - due_ns);
            done.service.record_ns(end_ns - start_ns);
        }
    }

    /// The thread that starts operations; how late it was.
    fn start_operations(&self, mut pace: Pace) -> Latencies {
        thread::precise();
        let mut late = Latencies::default();
        while !self.stop.load(Relaxed) {
            let left_ns = pace.due().saturating_sub(monotonic_ns());
            if left_ns > 0 {
                std::thread::sleep(Duration::from_nanos(left_ns));
            }
            let now_ns = monotonic_ns();
            while let Some(due_ns) = pace.take_due(now_ns)
                && !self.stop.load(Relaxed)
            {
                self.due[(pace.taken() - 1) as usize % self.due.len()].notify_one();
                if due_ns >= self.from_ns.load(Relaxed) {
                    late.record_ns(monotonic_ns().saturating_sub(due_ns));
                }
            }
        }
        late
    }

    /// The median response time of all tasks since the last look.
    fn warming_median(&self) -> Option<u64> {
        let mut all = Latencies::default();
        for task in &self.tasks {
            let mut done = lock(task);
            all.add(&std::mem::take(&mut done.warming));
        }
        all.summary().p50
    }
}

/// Measures, or until Ctrl-C.
///
/// # Errors
/// When threads or processes cannot be started.
pub fn measure(morpheus: &Morpheus, options: &Options) -> Result<Measured, String> {
    let duration = Duration::from_secs_f64(options.duration_s);
    let progress = Progress::new(duration, options.json);
    let busy = if options.pressure { host::cpus() } else { 0 };
    let _busy = Neighbours::own(busy)?;
    let shared = Arc::new(Shared {
        from_ns: AtomicU64::new(u64::MAX),
        stop: AtomicBool::new(false),
        tasks: (0..options.workers).map(|_| Mutex::default()).collect(),
        due: (0..options.workers).map(|_| Notify::new()).collect(),
        checkpoints: options.with_checkpoints,
        every: options.checkpoint_every,
    });
    let rate = options.rate();
    let pace = Pace::per_second(monotonic_ns(), rate);
    for task in 0..options.workers {
        morpheus.spawn(Spawn::Watched, shared.clone().serve(task, pace));
    }
    let starter = shared.clone();
    let clock = std::thread::Builder::new()
        .name("latency-clock".into())
        .spawn(move || starter.start_operations(pace))
        .map_err(|error| format!("no thread that starts operations: {error}"))?;

    progress.say("warm-up".into());
    let begun_ns = monotonic_ns();
    let mut settle = Settle::new(1, 0.1);
    for _ in 0..WARMUP_LOOKS {
        std::thread::sleep(LOOK);
        let median = shared.warming_median();
        if median.is_some_and(|ns| settle.feed(ns as f64)) || interrupt::happened() {
            break;
        }
    }
    let from_ns = monotonic_ns();
    shared.from_ns.store(from_ns, Relaxed);
    progress.say(format!("{rate} operations a second"));
    let from = Instant::now();
    progress.wait_until(from + duration, from);
    let end_ns = monotonic_ns();
    for task in &shared.tasks {
        lock(task).closed = true;
    }
    shared.stop.store(true, Relaxed);
    progress.clear();
    let late = clock
        .join()
        .map_err(|_| "the thread that starts operations ended early".to_owned())?;
    let mut measured = Measured {
        clock: late,
        lasted: Duration::from_nanos(end_ns - from_ns),
        warmup: Duration::from_nanos(from_ns - begun_ns),
        settled: settle.is_settled(),
        ..Measured::default()
    };
    for (number, task) in shared.tasks.iter().enumerate() {
        let done = lock(task);
        measured.response.add(&done.response);
        measured.service.add(&done.service);
        measured.done += done.counted;
        let task = (number, shared.tasks.len());
        let missed = undone(&pace, done.operations, task, from_ns..end_ns);
        measured.asked += done.counted + missed.len() as u64;
        for age_ns in missed {
            measured.response.record_pending_ns(age_ns);
        }
    }
    Ok(measured)
}

/// When a task's operation is due: deadlines are numbered from 1, and go to the tasks in turn.
fn due_ns(pace: &Pace, number: u64, task: usize, tasks: usize) -> u64 {
    pace.at(number * tasks as u64 + task as u64 + 1)
}

/// The ages, at the window's end, of the operations that a task should have begun within the window and has not done. `tasks` tasks
/// share the timetable.
fn undone(
    pace: &Pace,
    done: u64,
    (task, tasks): (usize, usize),
    window_ns: Range<u64>,
) -> Vec<u64> {
    let before = (pace.number_at(window_ns.start) / tasks as u64).saturating_sub(2);
    (done.max(before)..)
        .map(|number| due_ns(pace, number, task, tasks))
        .take_while(|due_ns| *due_ns < window_ns.end)
        .filter(|due_ns| *due_ns >= window_ns.start)
        .map(|due_ns| window_ns.end - due_ns)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks, a thousand operations a second together, the window from 10 to 20 ms: a task that did its first
    /// seven operations (due at 1, 3, … 13 ms) misses those at 15, 17 and 19 ms.
    #[test]
    fn what_was_not_done_counts_with_its_age() {
        const MS: u64 = 1_000_000;
        let pace = Pace::every(0, MS);
        let ages = undone(&pace, 7, (0, 2), 10 * MS..20 * MS);
        assert_eq!(ages, [5 * MS, 3 * MS, MS]);
        // One that never ran at all: only what fell into the window counts.
        assert_eq!(undone(&pace, 0, (1, 2), 10 * MS..20 * MS).len(), 5);
        assert!(undone(&pace, 10, (0, 2), 10 * MS..20 * MS).is_empty());
    }
}
