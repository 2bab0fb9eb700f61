//! Honest critical sections: the same work within them and without.

use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use morpheus_runtime::critical_section;

use super::config::Options;
use crate::executor::{Escalations, Executor, Spawn, morpheus::Morpheus};
use crate::order::interleaved;
use crate::pairs::Pairs;
use crate::progress::Progress;
use crate::settle::Settle;
use crate::stats::Median;
use crate::{clock, interrupt, work};

/// Sections entered and left in a row, to see what that costs by itself.
const GUARDS: u32 = 10_000;
/// How often they are.
const GUARD_BLOCKS: usize = 30;
/// The controller looks once a millisecond: what it did in a section is counted by then.
const CONTROLLER_IS_DONE: Duration = Duration::from_millis(5);
/// Warm-up is over after so many pieces of 1 ms, whether the median has settled or not.
const WARMUP_MOST: usize = 500;

/// What was measured.
#[derive(Debug, Default)]
pub struct Honest {
    /// The link that was in force.
    pub link: String,
    /// CPU time within sections against without.
    pub pairs: Pairs,
    /// Sections that were measured.
    pub sections: usize,
    /// CPU time of all sections together.
    pub within: Duration,
    /// Of the same work without.
    pub without: Duration,
    /// Elapsed time of all sections together.
    pub within_elapsed: Duration,
    /// Of the same work without.
    pub without_elapsed: Duration,
    /// What was done against sections.
    pub escalations: Counted,
    /// What was done against the same work without.
    pub escalations_without: Counted,
    /// What entering and leaving a section takes, in nanoseconds.
    pub guard_ns: Option<Median>,
}

/// How often the runtime did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Asked to yield.
    pub requests: u64,
    /// Released a spare.
    pub takeovers: u64,
    /// Demoted.
    pub demotions: u64,
    /// Throttled.
    pub throttles: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Without,
    Within,
    WithoutAgain,
}

impl Counted {
    /// Between two readings.
    pub fn since(before: &Escalations, after: &Escalations) -> Self {
        Self {
            requests: after.requests.saturating_sub(before.requests),
            takeovers: after.takeovers.saturating_sub(before.takeovers),
            demotions: after.demotions.saturating_sub(before.demotions),
            throttles: after.throttles.saturating_sub(before.throttles),
        }
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.takeovers += other.takeovers;
        self.demotions += other.demotions;
        self.throttles += other.throttles;
    }
}

/// Measures, or until Ctrl-C.
///
/// # Errors
/// When there is no such runtime.
pub fn measure(options: &Options) -> Result<Honest, String> {
    let morpheus = Morpheus::build_linked(options.workers, options.link, &[])?;
    let rate = work::iterations_per_us();
    let iterations = (rate * options.section().as_nanos() as f64 / 1e3) as u64;
    let one = options.section() + CONTROLLER_IS_DONE;
    let mut progress = Progress::new(one * 3 * options.iterations as u32, options.json);
    progress.say("honest sections".into());
    warm_up((rate * 1e3) as u64);
    let kinds = [Kind::Without, Kind::Within, Kind::WithoutAgain];
    let mut honest = Honest {
        link: morpheus.link(),
        guard_ns: guard_cost(&morpheus)?,
        ..Honest::default()
    };
    for round in interleaved(&kinds, options.iterations).chunks(kinds.len()) {
        let mut cpu = [Duration::ZERO; 3];
        for (_, kind) in round {
            let critical = *kind == Kind::Within && !options.without_critical;
            let before = morpheus.escalations().unwrap_or_default();
            let (used, elapsed) = section(&morpheus, iterations, critical)?;
            std::thread::sleep(CONTROLLER_IS_DONE);
            let after = morpheus.escalations().unwrap_or_default();
            let counted = Counted::since(&before, &after);
            cpu[*kind as usize] = used;
            match kind {
                Kind::Within => {
                    honest.escalations.add(counted);
                    honest.within += used;
                    honest.within_elapsed += elapsed;
                }
                Kind::Without => {
                    honest.escalations_without.add(counted);
                    honest.without += used;
                    honest.without_elapsed += elapsed;
                }
                Kind::WithoutAgain => {}
            }
            progress.finish_run(one);
        }
        let [a, b, a_again] = cpu.map(|time| time.as_secs_f64());
        honest.pairs.push(a, b, a_again);
        honest.sections += 1;
        if interrupt::happened() {
            break;
        }
    }
    progress.clear();
    morpheus.still_linked(options.link)?;
    Ok(honest)
}

/// Until the CPU is as fast as it gets.
fn warm_up(iterations_per_ms: u64) {
    let mut settle = Settle::new(10, 0.02);
    for _ in 0..WARMUP_MOST {
        let before = clock::thread_cpu();
        work::compute(iterations_per_ms);
        if settle.feed((clock::thread_cpu() - before).as_nanos() as f64) {
            return;
        }
    }
}

/// Runs on a worker, watched, in one poll, of which what `run` returns beside its result is the last to go.
fn on_worker<T: Send + 'static, Last>(
    morpheus: &Morpheus,
    run: impl FnOnce() -> (T, Last) + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = channel();
    morpheus.spawn(Spawn::Watched, async move {
        let (result, last) = run();
        // A receiver that is gone has seen an error of its own.
        drop(sender.send(result));
        drop(last);
    });
    receiver
        .recv()
        .map_err(|_| "the runtime has dropped the task that computes".to_owned())
}

/// CPU time and elapsed time. The section lasts until the poll is over: one that ended before would leave a long poll
/// in no section, while the result is handed over, and that may be demoted. So leaving it is not in the times; it takes
/// nanoseconds, as [`guard_cost`] tells.
fn section(
    morpheus: &Morpheus,
    iterations: u64,
    critical: bool,
) -> Result<(Duration, Duration), String> {
    on_worker(morpheus, move || {
        let (begun, before) = (Instant::now(), clock::thread_cpu());
        let guard = critical.then(critical_section);
        work::compute(iterations);
        ((clock::thread_cpu() - before, begun.elapsed()), guard)
    })
}

/// What a section costs by itself: many in a row, each of which does nothing.
fn guard_cost(morpheus: &Morpheus) -> Result<Option<Median>, String> {
    on_worker(morpheus, || {
        let block = |_| {
            let before = clock::thread_cpu();
            for _ in 0..GUARDS {
                drop(black_box(critical_section()));
            }
            (clock::thread_cpu() - before).as_nanos() as f64 / f64::from(GUARDS)
        };
        let blocks: Vec<f64> = (0..GUARD_BLOCKS).map(block).collect();
        (Median::of(&blocks), ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escalations_are_what_came_between() {
        let of = |demotions, throttles| Escalations {
            demotions,
            throttles,
            ..Escalations::default()
        };
        let mut counted = Counted::since(&of(2, 1), &of(5, 1));
        counted.add(Counted::since(&of(0, 0), &of(0, 4)));
        assert_eq!(
            (counted.demotions, counted.throttles, counted.requests),
            (3, 4, 0)
        );
    }
}
