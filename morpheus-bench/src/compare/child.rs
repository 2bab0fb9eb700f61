//! The child process: one runtime, one case, one measurement.

use std::process;
use std::time::{Duration, Instant};

use morpheus_harness::settle::Settle;
use morpheus_harness::{clock, supervised, thread};
use serde::{Deserialize, Serialize};

use super::cases::{self, Body, Case, Stage};
use super::contender::Contender;

/// The warm-up is measured in blocks of this share of the window; it ends when three in a row agree.
const BLOCKS: u64 = 8;
/// CPU times of blocks agree within this share.
const TOLERANCE: f64 = 0.05;
/// Blocks after which it begins, whether they agree or not.
const WARMUP_MOST: usize = 24;
/// A trial counts if it took at least the window divided by this.
const ENOUGH: f64 = 3.0;
/// And at least this long in any case.
const LEAST_CALIBRATION: Duration = Duration::from_millis(2);
/// After the first trial that took this long, this many more are made.
const TRIALS: usize = 4;
/// Nothing takes fewer nanoseconds than would make more operations fit into a window.
const MOST_OPERATIONS: u64 = 1 << 30;

/// The measurement that a child is to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The name of the case.
    pub case: String,
    /// On what.
    pub contender: Contender,
    /// Workers of the runtime.
    pub workers: usize,
    /// Operations in the window; without, it is to find out how many fit into it.
    pub operations: Option<u64>,
    /// How long the window is to last.
    pub window_ms: f64,
}

/// The figures of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Operations done in the window; for a calibration, those that fit.
    pub operations: u64,
    /// How long it lasted.
    pub elapsed_ns: u64,
    /// CPU time of the runtime: of all threads of the process without those of clients.
    pub cpu_ns: u64,
    /// p99 of the operations, where they are timed one by one.
    pub p99_ns: Option<u64>,
    /// Whether the warm-up settled.
    pub settled: bool,
}

impl Measurement {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / (self.elapsed_ns as f64 / 1e9)
    }

    /// CPU time of an operation, in nanoseconds.
    pub fn cpu_each(&self) -> f64 {
        self.cpu_ns as f64 / self.operations as f64
    }
}

/// The answer of a child.
pub type Answer = Result<Measurement, String>;

/// Does the job and ends the process, whatever state the runtime is in by then.
pub fn main() -> ! {
    thread::die_with_parent();
    supervised::answer("compare", measure)
}

fn measure(job: &Job) -> Answer {
    let case = cases::named(&job.case).ok_or("no such case")?;
    let stage = Stage {
        runtime: job.contender.build(job.workers)?,
        workers: job.workers,
    };
    let mut body = case.start(&stage, job.contender.watched)?;
    match job.operations {
        None => calibrate(case, &mut body, job.window_ms),
        Some(operations) => {
            let settled = warm_up(case, &mut body, operations)?;
            let mut measured = window(&mut body, operations)?;
            measured.settled = settled;
            Ok(measured)
        }
    }
}

/// Measures one window of exactly `operations` operations, from outside.
fn window(body: &mut Body, operations: u64) -> Answer {
    let cpu = || clock::cpu_of_process(process::id()).map_err(|error| error.to_string());
    let before = cpu()?;
    let start = Instant::now();
    let done = body(operations)?;
    let elapsed = start.elapsed();
    let used = (cpu()? - before).saturating_sub(done.others_cpu);
    if done.operations != operations {
        return Err(format!(
            "{operations} operations were asked for, and {} done",
            done.operations
        ));
    }
    Ok(Measurement {
        operations,
        elapsed_ns: elapsed.as_nanos().max(1) as u64,
        cpu_ns: used.as_nanos() as u64,
        p99_ns: done.latencies.summary().p99,
        settled: false,
    })
}

/// Blocks until their CPU time has settled: allocators, caches, connections, and what the runtime itself learns.
fn warm_up(case: &Case, body: &mut Body, operations: u64) -> Result<bool, String> {
    let block = (operations / BLOCKS).max(1).next_multiple_of(case.batch);
    let mut settle = Settle::new(1, TOLERANCE);
    for _ in 0..WARMUP_MOST {
        if settle.feed(window(body, block)?.cpu_each()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many operations fit into a window: by a trial that takes a good part of it, since tasks that are idle together
/// make few operations take as long as many. Of several trials the fastest counts: other load only makes them slower.
fn calibrate(case: &Case, body: &mut Body, window_ms: f64) -> Answer {
    let enough = (window_ms * 1e6 / ENOUGH).max(LEAST_CALIBRATION.as_nanos() as f64);
    let mut operations = case.batch;
    let mut fastest = window(body, operations)?;
    while (fastest.elapsed_ns as f64) < enough && operations < MOST_OPERATIONS {
        operations *= 2;
        fastest = window(body, operations)?;
        for _ in 0..TRIALS {
            if (fastest.elapsed_ns as f64) < enough {
                break;
            }
            let again = window(body, operations)?;
            if again.elapsed_ns < fastest.elapsed_ns {
                fastest = again;
            }
        }
    }
    let each = fastest.elapsed_ns as f64 / operations as f64;
    let fitting = (window_ms * 1e6 / each).clamp(1.0, MOST_OPERATIONS as f64);
    fastest.operations = case.operations(fitting as u64);
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::super::cases::Done;
    use super::*;

    /// A case that takes `each` for an operation, and does only this share of the operations.
    fn slow(each: Duration, share: f64) -> Body {
        Box::new(move |n| {
            std::thread::sleep(each * n as u32);
            Ok(Done::from((n as f64 * share) as u64))
        })
    }

    #[test]
    fn what_was_not_done_is_not_measured() {
        let error = window(&mut slow(Duration::ZERO, 0.5), 10).unwrap_err();
        assert!(
            error.contains("10 operations were asked for, and 5 done"),
            "{error}"
        );
    }

    #[test]
    fn as_many_operations_fit_as_the_window_is_long() {
        let case = cases::named("spawn").unwrap();
        let mut body = slow(Duration::from_millis(1), 1.0);
        let fitting = calibrate(case, &mut body, 100.0).unwrap().operations;
        // A sleep takes longer than it is asked to, and on a busy machine much longer.
        assert!((5..=100).contains(&fitting), "{fitting}");
        let batch = cases::named("watch").unwrap();
        let fitting = calibrate(batch, &mut slow(Duration::from_millis(1), 1.0), 100.0).unwrap();
        assert!(fitting.operations.is_multiple_of(batch.batch));
    }

    #[test]
    fn rates_and_times_are_of_one_operation() {
        let measured = Measurement {
            operations: 500,
            elapsed_ns: 250_000_000,
            cpu_ns: 400_000_000,
            p99_ns: None,
            settled: true,
        };
        assert_eq!((measured.rate(), measured.cpu_each()), (2_000.0, 800_000.0));
    }
}
