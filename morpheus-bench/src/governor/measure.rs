//! One kernel on one CPU: a window each period, from absolute times.

use std::fs::File;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::signal::{Kernel, Name, Size};
use crate::cpus;
use crate::policy::Policy;
use crate::settle::Settle;
use crate::{clock, interrupt, thread};

/// What is to be done.
#[derive(Clone)]
pub struct Plan {
    /// The kernel.
    pub kernel: Name,
    /// Its size.
    pub size: Size,
    /// The signal, which is played over and over.
    pub signal: Arc<Vec<f64>>,
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
    /// The file that says the CPU's frequency in kHz.
    pub frequency: Option<PathBuf>,
}

/// When one window was due, begun and done, in nanoseconds since the first counted one was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// When its last frame was there.
    pub release_ns: u64,
    /// When the kernel began.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// The CPU's frequency when it was done, as far as the driver knows. Most know what was asked for.
    pub end_khz: Option<u64>,
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
#[derive(Debug)]
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

/// A warm-up is cut into blocks of this many windows, and ends when the medians of three in a row are this close.
const SETTLE_BLOCK: usize = 5;
const SETTLE_WITHIN: f64 = 0.1;

/// How often the waiting caller is told how long it has lasted.
const TICK: Duration = Duration::from_millis(250);

/// Measures, or until Ctrl-C. `tick` is told a few times a second how long it has lasted.
///
/// # Errors
/// When the thread cannot run on that CPU.
pub fn run(plan: &Plan, tick: impl FnMut(Duration)) -> Result<Measured, String> {
    beside(|| on_its_cpu(plan), tick)
}

/// Measures in a thread of its own.
///
/// # Errors
/// Those of `measure`, and when there is no thread for it.
pub fn beside(
    measure: impl FnOnce() -> Result<Measured, String> + Send,
    mut tick: impl FnMut(Duration),
) -> Result<Measured, String> {
    let begun = Instant::now();
    let waiting = std::thread::current();
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("kernel".into());
        let thread = builder
            .spawn_scoped(scope, || {
                let measured = measure();
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

fn on_its_cpu(plan: &Plan) -> Result<Measured, String> {
    cpus::pin(plan.cpu)?;
    thread::precise();
    let (mut policy, mut refused) = (plan.policy, None);
    if let Err(error) = plan.policy.take(plan.priority.into(), plan.size.period()) {
        policy = Policy::Other;
        refused = Some(error.to_string());
    }
    let mut series = Series::new(plan);
    while let Some(due) = series.next_due() {
        clock::sleep_until(due);
        if series.window().is_break() {
            break;
        }
    }
    Ok(series.finish(policy, refused))
}

/// The windows of a run. Who asks for them waits until each is due, on the CPU that is measured.
pub struct Series {
    kernel: Kernel,
    signal: Arc<Vec<f64>>,
    frequency: Option<File>,
    /// Samples of a step and of a window, and how many windows the signal has.
    step: usize,
    length: usize,
    rounds: u64,
    period: Duration,
    /// When the first is due.
    first: Instant,
    /// How many warm up at least, and how many count.
    warm: u32,
    counted: u32,
    settle: Settle,
    settled: Option<bool>,
    /// The next one.
    number: u32,
    /// The first that counts, once that is known.
    origin: Option<u32>,
    windows: Vec<Window>,
    done: usize,
    not_begun: u64,
}

impl Series {
    /// From a period from now on.
    pub fn new(plan: &Plan) -> Self {
        let period = plan.size.period();
        let count = |time: Duration| (time.as_secs_f64() / period.as_secs_f64()).round() as u32;
        let (warm, counted) = (count(plan.warmup), count(plan.duration).max(1));
        // Written, so that no page of it is missing when it is measured.
        let nothing = Window {
            release_ns: u64::MAX,
            start_ns: u64::MAX,
            end_ns: u64::MAX,
            end_khz: Some(u64::MAX),
        };
        let windows = vec![nothing; counted as usize];
        let kernel = Kernel::new(plan.kernel, &plan.size);
        let (step, length) = (
            (plan.size.hop * plan.size.channels) as usize,
            plan.size.samples(),
        );
        let frequency = plan.frequency.as_ref();
        Self {
            kernel,
            frequency: frequency.and_then(|path| File::open(path).ok()),
            // Whole steps, so that each round has the same windows.
            rounds: (plan.signal.len().saturating_sub(length) / step + 1) as u64,
            signal: Arc::clone(&plan.signal),
            step,
            length,
            period,
            first: Instant::now() + period,
            warm,
            counted,
            settle: Settle::new(SETTLE_BLOCK, SETTLE_WITHIN),
            settled: None,
            number: 0,
            origin: None,
            windows,
            done: 0,
            not_begun: 0,
        }
    }

    /// When the next window is due; none when that was all.
    pub fn next_due(&mut self) -> Option<Instant> {
        let settled = self.settle.is_settled();
        let warms_up =
            self.number < self.warm || (self.number < self.warm.saturating_mul(2) && !settled);
        if self.origin.is_none() && !warms_up {
            self.settled = (self.warm > 0).then_some(settled);
            self.origin = Some(self.number);
        }
        let over = self
            .origin
            .is_some_and(|origin| self.number - origin >= self.counted);
        (!over).then(|| self.release(self.number))
    }

    fn release(&self, number: u32) -> Instant {
        self.first + self.period * number
    }

    /// Works on that window, now. Breaks when there is no time for more, or after Ctrl-C.
    pub fn window(&mut self) -> ControlFlow<()> {
        let at = (u64::from(self.number) % self.rounds) as usize * self.step;
        let begun = Instant::now();
        if interrupt::happened() {
            return ControlFlow::Break(());
        }
        let end = self.origin.map(|origin| origin + self.counted);
        if let Some(end) = end.filter(|&end| begun >= self.release(end)) {
            self.not_begun = u64::from(end - self.number);
            return ControlFlow::Break(());
        }
        let window = &self.signal[at..at + self.length];
        black_box(self.kernel.process(black_box(window)));
        let ended = Instant::now();
        let end_khz = self.frequency.as_ref().and_then(read_khz);
        let Some(origin) = self.origin else {
            self.settle.feed((ended - begun).as_nanos() as f64);
            // Those that a slow one has made late are left out: what is counted begins when it is due.
            let passed_ns = ended.saturating_duration_since(self.first).as_nanos();
            let passed = (passed_ns / self.period.as_nanos()) as u32;
            self.number = passed.max(self.number) + 1;
            return ControlFlow::Continue(());
        };
        let zero = self.release(origin);
        let ns = |at: Instant| at.saturating_duration_since(zero).as_nanos() as u64;
        self.windows[self.done] = Window {
            release_ns: ns(self.release(self.number)),
            start_ns: ns(begun),
            end_ns: ns(ended),
            end_khz,
        };
        self.done += 1;
        self.number += 1;
        ControlFlow::Continue(())
    }

    /// What came of it.
    pub fn finish(mut self, policy: Policy, refused: Option<String>) -> Measured {
        self.windows.truncate(self.done);
        Measured {
            windows: self.windows,
            settled: self.settled,
            not_begun: self.not_begun,
            policy,
            refused,
        }
    }
}

fn read_khz(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::signal::{eeg, tests::size};
    use super::*;

    fn plan(size: &Size, signal: &[f64], kernel: Name) -> Plan {
        Plan {
            kernel,
            size: size.clone(),
            signal: Arc::new(signal.to_vec()),
            warmup: Duration::from_millis(20),
            duration: Duration::from_millis(200),
            cpu: cpus::allowed()[0],
            policy: Policy::Other,
            priority: 1,
            frequency: None,
        }
    }

    #[test]
    fn a_frequency_is_read_again_and_again() {
        let path = std::env::temp_dir().join(format!("governor-khz-{}", std::process::id()));
        std::fs::write(&path, "800000\n").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(read_khz(&file), Some(800_000));
        std::fs::write(&path, "3000000\n").unwrap();
        assert_eq!(read_khz(&file), Some(3_000_000));
        std::fs::write(&path, "<unknown>\n").unwrap();
        assert_eq!(read_khz(&file), None);
        std::fs::remove_file(&path).unwrap();
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
