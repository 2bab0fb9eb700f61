//! The numbers that the daemon hands out at its second socket, as types.
//!
//! Read tolerantly: a daemon of another release, or an observer, has fewer fields or others, and a view leaves out what is not there. So a
//! field that is missing, or is not what it should be, is `None` or empty here, and never an error.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::histogram::BUCKETS;
use crate::tier::{self, Tier};

/// The tiers by their names, in the order of [`Tier::ALL`], the most urgent one first.
pub const TIERS: [&str; tier::TIERS] = [
    Tier::LatCritical.name(),
    Tier::Interactive.name(),
    Tier::Batch.name(),
];
/// Lengths of sleeps that are counted, shortest cause first.
pub const SLEEPS: [&str; 4] = ["io_wait", "short", "moderate", "idle"];

/// Wakeups by how long they took until the task ran, in the buckets of [`histogram`](crate::histogram).
pub type WakeHistogram = [u64; BUCKETS];

/// The process database's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// Programs that it knows.
    pub known: u64,
    /// Those of them that it knows well enough to predict their tier.
    pub confident: u64,
}

/// A connected process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// Its name, as it gave it to itself: it may hold anything.
    pub comm: String,
    /// Threads that are bound to slots.
    pub workers: u64,
    /// Those whose present poll is over its budget.
    pub stalled: Option<u64>,
    /// Those that have a tenth of their weight for the present poll.
    pub demoted: Option<u64>,
    /// Those that are capped for the present poll.
    pub throttled: Option<u64>,
}

/// The numbers of a daemon at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// "observer" or "scheduler".
    pub runs: Option<String>,
    /// Processes that have a lease.
    pub processes: Option<u64>,
    /// Threads that are bound.
    pub workers: Option<u64>,
    /// Refusals since the start.
    pub refused: Option<u64>,
    /// CPUs that are scheduled.
    pub cpus: Option<u64>,
    /// Since the start, by name.
    pub counters: BTreeMap<String, u64>,
    /// Since the start, in the order of [`TIERS`].
    pub wake: [Option<WakeHistogram>; TIERS.len()],
    /// Since the start, in the order of [`SLEEPS`].
    pub sleeps: Option<[u64; SLEEPS.len()]>,
    /// "light", "mixed" or "heavy".
    pub regime: Option<String>,
    /// A storm of wakeups or enqueues goes on.
    pub burst: Option<bool>,
    /// Batch work has gone on for long.
    pub longrun: Option<bool>,
    /// Knobs that are numbers, by name; the name ends in the unit.
    pub knobs: BTreeMap<String, u64>,
    /// Knobs that are words.
    pub modes: BTreeMap<String, String>,
    /// The longest that batch tasks went without service in the last second, in nanoseconds.
    pub batch_waits_ns: Option<u64>,
    /// The share of the CPUs' time that no task wanted, from 0 to 1.
    pub idle_share: Option<f64>,
    /// The process database.
    pub procdb: Option<Profiles>,
    /// The file where the daemon records its history.
    pub history: Option<String>,
    /// The connected processes; the daemon leaves some out where there are very many.
    pub connections: Vec<Process>,
}

impl Reading {
    /// Takes what is there.
    #[must_use]
    pub fn parse(numbers: &Value) -> Reading {
        let number = |name: &str| numbers[name].as_u64();
        let word = |name: &str| numbers[name].as_str().map(str::to_owned);
        let knobs = || numbers["knobs"].as_object().into_iter().flatten();
        Reading {
            runs: word("runs"),
            processes: number("processes"),
            workers: number("workers"),
            refused: number("refused"),
            cpus: number("cpus"),
            counters: numbers["counters"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)))
                .collect(),
            wake: TIERS.map(|tier| counts(&numbers["tiers"][tier]["wake_latency"])),
            sleeps: counts(&numbers["sleeps"]),
            regime: word("regime"),
            burst: numbers["burst"].as_bool(),
            longrun: numbers["longrun"].as_bool(),
            knobs: knobs()
                .filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)))
                .collect(),
            modes: knobs()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            batch_waits_ns: number("batch_waits_ns"),
            idle_share: numbers["idle_share"]
                .as_f64()
                .filter(|share| (0.0..=1.0).contains(share)),
            history: word("history"),
            procdb: profiles(&numbers["procdb"]),
            connections: numbers["connections"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(process)
                .collect(),
        }
    }

    /// Whether the daemon schedules nothing. It has the scheduler's counters, too, which stay 0.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.runs.as_deref() == Some("observer")
    }

    /// A counter; `None` where this daemon has none of this name.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }
}

/// Parses exactly `COUNT` numbers: others would mean something else.
fn counts<const COUNT: usize>(value: &Value) -> Option<[u64; COUNT]> {
    let counts: Vec<u64> = value
        .as_array()?
        .iter()
        .map(Value::as_u64)
        .collect::<Option<_>>()?;
    counts.try_into().ok()
}

fn profiles(value: &Value) -> Option<Profiles> {
    Some(Profiles {
        known: value["profiles"].as_u64()?,
        confident: value["confident"].as_u64()?,
    })
}

fn process(value: &Value) -> Option<Process> {
    Some(Process {
        pid: value["pid"].as_u64()?,
        comm: value["comm"].as_str().unwrap_or_default().to_owned(),
        workers: value["workers"].as_u64().unwrap_or(0),
        stalled: value["stalled"].as_u64(),
        demoted: value["demoted"].as_u64(),
        throttled: value["throttled"].as_u64(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_read() {
        let mut wake = [0u64; BUCKETS];
        wake[3] = 7;
        let reading = Reading::parse(&json!({
            "runs": "scheduler", "processes": 1, "workers": 2, "refused": 3, "cpus": 4,
            "counters": { "to_main": 5 },
            "tiers": { "interactive": { "wake_latency": wake } },
            "sleeps": [1, 2, 3, 4], "regime": "mixed", "history": "/x", "burst": true, "longrun": false,
            "knobs": { "slice_ns": 1_000_000, "affinity_mode": "weak" },
            "batch_waits_ns": 6, "idle_share": 0.25,
            "procdb": { "profiles": 42, "confident": 5 },
            "connections": [{ "pid": 9, "comm": "x", "workers": 2, "stalled": 1, "lease": 1 }],
        }));
        assert_eq!(reading.runs.as_deref(), Some("scheduler"));
        assert_eq!(reading.counter("to_main"), Some(5));
        assert_eq!(reading.counter("to_nowhere"), None);
        assert_eq!(reading.wake, [None, Some(wake), None]);
        assert_eq!(reading.sleeps, Some([1, 2, 3, 4]));
        assert_eq!(reading.history.as_deref(), Some("/x"));
        assert_eq!(reading.regime.as_deref(), Some("mixed"));
        assert_eq!((reading.burst, reading.longrun), (Some(true), Some(false)));
        assert_eq!(reading.knobs["slice_ns"], 1_000_000);
        assert_eq!(reading.modes["affinity_mode"], "weak");
        assert_eq!(reading.idle_share, Some(0.25));
        let profiles = Profiles {
            known: 42,
            confident: 5,
        };
        assert_eq!(reading.procdb, Some(profiles));
        assert_eq!(
            reading.connections,
            [Process {
                pid: 9,
                comm: "x".into(),
                workers: 2,
                stalled: Some(1),
                demoted: None,
                throttled: None,
            }]
        );
    }

    #[test]
    fn what_is_something_else_is_not_there() {
        for numbers in [
            Value::Null,
            json!([1, 2]),
            json!("x"),
            json!({
                "runs": 5, "processes": -1, "counters": [1], "tiers": { "batch": { "wake_latency": [1, 2] } },
                "sleeps": [1, 2, 3, -4], "regime": 1, "history": [], "burst": 1, "knobs": 7, "idle_share": 7.0,
                "procdb": { "profiles": 1 }, "connections": [{ "comm": "no number" }, 5],
            }),
        ] {
            assert_eq!(Reading::parse(&numbers), Reading::default(), "{numbers}");
        }
    }
}
