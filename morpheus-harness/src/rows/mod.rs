//! The results of a benchmark, as rows: one figure of one contender in one case.
//!
//! A benchmark names its cases and contenders, fills [`Rounds`] and declares its [`Figure`]s. Everything after that is here:
//! medians with intervals, ratios to what the contenders are compared with, the noise of that against itself, verdicts, means
//! over the cases, the tables ([`text`], [`markdown`], arranged by [`view`]) and, by [`Envelope`](crate::envelope::Envelope), one form of JSON.

mod bound;
pub mod markdown;
pub mod rounds;
pub mod text;
pub mod view;

use serde::{Deserialize, Serialize};

use crate::histogram::{self, Point, SAME, Summary};
use crate::pairs::{Bar, Limit, Pairs, Verdict};
use crate::stats::{self, Median};
use crate::unit::Unit;

pub use crate::histogram::Part;
pub use bound::Bound;
pub use rounds::Rounds;

/// A figure that a benchmark takes from each measurement.
#[derive(Debug)]
pub struct Figure<M> {
    /// The name, in a few words.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    of: Of<M>,
}

/// How a figure is read from a measurement; `None` where a case has none.
#[derive(Debug)]
enum Of<M> {
    Number(fn(&M) -> Option<f64>),
    Latency(fn(&M) -> Option<&Summary>, Part),
}

/// The samples behind a summary.
pub const SAMPLES: Figure<Summary> = Figure::count("samples", |summary| Some(summary.n as f64));

/// The suffix of the name of a figure whose row has the percentile curve.
pub const P50: &str = " p50";

impl<M> Figure<M> {
    /// A number that is known where it is there.
    pub const fn new(name: &'static str, unit: Unit, of: fn(&M) -> Option<f64>) -> Self {
        Self {
            name,
            unit,
            of: Of::Number(of),
        }
    }

    /// A time, in nanoseconds.
    pub const fn time(name: &'static str, of: fn(&M) -> Option<f64>) -> Self {
        Self::new(name, Unit::Time, of)
    }

    /// A count.
    pub const fn count(name: &'static str, of: fn(&M) -> Option<f64>) -> Self {
        Self::new(name, Unit::Count, of)
    }

    /// A share.
    pub const fn share(name: &'static str, of: fn(&M) -> Option<f64>) -> Self {
        Self::new(name, Unit::Share, of)
    }

    /// A part of a latency.
    pub const fn latency(name: &'static str, part: Part, of: fn(&M) -> Option<&Summary>) -> Self {
        Self {
            name,
            unit: Unit::Time,
            of: Of::Latency(of, part),
        }
    }

    /// The figure of a measurement.
    pub fn value(&self, measured: &M) -> Option<f64> {
        match self.of {
            Of::Number(of) => of(measured),
            Of::Latency(of, part) => part.of(of(measured)?),
        }
    }

    /// Whether it is only known to be at least this: what was waited for did not come before the end.
    fn is_least(&self, measured: &M) -> bool {
        let Of::Latency(of, part) = self.of else {
            return false;
        };
        of(measured).is_some_and(|summary| summary.at_least.contains(&part))
    }

    /// The percentile curve that goes with it.
    fn curve<'a>(&self, measured: &'a M) -> &'a [Point] {
        match self.of {
            Of::Latency(of, Part::P50) => of(measured).map_or(&[], |summary| &summary.curve),
            _ => &[],
        }
    }
}

/// The figures of a latency: `latency_figures!("wake", |run| Some(&run.wake_ns))` has a p50, a p99, a p99.9 and the longest.
#[macro_export]
macro_rules! latency_figures {
    ($name:literal, $of:expr) => {{
        use $crate::rows::{Figure, Part};
        [
            Figure::latency(concat!($name, " p50"), Part::P50, $of),
            Figure::latency(concat!($name, " p99"), Part::P99, $of),
            Figure::latency(concat!($name, " p99.9"), Part::P999, $of),
            Figure::latency(concat!($name, " max"), Part::Max, $of),
        ]
    }};
}

/// With this many rounds, their range says whether a figure keeps to a limit. From six on it is the 95 % interval of the median.
const LEAST_ROUNDS: usize = 3;

/// One figure of one contender in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case.
    pub case: String,
    /// The contender that was measured.
    pub contender: String,
    /// The name of the figure.
    pub figure: String,
    /// Its unit.
    pub unit: Unit,
    /// Rounds, or samples.
    pub n: usize,
    /// The median of the rounds.
    pub median: Option<f64>,
    /// The lower end of its 95 % interval, from six rounds on.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The figure of each round, in their order; empty where the median is of `n` samples.
    pub rounds: Vec<f64>,
    /// The number of each round, and how well its figure is known; empty where nothing is.
    #[serde(skip)]
    pub bounds: Vec<(usize, Bound)>,
    /// In how many of them the figure is only known to be at least this.
    #[serde(default)]
    pub censored: usize,
    /// In how many of them it is only known to be at most this.
    #[serde(default)]
    pub bounded: usize,
    /// How well the median is known.
    #[serde(default, skip_serializing_if = "Bound::is_exact")]
    pub bound: Bound,
    /// The percentile curve behind a median of latencies: the median of the rounds at each percentile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
    /// The limit that the figure is held against.
    pub limit: Option<Limit>,
    /// Whether it keeps to that.
    pub judged: Option<Bar>,
    /// The figure against that of another contender. That one has none.
    pub ratio: Option<Ratio>,
    /// The finding on a feature in which the two contenders differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

/// The finding of a figure on a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// It is better with it, beyond the noise.
    Wins,
    /// It is worse with it.
    Costs,
    /// No difference beyond the noise.
    NoDifference,
    /// There are too few pairs to say.
    TooFew,
}

impl Finding {
    /// Of a verdict on a contender that differs by the feature, where more of the figure says that it wins, or that it costs.
    pub fn of(verdict: &Verdict, more_is_win: bool) -> Self {
        match verdict {
            Verdict::TooFew { .. } => Self::TooFew,
            Verdict::InsideNoise { .. } => Self::NoDifference,
            Verdict::Differs { difference, .. } if (difference.median > 0.0) == more_is_win => {
                Self::Wins
            }
            Verdict::Differs { .. } => Self::Costs,
        }
    }

    /// For people.
    pub fn says(self) -> &'static str {
        match self {
            Self::Wins => "wins",
            Self::Costs => "costs",
            Self::NoDifference => "no difference",
            Self::TooFew => "n too small",
        }
    }
}

/// A contender against another, in pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other one.
    pub to: String,
    /// The median of the pairs' ratios.
    pub median: Option<f64>,
    /// The lower end of its 95 % interval, from six pairs on.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The relative difference of each pair, and of the other one against itself.
    pub pairs: Pairs,
    /// The verdict on the pairs.
    pub verdict: Verdict,
    /// The limit that the ratio is held against.
    pub limit: Option<Limit>,
    /// Whether it keeps to that.
    pub judged: Option<Bar>,
}

impl Row {
    /// Of what was measured in each round.
    pub fn new(case: &str, contender: &str, figure: &str, unit: Unit, rounds: Vec<f64>) -> Self {
        let interval = Median::of(&rounds);
        Self {
            case: case.into(),
            contender: contender.into(),
            figure: figure.into(),
            unit,
            n: rounds.len(),
            median: histogram::median(rounds.clone()),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            rounds,
            ..Self::default()
        }
    }

    /// The same, of rounds with these numbers whose figures are known so well. The median is a bound where other figures that they may
    /// have would move it by more than [`SAME`].
    #[must_use]
    pub fn bounded_by(self, bounds: Vec<(usize, Bound)>) -> Self {
        let count = |is: fn(&Bound) -> bool| bounds.iter().filter(|(_, of)| is(of)).count();
        let median = self.median.unwrap_or(0.0);
        let least_move = median.abs() * SAME;
        let median_if = |is: fn(&Bound) -> bool, then: f64| {
            let each = self.rounds.iter().zip(&bounds);
            let each = each.map(|(figure, (_, of))| if is(of) { then } else { *figure });
            histogram::median(each.collect()).unwrap_or(median)
        };
        let most = median_if(|of| of.at_least, f64::INFINITY);
        let least = median_if(|of| of.at_most, f64::NEG_INFINITY);
        Self {
            censored: count(|of| of.at_least),
            bounded: count(|of| of.at_most),
            bound: Bound::of(most > median + least_move, least < median - least_move),
            bounds,
            ..self
        }
    }

    /// This figure against another's, round by round, as a row of a figure `named` so: what `against` makes of the two, which is less the
    /// larger the other one is. `None` where they are not of the same rounds, or it is no number.
    pub fn over(
        &self,
        other: &Row,
        (named, unit): (&str, Unit),
        against: fn(f64, f64) -> f64,
    ) -> Option<Row> {
        let both = self.rounds.iter().zip(&other.rounds);
        let each: Vec<f64> = both.map(|(own, other)| against(*own, *other)).collect();
        let bounds = self.bounds.iter().zip(&other.bounds);
        let is_same = bounds.clone().all(|(own, other)| own.0 == other.0);
        // Nothing over nothing is no number.
        let is_number = each.iter().all(|each| each.is_finite());
        let bounds = bounds.map(|(own, other)| (own.0, own.1.over(other.1)));
        let row = Row::new(&self.case, &self.contender, named, unit, each);
        let row = row.bounded_by(bounds.collect());
        (self.n == other.n && is_same && is_number).then_some(row)
    }

    /// Held against a limit with its interval, or with the range of three to five rounds. A figure that is the same in each round
    /// needs no more than two of them. One that may be more in some round is not known to keep below a limit, nor to miss one from below,
    /// and one that may be less the other way round. Where there is no limit it stays as it is.
    #[must_use]
    pub fn held(self, limit: impl Into<Option<Limit>>) -> Self {
        let Some(limit) = limit.into() else {
            return self;
        };
        let is_exact =
            self.rounds.len() > 1 && self.rounds.iter().all(|figure| *figure == self.rounds[0]);
        let exact = self.median.filter(|_| is_exact);
        let interval = exact
            .map(|exact| (exact, exact))
            .or(self.low.zip(self.high))
            .or(self.range().filter(|_| self.n >= LEAST_ROUNDS));
        let judged = interval.map(|(low, high)| limit.judge_interval(low, high));
        let is_unknown = |judged: &Bar| match (limit, judged) {
            (Limit::AtMost(_), Bar::Met) | (Limit::AtLeast(_), Bar::Missed) => self.censored > 0,
            (Limit::AtMost(_), Bar::Missed) | (Limit::AtLeast(_), Bar::Met) => self.bounded > 0,
            _ => false,
        };
        let judged = judged.filter(|judged| !is_unknown(judged));
        self.judged_as(limit, judged)
    }

    fn range(&self) -> Option<(f64, f64)> {
        let least = self.rounds.iter().copied().reduce(f64::min);
        least.zip(self.rounds.iter().copied().reduce(f64::max))
    }

    /// Held against a limit, for what was counted and is not a sample. Where there is no limit it stays as it is.
    #[must_use]
    pub fn held_exactly(self, limit: impl Into<Option<Limit>>) -> Self {
        let Some(limit) = limit.into() else {
            return self;
        };
        let judged = self
            .median
            .map(|median| limit.judge_interval(median, median));
        self.judged_as(limit, judged)
    }

    fn judged_as(mut self, limit: Limit, judged: Option<Bar>) -> Self {
        self.limit = Some(limit);
        self.judged = Some(judged.unwrap_or(Bar::Undecided));
        self
    }

    /// How far from 1 the ratio of the other one to itself may lie, where there are pairs enough to say.
    pub fn noise(&self) -> Option<f64> {
        match self.ratio.as_ref()?.verdict {
            Verdict::TooFew { .. } => None,
            Verdict::InsideNoise { noise, .. } | Verdict::Differs { noise, .. } => Some(noise),
        }
    }
}

impl Ratio {
    /// To `to`, by these pairs.
    pub fn new(to: &str, pairs: Pairs, limit: Option<Limit>) -> Self {
        let ratio = |difference: f64| 1.0 + difference;
        let interval = Median::of(&pairs.differences);
        let verdict = pairs.verdict();
        Self {
            to: to.into(),
            median: histogram::median(pairs.differences.clone()).map(ratio),
            low: interval.map(|interval| ratio(interval.low)),
            high: interval.map(|interval| ratio(interval.high)),
            verdict,
            limit,
            judged: limit.map(|limit| limit.judge(&verdict)),
            pairs,
        }
    }

    /// The verdict in a word or two.
    pub fn says(&self) -> &'static str {
        match self.verdict {
            Verdict::TooFew { .. } => "n too small",
            Verdict::InsideNoise { .. } => "no difference",
            Verdict::Differs { difference, .. } if difference.median > 0.0 => "more",
            Verdict::Differs { .. } => "less",
        }
    }
}

/// A figure of each other contender of a case against that of `other`, as [`Row::over`].
pub fn against(
    rows: &[Row],
    other: &str,
    figure: &str,
    named: (&str, Unit),
    of: fn(f64, f64) -> f64,
) -> Vec<Row> {
    let all = rows.iter().filter(|row| row.figure == figure);
    let (to, others): (Vec<&Row>, Vec<&Row>) = all.partition(|row| row.contender == other);
    let over = |row: &Row| row.over(to.first()?, named, of);
    others.into_iter().filter_map(over).collect()
}

/// Geometric means of ratios over the cases that `counts`: for each contender and each figure that all of these cases have.
/// Round by round, so that a mean has pairs of its own, and noise.
pub fn means(
    rows: &[Row],
    counts: impl Fn(&str) -> bool,
    limit: impl Fn(&Row) -> Option<Limit>,
) -> Vec<Row> {
    let counted = rows.iter().filter(|row| counts(&row.case));
    // The same figure of the same contender against the same other one.
    let groups = view::grouped(counted, |row| {
        Some((&row.contender, &row.figure, view::to(row)?))
    });
    let most = groups.iter().map(|(_, group)| group.len()).max();
    let of = |group: &Vec<&Row>| {
        let over = |part: fn(&Pairs) -> &Vec<f64>| {
            let all = group.iter().filter_map(|row| row.ratio.as_ref());
            geometric(&all.map(|ratio| &part(&ratio.pairs)[..]).collect::<Vec<_>>())
        };
        let pairs = Pairs {
            differences: over(|pairs| &pairs.differences),
            control: over(|pairs| &pairs.control),
        };
        let first = group[0];
        let to = view::to(first)?;
        let name = format!("mean of {}", group.len());
        let mut row = Row::new(&name, &first.contender, &first.figure, first.unit, vec![]);
        row.ratio = Some(Ratio::new(to, pairs, limit(first)));
        Some(row)
    };
    let whole = groups.iter().map(|(_, group)| group);
    let whole = whole.filter(|group| Some(group.len()) == most);
    whole.filter_map(of).collect()
}

/// The geometric mean of the cases' ratios, as a difference from 1, in each round that all of them have.
fn geometric(cases: &[&[f64]]) -> Vec<f64> {
    let rounds = cases.iter().map(|differences| differences.len()).min();
    let mean = |round: usize| {
        let logarithms: Vec<f64> = cases.iter().map(|all| all[round].ln_1p()).collect();
        stats::mean(&logarithms).map(f64::exp_m1)
    };
    (0..rounds.unwrap_or(0)).filter_map(mean).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Rows of one case with this number of pairs. The contender's figure is that of the other one times `factor`.
    pub fn rows(case: &str, pairs: usize, factor: f64, limit: Option<Limit>) -> Vec<Row> {
        let mut rounds = Rounds::new(1);
        for place in rounds::order(1, pairs) {
            let disturbed = 1_000.0 + ((place.number + place.round) % 3) as f64;
            let is_other = place.contender == 0;
            rounds.add(
                place,
                if is_other {
                    disturbed
                } else {
                    disturbed * factor
                },
            );
        }
        let figure = Figure::new("rate", Unit::Count, |value: &f64| Some(*value));
        let names = ["tokio".to_owned(), "morpheus".to_owned()];
        rounds.rows(case, &names, &[figure], |_, _| limit)
    }

    #[test]
    fn a_contender_has_its_median_and_its_ratio() {
        let limit = Some(Limit::AtLeast(0.97));
        let rows = rows("spawn", 12, 0.5, limit);
        let [other, own] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((other.n, own.n), (12, 12));
        assert!(other.ratio.is_none() && (other.median.unwrap() - 1_001.0).abs() < 1.0);
        let ratio = own.ratio.as_ref().unwrap();
        assert!((ratio.median.unwrap() - 0.5).abs() < 0.01);
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
        assert_eq!((ratio.says(), ratio.judged), ("less", Some(Bar::Missed)));
        assert!(own.noise().unwrap() < 0.01 && other.noise().is_none());
    }

    #[test]
    fn a_figure_is_held_against_its_limit_with_its_interval_or_exactly() {
        let row = |rounds: Vec<f64>| {
            let row = Row::new("a task", "morpheus", "requested", Unit::Bytes, rounds);
            row.held(Limit::AtMost(32.0)).judged
        };
        assert_eq!(row(vec![32.0; 2]), Some(Bar::Met));
        assert_eq!(row(vec![32.25; 2]), Some(Bar::Missed));
        assert_eq!(
            row(vec![32.0]),
            Some(Bar::Undecided),
            "it may have been chance"
        );
        assert_eq!(
            row(vec![31.0, 30.0]),
            Some(Bar::Undecided),
            "two are not a range"
        );
        assert_eq!(row(vec![31.0, 30.0, 31.0]), Some(Bar::Met));
        assert_eq!(row(vec![31.0, 30.0, 33.0]), Some(Bar::Undecided));
        assert_eq!(row([31.0, 30.0].repeat(3)), Some(Bar::Met));
        let counted = Row::new("sections", "within", "demoted", Unit::Count, vec![1.0]);
        let judged =
            [0.0, 1.0].map(|most| counted.clone().held_exactly(Limit::AtMost(most)).judged);
        assert_eq!(judged, [Some(Bar::Missed), Some(Bar::Met)]);
    }

    #[test]
    fn what_is_censored_is_not_known_to_keep_below_a_limit() {
        let row = |ms: f64, censored: usize| {
            let row = Row::new("a", "tokio", "p99", Unit::Time, vec![ms; 6]);
            let bounds = (0..6).map(|round| (round, Bound::of(round < censored, false)));
            let row = row.bounded_by(bounds.collect());
            let is_least = row.bound == Bound::AT_LEAST;
            (is_least, row.held(Limit::AtMost(5.0)).judged)
        };
        assert_eq!(row(4.0, 0), (false, Some(Bar::Met)));
        assert_eq!(row(4.0, 2), (false, Some(Bar::Undecided)));
        assert_eq!(row(4.0, 3), (true, Some(Bar::Undecided)));
        assert_eq!(row(6.0, 3), (true, Some(Bar::Missed)));
    }

    #[test]
    fn few_rounds_decide_nothing() {
        let rows = rows("spawn", 2, 0.5, Some(Limit::AtLeast(0.97)));
        let ratio = rows[1].ratio.as_ref().unwrap();
        assert_eq!(
            (ratio.says(), ratio.judged),
            ("n too small", Some(Bar::Undecided))
        );
        assert!(ratio.low.is_none() && rows[1].low.is_none() && rows[1].noise().is_none());
    }

    #[test]
    fn a_mean_is_geometric_and_of_the_cases_that_count() {
        let mut all = rows("half", 12, 0.5, None);
        all.extend(rows("twice", 10, 2.0, None));
        all.extend(rows("beside busy tasks", 12, 100.0, None));
        let limit = |_: &Row| Some(Limit::AtLeast(0.98));
        let means = means(&all, |case| case != "beside busy tasks", limit);
        let [mean] = &means[..] else {
            panic!("{means:?}");
        };
        let ratio = mean.ratio.as_ref().unwrap();
        assert_eq!(
            (mean.case.as_str(), ratio.pairs.differences.len()),
            ("mean of 2", 10)
        );
        assert!((ratio.median.unwrap() - 1.0).abs() < 0.01, "{ratio:?}");
        assert_eq!(ratio.judged, Some(Bar::Met));
        assert!(super::means(&[], |_| true, limit).is_empty());
    }
}
