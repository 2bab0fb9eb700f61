//! Honest critical sections: the same work within them and without.

use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use morpheus_harness::clock;
use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds, Row, rounds};
use morpheus_harness::settle::Settle;
use morpheus_harness::unit::Unit;
use morpheus_runtime::critical_section;

use super::Counted;
use super::config::Options;
use crate::executor::{Executor, Spawn, morpheus::Morpheus};
use crate::work;

const CASE: &str = "an honest section";
const ESCALATIONS: &str = "all honest sections together";
const GUARD: &str = "entering and leaving";
/// Sections entered and left in a row, to see what that costs by itself.
const GUARDS: u32 = 10_000;
/// How often they are.
const GUARD_BLOCKS: usize = 30;
/// The controller samples once a millisecond: what it did in a section is counted by then.
const CONTROLLER_IS_DONE: Duration = Duration::from_millis(5);
/// Warm-up is over after this many pieces of 1 ms, whether the median has settled or not.
const WARMUP_MOST: usize = 500;

/// The same work, within a section or without.
#[derive(Clone, Copy, Debug)]
struct Section {
    cpu: Duration,
    elapsed: Duration,
    counted: Counted,
}

const NAMES: [&str; 2] = ["without", "within a section"];
const FIGURES: [Figure<Section>; 2] = [
    Figure::time(CPU, |section| Some(section.cpu.as_nanos() as f64)),
    Figure::time("elapsed", |section| Some(section.elapsed.as_nanos() as f64)),
];
const CPU: &str = "CPU time";
/// The largest share of a section that entering and leaving it may cost.
const SHARE: f64 = 0.0005;

/// Measures, or until Ctrl-C, and adds the rows.
///
/// # Errors
/// When there is no such runtime.
pub fn measure(options: &Options, found: &mut Envelope<Options>) -> Result<(), String> {
    let morpheus = Morpheus::build_linked(options.workers, options.link)?;
    let rate = work::iterations_per_us();
    let iterations = (rate * options.section().as_nanos() as f64 / 1e3) as u64;
    let one = options.section() + CONTROLLER_IS_DONE;
    let mut progress = Progress::new(one * 3 * options.iterations as u32, options.json);
    progress.say("honest sections".into());
    warm_up((rate * 1e3) as u64);
    let guards = guard_cost(&morpheus)?;
    let mut rounds = Rounds::new(1);
    let filled = rounds.fill(rounds::order(1, options.iterations), |place| {
        let critical = place.contender == 1 && !options.without_critical;
        let before = morpheus.escalations().unwrap_or_default();
        let (cpu, elapsed) = section(&morpheus, iterations, critical)?;
        std::thread::sleep(CONTROLLER_IS_DONE);
        let after = morpheus.escalations().unwrap_or_default();
        progress.finish_run(one);
        Ok(Section {
            cpu,
            elapsed,
            counted: Counted::since(&before, &after),
        })
    });
    progress.clear();
    filled?;
    morpheus.still_linked(options.link)?;
    let rows = rows(&rounds, options);
    found.add(CASE, "computes a fixed amount of work", rows);
    found.rows.push(guard(guards, options));
    Ok(())
}

fn rows(rounds: &Rounds<Section>, options: &Options) -> Vec<Row> {
    let limit = (!options.without_critical).then_some(Limit::AtMost(1.0 + SHARE));
    let names = NAMES.map(String::from);
    let limit_of = |figure: &Figure<Section>, _| limit.filter(|_| figure.name == CPU);
    let mut rows = rounds.rows(CASE, &names, &FIGURES, limit_of);
    // Contender 0 is measured twice in a round, the second time as the control.
    for (contender, name) in NAMES.iter().enumerate() {
        let row = |figure: &str, of: fn(&Counted) -> u64| {
            let counted = rounds.of(contender).map(|section| of(&section.counted));
            let sum = counted.sum::<u64>() as f64;
            Row::new(ESCALATIONS, name, figure, Unit::Count, vec![sum])
        };
        let slowed = row("demotions and throttling", Counted::slowed_down);
        let is_held = contender == 1 && limit.is_some();
        rows.push(slowed.held_exactly(is_held.then_some(Limit::AtMost(0.0))));
        rows.push(row("requests", |counted| counted.requests));
        rows.push(row("takeovers", |counted| counted.takeovers));
    }
    rows
}

/// The time for entering and leaving a section, held against [`SHARE`] of one.
fn guard(blocks: Vec<f64>, options: &Options) -> Row {
    let limit = Limit::AtMost(SHARE * options.section().as_nanos() as f64);
    Row::new(GUARD, "a section", CPU, Unit::Time, blocks).held(limit)
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

/// The cost of a section by itself: many in a row, each of which does nothing.
fn guard_cost(morpheus: &Morpheus) -> Result<Vec<f64>, String> {
    on_worker(morpheus, || {
        let block = |_| {
            let before = clock::thread_cpu();
            for _ in 0..GUARDS {
                drop(black_box(critical_section()));
            }
            (clock::thread_cpu() - before).as_nanos() as f64 / f64::from(GUARDS)
        };
        ((0..GUARD_BLOCKS).map(block).collect(), ())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use morpheus_harness::pairs::Bar;

    use super::*;

    /// Rows of sections that take `factor` times the CPU time of the work without, with `demotions` in one round.
    fn judged(factor: f64, demotions: u64) -> Vec<(String, Bar)> {
        let mut rounds = Rounds::new(1);
        for place in rounds::order(1, 12) {
            let is_within = place.contender == 1;
            let factor = if is_within { factor } else { 1.0 };
            let counted = Counted {
                demotions: if is_within && place.round == 3 {
                    demotions
                } else {
                    0
                },
                ..Counted::default()
            };
            let time = Duration::from_millis(100).mul_f64(factor);
            rounds.add(
                place,
                Section {
                    cpu: time,
                    elapsed: time,
                    counted,
                },
            );
        }
        let rows = rows(&rounds, &Options::parse_from(["liar"]));
        let of = |row: Row| {
            let judged = row.judged.or(row.ratio.and_then(|ratio| ratio.judged))?;
            Some((row.figure, judged))
        };
        rows.into_iter().filter_map(of).collect()
    }

    #[test]
    fn a_section_is_held_against_its_cost_and_against_every_demotion() {
        let slowed = "demotions and throttling".to_owned();
        let good = [(CPU.to_owned(), Bar::Met), (slowed.clone(), Bar::Met)];
        assert_eq!(judged(1.0001, 0), good);
        assert_eq!(
            judged(1.01, 1),
            [(CPU.to_owned(), Bar::Missed), (slowed, Bar::Missed)]
        );
    }

    #[test]
    fn a_guard_is_judged_by_its_interval() {
        // The limit of a section of 0.1 ms is 50 ns.
        let options = Options::parse_from(["liar", "--critical-duration-ms", "0.1"]);
        let judged = |blocks: &[f64]| guard(blocks.repeat(5), &options).judged;
        assert_eq!(judged(&[5.0, 9.0]), Some(Bar::Met));
        assert_eq!(judged(&[40.0, 60.0]), Some(Bar::Undecided));
        assert_eq!(judged(&[60.0, 70.0]), Some(Bar::Missed));
    }
}
