//! One kernel on one CPU: a window each period, from absolute times.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::signal::{Kernel, Name, Size};
use crate::cpus;
use crate::policy::Policy;
use crate::settle::Settle;
use crate::{clock, interrupt, thread};

/// What is to be done.
pub struct Plan<'a> {
    /// The kernel.
    pub kernel: Name,
    /// Its size.
    pub size: &'a Size,
    /// The signal, which is played over and over.
    pub signal: &'a [f64],
    /// Windows that are due before this are not counted, nor those that it takes until the median of what a window
    /// takes has settled; at most twice as many. None are left out if it is nothing.
    pub warmup: Duration,
    /// How long windows are counted.
    pub duration: Duration,
    /// The CPU.
    pub cpu: usize,
    /// The policy that is asked for.
    pub policy: Policy,
    /// Its priority, 1 to 99.
    pub priority: u8,
}

/// When one window was due, begun and done, in nanoseconds since the first counted one was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When its last frame was there.
    pub release_ns: u64,
    /// When the kernel began.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
}

impl Window {
    /// What the kernel took.
    pub fn service_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// From the time it was due until it was done.
    pub fn response_ns(&self) -> u64 {
        self.end_ns - self.release_ns
    }

    /// How late it began.
    pub fn late_ns(&self) -> u64 {
        self.start_ns - self.release_ns
    }
}

/// What came out.
pub struct Measured {
    /// Every window that was begun after the warm-up.
    pub windows: Vec<Window>,
    /// Whether the median had settled after the warm-up; `None` without one.
    pub settled: Option<bool>,
    /// Windows that were due and not begun, because those before them took too long.
    pub not_begun: u64,
    /// The policy that was in force.
    pub policy: Policy,
    /// Why it is not the one that was asked for.
    pub refused: Option<String>,
}

/// Blocks of so many windows, of which three medians in a row must be this close, end a warm-up.
const SETTLE_BLOCK: usize = 5;
const SETTLE_WITHIN: f64 = 0.1;

/// How often the one who waits is told how long it has lasted.
const TICK: Duration = Duration::from_millis(250);

/// Measures, or until Ctrl-C. `tick` is told a few times a second how long it has lasted.
///
/// # Errors
/// When the thread cannot run on that CPU.
pub fn run(plan: &Plan<'_>, mut tick: impl FnMut(Duration)) -> Result<Measured, String> {
    let begun = Instant::now();
    let waiting = std::thread::current();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("kernel".into());
        let thread = builder
            .spawn_scoped(scope, || {
                let measured = on_its_cpu(plan);
                waiting.unpark();
                measured
            })
            .map_err(|error| format!("no thread for the kernel: {error}"))?;
        while !thread.is_finished() {
            std::thread::park_timeout(TICK);
            tick(begun.elapsed());
        }
        thread
            .join()
            .unwrap_or_else(|_| Err("the kernel panicked".into()))
    })
}

fn on_its_cpu(plan: &Plan<'_>) -> Result<Measured, String> {
    let cpu = plan.cpu;
    cpus::pin(cpu)?;
    thread::precise();
    let mut measured = Measured {
        windows: Vec::new(),
        settled: None,
        not_begun: 0,
        policy: plan.policy,
        refused: None,
    };
    let period = plan.size.period();
    if let Err(refused) = plan.policy.take(plan.priority.into(), period) {
        measured.policy = Policy::Other;
        measured.refused = Some(refused.to_string());
    }
    let count = |time: Duration| (time.as_secs_f64() / period.as_secs_f64()).round() as u32;
    let (warm, counted) = (count(plan.warmup), count(plan.duration).max(1));
    // Written, so that no page of it is missing when it is measured.
    let nothing = Window {
        release_ns: u64::MAX,
        start_ns: u64::MAX,
        end_ns: u64::MAX,
    };
    measured.windows = vec![nothing; counted as usize];
    let mut done = 0;

    let mut kernel = Kernel::new(plan.kernel, plan.size);
    let (step, length) = (
        (plan.size.hop * plan.size.channels) as usize,
        plan.size.samples(),
    );
    // Whole steps, so that each round has the same windows.
    let windows = (plan.signal.len().saturating_sub(length) / step + 1) as u64;
    let first = Instant::now() + period;
    let mut process = |number: u32| {
        let at = (u64::from(number) % windows) as usize * step;
        let begun = Instant::now();
        black_box(kernel.process(black_box(&plan.signal[at..at + length])));
        (begun, Instant::now())
    };
    let mut settle = Settle::new(SETTLE_BLOCK, SETTLE_WITHIN);
    let mut number = 0;
    while number < warm || (number < warm.saturating_mul(2) && !settle.is_settled()) {
        clock::sleep_until(first + period * number);
        if interrupt::happened() {
            measured.windows.clear();
            return Ok(measured);
        }
        let (begun, ended) = process(number);
        settle.feed((ended - begun).as_nanos() as f64);
        // Those that a slow one has made late are left out: what is counted begins when it is due.
        let passed = (ended.saturating_duration_since(first).as_nanos() / period.as_nanos()) as u32;
        number = passed.max(number) + 1;
    }
    measured.settled = (warm > 0).then(|| settle.is_settled());
    let origin = first + period * number;
    let end = origin + period * counted;
    for index in 0..counted {
        let release = origin + period * index;
        clock::sleep_until(release);
        if interrupt::happened() {
            break;
        }
        if Instant::now() >= end {
            measured.not_begun = u64::from(counted - index);
            break;
        }
        let (begun, ended) = process(number.wrapping_add(index));
        let ns = |at: Instant| at.saturating_duration_since(origin).as_nanos() as u64;
        measured.windows[done] = Window {
            release_ns: ns(release),
            start_ns: ns(begun),
            end_ns: ns(ended),
        };
        done += 1;
    }
    measured.windows.truncate(done);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::signal::{eeg, tests::size};
    use super::*;

    fn plan<'a>(size: &'a Size, signal: &'a [f64], kernel: Name) -> Plan<'a> {
        Plan {
            kernel,
            size,
            signal,
            warmup: Duration::from_millis(20),
            duration: Duration::from_millis(200),
            cpu: cpus::allowed()[0],
            policy: Policy::Other,
            priority: 1,
        }
    }

    #[test]
    fn every_window_is_counted_from_its_due_time() {
        let size = Size {
            channels: 2,
            rate: 16_000,
            ..size()
        };
        let signal = eeg::generate(&size, 1_000, 1);
        let measured = run(&plan(&size, &signal, Name::Car), |_| ()).unwrap();
        // Of 5 ms each. On a machine that stood still for a while, some are not begun.
        assert_eq!(measured.windows.len() as u64 + measured.not_begun, 40);
        for (i, window) in measured.windows.iter().enumerate() {
            assert_eq!(window.release_ns, i as u64 * 5_000_000);
            assert!(window.release_ns <= window.start_ns && window.start_ns <= window.end_ns);
            assert_eq!(window.response_ns(), window.late_ns() + window.service_ns());
        }
    }

    #[test]
    fn a_warm_up_ends_once_it_has_settled_and_at_twice_its_length() {
        let size = Size {
            channels: 2,
            rate: 16_000,
            ..size()
        };
        let signal = eeg::generate(&size, 1_000, 1);
        let plan = plan(&size, &signal, Name::Car);
        let begun = Instant::now();
        let measured = run(&plan, |_| ()).unwrap();
        // Four windows of 5 ms are not three blocks: four more, and no more.
        assert_eq!(measured.settled, Some(false));
        assert!(begun.elapsed() >= Duration::from_millis(240));
        let none = Plan {
            warmup: Duration::ZERO,
            ..plan
        };
        assert_eq!(run(&none, |_| ()).unwrap().settled, None);
    }

    /// A kernel that takes longer than its period falls behind, and what it did not come to is counted.
    #[test]
    fn an_overloaded_cpu_does_not_begin_every_window() {
        let size = Size {
            rate: 100_000,
            window: 160,
            hop: 1,
            taps: 999,
            ..size()
        };
        let signal = eeg::generate(&size, 2_000, 1);
        let measured = run(&plan(&size, &signal, Name::BandpassFir), |_| ()).unwrap();
        assert_eq!(measured.windows.len() as u64 + measured.not_begun, 20_000);
        assert!(measured.not_begun > 5_000, "{}", measured.not_begun);
        // On a machine that is busy with other things it comes to none, or to one.
        if let [_, .., last] = &measured.windows[..] {
            assert!(last.late_ns() > 1_000_000, "{last:?}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let size = size();
        let signal = eeg::generate(&size, 160, 1);
        let mut plan = plan(&size, &signal, Name::Noop);
        plan.cpu = 1_000;
        assert!(run(&plan, |_| ()).err().unwrap().contains("CPU 1000"));
    }
}
