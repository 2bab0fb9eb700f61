//! `scx_morpheus probe`: how late a sleeping thread wakes up, whatever scheduler runs and with no daemon at all.
//!
//! It sleeps until a time on the clock, again and again, and looks how much later it is. The result is the sum of the timer's interrupt, of
//! the wait for a CPU, and of the way back into the program.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use serde_json::{Value, json};

/// Three digits are right, which is more than any two runs agree in.
const DIGITS: u8 = 3;
/// Longer than any thread is late; what is later yet counts as this.
const LATEST_NS: u64 = 3_600_000_000_000;

/// How long to look, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long.
    pub duration: Duration,
    /// How long each sleep is.
    pub period: Duration,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct Report {
    late_ns: Histogram<u64>,
    options: Options,
    /// The scheduler that ran meanwhile.
    scheduler: String,
}

/// Sleeps and looks, until the time is over or `stop` says so.
///
/// # Errors
///
/// When the clock cannot be slept on.
pub fn run(options: Options, mut stop: impl FnMut() -> bool) -> io::Result<Report> {
    let mut late_ns = Histogram::new_with_bounds(1, LATEST_NS, DIGITS).map_err(io::Error::other)?;
    let end = Instant::now() + options.duration;
    while Instant::now() < end && !stop() {
        let wanted_ns = now_ns().saturating_add(nanoseconds(options.period));
        sleep_until(wanted_ns)?;
        // Cut off at the bounds, and so never refused.
        late_ns.saturating_record(now_ns().saturating_sub(wanted_ns));
    }
    Ok(Report {
        late_ns,
        options,
        scheduler: scheduler(),
    })
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock begins at 0 and ends in 500 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn sleep_until(wanted_ns: u64) -> io::Result<()> {
    let until = Timespec {
        tv_sec: (wanted_ns / 1_000_000_000) as i64,
        tv_nsec: (wanted_ns % 1_000_000_000) as _,
    };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &until) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// By its name; the kernel's own one has none in use.
fn scheduler() -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/sys/kernel/sched_ext/{name}"));
    match (read("state"), read("root/ops")) {
        (Ok(state), Ok(name)) if state.trim() == "enabled" => name.trim().to_owned(),
        _ => "the kernel's own".to_owned(),
    }
}

impl Report {
    /// The latency that the part `share` of all wakeups stays within, in nanoseconds.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.late_ns.value_at_quantile(share)
    }

    /// How many wakeups there were.
    #[must_use]
    pub fn wakeups(&self) -> u64 {
        self.late_ns.len()
    }

    /// For a program.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "scheduler": self.scheduler,
            "period_us": self.options.period.as_secs_f64() * 1e6,
            "wakeups": self.wakeups(),
            "p50_us": us(self.quantile_ns(0.5)),
            "p99_us": us(self.quantile_ns(0.99)),
            "p999_us": us(self.quantile_ns(0.999)),
            "max_us": us(self.late_ns.max()),
            "mean_us": self.late_ns.mean() / 1e3,
        })
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// For people.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} wakeups, each from a sleep of {:?}, under {} scheduler",
            self.wakeups(),
            self.options.period,
            match self.scheduler.as_str() {
                "the kernel's own" => "the kernel's own".to_owned(),
                name => format!("the {name}"),
            }
        )?;
        if self.wakeups() == 0 {
            return Ok(());
        }
        writeln!(f, "late by            µs")?;
        let rows = [
            ("p50", self.quantile_ns(0.5)),
            ("p99", self.quantile_ns(0.99)),
            ("p99.9", self.quantile_ns(0.999)),
            ("max", self.late_ns.max()),
        ];
        for (name, ns) in rows {
            writeln!(f, "{name:<8} {:>12.1}", us(ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_as_often_as_it_can() {
        let options = Options {
            duration: Duration::from_millis(200),
            period: Duration::from_millis(1),
        };
        let report = run(options, || false).unwrap();
        assert!((1..=200).contains(&report.wakeups()), "{report}");
        let [p50, p99] = [0.5, 0.99].map(|share| report.quantile_ns(share));
        assert!(
            p50 > 0 && p50 <= p99 && p99 <= report.late_ns.max(),
            "{report}"
        );
        let json = report.json();
        assert_eq!(json["wakeups"], report.wakeups());
        assert!(json["p99_us"].as_f64().unwrap() >= json["p50_us"].as_f64().unwrap());
        assert!(report.to_string().contains("p99.9"), "{report}");
    }

    #[test]
    fn it_stops_when_it_is_told() {
        let options = Options {
            duration: Duration::from_secs(1000),
            period: Duration::from_micros(100),
        };
        let mut looks = 0;
        let report = run(options, || {
            looks += 1;
            looks > 3
        })
        .unwrap();
        assert_eq!(report.wakeups(), 3);
        let none = run(options, || true).unwrap();
        assert_eq!(none.wakeups(), 0);
        assert_eq!(none.to_string().lines().count(), 1);
        assert_eq!(none.json()["max_us"], 0.0);
    }
}
