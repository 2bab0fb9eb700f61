//! What is compared, and in which order it is measured.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::config::Options;
use super::sleep::{Call, Sleeper, Slept};
use crate::histogram::{Corrected, Counts, Latencies};
use crate::idle::{Residency, States};
use crate::interrupt;
use crate::neighbours::Neighbours;
use crate::order::interleaved;
use crate::progress::Progress;
use crate::settle::Settle;

/// What every thread has that asks for nothing, and the least that there is.
const SLACKS_NS: [u64; 2] = [50_000, 1];
/// Each condition is measured in so many pieces, in turns with the others.
const ROUNDS: usize = 10;
/// A warm-up is no longer than this, whether the median has settled or not.
const WARMUP_MOST: Duration = Duration::from_secs(2);

/// One kind of sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// For how long.
    pub interval: Duration,
    /// By what.
    pub call: Call,
    /// The timer slack asked for.
    pub slack_ns: u64,
    /// Busy processes beside it.
    pub load: usize,
}

/// What was measured of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    /// Of which.
    pub condition: Condition,
    /// Whether each sleep began when the one before was over.
    pub relative: bool,
    /// How late the wakes were.
    pub lateness: Latencies,
    /// The same, each by itself, in nanoseconds.
    pub values: Vec<f64>,
    /// The threads that slept; the last of them.
    pub tid: i32,
    /// The slack that they had.
    pub slack_ns: u64,
    /// What the CPU did meanwhile, where there is one that they are kept on.
    pub idle: Vec<Residency>,
    elapsed_us: u64,
}

/// How the warm-up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmup {
    /// Sleeps that do not count.
    pub sleeps: usize,
    /// Whether their median had settled by then.
    pub settled: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// In the order in which they are shown.
    pub series: Vec<Series>,
    /// Before it.
    pub warmup: Warmup,
}

impl Condition {
    /// In one word.
    pub fn tag(&self) -> String {
        let call = match self.call {
            Call::Nanosleep => "nanosleep",
            Call::Select => "select",
        };
        let us = self.interval.as_micros();
        let (slack, load) = (self.slack_ns, self.load);
        format!("{call}-{us}us-slack-{slack}ns-load-{load}")
    }
}

impl Series {
    fn new(condition: Condition, options: &Options) -> Self {
        Self {
            condition,
            relative: options.relative,
            lateness: Latencies::default(),
            values: Vec::with_capacity(options.loops),
            tid: 0,
            slack_ns: 0,
            idle: Vec::new(),
            elapsed_us: 0,
        }
    }

    /// What the histogram counts.
    pub fn counts(&self) -> Counts {
        if self.relative {
            Counts::Raw
        } else {
            Counts::FromIntendedStart
        }
    }

    /// With what it hides, where it hides something.
    pub fn corrected(&self) -> Option<Corrected> {
        self.relative
            .then(|| self.lateness.corrected(self.condition.interval))
    }

    fn add(&mut self, slept: &Slept, idle: Vec<Residency>, elapsed_us: u64) {
        (self.tid, self.slack_ns) = (slept.tid, slept.slack_ns);
        for late_ns in &slept.lateness_ns {
            self.lateness.record_ns(*late_ns);
            self.values.push(*late_ns as f64);
        }
        let whole = (self.elapsed_us + elapsed_us).max(1) as f64;
        if self.idle.is_empty() {
            self.idle = idle;
        } else {
            for (sum, more) in self.idle.iter_mut().zip(idle) {
                let time = sum.share * self.elapsed_us as f64 + more.share * elapsed_us as f64;
                sum.share = time / whole;
                sum.entries += more.entries;
            }
        }
        self.elapsed_us += elapsed_us;
    }
}

/// What is compared, in the order in which it is shown.
fn conditions(options: &Options) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let loads = if options.load > 0 {
        vec![0, options.load]
    } else {
        vec![0]
    };
    for load in loads {
        for interval in options.intervals() {
            let with = |call, slack_ns| Condition {
                interval,
                call,
                slack_ns,
                load,
            };
            conditions.extend(SLACKS_NS.map(|slack_ns| with(Call::Nanosleep, slack_ns)));
            if options.sweep {
                conditions.push(with(Call::Select, SLACKS_NS[0]));
            }
        }
    }
    conditions
}

/// Measures everything, or what there is time for until Ctrl-C.
///
/// # Errors
/// When the kernel refuses what was asked for.
pub fn measure(options: &Options) -> Result<Measured, String> {
    let conditions = conditions(options);
    let pieces: Vec<usize> = pieces(options.loops);
    let once: Duration = conditions.iter().map(|c| c.interval).sum();
    let expected = once * options.loops as u32;
    let quiet = options.json || options.cyclictest;
    let mut progress = Progress::new(expected, quiet);
    progress.say("warm-up".into());
    let warmup = warm_up(&conditions[0], options, expected)?;
    let mut series: Vec<Series> = conditions
        .iter()
        .map(|c| Series::new(*c, options))
        .collect();
    let mut busy: Option<Neighbours> = None;
    let numbers: Vec<usize> = (0..series.len()).collect();
    for (round, number) in interleaved(&numbers, pieces.len()) {
        if interrupt::happened() {
            break;
        }
        let condition = series[number].condition;
        let running = busy.as_ref().map_or(0, |busy| busy.pids().len());
        if running != condition.load {
            busy = start_load(condition.load)?;
        }
        progress.say(condition.tag());
        let before = idle_states(options);
        let begun = Instant::now();
        let loops = pieces[round];
        let sleeper = sleeper(&condition, options);
        let slept = in_thread(&progress, move || sleeper.run(loops, |n, _| n >= loops))?;
        let elapsed_us = begun.elapsed().as_micros() as u64;
        let idle = idle_states(options).since(&before, elapsed_us);
        series[number].add(&slept, idle, elapsed_us);
        progress.finish_run(condition.interval * loops as u32);
    }
    progress.clear();
    Ok(Measured { series, warmup })
}

/// How many sleeps there are in each round.
fn pieces(loops: usize) -> Vec<usize> {
    let rounds = loops.min(ROUNDS);
    (0..rounds)
        .map(|round| loops / rounds + usize::from(round < loops % rounds))
        .collect()
}

fn sleeper(condition: &Condition, options: &Options) -> Sleeper {
    Sleeper {
        interval: condition.interval,
        call: condition.call,
        slack_ns: condition.slack_ns,
        relative: options.relative,
        policy: options.policy,
        priority: options.priority,
        cpu: options.pinned_to(),
    }
}

/// At most a tenth of what is then measured.
fn warm_up(condition: &Condition, options: &Options, expected: Duration) -> Result<Warmup, String> {
    let most = (expected / 10).min(WARMUP_MOST);
    let sleeper = sleeper(condition, options);
    let mut settle = Settle::new(5, 0.1);
    let until = Instant::now() + most;
    std::thread::spawn(move || {
        let slept = sleeper.run(0, |_, late_ns| {
            settle.feed(late_ns as f64) || Instant::now() >= until
        })?;
        Ok(Warmup {
            sleeps: slept.lateness_ns.len(),
            settled: settle.is_settled(),
        })
    })
    .join()
    .map_err(|_| "the thread that warms up ended early".to_owned())?
}

/// They are given a moment to be spread over the CPUs.
fn start_load(count: usize) -> Result<Option<Neighbours>, String> {
    if count == 0 {
        return Ok(None);
    }
    let busy = Neighbours::own(count)?;
    std::thread::sleep(Duration::from_millis(50));
    Ok(Some(busy))
}

fn idle_states(options: &Options) -> States {
    options.pinned_to().map(States::read).unwrap_or_default()
}

/// Policy, slack and CPU stay with the thread that took them: so each piece has one of its own.
fn in_thread(
    progress: &Progress,
    run: impl FnOnce() -> Result<Slept, String> + Send + 'static,
) -> Result<Slept, String> {
    let (sender, receiver) = channel();
    let begun = Instant::now();
    std::thread::Builder::new()
        .name("jitter".into())
        .spawn(move || sender.send(run()))
        .map_err(|error| format!("no thread to measure in: {error}"))?;
    loop {
        match receiver.recv_timeout(Duration::from_millis(250)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => progress.tick(begun.elapsed()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the thread that measures ended early".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(line: &str) -> Options {
        Options::parse_from(std::iter::once("jitter").chain(line.split_whitespace()))
    }

    #[test]
    fn pieces_make_up_the_whole() {
        for loops in [1, 7, 10, 103] {
            let pieces = pieces(loops);
            assert_eq!(pieces.iter().sum::<usize>(), loops);
            assert!(pieces.len() <= ROUNDS && !pieces.contains(&0));
        }
    }

    #[test]
    fn slacks_and_loads_are_compared_and_a_sweep_has_both_calls() {
        let tags = |line| {
            conditions(&options(line))
                .iter()
                .map(Condition::tag)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            tags("5"),
            [
                "nanosleep-5000us-slack-50000ns-load-0",
                "nanosleep-5000us-slack-1ns-load-0"
            ]
        );
        assert_eq!(tags("5 --load 3").len(), 4);
        let sweep = tags("5 --sweep");
        assert_eq!(sweep.len(), 15);
        assert_eq!(sweep[14], "select-50000us-slack-50000ns-load-0");
    }

    #[test]
    fn idle_shares_are_weighted_by_time() {
        let options = options("5");
        let mut series = Series::new(conditions(&options)[0], &options);
        let idle = |share, entries| {
            vec![Residency {
                name: "C1".into(),
                latency_us: 2,
                share,
                entries,
            }]
        };
        series.add(&Slept::default(), idle(1.0, 5), 100);
        series.add(&Slept::default(), idle(0.0, 2), 300);
        assert_eq!((series.idle[0].share, series.idle[0].entries), (0.25, 7));
    }
}
