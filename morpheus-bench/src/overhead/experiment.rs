//! Taking turns: every experiment measures each kind twice, in the order A B C C B A, and every other one begins at the
//! other end.

use std::array;
use std::time::{Duration, Instant};

use super::statistics::Figure;
use crate::interrupt;
use crate::order::interleaved;
use crate::progress::Progress;

/// Out of five parts of time one is left to others: real-time threads that leave none are stopped by the kernel, in
/// the middle of a measurement.
const REST: u32 = 4;

/// How far a measurement is, over all of its experiments.
pub struct Steps {
    progress: Progress,
    total: usize,
    done: usize,
}

impl Steps {
    /// For so many experiments, the warm-up not counted.
    pub fn new(experiments: usize, quiet: bool) -> Self {
        Self {
            progress: Progress::new(Duration::from_secs(1), quiet),
            total: experiments.max(1),
            done: 0,
        }
    }

    /// There are so many instead.
    pub fn expect(&mut self, experiments: usize) {
        self.total = experiments.max(1);
    }

    /// What is measured now.
    pub fn say(&self, what: String) {
        self.progress.say(what);
    }

    fn step(&mut self) {
        self.done += 1;
        let part = self.done.min(self.total) as f64 / self.total as f64;
        self.progress.tick(Duration::from_secs_f64(part));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.progress.clear();
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

/// What was read, in nanoseconds: of each experiment, of each kind, the first and the second time.
pub struct Readings<const KINDS: usize>(Vec<[[f64; 2]; KINDS]>);

/// Experiments before those that count.
fn warm_up(experiments: usize) -> usize {
    (experiments / 10).clamp(3, 50)
}

/// Makes so many experiments after a warm-up of a tenth as many (3 to 50), or fewer when Ctrl-C is pressed. `measure` returns the
/// nanoseconds that one turn took.
///
/// # Errors
/// The first of `measure`.
pub fn run<const KINDS: usize>(
    experiments: usize,
    steps: &mut Steps,
    mut measure: impl FnMut(Turn) -> Result<f64, String>,
) -> Result<Readings<KINDS>, String> {
    let mut readings = Vec::with_capacity(experiments);
    let warm_up = warm_up(experiments);
    for number in 0..warm_up + experiments {
        let counts = number >= warm_up;
        let mut kinds: [usize; KINDS] = array::from_fn(|kind| kind);
        if number % 2 == 1 {
            kinds.reverse();
        }
        let mut reading = [[0.0; 2]; KINDS];
        for (time, kind) in interleaved(&kinds, 2) {
            if interrupt::happened() {
                return Ok(Readings(readings));
            }
            let begun = Instant::now();
            reading[kind][time] = measure(Turn { kind, counts })?;
            std::thread::sleep(begun.elapsed() / REST);
        }
        if counts {
            readings.push(reading);
            steps.step();
        }
    }
    Ok(Readings(readings))
}

impl<const KINDS: usize> Readings<KINDS> {
    /// A figure of one value of each experiment.
    fn figure(&self, of: impl Fn(&[[f64; 2]; KINDS]) -> f64) -> Option<Figure> {
        Figure::of(&self.0.iter().map(of).collect::<Vec<_>>())
    }

    /// One kind: of each experiment, the mean of its two times. `None` when nothing was measured.
    pub fn of(&self, kind: usize) -> Option<Figure> {
        self.figure(|reading| mean(reading[kind]))
    }

    /// How much more one kind is than another.
    pub fn difference(&self, kind: usize, without: usize) -> Option<Figure> {
        self.figure(|reading| mean(reading[kind]) - mean(reading[without]))
    }

    /// A/A: how much more a kind is than itself, which is the noise of a difference.
    pub fn same(&self, kind: usize) -> Option<Figure> {
        self.figure(|reading| reading[kind][0] - reading[kind][1])
    }
}

fn mean([first, second]: [f64; 2]) -> f64 {
    (first + second) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_forth_and_back_and_begin_at_either_end() {
        let mut order = String::new();
        let mut steps = Steps::new(2, true);
        let readings: Readings<3> = run(2, &mut steps, |turn| {
            if turn.counts {
                order.push(['A', 'B', 'C'][turn.kind]);
            }
            Ok(0.0)
        })
        .unwrap();
        assert_eq!(order, "CBAABCABCCBA");
        assert_eq!(readings.of(0).unwrap().n, 2);
    }

    #[test]
    fn a_drift_favours_nobody() {
        let mut clock = 0.0;
        let mut steps = Steps::new(20, true);
        // Each turn takes one more than the one before; kind 1 takes 5 more beside.
        let readings: Readings<2> = run(20, &mut steps, |turn| {
            clock += 1.0;
            Ok(clock + 5.0 * turn.kind as f64)
        })
        .unwrap();
        let difference = readings.difference(1, 0).unwrap();
        assert_eq!((difference.min_ns, difference.max_ns), (5.0, 5.0));
        // A/A sees the drift within an experiment, 3 at one end of the order and 1 in the middle.
        let same = readings.same(0).unwrap();
        assert_eq!((same.min_ns, same.max_ns), (-3.0, -1.0));
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut turns = 0;
        let mut steps = Steps::new(5, true);
        let result = run::<1>(5, &mut steps, |_| {
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
    fn nothing_measured_is_no_figure() {
        let readings = Readings::<1>(Vec::new());
        assert!(readings.of(0).is_none() && readings.same(0).is_none());
        assert_eq!([1, 100, 100_000].map(warm_up), [3, 10, 50]);
    }
}
