//! The frequencies of all policies over time, as CSV.

use crate::cpus::Cpus;
use std::fmt::Write;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::sysfs::Policy;

/// The first line of a log.
pub const HEAD: &str = "elapsed_ms,policy,cpus,governor,khz";

/// A frequency that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Since the log began.
    pub elapsed_ms: f64,
    /// The policy's name.
    pub policy: String,
    /// Its CPUs.
    pub cpus: Vec<usize>,
    /// The governor in force.
    pub governor: String,
    /// The frequency; `None` when the driver does not tell.
    pub khz: Option<u64>,
}

impl Sample {
    /// All policies now.
    pub fn read_all(policies: &[Policy], elapsed: Duration) -> Vec<Sample> {
        let read = |policy: &Policy| {
            let governor = fs::read_to_string(policy.governor_file()).unwrap_or_default();
            Sample {
                elapsed_ms: (elapsed.as_secs_f64() * 1e6).round() / 1e3,
                policy: policy.name.clone(),
                cpus: policy.cpus.clone(),
                governor: governor.trim().to_owned(),
                khz: policy.current_khz(),
            }
        };
        policies.iter().map(read).collect()
    }

    /// A line of the log, without its end.
    pub fn csv(&self) -> String {
        let mut line = format!("{:.3},{},", self.elapsed_ms, self.policy);
        for (i, cpu) in self.cpus.iter().enumerate() {
            let _ = write!(line, "{}{cpu}", if i == 0 { "" } else { " " });
        }
        let _ = write!(line, ",{},", self.governor);
        if let Some(khz) = self.khz {
            let _ = write!(line, "{khz}");
        }
        line
    }
}

/// Nanoseconds, and the frequency in kHz then, of the policy that `is_own` says; readings without one are left out.
pub fn points(samples: &[Sample], is_own: impl Fn(&Sample) -> bool) -> Vec<(f64, f64)> {
    let own = samples.iter().filter(|sample| is_own(sample));
    own.filter_map(|sample| Some((sample.elapsed_ms * 1e6, sample.khz? as f64)))
        .collect()
}

/// Reads all policies at the times that `due` gives, counted from now. `wait` waits for the given time, and returns
/// false to end this.
pub fn sample_while(
    policies: &[Policy],
    due: impl Fn(u32) -> Duration,
    mut wait: impl FnMut(Duration) -> bool,
    mut take: impl FnMut(Sample),
) {
    let begun = Instant::now();
    for number in 0_u32.. {
        let at = begun + due(number);
        if !wait(at.saturating_duration_since(Instant::now())) {
            return;
        }
        for sample in Sample::read_all(policies, begun.elapsed()) {
            take(sample);
        }
    }
}

/// When the reading of this number is due: one in each interval, and never in the same part of it. At regular
/// times all readings would fall in the same part of the kernel's period: always while it computes, or never.
fn spread(interval: Duration, number: u32) -> Duration {
    // Multiples of the golden ratio are spread evenly over 0 to 1, however many there are.
    let part = (f64::from(number) * 0.618_033_988_749_894_9).fract();
    interval * number + interval.mul_f64(part)
}

/// A thread that reads frequencies while something else is measured.
pub struct Sampler {
    stop: Sender<()>,
    thread: Option<JoinHandle<Vec<Sample>>>,
}

impl Sampler {
    /// Starts it on `cpus`, which should not be those that are measured: it would keep them busy.
    pub fn start(policies: Vec<Policy>, interval: Duration, cpus: Vec<usize>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let sample = move || {
            // An error leaves it where it is, as on a machine with one CPU.
            let _ = Cpus::of(&cpus).take();
            let mut samples = Vec::new();
            let wait = |left| stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout);
            sample_while(
                &policies,
                |number| spread(interval, number),
                wait,
                |sample| samples.push(sample),
            );
            samples
        };
        let builder = std::thread::Builder::new().name("frequency".into());
        Self {
            stop,
            thread: builder.spawn(sample).ok(),
        }
    }

    /// Ends it.
    pub fn finish(self) -> Vec<Sample> {
        drop(self.stop);
        let samples = self.thread.and_then(|thread| thread.join().ok());
        samples.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::{self, tests::Fake};
    use super::*;

    #[test]
    fn a_line_has_a_cell_for_each_head() {
        let sample = Sample {
            elapsed_ms: 100.25,
            policy: "policy0".into(),
            cpus: vec![0, 3],
            governor: "schedutil".into(),
            khz: Some(1_300_000),
        };
        assert_eq!(sample.csv(), "100.250,policy0,0 3,schedutil,1300000");
        let silent = Sample {
            khz: None,
            ..sample
        };
        assert_eq!(silent.csv(), "100.250,policy0,0 3,schedutil,");
        assert_eq!(HEAD.split(',').count(), 5);
    }

    #[test]
    fn the_frequency_is_that_of_the_measured_cpu() {
        let sample = |cpus: &[usize], khz| Sample {
            elapsed_ms: 2.5,
            policy: "policy".into(),
            cpus: cpus.to_vec(),
            governor: "x".into(),
            khz,
        };
        let samples = [
            sample(&[0, 1], Some(600)),
            sample(&[2], Some(9_000)),
            sample(&[0, 1], Some(1_000)),
            sample(&[0, 1], None),
        ];
        let of = |cpu| points(&samples, |sample| sample.cpus.contains(&cpu));
        assert_eq!(of(1), [(2.5e6, 600.0), (2.5e6, 1_000.0)]);
        assert_eq!(of(7), []);
    }

    #[test]
    fn readings_fall_in_every_part_of_a_period() {
        let interval = Duration::from_millis(100);
        let mut parts = [0; 10];
        for number in 0..1_000 {
            let at = spread(interval, number);
            assert!(at >= interval * number && at < interval * (number + 1));
            // A kernel's period is five intervals.
            parts[(at.as_millis() % 500 / 50) as usize] += 1;
        }
        assert!(parts.iter().all(|n| (80..=120).contains(n)), "{parts:?}");
    }

    #[test]
    fn a_sampler_reads_every_policy_until_it_is_ended() {
        let fake = Fake::new("sampler");
        let policies = sysfs::policies(&fake.0).unwrap();
        let sampler = Sampler::start(policies, Duration::from_millis(5), Vec::new());
        std::thread::sleep(Duration::from_millis(60));
        let samples = sampler.finish();
        assert!(
            samples.len() >= 4 && samples.len().is_multiple_of(2),
            "{samples:?}"
        );
        assert!(samples.iter().all(|sample| sample.khz == Some(600_000)));
        assert_eq!(samples[1].policy, "policy4");
    }
}
