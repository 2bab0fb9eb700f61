//! How long the faults really take, and how much CPU time: the truth that a diagnosis is compared with.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The calls at fault so far: their lengths and CPU times.
static CALLS: Mutex<Vec<(Duration, Duration)>> = Mutex::new(Vec::new());
/// More calls than any run has that is looked at.
const MOST: usize = 100_000;

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Times a call at fault, from its making to [`stop`](Self::stop).
pub struct Stopwatch {
    began: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts.
    #[must_use]
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu: thread_cpu(),
        }
    }

    /// Notes the call. It has to be on the thread of [`start`](Self::start).
    pub fn stop(self) {
        let call = (self.began.elapsed(), thread_cpu() - self.cpu);
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < MOST {
            calls.push(call);
        }
    }
}

/// The calls at fault in one line, for people and tests: how many, and the shortest and the median of length and CPU time.
///
/// `None` if there was none.
#[must_use]
pub fn summary() -> Option<String> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let middle = calls.len() / 2;
    calls.sort_unstable_by_key(|call| call.1);
    let (least_cpu, cpu) = (calls.first()?.1, calls[middle].1);
    calls.sort_unstable();
    let (shortest, length) = (calls[0].0, calls[middle].0);
    Some(format!(
        "{} calls at fault: length_us min {} p50 {}, cpu_us min {} p50 {}",
        calls.len(),
        shortest.as_micros(),
        length.as_micros(),
        least_cpu.as_micros(),
        cpu.as_micros()
    ))
}
