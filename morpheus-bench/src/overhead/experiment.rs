//! Taking turns: every experiment measures each kind twice, in the order A B C C B A, and every other one begins at the
//! other end. Those before the median has settled do not count.

use std::array;
use std::hint::black_box;
use std::time::{Duration, Instant};

use morpheus_harness::histogram::Latencies;
use morpheus_harness::order::interleaved;
use morpheus_harness::progress::Progress;
use morpheus_harness::settle::Settle;
use morpheus_harness::{clock, interrupt};

/// Out of five parts of time one is left to others: real-time threads that leave none are stopped by the kernel, in
/// the middle of a measurement.
const REST: u32 = 4;
/// A warm-up is over after this many experiments, whether the median has settled or not.
pub const WARMUP_MOST: usize = 50;

/// How far a measurement is, over all of its experiments, and what they read.
pub struct Steps {
    /// Where each experiment is a second.
    pub progress: Progress,
    /// The readings of each kind, under its name. A reading is the mean of a measurement.
    pub histograms: Vec<(String, Latencies)>,
}

impl Steps {
    /// For this many experiments, the warm-up not counted.
    pub fn new(experiments: usize, quiet: bool) -> Self {
        Self {
            progress: Progress::new(Duration::from_secs(experiments as u64), quiet),
            histograms: Vec::new(),
        }
    }
}

/// One measurement of one kind.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Which, from 0.
    pub kind: usize,
    /// Whether it counts; the warm-up does not.
    pub counts: bool,
}

/// Of an experiment, of each kind, the first and the second time, in nanoseconds.
type Reading<const KINDS: usize> = [[f64; 2]; KINDS];

/// The readings of the experiments that count, and what came before.
pub struct Readings<const KINDS: usize> {
    readings: Vec<Reading<KINDS>>,
    /// The experiments that do not count.
    pub warmup: Warmup,
}

/// Experiments that do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Warmup {
    /// How many.
    pub experiments: usize,
    /// Whether the median of the first kind had settled by then.
    pub settled: bool,
}

/// Makes this many experiments once the median of the first kind has settled, or fewer when Ctrl-C is pressed. `measure`
/// returns the nanoseconds that one turn took. The readings of each kind are also kept in `steps`, under its name.
///
/// # Errors
/// The first of `measure`.
pub fn run<const KINDS: usize>(
    experiments: usize,
    steps: &mut Steps,
    names: [String; KINDS],
    mut measure: impl FnMut(Turn) -> Result<f64, String>,
) -> Result<Readings<KINDS>, String> {
    let mut settle = Settle::new(5, 0.1);
    let mut warmup = Warmup::default();
    let mut readings = Vec::with_capacity(experiments);
    while !warmup.settled && warmup.experiments < WARMUP_MOST {
        let Some(reading) = one::<KINDS>(warmup.experiments, false, &mut measure)? else {
            return Ok(Readings { readings, warmup });
        };
        warmup.experiments += 1;
        warmup.settled = settle.feed(mean(reading[0]));
    }
    for number in 0..experiments {
        let Some(reading) = one::<KINDS>(number, true, &mut measure)? else {
            break;
        };
        readings.push(reading);
        steps.progress.finish_run(Duration::from_secs(1));
    }
    for (kind, name) in names.into_iter().enumerate() {
        let mut latencies = Latencies::default();
        let both = readings.iter().flat_map(|reading| reading[kind]);
        both.for_each(|ns| latencies.record_ns(ns.round() as u64));
        steps.histograms.push((name, latencies));
    }
    Ok(Readings { readings, warmup })
}

/// One experiment; `None` after Ctrl-C.
fn one<const KINDS: usize>(
    number: usize,
    counts: bool,
    measure: &mut impl FnMut(Turn) -> Result<f64, String>,
) -> Result<Option<Reading<KINDS>>, String> {
    let mut kinds: [usize; KINDS] = array::from_fn(|kind| kind);
    if number % 2 == 1 {
        kinds.reverse();
    }
    let mut reading = [[0.0; 2]; KINDS];
    for (time, kind) in interleaved(&kinds, 2) {
        if interrupt::happened() {
            return Ok(None);
        }
        let begun = Instant::now();
        reading[kind][time] = measure(Turn { kind, counts })?;
        std::thread::sleep(begun.elapsed() / REST);
    }
    Ok(Some(reading))
}

impl<const KINDS: usize> Readings<KINDS> {
    fn each(&self, of: impl Fn(&Reading<KINDS>) -> f64) -> Vec<f64> {
        self.readings.iter().map(of).collect()
    }

    /// One kind: of each experiment, the mean of its two times.
    pub fn of(&self, kind: usize) -> Vec<f64> {
        self.each(|reading| mean(reading[kind]))
    }

    /// How much more one kind is than another, in each experiment.
    pub fn difference(&self, kind: usize, without: usize) -> Vec<f64> {
        self.each(|reading| mean(reading[kind]) - mean(reading[without]))
    }

    /// A/A: how much more a kind is than itself, which is the noise of a difference.
    pub fn same(&self, kind: usize) -> Vec<f64> {
        self.each(|reading| reading[kind][0] - reading[kind][1])
    }
}

/// The nanoseconds that something takes.
pub fn time_ns<T>(work: impl FnOnce() -> T) -> f64 {
    let begun_ns = clock::monotonic_ns();
    black_box(work());
    (clock::monotonic_ns() - begun_ns) as f64
}

fn mean([first, second]: [f64; 2]) -> f64 {
    (first + second) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const KINDS: usize>() -> [String; KINDS] {
        array::from_fn(|kind| kind.to_string())
    }

    #[test]
    fn turns_go_forth_and_back_and_begin_at_either_end() {
        let mut order = String::new();
        let mut steps = Steps::new(2, true);
        let readings: Readings<3> = run(2, &mut steps, names(), |turn| {
            if turn.counts {
                order.push(['A', 'B', 'C'][turn.kind]);
            }
            Ok(0.0)
        })
        .unwrap();
        assert_eq!(order, "ABCCBACBAABC");
        let (name, latencies) = &steps.histograms[2];
        assert_eq!((name.as_str(), latencies.len()), ("2", 4));
        assert_eq!(readings.of(0).len(), 2);
    }

    #[test]
    fn a_drift_favours_no_kind() {
        let mut clock = 0.0;
        let mut steps = Steps::new(20, true);
        // Each turn takes one more than the one before; kind 1 takes 5 more beside.
        let readings: Readings<2> = run(20, &mut steps, names(), |turn| {
            clock += 1.0;
            Ok(clock + 5.0 * turn.kind as f64)
        })
        .unwrap();
        assert_eq!(readings.difference(1, 0), [5.0; 20]);
        // A/A sees the drift within an experiment, 3 at one end of the order and 1 in the middle.
        assert_eq!(readings.same(0), [-3.0, -1.0].repeat(10));
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut turns = 0;
        let mut steps = Steps::new(5, true);
        let result = run::<1>(5, &mut steps, names(), |_| {
            turns += 1;
            if turns == 3 {
                Err("broken".into())
            } else {
                Ok(1.0)
            }
        });
        assert_eq!((result.err(), turns), (Some("broken".into()), 3));
    }

    #[test]
    fn nothing_measured_is_no_reading() {
        let (readings, warmup) = (Vec::new(), Warmup::default());
        let readings = Readings::<1> { readings, warmup };
        assert!(readings.of(0).is_empty() && readings.same(0).is_empty());
    }

    /// Each time the first of the kinds takes 100, 90, … 10, and 10 from then on.
    #[test]
    fn the_warm_up_ends_when_the_first_kind_has_settled() {
        let mut turns = 0;
        let mut steps = Steps::new(4, true);
        let readings: Readings<1> = run(4, &mut steps, names(), |_| {
            turns += 1;
            Ok(f64::from((110 - 5 * turns).max(10)))
        })
        .unwrap();
        // 10 experiments until then, and three blocks of five that agree.
        let expected = Warmup {
            experiments: 25,
            settled: true,
        };
        assert_eq!(readings.warmup, expected);
        assert_eq!(readings.of(0), [10.0; 4]);
    }

    #[test]
    fn what_never_settles_is_measured_all_the_same() {
        let mut turns = 0;
        let readings: Readings<1> = run(2, &mut Steps::new(2, true), names(), |_| {
            turns += 1;
            Ok(f64::from(turns).powi(4))
        })
        .unwrap();
        let expected = Warmup {
            experiments: WARMUP_MOST,
            settled: false,
        };
        assert_eq!(readings.warmup, expected);
        assert_eq!(readings.of(0).len(), 2);
    }
}
