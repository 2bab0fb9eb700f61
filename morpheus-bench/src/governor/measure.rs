//! One kernel on one CPU: a window each period, from absolute times.

use std::fs::File;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morpheus_harness::settle::Settle;
use morpheus_harness::{clock, interrupt, thread};
use serde::Serialize;

use super::config::Config;
use super::signal::{Kernel, Name};
use crate::cpus;
use crate::policy::Policy;

/// A run to be made.
#[derive(Clone)]
pub struct Plan {
    /// The options of the run. Windows that are due before the end of the warm-up are not counted, nor those that it
    /// takes until the median of what a window takes has settled; at most twice as many. None are left out without a
    /// warm-up.
    pub config: Config,
    /// The kernel.
    pub kernel: Name,
    /// The signal, which is played over and over.
    pub signal: Arc<Vec<f64>>,
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
    /// How long the kernel took.
    pub fn service_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// From the time it was due until it was done.
    pub fn response_ns(&self) -> u64 {
        self.end_ns - self.release_ns
    }

    /// Whether it was not done within this time after it was due.
    pub fn misses(&self, deadline_ns: u64) -> bool {
        self.response_ns() > deadline_ns
    }

    /// How late it began.
    pub fn late_ns(&self) -> u64 {
        self.start_ns - self.release_ns
    }
}

/// The measurements of a run.
#[derive(Debug, Default)]
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

/// Measures on the calling thread, or until Ctrl-C. The thread stays on the CPU, and under the policy.
///
/// # Errors
/// When it cannot run on that CPU.
pub fn run(plan: &Plan) -> Result<Measured, String> {
    let config = &plan.config;
    cpus::pin(config.cpu)?;
    thread::precise();
    let priority = config.priority.into();
    let taken = config.policy.take(priority, config.size.period());
    let mut series = Series::new(plan);
    match taken {
        Ok(()) => series.measured.policy = config.policy,
        Err(why) => series.measured.refused = Some(why),
    }
    while let Some(due) = series.next_due() {
        clock::sleep_until(due);
        if series.window().is_break() {
            break;
        }
    }
    Ok(series.measured)
}

/// The windows of a run. The caller waits until each window is due, on the CPU that is measured.
pub struct Series<'a> {
    plan: &'a Plan,
    kernel: Kernel,
    frequency: Option<File>,
    /// Samples from one window to the next, and how many windows the signal has.
    step: usize,
    rounds: u64,
    period: Duration,
    /// When the first is due.
    first: Instant,
    /// How many warm up at least, and how many count.
    warm: u32,
    counted: u32,
    settle: Settle,
    /// The next one.
    number: u32,
    /// The first that counts, once that is known.
    origin: Option<u32>,
    /// The measurements until now, as of an ordinary thread unless the caller says otherwise.
    pub measured: Measured,
}

impl<'a> Series<'a> {
    /// From a period from now on.
    pub fn new(plan: &'a Plan) -> Self {
        let Config { size, .. } = &plan.config;
        let period = size.period();
        let count = |seconds: f64| (seconds / period.as_secs_f64()).round() as u32;
        let counted = count(plan.config.duration_s).max(1);
        let nothing = Window {
            release_ns: u64::MAX,
            start_ns: u64::MAX,
            end_ns: u64::MAX,
            end_khz: Some(u64::MAX),
        };
        // Written once, so that no page of it is missing when it is measured.
        let mut windows = vec![nothing; counted as usize];
        black_box(&mut windows).clear();
        let step = (size.hop * size.channels) as usize;
        let frequency = plan.frequency.as_ref();
        Self {
            plan,
            kernel: Kernel::new(plan.kernel, size),
            frequency: frequency.and_then(|path| File::open(path).ok()),
            // Whole steps, so that each round has the same windows.
            rounds: (plan.signal.len().saturating_sub(size.samples()) / step + 1) as u64,
            step,
            period,
            first: Instant::now() + period,
            warm: count(plan.config.warmup_s),
            counted,
            settle: Settle::new(SETTLE_BLOCK, SETTLE_WITHIN),
            number: 0,
            origin: None,
            measured: Measured {
                windows,
                ..Measured::default()
            },
        }
    }

    /// When the next window is due; none when that was all.
    pub fn next_due(&mut self) -> Option<Instant> {
        let settled = self.settle.is_settled();
        let most = self.warm.saturating_mul(if settled { 1 } else { 2 });
        if self.origin.is_none() && self.number >= most {
            self.measured.settled = (self.warm > 0).then_some(settled);
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
        let window = &self.plan.signal[at..at + self.plan.config.size.samples()];
        let begun = Instant::now();
        if interrupt::happened() {
            return ControlFlow::Break(());
        }
        let end = self.origin.map(|origin| origin + self.counted);
        if let Some(end) = end.filter(|&end| begun >= self.release(end)) {
            self.measured.not_begun = u64::from(end - self.number);
            return ControlFlow::Break(());
        }
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
        self.measured.windows.push(Window {
            release_ns: ns(self.release(self.number)),
            start_ns: ns(begun),
            end_ns: ns(ended),
            end_khz,
        });
        self.number += 1;
        ControlFlow::Continue(())
    }
}

fn read_khz(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::super::signal::eeg;
    use super::*;

    fn plan(kernel: Name, frames: usize, line: &str) -> Plan {
        let cpu = cpus::allowed()[0];
        let line = format!("--cpu {cpu} --policy other --warmup 0.02 --duration 0.2 {line}");
        let config = config(&line);
        Plan {
            signal: Arc::new(eeg::generate(&config.size, frames, 1)),
            config,
            kernel,
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
        let measured = run(&plan(Name::Car, 1_000, "--channels 2 --rate 16000")).unwrap();
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
        let mut plan = plan(Name::Car, 1_000, "--channels 2 --rate 16000");
        let begun = Instant::now();
        let measured = run(&plan).unwrap();
        // Four windows of 5 ms are not three blocks: four more, and no more.
        assert_eq!(measured.settled, Some(false));
        assert!(begun.elapsed() >= Duration::from_millis(240));
        plan.config.warmup_s = 0.0;
        assert_eq!(run(&plan).unwrap().settled, None);
    }

    /// A kernel that takes longer than its period falls behind, and what it did not come to is counted.
    #[test]
    fn an_overloaded_cpu_does_not_begin_every_window() {
        let line = "--rate 100000 --window 160 --hop 1 --taps 999";
        let measured = run(&plan(Name::BandpassFir, 2_000, line)).unwrap();
        assert_eq!(measured.windows.len() as u64 + measured.not_begun, 20_000);
        assert!(measured.not_begun > 5_000, "{}", measured.not_begun);
        // On a machine that is busy with other things it comes to none, or to one.
        if let [_, .., last] = &measured.windows[..] {
            assert!(last.late_ns() > 1_000_000, "{last:?}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let mut plan = plan(Name::Noop, 160, "");
        plan.config.cpu = 1_000;
        assert!(run(&plan).err().unwrap().contains("CPU 1000"));
    }
}
