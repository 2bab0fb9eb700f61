//! Rounds of measurements in pairs: A B C … A' A' … C B A and so on, where A' is A again.

use super::{Bound, Figure, Ratio, Row};
use crate::histogram::median_curve;
use crate::interrupt;
use crate::order::interleaved;
use crate::pairs::{Limit, Pairs};

/// One measurement of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which contender: 0 is the one that the others are compared with.
    pub contender: usize,
    /// Its number within the round; the last is contender 0 again.
    pub number: usize,
    /// Which round.
    pub round: usize,
}

/// The measurements of all rounds in their order. A round measures contender 0, the `compared` ones after it, and contender 0
/// again. Every other round goes backwards.
pub fn order(compared: usize, rounds: usize) -> impl Iterator<Item = Place> {
    places(compared + 2, compared, rounds)
}

/// The same for contenders that take turns. No contender is measured twice in a round.
pub fn in_turns(contenders: usize, rounds: usize) -> impl Iterator<Item = Place> {
    places(contenders, contenders, rounds)
}

/// Rounds of `count` places each. Those with a number beyond `last` are of contender 0.
fn places(count: usize, last: usize, rounds: usize) -> impl Iterator<Item = Place> {
    let numbers: Vec<usize> = (0..count).collect();
    let all = interleaved(&numbers, rounds).into_iter();
    all.map(move |(round, number)| Place {
        contender: if number > last { 0 } else { number },
        number,
        round,
    })
}

/// The measurements of each round.
#[derive(Debug)]
pub struct Rounds<M> {
    whole: Vec<Vec<M>>,
    current: Vec<Option<M>>,
}

impl<M> Rounds<M> {
    /// No round yet. A round has the places of [`order`] with this number of `compared` contenders.
    pub fn new(compared: usize) -> Self {
        Self::in_turns(compared + 2)
    }

    /// No round yet. A round has the places of [`in_turns`] with this number of contenders.
    pub fn in_turns(contenders: usize) -> Self {
        Self {
            whole: Vec::new(),
            current: (0..contenders).map(|_| None).collect(),
        }
    }

    /// Contenders that were measured once.
    pub fn once(measured: Vec<M>) -> Self {
        Self {
            current: measured.iter().map(|_| None).collect(),
            whole: vec![measured],
        }
    }

    /// Adds a measurement. Only rounds that are whole count.
    pub fn add(&mut self, place: Place, measured: M) {
        self.current[place.number] = Some(measured);
        if self.current.iter().all(Option::is_some) {
            let round = self.current.iter_mut().filter_map(Option::take).collect();
            self.whole.push(round);
        }
    }

    /// Measures at each place, until Ctrl-C comes or a measurement fails.
    ///
    /// # Errors
    /// That of the measurement, unless Ctrl-C came meanwhile: it may end a child in the middle.
    pub fn fill(
        &mut self,
        places: impl Iterator<Item = Place>,
        mut measure: impl FnMut(Place) -> Result<M, String>,
    ) -> Result<(), String> {
        for place in interrupt::until(places) {
            match measure(place) {
                Ok(measured) => self.add(place, measured),
                Err(_) if interrupt::happened() => break,
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Every measurement of the whole rounds.
    pub fn all(&self) -> impl Iterator<Item = &M> {
        self.whole.iter().flatten()
    }

    /// The measurements of a contender in the whole rounds; where there is none, in the first as far as it came.
    pub fn of(&self, contender: usize) -> impl Iterator<Item = &M> {
        let whole = self.whole.iter().map(move |round| &round[contender]);
        let is_first = self.whole.is_empty();
        whole.chain(self.current[contender].iter().filter(move |_| is_first))
    }

    /// The rows of a case: each figure of contender 0, then those of the others with their ratios to it. `names` has the
    /// contenders. A figure that the case does not have has no rows. Contenders that were measured in turns have no ratios.
    pub fn rows(
        &self,
        case: &str,
        names: &[String],
        figures: &[Figure<M>],
        limit: impl Fn(&Figure<M>, usize) -> Option<Limit>,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for (contender, name) in names.iter().enumerate() {
            for figure in figures {
                let Some(mut row) = self.row(case, name, contender, figure) else {
                    continue;
                };
                if contender > 0 && self.current.len() > names.len() {
                    let pairs = self.pairs(contender, figure);
                    row.ratio = Some(Ratio::new(&names[0], pairs, limit(figure, contender)));
                }
                rows.push(row);
            }
        }
        rows
    }

    /// One figure of one contender, unless no round has it.
    fn row(&self, case: &str, name: &str, contender: usize, figure: &Figure<M>) -> Option<Row> {
        let each = self.of(contender).enumerate().filter_map(|(round, own)| {
            let bound = Bound::of(figure.is_least(own), false);
            Some((figure.value(own)?, (round, bound)))
        });
        let (values, bounds): (Vec<f64>, Vec<(usize, Bound)>) = each.unzip();
        if values.is_empty() {
            return None;
        }
        let mut row = Row::new(case, name, figure.name, figure.unit, values).bounded_by(bounds);
        let curves = self.of(contender).map(|own| figure.curve(own));
        row.curve = median_curve(&curves.collect::<Vec<_>>());
        Some(row)
    }

    fn pairs(&self, contender: usize, figure: &Figure<M>) -> Pairs {
        let mut pairs = Pairs::default();
        for round in &self.whole {
            let all = [0, contender, round.len() - 1].map(|number| figure.value(&round[number]));
            if let [Some(a), Some(b), Some(again)] = all {
                pairs.push(a, b, again);
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::super::against;
    use super::*;
    use crate::histogram::{Latencies, Part, Summary};
    use crate::pairs::Bar;
    use crate::unit::Unit;

    #[test]
    fn every_other_round_goes_backwards_and_ends_with_the_first_again() {
        let places: Vec<Place> = order(2, 2).collect();
        let contenders: Vec<usize> = places.iter().map(|place| place.contender).collect();
        assert_eq!(contenders, [0, 1, 2, 0, 0, 2, 1, 0]);
        assert_eq!((places[4].number, places[4].round), (3, 1));
        assert_eq!(order(1, 0).count(), 0);
    }

    #[test]
    fn a_round_that_is_not_whole_does_not_count_and_neither_does_a_figure_that_is_not_there() {
        let mut rounds = Rounds::new(1);
        for place in order(1, 3).take(8) {
            rounds.add(place, 1.0 + place.number as f64);
        }
        assert_eq!(rounds.all().count(), 6);
        let figures = [
            Figure::new("rate", Unit::Count, |value: &f64| Some(*value)),
            Figure::new("p99", Unit::Time, |_| None),
        ];
        let names = ["tokio".into(), "morpheus".into()];
        let rows = rounds.rows("spawn", &names, &figures, |_, _| None);
        assert_eq!(rows.len(), 2);
        let pairs = &rows[1].ratio.as_ref().unwrap().pairs;
        assert_eq!(
            (&pairs.differences, &pairs.control),
            (&vec![1.0; 2], &vec![2.0; 2])
        );
    }

    #[test]
    fn in_turns_there_are_no_ratios_but_differences_to_the_first() {
        let mut rounds = Rounds::in_turns(2);
        for place in in_turns(2, 2) {
            rounds.add(place, [100.0, 130.0][place.contender] + place.round as f64);
        }
        let figure = Figure::new("resident", Unit::Bytes, |value: &f64| Some(*value));
        let names = ["tokio".into(), "morpheus".into()];
        let rows = rounds.rows("idle", &names, &[figure], |_, _| None);
        assert!(rows.len() == 2 && rows.iter().all(|row| row.ratio.is_none()));
        let over = against(
            &rows,
            "tokio",
            "resident",
            ("over tokio", Unit::Bytes),
            |a, b| a - b,
        );
        assert_eq!(over.len(), 1);
        assert_eq!(
            (&over[0].rounds, over[0].figure.as_str()),
            (&vec![30.0; 2], "over tokio")
        );
    }

    #[test]
    fn what_did_not_come_before_the_end_is_a_lower_bound() {
        let mut rounds = Rounds::in_turns(3);
        for place in in_turns(3, 4) {
            // Microseconds: the first waits beyond the end in each round, the second in one.
            let waits = place.contender == 0 || (place.contender == 1 && place.round == 2);
            let mut latencies = Latencies::default();
            match waits {
                true => latencies.record_pending_ns(2_000),
                false => latencies.record_ns(500),
            }
            rounds.add(place, latencies.summary());
        }
        let figure = Figure::latency("p99", Part::P50, |summary: &Summary| Some(summary));
        let names = ["tokio".into(), "rewritten".into(), "morpheus".into()];
        let rows = rounds.rows("hogs", &names, &[figure], |_, _| None);
        let censored: Vec<usize> = rows.iter().map(|row| row.censored).collect();
        assert_eq!(censored, [4, 1, 0]);
        let times = against(&rows, "morpheus", "p99", ("times", Unit::Factor), |a, b| {
            a / b
        });
        let found: Vec<_> = times
            .iter()
            .map(|row| (row.median, row.n, row.censored, row.bound))
            .collect();
        let (exact, least) = (Bound::EXACT, Bound::AT_LEAST);
        assert_eq!(found, [(Some(4.0), 4, 4, least), (Some(1.0), 4, 1, exact)]);
        // Over a lower bound it is at most this.
        let named = ("times", Unit::Factor);
        let times = against(&rows, "tokio", "p99", named, |a, b| a / b);
        let [rewritten, morpheus] = &times[..] else {
            panic!("{times:?}");
        };
        assert_eq!(
            (rewritten.censored, rewritten.bounded, rewritten.bound),
            (1, 4, Bound::of(false, true))
        );
        assert_eq!(morpheus.bound, Bound::of(false, true));
        let judged = |row: &Row, limit| row.clone().held(limit).judged;
        let (met, open) = (Some(Bar::Met), Some(Bar::Undecided));
        assert_eq!(judged(morpheus, Limit::AtMost(1.0)), met);
        assert_eq!(judged(morpheus, Limit::AtMost(0.1)), open);
        assert_eq!(judged(morpheus, Limit::AtLeast(0.1)), open);
        assert_eq!(judged(rewritten, Limit::AtMost(1.5)), open);
    }

    #[test]
    fn figures_of_other_rounds_are_not_compared() {
        let mut rounds = Rounds::in_turns(2);
        for place in in_turns(2, 3) {
            // Each has no figure in one round, and not in the same.
            let is_there = place.round != place.contender;
            rounds.add(place, is_there.then_some(place.round as f64));
        }
        let figure = Figure::new("p99", Unit::Time, |value: &Option<f64>| *value);
        let names = ["tokio".into(), "morpheus".into()];
        let rows = rounds.rows("hogs", &names, &[figure], |_, _| None);
        assert_eq!([rows[0].n, rows[1].n], [2, 2]);
        let named = ("times", Unit::Factor);
        assert!(rows[1].over(&rows[0], named, |a, b| a / b).is_none());
        let zero = Row::new("hogs", "tokio", "p99", Unit::Time, vec![0.0]);
        assert!(zero.over(&zero, named, |a, b| a / b).is_none());
    }

    #[test]
    fn a_median_is_a_bound_where_what_is_not_known_could_move_it() {
        let known = |rounds: [f64; 4], waits: &[usize]| {
            let known = |round| match waits.contains(&round) {
                true => Bound::AT_LEAST,
                false => Bound::EXACT,
            };
            let row = Row::new("hogs", "tokio", "p99", Unit::Time, rounds.to_vec());
            let known = (0..4).map(|round| (round, known(round)));
            row.bounded_by(known.collect()).bound
        };
        let rounds = [1.0, 2.0, 2.05, 9.0];
        assert_eq!(known(rounds, &[]), Bound::EXACT);
        assert_eq!(known(rounds, &[3]), Bound::EXACT);
        // It may be as long as 9: then the median is not 2.025 any more.
        assert_eq!(known(rounds, &[1]), Bound::AT_LEAST);
        assert_eq!(known(rounds, &[2, 3]), Bound::AT_LEAST);
        // A difference may be negative, and there may be no round.
        assert_eq!(known([-2.0, -1.0, -3.0, -2.0], &[]), Bound::EXACT);
        let none = Row::new("hogs", "tokio", "p99", Unit::Time, vec![]);
        assert_eq!(none.bounded_by(vec![]).bound, Bound::EXACT);
    }

    #[test]
    fn of_the_first_round_stands_what_there_is() {
        let mut rounds = Rounds::in_turns(2);
        let places: Vec<Place> = in_turns(2, 2).collect();
        rounds.add(places[0], 1.0);
        assert_eq!([0, 1].map(|contender| rounds.of(contender).count()), [1, 0]);
        rounds.add(places[1], 2.0);
        rounds.add(places[2], 3.0);
        assert_eq!([0, 1].map(|contender| rounds.of(contender).count()), [1, 1]);
    }

    #[test]
    fn a_latency_has_its_percentiles_and_the_median_curve_of_the_rounds() {
        let mut rounds = Rounds::in_turns(1);
        for place in in_turns(1, 3) {
            let mut latencies = Latencies::default();
            (1..=2_000).for_each(|us| latencies.record_ns(us * [1, 9, 2][place.round] * 1_000));
            rounds.add(place, latencies.summary());
        }
        let figures = crate::latency_figures!("wake", |summary: &Summary| Some(summary));
        let rows = rounds.rows("hogs", &["morpheus".into()], &figures, |_, _| None);
        let names: Vec<&str> = rows.iter().map(|row| row.figure.as_str()).collect();
        assert_eq!(
            names,
            ["wake p50", "wake p99", "wake max"],
            "too few for p99.9"
        );
        let [p50, p99, _] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert!((p50.median.unwrap() / 2e6 - 1.0).abs() < 0.01, "{p50:?}");
        assert!(p99.curve.is_empty() && p50.curve.len() > 5, "{p50:?}");
        let half = p50.curve.iter().find(|point| point.0 == 0.5).unwrap();
        assert!((half.1 as f64 / 2e6 - 1.0).abs() < 0.01, "{half:?}");
    }
}
