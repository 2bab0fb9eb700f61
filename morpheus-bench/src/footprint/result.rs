//! What `--json` prints.

use serde::{Deserialize, Serialize};

use super::child::{Found, KEPT, Via};
use super::config::Options;
use super::memory::{Memory, Split};
use crate::compare::Contender;
use crate::executor::Runtime;
use crate::histogram::median;
use crate::host::Host;
use crate::interrupt;
use crate::pairs::Bar;
use crate::stats::Median;

/// An idle runtime with its default number of spares takes at most so much more than tokio, resident.
pub const IDLE_BAR_BYTES: f64 = (1 << 20) as f64;
/// A watched task takes at most so much more than one that is not.
pub const TASK_BAR_BYTES: f64 = 32.0;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `footprint`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// Workers of each runtime.
    pub workers: usize,
    /// Rounds that were asked for.
    pub runs: usize,
    /// How long a runtime had to come to rest.
    pub settle_ms: usize,
    /// Tasks that waited.
    pub tasks_started: usize,
    /// Runtimes that had nothing to do.
    pub idle: Vec<Idle>,
    /// What a task takes.
    pub tasks: Vec<Task>,
    /// Why not everything could be measured.
    pub failed: Option<String>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// A runtime that has nothing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Which.
    pub runtime: Contender,
    /// Rounds.
    pub runs: usize,
    /// What it takes, the median of each figure.
    pub memory: Memory,
    /// Resident bytes more than tokio's, the median of the rounds' differences.
    pub over_tokio_bytes: Option<f64>,
    /// The interval, from six rounds on.
    pub over_tokio: Option<Median>,
    /// How many of them are no pages of files, likewise.
    pub anonymous_over_tokio_bytes: Option<f64>,
    /// What that is held against.
    pub bar_bytes: Option<f64>,
    /// It, against that.
    pub judged: Option<Bar>,
}

/// A task that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// On what.
    pub runtime: Contender,
    /// How it was started.
    pub via: Via,
    /// Rounds.
    pub runs: usize,
    /// By how much it keeps.
    pub sizes: Vec<Size>,
    /// What was requested for it, the mean over the sizes.
    pub requested_bytes: f64,
    /// Resident memory, likewise.
    pub resident_bytes: f64,
    /// Requested bytes more than for one that nobody watches on tokio.
    pub over_tokio_bytes: Option<f64>,
    /// What that is held against.
    pub bar_bytes: Option<f64>,
    /// It, against that.
    pub judged: Option<Bar>,
}

/// A task of one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Size {
    /// Rounds.
    pub runs: usize,
    /// What it keeps beside what it needs.
    pub kept_bytes: usize,
    /// Its future, as tokio gets it.
    pub future_bytes: usize,
    /// What was requested for it.
    pub requested_bytes: f64,
    /// In so many blocks.
    pub blocks: f64,
    /// By how much resident memory grew, the median.
    pub resident_bytes: f64,
}

impl Memory {
    /// The median of each figure.
    fn median(all: &[Memory]) -> Option<Memory> {
        let of = |figure: fn(&Memory) -> i64| -> Option<i64> {
            let figures = all.iter().map(|memory| figure(memory) as f64);
            median(figures.collect()).map(|bytes| bytes as i64)
        };
        Some(Memory {
            resident: of(|memory| memory.resident)?,
            proportional: of(|memory| memory.proportional)?,
            anonymous: of(|memory| memory.anonymous)?,
            mapped: of(|memory| memory.mapped)?,
            mappings: of(|memory| memory.mappings)?,
            threads: of(|memory| memory.threads)?,
            split: Split {
                stacks: of(|memory| memory.split.stacks)?,
                small_stacks: of(|memory| memory.split.small_stacks)?,
                heap: of(|memory| memory.split.heap)?,
                other: of(|memory| memory.split.other)?,
                files: of(|memory| memory.split.files)?,
            },
        })
    }
}

impl Idle {
    /// Of what was found in each round, tokio first. Who was in no round is left out.
    pub fn all(found: Vec<(Contender, Vec<Found>)>) -> Vec<Idle> {
        let memories = |found: &[Found]| -> Vec<Memory> {
            let memory = |found: &Found| match found {
                Found::Idle(memory) => Some(*memory),
                Found::Task { .. } => None,
            };
            found.iter().filter_map(memory).collect()
        };
        let tokio = found.first().map(|(_, found)| memories(found));
        let tokio = tokio.unwrap_or_default();
        let one = |(place, (runtime, found)): (usize, &(Contender, Vec<Found>))| {
            Idle::new(*runtime, &memories(found), (place > 0).then_some(&tokio))
        };
        found.iter().enumerate().filter_map(one).collect()
    }

    fn new(runtime: Contender, own: &[Memory], tokio: Option<&Vec<Memory>>) -> Option<Idle> {
        let differences = |figure: fn(&Memory) -> i64| -> Vec<f64> {
            let pairs = tokio.into_iter().flat_map(|tokio| own.iter().zip(tokio));
            let pairs = pairs.map(|(own, tokio)| (figure(own) - figure(tokio)) as f64);
            pairs.collect()
        };
        let resident = differences(|memory| memory.resident);
        let over_tokio = Median::of(&resident);
        let is_default = runtime.runtime == Runtime::Morpheus && runtime.spares.is_none();
        Some(Idle {
            runtime,
            runs: own.len(),
            memory: Memory::median(own)?,
            over_tokio_bytes: median(resident),
            over_tokio,
            anonymous_over_tokio_bytes: median(differences(|memory| memory.anonymous)),
            bar_bytes: is_default.then_some(IDLE_BAR_BYTES),
            judged: is_default.then(|| judge(over_tokio)),
        })
    }
}

fn judge(over: Option<Median>) -> Bar {
    match over {
        Some(over) if over.high <= IDLE_BAR_BYTES => Bar::Met,
        Some(over) if over.low > IDLE_BAR_BYTES => Bar::Missed,
        _ => Bar::Undecided,
    }
}

/// Where tasks were started and how, and what was found for each size in each round.
type Way<'a> = ((Contender, Via), &'a [Vec<Found>]);

impl Task {
    /// Of what was found for each size in each round, tokio first. Who was in no round is left out.
    pub fn all(found: Vec<Way<'_>>) -> Vec<Task> {
        let mut all: Vec<Task> = Vec::new();
        for ((runtime, via), sizes) in found {
            let sizes = KEPT.iter().zip(sizes);
            let sizes: Option<Vec<Size>> =
                sizes.map(|(kept, runs)| Size::of(*kept, runs)).collect();
            if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
                let task = Task::new(runtime, via, sizes, all.first());
                all.push(task);
            }
        }
        all
    }

    fn new(runtime: Contender, via: Via, sizes: Vec<Size>, tokio: Option<&Task>) -> Task {
        let mean =
            |figure: fn(&Size) -> f64| sizes.iter().map(figure).sum::<f64>() / sizes.len() as f64;
        let requested_bytes = mean(|size| size.requested_bytes);
        let over = tokio.map(|tokio| requested_bytes - tokio.requested_bytes);
        Task {
            runtime,
            via,
            runs: sizes.iter().map(|size| size.runs).min().unwrap_or(0),
            requested_bytes,
            resident_bytes: mean(|size| size.resident_bytes),
            over_tokio_bytes: over,
            bar_bytes: over.map(|_| TASK_BAR_BYTES),
            judged: over.map(|over| match over <= TASK_BAR_BYTES {
                true => Bar::Met,
                false => Bar::Missed,
            }),
            sizes,
        }
    }
}

impl Size {
    /// Of the rounds of one size.
    fn of(kept_bytes: usize, rounds: &[Found]) -> Option<Size> {
        let mut resident = Vec::new();
        let mut size = None;
        for found in rounds {
            if let Found::Task {
                future_bytes,
                requested_bytes,
                blocks,
                resident_bytes,
            } = *found
            {
                resident.push(resident_bytes);
                size = Some((future_bytes, requested_bytes, blocks));
            }
        }
        let (future_bytes, requested_bytes, blocks) = size?;
        Some(Size {
            runs: resident.len(),
            kept_bytes,
            future_bytes,
            requested_bytes,
            blocks,
            resident_bytes: median(resident)?,
        })
    }
}

impl Report {
    /// Of what was measured.
    pub fn new(
        host: Host,
        options: &Options,
        idle: Vec<Idle>,
        tasks: Vec<Task>,
        failed: Option<String>,
    ) -> Self {
        Self {
            bench: "footprint".into(),
            host,
            workers: options.workers,
            runs: options.runs,
            settle_ms: options.settle_ms,
            tasks_started: options.tasks,
            idle,
            tasks,
            failed,
            interrupted: interrupt::happened(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::footprint::config::{morpheus, tokio};
    use clap::Parser;

    fn idle(resident: i64) -> Found {
        Found::Idle(Memory {
            resident,
            anonymous: resident / 2,
            ..Memory::default()
        })
    }

    fn task(requested_bytes: f64) -> Found {
        Found::Task {
            future_bytes: 40,
            requested_bytes,
            blocks: 1.0,
            resident_bytes: requested_bytes + 16.0,
        }
    }

    /// Runtimes that take so much more than tokio in each of so many rounds, and tasks that request so much more.
    pub fn report(over_idle: i64, rounds: usize, over_task: f64) -> Report {
        let round = |base: i64| {
            (0..rounds as i64)
                .map(|i| idle(base + 4096 * (i % 3)))
                .collect()
        };
        let found = vec![
            (tokio(0), round(100_000)),
            (morpheus(None), round(100_000 + over_idle)),
            (morpheus(Some(8)), round(100_000 + over_idle / 4)),
        ];
        let sizes = |over: f64| [256.0, 256.0, 256.0, 384.0].map(|bytes| vec![task(bytes + over)]);
        let (plain, watched) = (sizes(0.0), sizes(over_task));
        let tasks = vec![
            ((tokio(0), Via::Tokio), &plain[..]),
            ((morpheus(None), Via::Spawn), &watched[..]),
        ];
        let options = Options::parse_from(["footprint"]);
        Report::new(
            Host::read(),
            &options,
            Idle::all(found),
            Task::all(tasks),
            None,
        )
    }

    #[test]
    fn the_default_is_held_against_a_megabyte_more_than_tokio() {
        let judged = |over: i64, rounds: usize| report(over, rounds, 0.0).idle[1].judged;
        assert_eq!(judged(1 << 20, 6), Some(Bar::Met));
        assert_eq!(judged((1 << 20) + 1, 6), Some(Bar::Missed));
        assert_eq!(judged(0, 5), Some(Bar::Undecided), "too few rounds");
        let report = report(400_000, 6, 0.0);
        assert_eq!(report.idle[1].over_tokio_bytes, Some(400_000.0));
        assert_eq!(report.idle[2].over_tokio_bytes, Some(100_000.0));
        assert!(report.idle[0].over_tokio_bytes.is_none() && report.idle[2].judged.is_none());
    }

    #[test]
    fn a_watched_task_is_held_against_32_bytes_more() {
        let judged = |over: f64| report(0, 1, over).tasks[1].judged;
        assert_eq!(
            (judged(32.0), judged(32.25)),
            (Some(Bar::Met), Some(Bar::Missed))
        );
        let report = report(0, 1, 32.0);
        assert_eq!(report.tasks[0].requested_bytes, 288.0);
        assert_eq!(report.tasks[1].over_tokio_bytes, Some(32.0));
        assert!(report.tasks[0].judged.is_none());
    }

    #[test]
    fn who_was_not_measured_is_left_out() {
        assert!(Idle::all(vec![(tokio(0), Vec::new())]).is_empty());
        let nothing = vec![Vec::new(); KEPT.len()];
        assert!(Task::all(vec![((tokio(0), Via::Tokio), &nothing[..])]).is_empty());
        let one: &[Vec<Found>] = &[vec![task(1.0)], vec![]];
        assert!(Task::all(vec![((tokio(0), Via::Tokio), one)]).is_empty());
    }
}
