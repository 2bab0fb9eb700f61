//! What `--json` prints.

use serde::{Deserialize, Serialize};

use super::cases::Case;
use super::child::Measurement;
use super::config::Options;
use super::contender::Contender;
use crate::histogram::median;
use crate::host::Host;
use crate::interrupt;
use crate::pairs::{Bar, Pairs, Verdict};
use crate::stats::{self, Median};

/// The upper end of the rate's interval is to reach this.
pub const RATE_BAR: f64 = 0.97;
/// CPU time of an operation is to be at most this.
pub const CPU_BAR: f64 = 1.03;
/// Likewise where every task is watched.
pub const WATCHED_CPU_BAR: f64 = 1.05;
/// The geometric mean of the rates is to be at least this.
pub const MEAN_BAR: f64 = 0.99;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `compare`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// Workers of each runtime.
    pub workers: usize,
    /// Pairs that were asked for.
    pub pairs: usize,
    /// How long a measurement takes, about.
    pub window_ms: f64,
    /// The cases, beside each runtime that is compared with.
    pub cases: Vec<Measured>,
    /// Geometric means over the cases.
    pub means: Vec<Mean>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// A case beside one runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub case: String,
    /// What one operation is.
    pub operation: String,
    /// Whether other tasks compute meanwhile: the CPU time of an operation is then mostly theirs.
    pub beside_busy: bool,
    /// What is compared with.
    pub against: Contender,
    /// Operations of each measurement: all of them were done.
    pub operations: u64,
    /// Operations a second there, the median.
    pub rate_per_s: Option<f64>,
    /// CPU time of an operation there, the median.
    pub cpu_ns: Option<f64>,
    /// p99 of an operation there, the median, where operations are timed one by one.
    pub p99_ns: Option<f64>,
    /// Measurements of all runtimes, and how many of them began before the warm-up had settled.
    pub measurements: usize,
    /// Those.
    pub unsettled: usize,
    /// What is compared with it.
    pub compared: Vec<Compared>,
    /// Why it could not be measured to its end.
    pub failed: Option<String>,
}

/// A runtime against that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// Which.
    pub runtime: Contender,
    /// Operations a second, the median.
    pub rate_per_s: Option<f64>,
    /// CPU time of an operation, the median.
    pub cpu_ns: Option<f64>,
    /// p99 of an operation, the median.
    pub p99_ns: Option<f64>,
    /// Operations a second: more is better.
    pub rate: Ratio,
    /// CPU time of an operation: less is better.
    pub cpu: Ratio,
    /// p99 of an operation: less is better. Has no bar.
    pub p99: Option<Ratio>,
}

/// Of two runtimes, in pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Relative differences.
    pub pairs: Pairs,
    /// What they show.
    pub verdict: Verdict,
    /// What the ratio is held against.
    pub bar: Option<f64>,
    /// The ratio against it.
    pub judged: Option<Bar>,
}

/// Of a runtime's ratios over the cases in which nobody else computes. Those in which somebody does differ by orders of
/// magnitude, and one of them would outweigh all others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mean {
    /// Which.
    pub runtime: Contender,
    /// What it is compared with.
    pub against: Contender,
    /// How many cases.
    pub cases: usize,
    /// Of the rates: round by round a geometric mean, and of those the median.
    pub rate: Option<Median>,
    /// Of CPU times, likewise.
    pub cpu: Option<Median>,
    /// What the rates' is held against.
    pub bar: f64,
    /// It, against that.
    pub judged: Bar,
}

/// Rounds of measurements: the reference, the reference again, and what is compared.
#[derive(Debug)]
pub struct Rounds {
    all: Vec<Vec<Measurement>>,
    compared: usize,
}

impl Rounds {
    /// None yet, of so many that are compared.
    pub fn new(compared: usize) -> Self {
        Self {
            all: Vec::new(),
            compared,
        }
    }

    /// Adds one.
    ///
    /// # Panics
    /// When it does not have everybody.
    pub fn push(&mut self, round: Vec<Measurement>) {
        assert_eq!(round.len(), 2 + self.compared);
        self.all.push(round);
    }

    fn figures(&self, place: usize, figure: impl Fn(&Measurement) -> Option<f64>) -> Vec<f64> {
        self.all
            .iter()
            .filter_map(|round| figure(&round[place]))
            .collect()
    }

    fn pairs(&self, compared: usize, figure: impl Fn(&Measurement) -> Option<f64>) -> Pairs {
        let mut pairs = Pairs::default();
        for round in &self.all {
            let all = [0, 2 + compared, 1].map(|place| figure(&round[place]));
            if let [Some(a), Some(b), Some(again)] = all {
                pairs.push(a, b, again);
            }
        }
        pairs
    }
}

fn rate(measured: &Measurement) -> Option<f64> {
    Some(measured.rate())
}

fn cpu(measured: &Measurement) -> Option<f64> {
    Some(measured.cpu_each())
}

fn p99(measured: &Measurement) -> Option<f64> {
    measured.p99_ns.map(|ns| ns as f64)
}

impl Measured {
    /// Of these rounds.
    pub fn new(
        case: &Case,
        against: Contender,
        options: &Options,
        operations: u64,
        rounds: &Rounds,
        failed: Option<String>,
    ) -> Self {
        let compared = options.runtime.iter().enumerate();
        let every = || rounds.all.iter().flatten();
        Self {
            case: case.name.into(),
            operation: case.operation.into(),
            beside_busy: case.beside_busy,
            against,
            operations,
            rate_per_s: median(rounds.figures(0, rate)),
            cpu_ns: median(rounds.figures(0, cpu)),
            p99_ns: median(rounds.figures(0, p99)),
            measurements: every().count(),
            unsettled: every().filter(|measured| !measured.settled).count(),
            compared: compared
                .map(|(i, runtime)| Compared::new(*runtime, i, rounds))
                .collect(),
            failed,
        }
    }
}

impl Compared {
    fn new(runtime: Contender, i: usize, rounds: &Rounds) -> Self {
        let p99_pairs = rounds.pairs(i, p99);
        let cpu_bar = if runtime.watched {
            WATCHED_CPU_BAR
        } else {
            CPU_BAR
        };
        Self {
            runtime,
            rate_per_s: median(rounds.figures(2 + i, rate)),
            cpu_ns: median(rounds.figures(2 + i, cpu)),
            p99_ns: median(rounds.figures(2 + i, p99)),
            rate: Ratio::at_least(rounds.pairs(i, rate), RATE_BAR),
            cpu: Ratio::at_most(rounds.pairs(i, cpu), cpu_bar),
            p99: (!p99_pairs.differences.is_empty()).then(|| Ratio::of(p99_pairs)),
        }
    }
}

impl Ratio {
    pub(crate) fn of(pairs: Pairs) -> Self {
        Self {
            verdict: pairs.verdict(),
            pairs,
            bar: None,
            judged: None,
        }
    }

    /// For what is to be small. Where it is smaller beyond the noise, the bar is met, however great the noise is.
    pub(crate) fn at_most(pairs: Pairs, bar: f64) -> Self {
        let mut ratio = Self::of(pairs);
        ratio.bar = Some(bar);
        ratio.judged = Some(match ratio.verdict {
            Verdict::Differs { difference, .. } if difference.high < 0.0 => Bar::Met,
            verdict => verdict.judge(bar - 1.0),
        });
        ratio
    }

    /// For what is to be large, where the interval only has to reach the bar. It misses it where it stays below and
    /// the noise does not explain that.
    fn at_least(pairs: Pairs, bar: f64) -> Self {
        let mut ratio = Self::of(pairs);
        ratio.bar = Some(bar);
        ratio.judged = Some(match ratio.verdict {
            Verdict::TooFew { .. } => Bar::Undecided,
            Verdict::InsideNoise { difference, noise } | Verdict::Differs { difference, noise } => {
                if 1.0 + difference.high >= bar {
                    Bar::Met
                } else if difference.high < -noise {
                    Bar::Missed
                } else {
                    Bar::Undecided
                }
            }
        });
        ratio
    }

    /// The median of the pairs, as a ratio, and its interval where there are enough.
    pub fn median(&self) -> Option<(f64, Option<(f64, f64)>)> {
        let median = median(self.pairs.differences.clone())?;
        let interval = Median::of(&self.pairs.differences);
        let interval = interval.map(|all| (1.0 + all.low, 1.0 + all.high));
        Some((1.0 + median, interval))
    }
}

impl Mean {
    /// Over the cases beside one runtime.
    fn of(cases: &[Measured], runtime: Contender, against: Contender) -> Self {
        let own: Vec<&Compared> = cases
            .iter()
            .filter(|case| case.against == against && case.failed.is_none() && !case.beside_busy)
            .flat_map(|case| case.compared.iter().filter(|one| one.runtime == runtime))
            .collect();
        let over = |figure: fn(&Compared) -> &Ratio| {
            let all = own.iter().map(|one| &figure(one).pairs.differences[..]);
            geometric(&all.collect::<Vec<_>>())
        };
        let rate = over(|one| &one.rate);
        Self {
            runtime,
            against,
            cases: own.len(),
            rate,
            cpu: over(|one| &one.cpu),
            bar: MEAN_BAR,
            judged: match rate {
                Some(rate) if rate.low >= MEAN_BAR => Bar::Met,
                Some(rate) if rate.high < MEAN_BAR => Bar::Missed,
                _ => Bar::Undecided,
            },
        }
    }
}

/// The geometric mean of the cases' ratios in each round that all of them have, and of these the median.
pub(crate) fn geometric(cases: &[&[f64]]) -> Option<Median> {
    let rounds = cases.iter().map(|differences| differences.len()).min()?;
    let mean = |round: usize| {
        let logarithms: Vec<f64> = cases.iter().map(|all| all[round].ln_1p()).collect();
        stats::mean(&logarithms).map(f64::exp)
    };
    let means: Vec<f64> = (0..rounds).filter_map(mean).collect();
    Median::of(&means)
}

impl Report {
    /// Of what was measured.
    pub fn new(host: Host, options: &Options, cases: Vec<Measured>) -> Self {
        let means = options
            .against
            .iter()
            .flat_map(|against| options.runtime.iter().map(|runtime| (*runtime, *against)))
            .map(|(runtime, against)| Mean::of(&cases, runtime, against))
            .collect();
        Self {
            bench: "compare".into(),
            host,
            workers: options.workers,
            pairs: options.pairs,
            window_ms: options.window_ms,
            cases,
            means,
            interrupted: interrupt::happened(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    use crate::compare::cases;

    fn measurement(elapsed_ns: u64, cpu_ns: u64) -> Measurement {
        Measurement {
            operations: 1_000,
            elapsed_ns,
            cpu_ns,
            p99_ns: None,
            settled: true,
        }
    }

    /// Rounds in which what is compared takes this many times as long, and so much CPU time.
    fn rounds(pairs: u64, slower: f64, more: f64) -> Rounds {
        let mut rounds = Rounds::new(1);
        for i in 0..pairs {
            let base = 1_000_000 + 1_000 * (i % 3);
            let again = 1_000_000 + 1_000 * ((i + 1) % 3);
            let of = |ns: u64| measurement(ns, ns);
            let b = measurement((base as f64 * slower) as u64, (base as f64 * more) as u64);
            rounds.push(vec![of(base), of(again), b]);
        }
        rounds
    }

    /// The report of one case with such rounds.
    pub fn report(line: &str, pairs: u64, slower: f64, more: f64) -> Report {
        let words = ["compare", "--case", "spawn"].into_iter();
        let options = Options::parse_from(words.chain(line.split_whitespace()));
        let case = cases::named("spawn").unwrap();
        let rounds = rounds(pairs, slower, more);
        let measured = Measured::new(case, options.against[0], &options, 1_000, &rounds, None);
        Report::new(Host::read(), &options, vec![measured])
    }

    fn judged(runtime: &str, slower: f64, more: f64) -> (Option<Bar>, Option<Bar>) {
        let report = report(&format!("--runtime {runtime}"), 12, slower, more);
        let compared = &report.cases[0].compared[0];
        (compared.rate.judged, compared.cpu.judged)
    }

    #[test]
    fn a_slower_runtime_misses_its_bars_and_a_faster_one_does_not() {
        assert_eq!(
            judged("morpheus", 1.1, 1.1),
            (Some(Bar::Missed), Some(Bar::Missed))
        );
        assert_eq!(
            judged("morpheus", 0.9, 0.9),
            (Some(Bar::Met), Some(Bar::Met))
        );
        // Watched tasks may cost more.
        assert_eq!(judged("morpheus", 1.0, 1.04).1, Some(Bar::Missed));
        assert_eq!(judged("morpheus-watched", 1.0, 1.04).1, Some(Bar::Met));
    }

    #[test]
    fn rates_are_the_other_way_round_than_times() {
        let report = report("--runtime morpheus", 12, 2.0, 0.5);
        let case = &report.cases[0];
        let compared = &case.compared[0];
        let (rate, interval) = compared.rate.median().unwrap();
        assert!((rate - 0.5).abs() < 0.01 && interval.is_some(), "{rate}");
        assert!((compared.cpu.median().unwrap().0 - 0.5).abs() < 0.01);
        assert!((case.rate_per_s.unwrap() - 1e6).abs() < 1e4);
        assert!((case.cpu_ns.unwrap() - 1_000.0).abs() < 10.0);
        assert!(compared.p99.is_none() && case.p99_ns.is_none());
        assert!(matches!(compared.rate.verdict, Verdict::Differs { .. }));
    }

    #[test]
    fn few_pairs_decide_nothing() {
        let report = report("--runtime morpheus --pairs 2", 2, 2.0, 2.0);
        let compared = &report.cases[0].compared[0];
        assert_eq!(compared.rate.judged, Some(Bar::Undecided));
        assert_eq!(compared.rate.verdict, Verdict::TooFew { pairs: 2 });
        assert_eq!(report.means[0].judged, Bar::Undecided);
        assert!(compared.rate.median().unwrap().1.is_none());
    }

    #[test]
    fn a_geometric_mean_is_of_the_rounds_that_all_cases_have() {
        let (half, twice) = (vec![-0.5; 12], vec![1.0; 10]);
        let mean = geometric(&[&half, &twice]).unwrap();
        assert!((mean.median - 1.0).abs() < 1e-12 && (mean.high - 1.0).abs() < 1e-12);
        assert!(geometric(&[]).is_none() && geometric(&[&half, &[]]).is_none());
        let report = report("--runtime morpheus", 12, 1.1, 1.0);
        let mean = &report.means[0];
        assert_eq!((mean.cases, mean.judged), (1, Bar::Missed));
        assert!((mean.rate.unwrap().median - 1.0 / 1.1).abs() < 0.01);
        assert!((mean.cpu.unwrap().median - 1.0).abs() < 0.01);
    }
}
