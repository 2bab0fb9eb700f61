//! The frequencies of all policies over time, as CSV.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::sysfs::{self, Policy};

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
    fn read(policy: &Policy, elapsed: Duration) -> Self {
        Self {
            elapsed_ms: (elapsed.as_secs_f64() * 1e6).round() / 1e3,
            policy: policy.name.clone(),
            cpus: policy.cpus.clone(),
            governor: sysfs::read(&policy.governor_file()).unwrap_or_default(),
            khz: policy.current_khz(),
        }
    }

    /// A line of the log, without its end.
    pub fn csv(&self) -> String {
        let cpus: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
        let (cpus, ms) = (cpus.join(" "), self.elapsed_ms);
        let khz = self.khz.map(|khz| khz.to_string()).unwrap_or_default();
        format!("{ms:.3},{},{cpus},{},{khz}", self.policy, self.governor)
    }
}

/// Nanoseconds, and the frequency in kHz then, of the policy that `is_own` says; readings without one are left out.
pub fn points(samples: &[Sample], is_own: impl Fn(&Sample) -> bool) -> Vec<(f64, f64)> {
    let own = samples.iter().filter(|sample| is_own(sample));
    own.filter_map(|sample| Some((sample.elapsed_ms * 1e6, sample.khz? as f64)))
        .collect()
}

/// How long is waited at once: a bar moves meanwhile, and Ctrl-C is noticed.
const STEP: Duration = Duration::from_millis(200);

/// Reads all policies at the times that `due` gives, counted from now. `wait` waits for the given time, which is never
/// long, and returns false to end this.
pub fn sample_while(
    policies: &[Policy],
    due: impl Fn(u32) -> Duration,
    mut wait: impl FnMut(Duration) -> bool,
    mut take: impl FnMut(Sample),
) {
    let begun = Instant::now();
    let (mut number, mut left) = (0, due(0));
    while wait(left.min(STEP)) {
        let elapsed = begun.elapsed();
        if left <= STEP {
            for policy in policies {
                take(Sample::read(policy, elapsed));
            }
            number += 1;
        }
        left = due(number).saturating_sub(begun.elapsed());
    }
}

/// When the reading of this number is due: one in each interval, and never in the same part of it. At regular
/// times all readings would fall in the same part of the kernel's period: always while it computes, or never.
fn spread(interval: Duration, number: u32) -> Duration {
    // Multiples of the golden ratio are spread evenly over 0 to 1, however many there are.
    let part = (f64::from(number) * 0.618_033_988_749_894_9).fract();
    interval * number + interval.mul_f64(part)
}

/// Measures in a thread of its own. Meanwhile this one reads frequencies; it should be on other CPUs than those that are
/// measured, for it would keep them busy. `tick` is told a few times a second how long it has lasted.
///
/// # Errors
/// Those of `measure`, and when there is no thread for it.
pub fn sample_beside<T: Send>(
    measure: impl FnOnce() -> Result<T, String> + Send,
    policies: &[Policy],
    interval: Duration,
    tick: impl Fn(Duration),
) -> Result<(T, Vec<Sample>), String> {
    let begun = Instant::now();
    let (measuring, over) = mpsc::channel::<()>();
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("kernel".into())
            .spawn_scoped(scope, move || {
                let _measuring = measuring;
                measure()
            })
            .map_err(|error| format!("no thread for the kernel: {error}"))?;
        let wait = |left| {
            tick(begun.elapsed());
            over.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
        };
        let due = |number| spread(interval, number);
        sample_while(policies, due, wait, |sample| samples.push(sample));
        let measured = thread.join();
        measured.unwrap_or_else(|_| Err("the kernel panicked".into()))
    })
    .map(|measured| (measured, samples))
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::tests::Fake;
    use super::*;
    use std::cell::Cell;

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
    fn every_policy_is_read_until_what_is_measured_is_over() {
        let fake = Fake::new("sampler");
        let policies = sysfs::policies(&fake.0).unwrap();
        let measure = || {
            std::thread::sleep(Duration::from_millis(60));
            Ok("measured")
        };
        let ticks = Cell::new(0);
        let tick = |_| ticks.set(ticks.get() + 1);
        let interval = Duration::from_millis(5);
        let (measured, samples) = sample_beside(measure, &policies, interval, tick).unwrap();
        assert_eq!(measured, "measured");
        assert!(ticks.get() > samples.len() / 2, "once more than it read");
        assert!(
            samples.len() >= 4 && samples.len().is_multiple_of(2),
            "{samples:?}"
        );
        assert!(samples.iter().all(|sample| sample.khz == Some(600_000)));
        assert_eq!(samples[1].policy, "policy4");
        let failed = || Err::<(), _>("nothing came out".to_owned());
        assert_eq!(
            sample_beside(failed, &policies, interval, |_| ()),
            Err("nothing came out".into())
        );
    }

    #[test]
    fn a_long_time_is_waited_for_in_steps() {
        let fake = Fake::new("steps");
        let policies = sysfs::policies(&fake.0).unwrap();
        let (mut waited, mut samples) = (Vec::new(), 0);
        let wait = |left| {
            waited.push(left);
            waited.len() < 4
        };
        sample_while(
            &policies,
            |number| STEP * 9 * number,
            wait,
            |_| samples += 1,
        );
        assert_eq!(waited, [Duration::ZERO, STEP, STEP, STEP]);
        assert_eq!(samples, policies.len(), "only the first was due");
    }
}
