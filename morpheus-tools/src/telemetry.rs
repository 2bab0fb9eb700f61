//! The changes between two readings: rates in place of totals, and the line that `--stats` and `--monitor` print.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::histogram::{BUCKETS, all_since, bucket_bounds_ns};
use crate::reading::{Reading, TIERS, WakeHistogram};

const NS_PER_US: u64 = 1_000;
/// The shortest time that two readings are told apart by: a division by less would say nothing.
const LEAST_SECONDS: f64 = 1e-3;
/// The counters of actions on stalled workers, and of those for workers that serve; printed where they grow.
const FOR_WORKERS: [&str; 9] = [
    "events",
    "events_lost",
    "requests",
    "hogs_marked",
    "demotions",
    "throttles",
    "extensions",
    "extensions_outlived",
    "loans",
];

/// A time that was read off a histogram, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Right to its bucket, which is at most a factor of two wide.
    pub us: f64,
    /// It is in the last bucket, which has no end: it may be any longer.
    pub or_more: bool,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = if self.or_more { "≥ " } else { "" };
        match self.us {
            us if us < 10.0 => write!(f, "{more}{us:.1} µs"),
            us if us < 1e3 => write!(f, "{more}{us:.0} µs"),
            us if us < 1e4 => write!(f, "{more}{:.1} ms", us / 1e3),
            us => write!(f, "{more}{:.0} ms", us / 1e3),
        }
    }
}

/// Where bucket `index` begins, in microseconds.
#[must_use]
pub fn bucket_start_us(index: usize) -> u64 {
    bucket_bounds_ns(index).0 / NS_PER_US
}

/// Where it ends; `None` is never.
#[must_use]
pub fn bucket_end_us(index: usize) -> Option<u64> {
    bucket_bounds_ns(index).1.map(|end_ns| end_ns / NS_PER_US)
}

/// The latency that the part `share` of all wakeups stays within: 0.99 for the 99th percentile. Within a bucket they are
/// taken to be spread evenly. `None` where there are no wakeups.
#[must_use]
pub fn quantile(histogram: &WakeHistogram, share: f64) -> Option<Latency> {
    let all: f64 = histogram.iter().map(|count| *count as f64).sum();
    if all == 0.0 {
        return None;
    }
    let wanted = all * share.clamp(0.0, 1.0);
    let mut below = 0.0;
    for (index, count) in histogram.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let start = bucket_start_us(index) as f64;
            let within = (wanted - below) / count;
            return Some(match bucket_end_us(index) {
                Some(end) => Latency {
                    us: start + (end as f64 - start) * within,
                    or_more: false,
                },
                None => Latency {
                    us: start,
                    or_more: true,
                },
            });
        }
        below += count;
    }
    // Rounding may leave the last ones a hair short of all.
    let last = histogram.iter().rposition(|count| *count > 0)?;
    Some(Latency {
        us: bucket_end_us(last).unwrap_or(bucket_start_us(last)) as f64,
        or_more: last + 1 == BUCKETS,
    })
}

/// About the mean latency: each wakeup counts as the middle of its bucket, and in the last one as its beginning.
#[must_use]
pub fn mean(histogram: &WakeHistogram) -> Option<Latency> {
    let all: f64 = histogram.iter().map(|count| *count as f64).sum();
    (all > 0.0).then(|| Latency {
        us: sum_us(histogram) / all,
        or_more: histogram[BUCKETS - 1] > 0,
    })
}

/// All latencies added up, with the same reservation as [`mean`]; in microseconds.
#[must_use]
pub fn sum_us(histogram: &WakeHistogram) -> f64 {
    histogram
        .iter()
        .enumerate()
        .map(|(index, count)| {
            let start = bucket_start_us(index);
            let end = bucket_end_us(index).unwrap_or(start);
            *count as f64 * (start + end) as f64 / 2.0
        })
        .sum()
}

/// The changes between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// How often in a second, by the counter's name.
    pub per_second: BTreeMap<String, f64>,
    /// The wakeups in between, in the order of [`TIERS`].
    pub wake: [Option<WakeHistogram>; TIERS.len()],
    /// Which part of the sleeps was for input or output, from 0 to 1.
    pub sleeps_for_io: Option<f64>,
    /// How far the readings are apart; 0 only where there are none.
    pub seconds: f64,
}

impl Rates {
    /// From an earlier reading and a later one, `elapsed` apart. A daemon that was started anew in between counts from 0.
    #[must_use]
    pub fn between(before: &Reading, now: &Reading, elapsed: Duration) -> Rates {
        let seconds = elapsed.as_secs_f64().max(LEAST_SECONDS);
        let per_second = now
            .counters
            .iter()
            .map(|(name, count)| {
                let more = since(before.counter(name).unwrap_or(0), *count);
                (name.clone(), more as f64 / seconds)
            })
            .collect();
        let mut wake = now.wake;
        for (now, before) in wake.iter_mut().zip(&before.wake) {
            if let (Some(now), Some(before)) = (now, before) {
                *now = all_since(before, now);
            }
        }
        let sleeps = now
            .sleeps
            .map(|now| all_since(&before.sleeps.unwrap_or_default(), &now));
        Rates {
            per_second,
            wake,
            sleeps_for_io: sleeps.and_then(|[io, others @ ..]| {
                let others: f64 = others.iter().map(|count| *count as f64).sum();
                share(io as f64, others)
            }),
            seconds,
        }
    }

    /// How often in a second; `None` where the daemon does not count it.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<f64> {
        self.per_second.get(name).copied()
    }

    /// Wakeups of a tier in a second, by its index in [`TIERS`].
    #[must_use]
    pub fn wakeups(&self, tier: usize) -> Option<f64> {
        let histogram = self.wake.get(tier)?.as_ref()?;
        let all: f64 = histogram.iter().map(|count| *count as f64).sum();
        Some(all / self.seconds)
    }

    /// The sum of those whose names begin so, where there are any.
    #[must_use]
    pub fn all_of(&self, prefix: &str) -> Option<f64> {
        self.starting_with(prefix)
            .map(|(_, rate)| rate)
            .reduce(|sum, rate| sum + rate)
    }

    /// Those whose names begin so, without that beginning.
    pub fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.per_second
            .iter()
            .filter_map(move |(name, rate)| Some((name.strip_prefix(prefix)?, *rate)))
    }

    /// How often a CPU was given a task: from a queue, or past all queues.
    #[must_use]
    pub fn dispatches(&self) -> Option<f64> {
        let past_queues = ["to_idle_cpu", "to_local", "to_next"]
            .into_iter()
            .filter_map(|name| self.of(name))
            .sum::<f64>();
        self.picks().map(|picks| picks + past_queues)
    }

    /// How often a CPU took a task from a queue.
    fn picks(&self) -> Option<f64> {
        // Each pick for this reason is counted by its queue as well; and who may go on after its group had spent its quota
        // goes to a queue first.
        let no_picks = ["from_overflow_rescue", "from_limited"]
            .into_iter()
            .filter_map(|name| self.of(name))
            .sum::<f64>();
        self.all_of("from_").map(|taken| taken - no_picks)
    }

    /// How many locks of queues a CPU took for each task that it took from one.
    #[must_use]
    pub fn locks_per_pick(&self) -> Option<f64> {
        let locks = self.all_of("locks_to_")?;
        let picks = self.picks().filter(|picks| *picks > 0.0)?;
        Some(locks / picks)
    }

    /// Kicks that take the CPU away.
    #[must_use]
    pub fn hard_kicks(&self) -> Option<f64> {
        let takes_none = |name: &str| name.starts_with("skipped") || name == "idle";
        self.starting_with("kicks_")
            .filter(|(name, _)| !takes_none(name))
            .map(|(_, rate)| rate)
            .reduce(|sum, rate| sum + rate)
    }

    /// Kicks that only wake a CPU up.
    #[must_use]
    pub fn soft_kicks(&self) -> Option<f64> {
        [self.of("near_waits_over"), self.of("kicks_idle")]
            .into_iter()
            .flatten()
            .reduce(|sum, rate| sum + rate)
    }

    /// How often in a second a task was found that had waited for too long.
    #[must_use]
    pub fn rescues(&self) -> Option<f64> {
        self.per_second
            .iter()
            .filter(|(name, _)| *name == "rescues" || name.ends_with("_rescue"))
            .map(|(_, rate)| *rate)
            .reduce(|sum, rate| sum + rate)
    }

    /// Which part of a tier's wakeups was placed beside the cache that the task had used, from 0 to 1.
    #[must_use]
    pub fn l2_hits(&self, tier: &str) -> Option<f64> {
        share(
            self.of(&format!("l2_hits_{tier}"))?,
            self.of(&format!("l2_misses_{tier}"))?,
        )
    }
}

/// A counter that went down has begun anew.
fn since(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn share(part: f64, rest: f64) -> Option<f64> {
    (part + rest > 0.0).then(|| part / (part + rest))
}

/// A rate in a few characters: rare ones keep a digit behind the point.
#[must_use]
pub fn rate_text(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 0.05 => "<0.1".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// "[HEAVY BURST]"; nothing where the daemon knows no regimes.
#[must_use]
pub fn regime_text(reading: &Reading) -> Option<String> {
    let mut words = Vec::from_iter(reading.regime.as_ref().map(|regime| regime.to_uppercase()));
    if reading.burst == Some(true) {
        words.push("BURST".to_owned());
    }
    if reading.longrun == Some(true) {
        words.push("LONGRUN".to_owned());
    }
    (!words.is_empty()).then(|| format!("[{}]", words.join(" ")))
}

/// The line for one interval: who is connected now, and what happened in it, per second. Numbers that the daemon does not give are left
/// out.
#[must_use]
pub fn line(now: &Reading, rates: &Rates) -> String {
    let mut parts = vec![format!(
        "processes {}, workers {}, refused {}",
        now.processes.unwrap_or(0),
        now.workers.unwrap_or(0),
        now.refused.unwrap_or(0)
    )];
    // The scheduler's counters stay 0 there.
    if !now.observes() {
        parts.extend(scheduling(now, rates));
    }
    parts.extend(list(
        "workers",
        FOR_WORKERS
            .into_iter()
            .filter_map(|name| Some((name, rates.of(name)?))),
    ));
    parts.extend(regime_text(now));
    parts.join("; ")
}

/// The activity of a scheduler, as parts of the line.
fn scheduling(now: &Reading, rates: &Rates) -> impl Iterator<Item = String> {
    let per_second = |what: &str, rate: Option<f64>| -> Option<String> {
        rate.map(|rate| format!("{what} {}/s", rate_text(rate)))
    };
    [
        per_second("dispatches", rates.dispatches()),
        now.idle_share
            .map(|share| format!("idle {:.0} %", share * 100.0)),
        wake_text(rates),
        list("to", rates.starting_with("to_")),
        list("from", rates.starting_with("from_")),
        rates
            .locks_per_pick()
            .map(|locks| format!("locks per pick {locks:.2}")),
        per_second("kept", rates.of("kept")),
        per_second("preempted at tick", rates.of("preempted_at_tick")),
        per_second("kicks hard", rates.hard_kicks()),
        per_second("kicks soft", rates.soft_kicks()),
        per_second("wakeups", rates.of("wakeups")),
        per_second("enqueued again", rates.of("enqueues_again")),
        l2_text(rates),
        now.procdb
            .map(|profiles| format!("procdb {}/{}", profiles.known, profiles.confident)),
        rates
            .sleeps_for_io
            .map(|share| format!("sleeps for io {:.0} %", share * 100.0)),
        sojourn_text(now),
        per_second("rescues", rates.rescues()),
    ]
    .into_iter()
    .flatten()
}

/// Those that happened, the most frequent one first.
fn list<'a>(what: &str, rates: impl Iterator<Item = (&'a str, f64)>) -> Option<String> {
    let mut rates: Vec<_> = rates.filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    let mut text = String::new();
    for (name, rate) in rates {
        let separator = if text.is_empty() { ":" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{separator} {} {}/s",
            name.replace('_', " "),
            rate_text(rate)
        );
    }
    (!text.is_empty()).then(|| format!("{what}{text}"))
}

fn wake_text(rates: &Rates) -> Option<String> {
    let tiers: Vec<String> = TIERS
        .into_iter()
        .zip(&rates.wake)
        .filter_map(|(tier, histogram)| {
            let histogram = histogram.as_ref()?;
            Some(format!(
                "{} {} p99 {}",
                tier.replace('_', " "),
                mean(histogram)?,
                quantile(histogram, 0.99)?
            ))
        })
        .collect();
    (!tiers.is_empty()).then(|| format!("wake: {}", tiers.join(", ")))
}

fn l2_text(rates: &Rates) -> Option<String> {
    let tiers: Vec<String> = TIERS
        .into_iter()
        .filter_map(|tier| {
            let hits = rates.l2_hits(tier)?;
            Some(format!("{} {:.0} %", tier.replace('_', " "), hits * 100.0))
        })
        .collect();
    (!tiers.is_empty()).then(|| format!("L2: {}", tiers.join(", ")))
}

/// How long batch work waits, and from when on it is helped.
fn sojourn_text(now: &Reading) -> Option<String> {
    let waits_ns = now.batch_waits_ns?;
    let ms = |ns: u64| ns as f64 / 1e6;
    Some(match now.knobs.get("sojourn_thresh_ns") {
        Some(threshold_ns) => {
            format!("sojourn {:.1}/{:.1} ms", ms(waits_ns), ms(*threshold_ns))
        }
        None => format!("sojourn {:.1} ms", ms(waits_ns)),
    })
}

#[cfg(test)]
#[path = "telemetry_tests.rs"]
mod tests;
