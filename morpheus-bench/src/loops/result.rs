//! What `--json` prints.

use serde::{Deserialize, Serialize};

use super::config::Options;
use super::form::{Case, Form};
use crate::compare::{Ratio, geometric};
use crate::histogram::median;
use crate::host::Host;
use crate::interrupt;
use crate::pairs::{Bar, Pairs};
use crate::stats::Median;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `loops`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// Pairs that were asked for.
    pub pairs: usize,
    /// How long a measurement takes, about.
    pub window_ms: f64,
    /// Spares of the runtime.
    pub spares: usize,
    /// The loops.
    pub loops: Vec<Measured>,
    /// Each form over all loops.
    pub summaries: Vec<Summary>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// One loop in all forms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Whether the plain form is vectorised.
    pub vectorised: bool,
    /// Turns of one run.
    pub turns: usize,
    /// Turns of a block with one checkpoint.
    pub block: usize,
    /// CPU time of a plain run, the median.
    pub plain_ns: Option<f64>,
    /// Measurements of each form.
    pub measurements: usize,
    /// Its forms.
    pub compared: Vec<Compared>,
    /// Why it could not be measured to its end.
    pub failed: Option<String>,
}

/// A form against the plain one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// Which.
    pub form: Form,
    /// CPU time of a run: less is better.
    pub cpu: Ratio,
}

/// A form over all loops.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Which.
    pub form: Form,
    /// How many loops.
    pub loops: usize,
    /// The geometric mean of the ratios: round by round, and of those the median.
    pub mean: Option<Median>,
    /// What it is held against.
    pub mean_bar: Option<f64>,
    /// It, against that.
    pub mean_judged: Option<Bar>,
    /// The loop that it costs most.
    pub worst: Option<Worst>,
    /// What each loop is held against.
    pub bar: Option<f64>,
    /// Loops that met it.
    pub met: usize,
    /// Those that missed it.
    pub missed: Vec<String>,
    /// Those of which it cannot be said: the noise, or the interval, is greater than the bar.
    pub undecided: Vec<String>,
}

/// A loop, and its ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Its name.
    pub name: String,
    /// CPU time against plain, the median.
    pub ratio: f64,
}

/// CPU times of a run in nanoseconds: the plain form, the others in the order of [`Form::COMPARED`], plain again.
#[derive(Debug, Default)]
pub struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    /// Adds one.
    ///
    /// # Panics
    /// When it does not have everybody.
    pub fn push(&mut self, round: Vec<f64>) {
        assert_eq!(round.len(), Form::COMPARED.len() + 2);
        self.0.push(round);
    }

    fn pairs(&self, place: usize) -> Pairs {
        let mut pairs = Pairs::default();
        for round in &self.0 {
            if let (Some(a), Some(again)) = (round.first(), round.last()) {
                pairs.push(*a, round[place], *again);
            }
        }
        pairs
    }
}

impl Measured {
    /// Of these rounds.
    pub fn new(case: &Case, block: usize, rounds: &Rounds, failed: Option<String>) -> Self {
        let forms = Form::COMPARED.iter().zip(1..);
        let compared = forms.map(|(form, place)| {
            let pairs = rounds.pairs(place);
            Compared {
                form: *form,
                cpu: match form.worst() {
                    Some(worst) => Ratio::at_most(pairs, 1.0 + worst),
                    None => Ratio::of(pairs),
                },
            }
        });
        Self {
            name: case.name.into(),
            about: case.about.into(),
            vectorised: case.vectorised,
            turns: case.turns,
            block,
            plain_ns: median(rounds.0.iter().map(|round| round[0]).collect()),
            measurements: rounds.0.len(),
            compared: compared.collect(),
            failed,
        }
    }

    /// What was measured of a form.
    pub fn of(&self, form: Form) -> Option<&Compared> {
        self.compared.iter().find(|one| one.form == form)
    }
}

impl Summary {
    fn of(loops: &[Measured], form: Form) -> Self {
        let own: Vec<(&Measured, &Compared)> = loops
            .iter()
            .filter(|one| one.failed.is_none())
            .filter_map(|one| Some((one, one.of(form)?)))
            .collect();
        let pairs = own.iter().map(|(_, one)| &one.cpu.pairs.differences[..]);
        let mean = geometric(&pairs.collect::<Vec<_>>());
        let mean_bar = form.mean().map(|share| 1.0 + share);
        let judged = |bar: Bar| -> Vec<String> {
            let those = own.iter().filter(|(_, one)| one.cpu.judged == Some(bar));
            those.map(|(one, _)| one.name.clone()).collect()
        };
        let ratios = own.iter().filter_map(|(one, compared)| {
            let (ratio, _) = compared.cpu.median()?;
            let name = one.name.clone();
            Some(Worst { name, ratio })
        });
        Self {
            form,
            loops: own.len(),
            mean,
            mean_bar,
            mean_judged: mean_bar.map(|bar| match mean {
                Some(mean) if mean.high <= bar => Bar::Met,
                Some(mean) if mean.low > bar => Bar::Missed,
                _ => Bar::Undecided,
            }),
            worst: ratios.max_by(|a, b| a.ratio.total_cmp(&b.ratio)),
            bar: form.worst().map(|share| 1.0 + share),
            met: judged(Bar::Met).len(),
            missed: judged(Bar::Missed),
            undecided: judged(Bar::Undecided),
        }
    }
}

impl Report {
    /// Of what was measured.
    pub fn new(host: Host, options: &Options, loops: Vec<Measured>) -> Self {
        Self {
            bench: "loops".into(),
            host,
            pairs: options.pairs,
            window_ms: options.window_ms,
            spares: options.spares,
            summaries: Form::COMPARED
                .map(|form| Summary::of(&loops, form))
                .to_vec(),
            loops,
            interrupted: interrupt::happened(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::loops::cases;

    /// A report of two loops, a vectorised one and one that is not; the forms of each take so many times as long as plain.
    pub fn report(pairs: usize, vectorised: [f64; 5], scalar: [f64; 5]) -> Report {
        let measured = |vector: bool, ratios: [f64; 5]| {
            let case = cases::all().find(|case| case.vectorised == vector).unwrap();
            let mut rounds = Rounds::default();
            for i in 0..pairs {
                let plain = 1e6 + 100.0 * (i % 3) as f64;
                let again = 1e6 + 100.0 * ((i + 1) % 3) as f64;
                let forms = ratios.iter().map(|ratio| plain * ratio);
                rounds.push(std::iter::once(plain).chain(forms).chain([again]).collect());
            }
            Measured::new(case, 10, &rounds, None)
        };
        let loops = vec![measured(true, vectorised), measured(false, scalar)];
        Report::new(Host::read(), &Options::parse_from(["loops"]), loops)
    }

    #[test]
    fn a_form_is_judged_by_its_mean_and_by_each_loop() {
        let report = report(
            12,
            [1.002, 1.0, 3.0, 4.0, 9.0],
            [1.02, 1.02, 1.0, 1.001, 2.0],
        );
        let [checkpoint, strips, strip, _, every] = &report.summaries[..] else {
            panic!("{:?}", report.summaries);
        };
        assert_eq!(
            (checkpoint.met, &checkpoint.missed[..]),
            (1, &["sum_f64".to_owned()][..])
        );
        assert_eq!(strips.mean_judged, Some(Bar::Met));
        assert_eq!(strip.mean_judged, Some(Bar::Missed));
        assert_eq!(strip.missed, ["sum_u32"]);
        let worst = every.worst.as_ref().unwrap();
        assert!(worst.name == "sum_u32" && (worst.ratio - 9.0).abs() < 0.01);
        assert!(every.mean_judged.is_none() && every.bar.is_none() && every.missed.is_empty());
    }

    #[test]
    fn few_pairs_decide_nothing() {
        let report = report(3, [2.0; 5], [2.0; 5]);
        for summary in &report.summaries {
            assert!(summary.missed.is_empty() && summary.mean_judged != Some(Bar::Missed));
        }
        assert_eq!(report.summaries[1].undecided.len(), 2);
    }
}
