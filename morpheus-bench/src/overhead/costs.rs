//! Costs as rows: what was read in each experiment, and whether a cost stands out of the noise.

use morpheus_harness::pairs::Limit;
use morpheus_harness::rows::Row;
use morpheus_harness::stats::Median;
use morpheus_harness::unit::Unit;

use super::conditions::Found;
use super::experiment::{WARMUP_MOST, Warmup};

/// The figure of a case in which each contender has one time.
pub const TIME: &str = "time";
/// The case of all that was counted, beside the times.
const COUNTED: &str = "counted";
/// Less than this is no cost, however small the noise is.
const LEAST_NS: f64 = 0.001;

/// How to read a limit.
pub const NOISE: &str = "A cost is to be at least as much as the noise: its whole interval is to lie above that of A/A, the \
                         difference of two measurements of the same thing.";

/// The time of a contender, in the nanoseconds of each experiment.
pub fn time(case: &str, contender: &str, ns: Vec<f64>) -> Row {
    Row::new(case, contender, TIME, Unit::Time, ns)
}

/// A cost, held against `same`, the differences of two measurements of the same thing: its interval is to lie above all of theirs.
pub fn beside(cost: Row, same: &[f64]) -> Row {
    let noise = |same: Median| same.low.abs().max(same.high.abs()).max(LEAST_NS);
    cost.held(Median::of(same).map(|same| Limit::AtLeast(noise(same))))
}

/// Adds the rows of a case, those of which nothing was measured left out.
pub fn put(found: &mut Found, case: &str, about: &str, rows: impl IntoIterator<Item = Row>) {
    found.add(case, about, rows.into_iter().filter(|row| row.n > 0));
}

/// Adds what was counted in the measurement of a contender.
pub fn counted(found: &mut Found, contender: &str, figure: &str, number: f64) {
    let about = "beside the times; the warm-up is the experiments before";
    let row = Row::new(COUNTED, contender, figure, Unit::Count, vec![number]);
    found.add(COUNTED, about, [row]);
}

/// Adds how many experiments came before those that count, and notes if they were not enough.
pub fn warmed_up(found: &mut Found, contender: &str, warmup: Warmup) {
    counted(found, contender, "warm-up", warmup.experiments as f64);
    // Fewer were ended by Ctrl-C.
    if !warmup.settled && warmup.experiments == WARMUP_MOST {
        found.notes.push(format!(
            "{contender}: the median had not settled after {WARMUP_MOST} experiments before."
        ));
    }
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Bar;
    use morpheus_harness::rows::view::spread;

    use super::*;

    fn row(ns: Vec<f64>) -> Row {
        time("a case", "a cost", ns)
    }

    #[test]
    fn known_readings_have_known_figures() {
        let hundred = row((1..=100).rev().map(f64::from).collect());
        let figures = (hundred.median, hundred.low, hundred.high);
        assert_eq!(figures, (Some(50.5), Some(40.0), Some(61.0)));
        let shown = ["40.0 ns to 61.0 ns", "1.00 ns", "100 ns", "50.5 ns", "100"];
        assert_eq!(spread(&hundred), shown);
        let few = row(vec![1.0; 5]);
        assert_eq!((few.low, few.high), (None, None));
        assert_eq!(spread(&few)[0], "n too small");
    }

    #[test]
    fn no_cost_stands_out_of_noise_that_is_greater() {
        let between = |low: f64, high: f64| row([low, high].repeat(50));
        let judged = |cost: Row, same: Row| beside(cost, &same.rounds).judged;
        for (cost, same, expected) in [
            ((5.0, 6.0), (-1.0, 1.0), Bar::Met),
            ((5.0, 6.0), (-7.0, 1.0), Bar::Missed),
            ((5.0, 8.0), (-7.0, 1.0), Bar::Undecided),
            ((-1.0, 6.0), (0.0, 0.0), Bar::Undecided),
            ((0.0, 0.0), (0.0, 0.0), Bar::Missed),
        ] {
            let judged = judged(between(cost.0, cost.1), between(same.0, same.1));
            assert_eq!(judged, Some(expected), "{cost:?} {same:?}");
        }
        assert_eq!(
            judged(row(vec![5.0]), between(0.0, 0.0)),
            Some(Bar::Undecided)
        );
        assert_eq!(judged(between(5.0, 6.0), row(vec![0.0])), None);
    }
}
