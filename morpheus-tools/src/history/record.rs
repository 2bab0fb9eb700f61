//! The figures of one interval, and the bytes that they are on the disk.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the record's number, from 1 on; 0 is a slot that was never written |
//! | 8 | the end of the interval, in ms since 1970 (UTC) |
//! | 4 | its length in ms |
//! | 4 each | connected processes, bound workers |
//! | 4 each | [`Figure::ALL`], as floating-point numbers; NaN where the daemon does not tell it |
//! | | zeros |
//! | 4 | CRC-32 (IEEE) of all before |

use std::time::Duration;

use crate::reading::Reading;
use crate::telemetry::{Rates, quantile};

/// How many bytes a record is on the disk.
pub const RECORD_BYTES: usize = 128;
const FIGURES: usize = Figure::ALL.len();
const FIGURES_AT: usize = 28;
const CHECKSUM_AT: usize = RECORD_BYTES - 4;
const _: () = assert!(FIGURES_AT + 4 * FIGURES <= CHECKSUM_AT);

/// A figure that is recorded of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Figure {
    /// How often in a second a CPU was given a task.
    Dispatches = 0,
    /// Kicks in a second that take the CPU away.
    HardKicks,
    /// Kicks in a second that only wake a CPU up.
    SoftKicks,
    /// Wakeups in a second, of all tiers.
    Wakeups,
    /// The p99 from wakeup until it runs, in µs, right to a factor of two; 32,768 is that or more.
    LatCriticalP99,
    /// The same of INTERACTIVE.
    InteractiveP99,
    /// The same of BATCH.
    BatchP99,
    /// The longest that batch tasks went without service, in ms.
    LongestWait,
    /// Which part of the CPUs' time was idle, from 0 to 1.
    Idle,
    /// Tasks in a second that were found to have waited too long.
    Rescues,
    /// Requests in a second to workers whose poll is over its budget.
    Requests,
}

impl Figure {
    /// All of them, in the order in which they are on the disk.
    pub const ALL: [Figure; 11] = [
        Figure::Dispatches,
        Figure::HardKicks,
        Figure::SoftKicks,
        Figure::Wakeups,
        Figure::LatCriticalP99,
        Figure::InteractiveP99,
        Figure::BatchP99,
        Figure::LongestWait,
        Figure::Idle,
        Figure::Rescues,
        Figure::Requests,
    ];

    /// The p99 of each tier, in the order of [`TIERS`](crate::reading::TIERS).
    pub const P99: [Figure; 3] = [
        Figure::LatCriticalP99,
        Figure::InteractiveP99,
        Figure::BatchP99,
    ];

    /// Its name in JSON, with its unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Figure::Dispatches => "dispatches_per_s",
            Figure::HardKicks => "kicks_hard_per_s",
            Figure::SoftKicks => "kicks_soft_per_s",
            Figure::Wakeups => "wakeups_per_s",
            Figure::LatCriticalP99 => "wake_p99_lat_critical_us",
            Figure::InteractiveP99 => "wake_p99_interactive_us",
            Figure::BatchP99 => "wake_p99_batch_us",
            Figure::LongestWait => "longest_wait_ms",
            Figure::Idle => "idle_share",
            Figure::Rescues => "rescues_per_s",
            Figure::Requests => "requests_per_s",
        }
    }
}

/// One interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Record {
    /// When it ended, in ms since 1970 (UTC).
    pub end_unix_ms: u64,
    /// How long it was.
    pub interval_ms: u32,
    /// Connected processes at its end.
    pub processes: u32,
    /// Bound workers at its end.
    pub workers: u32,
    figures: [Option<f32>; FIGURES],
}

impl Record {
    /// The record of the time between two readings that are `interval` apart. `longest_wait_ns` is the longest of that time, which the
    /// readings have of their last second alone.
    #[must_use]
    pub fn between(
        before: &Reading,
        now: &Reading,
        interval: Duration,
        longest_wait_ns: Option<u64>,
        end_unix_ms: u64,
    ) -> Record {
        let rates = Rates::between(before, now, interval);
        let wakeups = (0..rates.wake.len()).filter_map(|tier| rates.wakeups(tier));
        let mut figures = [None; FIGURES];
        let mut set = |figure: Figure, value: Option<f64>| {
            figures[figure as usize] = value.map(|value| value as f32);
        };
        // An observer has a scheduler's counters, which stay 0.
        if !now.observes() {
            set(Figure::Dispatches, rates.dispatches());
            set(Figure::HardKicks, rates.hard_kicks());
            set(Figure::SoftKicks, rates.soft_kicks());
            set(
                Figure::Wakeups,
                wakeups.reduce(|sum, of_tier| sum + of_tier),
            );
            for (figure, wake) in Figure::P99.into_iter().zip(&rates.wake) {
                let p99 = wake.as_ref().and_then(|wake| quantile(wake, 0.99));
                set(figure, p99.map(|p99| p99.us));
            }
            set(
                Figure::LongestWait,
                longest_wait_ns.map(|ns| ns as f64 / 1e6),
            );
            set(Figure::Idle, now.idle_share);
            set(Figure::Rescues, rates.rescues());
        }
        set(Figure::Requests, rates.of("requests"));
        let small = |count: Option<u64>| count.unwrap_or(0).try_into().unwrap_or(u32::MAX);
        Record {
            end_unix_ms,
            interval_ms: interval.as_millis().try_into().unwrap_or(u32::MAX),
            processes: small(now.processes),
            workers: small(now.workers),
            figures,
        }
    }

    /// A figure; `None` where the daemon did not tell it.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.figures[figure as usize].map(f64::from)
    }

    /// One record for several that follow each other: their time together, and of each figure the highest.
    #[must_use]
    pub fn highest(records: &[Record]) -> Option<Record> {
        let (first, rest) = records.split_first()?;
        let mut joined = *first;
        for record in rest {
            joined.end_unix_ms = record.end_unix_ms;
            joined.interval_ms = joined.interval_ms.saturating_add(record.interval_ms);
            joined.processes = joined.processes.max(record.processes);
            joined.workers = joined.workers.max(record.workers);
            for (joined, figure) in joined.figures.iter_mut().zip(record.figures) {
                // None is less than any.
                if figure > *joined {
                    *joined = figure;
                }
            }
        }
        Some(joined)
    }

    /// The bytes of the record of this number.
    pub(super) fn encode(&self, number: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &number.to_le_bytes());
        put(8, &self.end_unix_ms.to_le_bytes());
        put(16, &self.interval_ms.to_le_bytes());
        put(20, &self.processes.to_le_bytes());
        put(24, &self.workers.to_le_bytes());
        for (index, figure) in self.figures.iter().enumerate() {
            let value = figure.unwrap_or(f32::NAN);
            put(FIGURES_AT + 4 * index, &value.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The record of these bytes, and its number; `None` if they were never written whole.
    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<(u64, Record)> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let number = u64_at(0);
        if number == 0 || u32_at(CHECKSUM_AT) != crc32fast::hash(&bytes[..CHECKSUM_AT]) {
            return None;
        }
        let figures = std::array::from_fn(|index| {
            let value = f32::from_bits(u32_at(FIGURES_AT + 4 * index));
            // A file may hold anything.
            (value.is_finite() && value >= 0.0).then_some(value)
        });
        let record = Record {
            end_unix_ms: u64_at(8),
            interval_ms: u32_at(16),
            processes: u32_at(20),
            workers: u32_at(24),
            figures,
        };
        Some((number, record))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn reading(scale: u64) -> Reading {
        let mut wake = [0; 16];
        wake[3] = 100 * scale;
        Reading::parse(&json!({
            "runs": "scheduler", "processes": 2, "workers": 6, "idle_share": 0.25,
            "counters": { "from_main": 500 * scale, "kicks_for_waiting": 10 * scale, "kicks_idle": 20 * scale,
                "rescues": scale, "requests": 2 * scale },
            "tiers": { "interactive": { "wake_latency": wake } },
        }))
    }

    #[test]
    fn the_figures_of_an_interval() {
        let two = Duration::from_secs(2);
        let record = Record::between(&reading(1), &reading(3), two, Some(7_000_000), 99);
        let of = |figure| record.get(figure);
        assert_eq!(of(Figure::Dispatches), Some(500.0));
        assert_eq!(of(Figure::HardKicks), Some(10.0));
        assert_eq!(of(Figure::SoftKicks), Some(20.0));
        assert_eq!(of(Figure::Wakeups), Some(100.0));
        assert_eq!(of(Figure::LatCriticalP99), None);
        // The bucket from 8 to 16 µs.
        assert!((15.0..16.0).contains(&of(Figure::InteractiveP99).unwrap()));
        assert_eq!(of(Figure::LongestWait), Some(7.0));
        assert_eq!(of(Figure::Idle), Some(0.25));
        assert_eq!(of(Figure::Rescues), Some(1.0));
        assert_eq!(of(Figure::Requests), Some(2.0));
        assert_eq!((record.processes, record.workers), (2, 6));
        assert_eq!((record.interval_ms, record.end_unix_ms), (2000, 99));
    }

    #[test]
    fn an_observer_schedules_nothing() {
        let mut observer = reading(1);
        observer.runs = Some("observer".into());
        let second = Duration::from_secs(1);
        let record = Record::between(&Reading::default(), &observer, second, Some(1), 0);
        assert_eq!(record.get(Figure::Dispatches), None);
        assert_eq!(record.get(Figure::LongestWait), None);
        assert_eq!(record.get(Figure::Requests), Some(2.0));
    }

    #[test]
    fn figures_have_their_place_and_a_name_of_their_own() {
        for (index, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, index);
            let others = Figure::ALL
                .iter()
                .filter(|other| other.name() == figure.name());
            assert_eq!(others.count(), 1);
        }
    }

    proptest! {
        #[test]
        fn written_and_read(
            number in 1..u64::MAX,
            end_unix_ms in any::<u64>(),
            numbers in any::<[u32; 3]>(),
            figures in proptest::array::uniform11(proptest::option::of(0.0..1e30f32)),
        ) {
            let [interval_ms, processes, workers] = numbers;
            let record = Record { end_unix_ms, interval_ms, processes, workers, figures };
            prop_assert_eq!(Record::decode(&record.encode(number)), Some((number, record)));
        }

        #[test]
        fn a_changed_byte_is_found(at in 0..RECORD_BYTES, with in 1..=u8::MAX) {
            let mut bytes = Record::default().encode(5);
            bytes[at] ^= with;
            prop_assert_eq!(Record::decode(&bytes), None);
        }

        #[test]
        fn figures_that_are_no_measure_are_not_there(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            let mut record = Record::default();
            record.figures[0] = Some(value);
            let (_, read) = Record::decode(&record.encode(1)).unwrap();
            prop_assert_eq!(read.get(Figure::Dispatches).is_some(), value.is_finite() && value >= 0.0);
        }
    }
}
