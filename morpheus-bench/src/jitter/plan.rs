//! The series that are compared, and the order in which they are measured.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use morpheus_harness::histogram::{FROM_INTENDED_START, Latencies, RAW};
use morpheus_harness::idle::{Residency, States};
use morpheus_harness::interrupt;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::rounds;
use morpheus_harness::settle::Settle;

use super::config::Options;
use super::sleep::{Call, Sleeper, Slept};
use crate::neighbours::Neighbours;

/// The default timer slack of a thread, and the least.
const SLACKS_NS: [u64; 2] = [50_000, 1];
/// Each kind is measured in this many pieces, in turns with the others.
const ROUNDS: usize = 10;
/// A warm-up is no longer than this, whether the median has settled or not.
const WARMUP_MOST: Duration = Duration::from_secs(2);

/// One kind of sleep, and what was measured of it.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// How the threads sleep.
    pub sleeper: Sleeper,
    /// Busy processes beside them.
    pub load: usize,
    /// How late the wakes were.
    pub lateness: Latencies,
    /// The same, each by itself, in nanoseconds.
    pub values: Vec<f64>,
    /// The last of the threads that slept.
    pub tid: i32,
    /// The slack that they had.
    pub slack_ns: u64,
    /// The CPU's use of its idle states meanwhile, where the threads are kept on one CPU.
    pub idle: Vec<Residency>,
    elapsed_us: u64,
}

impl Series {
    /// Nothing was measured yet.
    pub fn new(sleeper: Sleeper, load: usize) -> Self {
        Self {
            sleeper,
            load,
            ..Self::default()
        }
    }

    /// In one word.
    pub fn tag(&self) -> String {
        let call = match self.sleeper.call {
            Call::Nanosleep => "nanosleep",
            Call::Select => "select",
        };
        let us = self.sleeper.interval.as_micros();
        let (slack, load) = (self.sleeper.slack_ns, self.load);
        format!("{call}-{us}us-slack-{slack}ns-load-{load}")
    }

    /// The time from which the histogram's latencies count.
    pub fn counts(&self) -> &'static str {
        match self.sleeper.relative {
            true => RAW,
            false => FROM_INTENDED_START,
        }
    }

    /// With what it hides, where it hides something.
    pub fn corrected(&self) -> Option<Latencies> {
        let corrected = || self.lateness.corrected(self.sleeper.interval);
        self.sleeper.relative.then(corrected)
    }

    /// Adds a piece.
    pub fn add(&mut self, slept: &Slept, idle: Vec<Residency>, elapsed_us: u64) {
        (self.tid, self.slack_ns) = (slept.tid, slept.slack_ns);
        for late_ns in &slept.lateness_ns {
            self.lateness.record_ns(*late_ns);
            self.values.push(*late_ns as f64);
        }
        self.elapsed_us += elapsed_us;
        if self.idle.is_empty() {
            self.idle = idle;
            return;
        }
        let weight = elapsed_us as f64 / self.elapsed_us.max(1) as f64;
        for (sum, more) in self.idle.iter_mut().zip(idle) {
            sum.share += (more.share - sum.share) * weight;
            sum.entries += more.entries;
        }
    }
}

/// The series that are compared, in the order in which they are shown.
fn series(options: &Options) -> Vec<Series> {
    let mut series = Vec::new();
    let with_load = Some(options.load).filter(|load| *load > 0);
    let select = options.sweep.then_some((Call::Select, SLACKS_NS[0]));
    for load in std::iter::once(0).chain(with_load) {
        for interval in options.intervals() {
            let kinds = SLACKS_NS.map(|slack_ns| (Call::Nanosleep, slack_ns));
            for (call, slack_ns) in kinds.into_iter().chain(select) {
                let sleeper = Sleeper {
                    interval,
                    call,
                    slack_ns,
                    relative: options.relative,
                    policy: options.policy,
                    priority: options.priority,
                    cpu: options.cpu,
                };
                series.push(Series::new(sleeper, load));
            }
        }
    }
    series
}

/// Measures everything, or what there is time for until Ctrl-C. Beside it, how the warm-up ended.
///
/// # Errors
/// When the kernel refuses what was asked for.
pub fn measure(options: &Options) -> Result<(Vec<Series>, String), String> {
    let mut all = series(options);
    let pieces = pieces(options.loops);
    let once: Duration = all.iter().map(|series| series.sleeper.interval).sum();
    let expected = once * options.loops as u32;
    let mut progress = Progress::new(expected, options.json || options.cyclictest);
    progress.say("warm-up".into());
    let warmup = warm_up(all[0].sleeper, (expected / 10).min(WARMUP_MOST))?;
    let mut busy = Neighbours::default();
    for place in interrupt::until(rounds::in_turns(all.len(), pieces.len())) {
        let (series, loops) = (&mut all[place.contender], pieces[place.round]);
        let sleeper = series.sleeper;
        if busy.pids().len() != series.load {
            busy = Neighbours::own(series.load)?;
            // They are given a moment to be spread over the CPUs.
            std::thread::sleep(Duration::from_millis(50));
        }
        progress.say(series.tag());
        let states = || sleeper.cpu.map(States::read).unwrap_or_default();
        let before = states();
        let begun = Instant::now();
        let slept = in_thread(&progress, move || sleeper.run(loops, |n, _| n >= loops))?;
        let elapsed_us = begun.elapsed().as_micros() as u64;
        series.add(&slept, states().since(&before, elapsed_us), elapsed_us);
        progress.finish_run(sleeper.interval * loops as u32);
    }
    progress.clear();
    Ok((all, warmup))
}

/// How many sleeps there are in each round.
fn pieces(loops: usize) -> Vec<usize> {
    let rounds = loops.min(ROUNDS);
    (0..rounds)
        .map(|round| loops / rounds + usize::from(round < loops % rounds))
        .collect()
}

fn warm_up(sleeper: Sleeper, most: Duration) -> Result<String, String> {
    let mut settle = Settle::new(5, 0.1);
    let until = Instant::now() + most;
    std::thread::spawn(move || {
        let slept = sleeper.run(0, |_, late_ns| {
            settle.feed(late_ns as f64) || Instant::now() >= until
        })?;
        let settled = match settle.is_settled() {
            true => "settled",
            false => "not settled",
        };
        let sleeps = slept.lateness_ns.len();
        Ok(format!("Warm-up: {sleeps} sleeps ({settled})."))
    })
    .join()
    .map_err(|_| "the thread that warms up ended early".to_owned())?
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
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    pub fn options(line: &str) -> Options {
        let words = std::iter::once("jitter").chain(line.split_whitespace());
        Options::parse_from(words).checked().unwrap()
    }

    /// The series that options ask for, with a hundred wakes of each kind that are late by what `us` makes of its interval and slack.
    pub fn measured(line: &str, us: impl Fn(&Sleeper) -> f64) -> Vec<Series> {
        let mut all = series(&options(line));
        for series in &mut all {
            let from = us(&series.sleeper) * 1e3;
            let slept = Slept {
                lateness_ns: (0..100).map(|i| from as u64 + i).collect(),
                slack_ns: series.sleeper.slack_ns,
                tid: 7,
            };
            series.add(&slept, Vec::new(), 1);
        }
        all
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
            let all = series(&options(line));
            all.iter().map(Series::tag).collect::<Vec<_>>()
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
        let mut series = series(&options("5")).remove(0);
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
