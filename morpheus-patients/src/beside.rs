//! The cost of another program to a service: windows of its load alone and beside the program, in alternation.
//!
//! Each pair is three windows: alone, beside the program, and alone again. The ratio is that of the middle one to the mean of the
//! others, so that a steady drift of the machine is none of it; the ratio of the two outer ones is the machine's noise.
//!
//! On a virtual machine the host takes CPU time away, more in one window than in another. So the figures are told twice: of all pairs, and of
//! the calm ones.

use std::cell::Cell;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use morpheus_system::steal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// One window of load.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Requests per second.
    pub rate: f64,
    /// The 99th percentile of their latencies, in nanoseconds.
    pub p99_ns: f64,
}

/// The program that is run beside the service, and how often.
#[derive(Clone, Debug)]
pub struct Beside {
    /// A shell command; ` --pid PID` is added.
    pub command: String,
    /// The process it is run for.
    pub pid: u32,
    /// How many pairs.
    pub pairs: u32,
    /// How long a window is.
    pub window: Duration,
    /// How long the program runs before its window begins.
    pub settle: Duration,
}

/// The most that the host takes away in a window of a calm pair, in nanoseconds: a tick, the least that the kernel tells.
const CALM_NS: u64 = 10_000_000;

/// Three windows, and what the program itself computed in the one beside it.
struct Pair {
    before: Window,
    with: Window,
    after: Window,
    cpu: f64,
    is_calm: bool,
}

impl Beside {
    /// Takes the pairs; `window` measures the load for a time. Each pair is told on standard error as it ends.
    ///
    /// # Errors
    /// The program does not start, or ends before its window does.
    pub async fn measure<W, F>(&self, program: &str, mut window: W) -> io::Result<Value>
    where
        W: FnMut(Duration) -> F,
        F: Future<Output = Window>,
    {
        let mut pairs = Vec::new();
        // The most that the host took in one of the windows of a pair.
        let most_stolen_ns = Cell::new(0);
        let mut window = async |length: Duration| {
            let before_ns = steal::stolen_ns().unwrap_or(0);
            let window = window(length).await;
            let stolen_ns = steal::stolen_ns().unwrap_or(0).saturating_sub(before_ns);
            most_stolen_ns.set(most_stolen_ns.get().max(stolen_ns));
            window
        };
        for number in 1..=self.pairs {
            most_stolen_ns.set(0);
            let before = window(self.window).await;
            let mut other = Other::start(&self.command, self.pid)?;
            tokio::time::sleep(self.settle).await;
            let (began, cpu) = (Instant::now(), other.cpu()?);
            let with = window(self.window).await;
            let cpu = (other.cpu()? - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
            drop(other);
            tokio::time::sleep(Duration::from_millis(200)).await;
            let after = window(self.window).await;
            let pair = Pair {
                before,
                with,
                after,
                cpu,
                is_calm: most_stolen_ns.get() <= CALM_NS,
            };
            eprintln!(
                "{program}: pair {number} of {}: rate {:.3} times that alone{}",
                self.pairs,
                pair.rate(),
                if pair.is_calm { "" } else { ", not calm" }
            );
            pairs.push(pair);
        }
        let calm: Vec<&Pair> = pairs.iter().filter(|pair| pair.is_calm).collect();
        Ok(json!({
            "command": self.command,
            "window_s": self.window.as_secs_f64(),
            "rate_alone": median(pairs.iter().map(|pair| pair.before.rate).collect()),
            "cpus": spread(pairs.iter().map(|pair| pair.cpu).collect()),
            "all_pairs": ratios(&pairs.iter().collect::<Vec<_>>()),
            "calm_pairs": ratios(&calm),
        }))
    }
}

/// The cost of the program, and the noise beside it.
fn ratios(pairs: &[&Pair]) -> Value {
    let of = |figure: fn(&Pair) -> f64| spread(pairs.iter().map(|pair| figure(pair)).collect());
    json!({
        "pairs": pairs.len(),
        "rate_ratio": of(Pair::rate),
        "rate_noise": of(|pair| pair.after.rate / pair.before.rate),
        "p99_ratio": of(Pair::p99),
        "p99_noise": of(|pair| pair.after.p99_ns / pair.before.p99_ns),
    })
}

impl Pair {
    fn rate(&self) -> f64 {
        2.0 * self.with.rate / (self.before.rate + self.after.rate)
    }

    fn p99(&self) -> f64 {
        2.0 * self.with.p99_ns / (self.before.p99_ns + self.after.p99_ns)
    }
}

/// How long the other program has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(3);

/// The other program. When this is dropped it is asked to end, made to end after [`GRACE`], and has ended.
struct Other(Child);

impl Other {
    fn start(command: &str, pid: u32) -> io::Result<Other> {
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command} --pid {pid}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Other(child))
    }

    /// The CPU time of its threads.
    fn cpu(&mut self) -> io::Result<Duration> {
        if let Some(status) = self.0.try_wait()? {
            return Err(io::Error::other(format!(
                "the other program ended too soon: {status}"
            )));
        }
        let mut total = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            // A thread may have ended.
            let text =
                std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            let ns = text.split(' ').next().and_then(|word| word.parse().ok());
            total += Duration::from_nanos(ns.unwrap_or(0));
        }
        Ok(total)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Its number is its own as long as it was not waited for.
            let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        }
        // A shell's background job ignores SIGINT, and so do the programs it starts.
        let deadline = Instant::now() + GRACE;
        while let Ok(None) = self.0.try_wait() {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (lower, upper) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match values.is_empty() {
        true => 0.0,
        false => (values[lower] + values[upper]) / 2.0,
    }
}

/// The median, and an interval that contains the true one in 95 of 100 runs: the ranks of the normal approximation to the sign test.
fn spread(mut values: Vec<f64>) -> Value {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let rank = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt())
        .floor()
        .max(0.0) as usize;
    json!({
        "median": median(values.clone()),
        "low": values.get(rank),
        "high": values.get(count.wrapping_sub(rank + 1)),
        "values": values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_ranks() {
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        let spread = spread((1..=20).map(f64::from).collect());
        // Of 20 values the 6th and the 15th have 95.9 %.
        assert_eq!(
            (spread["low"].as_f64(), spread["high"].as_f64()),
            (Some(6.0), Some(15.0))
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let other = Other::start("sh -c 'trap \"\" INT; exec sleep 600' #", 1).unwrap();
        // It has to run for the signal to be ignored.
        std::thread::sleep(Duration::from_millis(300));
        let (pid, began) = (other.0.id(), Instant::now());
        drop(other);
        assert!(began.elapsed() >= GRACE, "it has ended at the signal");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_steady_drift_is_no_cost() {
        let window = |rate| Window { rate, p99_ns: rate };
        let pair = Pair {
            before: window(100.0),
            with: window(90.0),
            after: window(80.0),
            cpu: 0.0,
            is_calm: true,
        };
        assert!((pair.rate() - 1.0).abs() < 1e-9 && (pair.p99() - 1.0).abs() < 1e-9);
    }
}
