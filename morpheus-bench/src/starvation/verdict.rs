//! Bars, and whether what was measured clears them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Read};
use super::result::RunResult;
use super::table::stands_still;
use crate::executor::Runtime;

/// A case on a runtime.
pub type At = (&'static str, Runtime);

/// What is asked of the figures.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Morpheus' figure is at most this (nanoseconds, or a share of a CPU).
    AtMost(&'static str, Figure, f64),
    /// Morpheus' figure is at least this.
    AtLeast(&'static str, Figure, f64),
    /// The first figure is at most so many times the second.
    AtMostTimes(Figure, At, At, f64),
    /// The first figure is at least so many times the second.
    AtLeastTimes(Figure, At, At, f64),
    /// Morpheus' wake p99 is no worse than this runtime's, beyond what its own rounds differ by.
    NotWorse(&'static str, Runtime),
    /// Every hog came out of its polls.
    Finished(&'static str),
    /// Nothing is asked; the figure is shown.
    Reported(&'static str, Figure),
    /// It is measured by something else.
    Elsewhere(&'static str),
}

/// What became of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    Reported,
    CannotJudge,
    Missed,
}

/// A bar with what became of it, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub verdict: Verdict,
    pub text: String,
}

/// The runs of every case measured so far.
pub type Measured = BTreeMap<&'static str, Vec<RunResult>>;

impl Bar {
    /// Judges the bar.
    pub fn judge(&self, measured: &Measured) -> Check {
        let (verdict, text) = match *self {
            Self::AtMost(case, figure, most) => limit(measured, case, figure, most, true),
            Self::AtLeast(case, figure, least) => limit(measured, case, figure, least, false),
            Self::AtMostTimes(figure, of, to, most) => ratio(measured, figure, of, to, most, true),
            Self::AtLeastTimes(figure, of, to, least) => {
                ratio(measured, figure, of, to, least, false)
            }
            Self::NotWorse(case, other) => not_worse(measured, case, other),
            Self::Finished(case) => finished(measured, case),
            Self::Reported(case, figure) => {
                let text = match read(measured, (case, Runtime::Morpheus), figure) {
                    Read::Value(value) => figure.show(value),
                    Read::Between(median, longest) => {
                        let (median, longest) = (figure.show(median), figure.show(longest));
                        format!("between {median} (p50) and {longest} (longest), n too small")
                    }
                    Read::StandsStill => "stands still".into(),
                    Read::Nothing(why) => why,
                };
                (
                    Verdict::Reported,
                    format!("{case}: {} {text}", figure.name()),
                )
            }
            Self::Elsewhere(what) => (Verdict::CannotJudge, what.into()),
        };
        Check { verdict, text }
    }
}

fn median(measured: &Measured, (case, runtime): At) -> Option<RunResult> {
    let runs = rounds(measured, (case, runtime));
    (!runs.is_empty()).then(|| RunResult::median(&runs))
}

fn rounds(measured: &Measured, (case, runtime): At) -> Vec<RunResult> {
    let all = measured.get(case).into_iter().flatten();
    all.filter(|run| run.runtime == runtime).cloned().collect()
}

fn read(measured: &Measured, at: At, figure: Figure) -> Read {
    match median(measured, at) {
        Some(run) => figure.read(&run),
        None => Read::Nothing(format!("{} was not measured on {}", at.0, at.1)),
    }
}

fn is(good: bool) -> Verdict {
    if good { Verdict::Ok } else { Verdict::Missed }
}

fn limit(
    measured: &Measured,
    case: &'static str,
    figure: Figure,
    bar: f64,
    most: bool,
) -> (Verdict, String) {
    let wanted = format!("{} {}", if most { "≤" } else { "≥" }, figure.show(bar));
    let name = format!("{case}: {}", figure.name());
    match read(measured, (case, Runtime::Morpheus), figure) {
        Read::Value(value) => {
            let good = if most { value <= bar } else { value >= bar };
            (is(good), format!("{name} {} {wanted}", figure.show(value)))
        }
        Read::Between(median, longest) => {
            // What is sure is sure with few samples, too.
            let (sure, impossible) = if most {
                (longest <= bar, median > bar)
            } else {
                (median >= bar, longest < bar)
            };
            let verdict = match (sure, impossible) {
                (true, _) => Verdict::Ok,
                (_, true) => Verdict::Missed,
                _ => Verdict::CannotJudge,
            };
            let (median, longest) = (figure.show(median), figure.show(longest));
            let text = format!("{name} {wanted}: n too small, p50 {median}, longest {longest}");
            (verdict, text)
        }
        Read::StandsStill => (Verdict::Missed, format!("{name} {wanted}: stands still")),
        Read::Nothing(why) => (Verdict::CannotJudge, format!("{name} {wanted}: {why}")),
    }
}

fn ratio(
    measured: &Measured,
    figure: Figure,
    of: At,
    to: At,
    bar: f64,
    most: bool,
) -> (Verdict, String) {
    let sign = if most { "≤" } else { "≥" };
    let side = |at: At| {
        if of.0 == to.0 {
            at.1.to_string()
        } else {
            format!("{} on {}", at.0, at.1)
        }
    };
    let name = format!(
        "{}: {}, {} over {}",
        of.0,
        figure.name(),
        side(of),
        side(to)
    );
    match (read(measured, of, figure), read(measured, to, figure)) {
        (Read::Value(a), Read::Value(b)) => {
            let factor = a / b;
            let good = if most { factor <= bar } else { factor >= bar };
            let shown = format!("{} / {} = {factor:.2}", figure.show(a), figure.show(b));
            // 0 / 0: neither had any.
            let verdict = if factor.is_nan() {
                Verdict::CannotJudge
            } else {
                is(good)
            };
            (verdict, format!("{name}: {shown} {sign} {bar}"))
        }
        // A runtime that stands still has every latency and no throughput.
        (Read::StandsStill, _) => (is(false), format!("{name}: {} stands still", of.1)),
        (Read::Value(_), Read::StandsStill) => {
            (Verdict::Ok, format!("{name}: {} stands still", to.1))
        }
        (Read::Nothing(why), _) | (_, Read::Nothing(why)) => {
            (Verdict::CannotJudge, format!("{name}: {why}"))
        }
        _ => (Verdict::CannotJudge, format!("{name}: n too small")),
    }
}

/// Worse is a median that is beyond every round of the other: within them, the other differs from itself
/// by as much.
fn not_worse(measured: &Measured, case: &'static str, other: Runtime) -> (Verdict, String) {
    const ROUNDS: usize = 3;
    let figure = Figure::WakeP99;
    let name = format!("{case}: wake p99 no worse than {other}'s");
    // Per round the least and the most that its p99 can be.
    let values: Vec<(f64, f64)> = rounds(measured, (case, other))
        .iter()
        .filter_map(|run| match figure.read(run) {
            Read::Value(value) => Some((value, value)),
            Read::Between(median, longest) => Some((median, longest)),
            Read::StandsStill => Some((f64::INFINITY, f64::INFINITY)),
            Read::Nothing(_) => None,
        })
        .collect();
    if values.is_empty() {
        let text = format!("{name}: that was not measured");
        return (Verdict::CannotJudge, text);
    }
    let own = match read(measured, (case, Runtime::Morpheus), figure) {
        Read::Value(own) => own,
        Read::StandsStill => return (Verdict::Missed, format!("{name}: morpheus stands still")),
        _ => return (Verdict::CannotJudge, format!("{name}: no p99 of morpheus")),
    };
    let least = values.iter().map(|v| v.0).fold(f64::INFINITY, f64::min);
    let most = values.iter().map(|v| v.1).fold(0.0, f64::max);
    let show = |value: f64| {
        if value.is_finite() {
            figure.show(value)
        } else {
            "standing still".into()
        }
    };
    let shown = format!(
        "{} beside {} to {}",
        figure.show(own),
        show(least),
        show(most)
    );
    if own <= least {
        return (Verdict::Ok, format!("{name}: {shown}"));
    }
    if values.len() < ROUNDS {
        let n = values.len();
        return (
            Verdict::CannotJudge,
            format!("{name}: its noise needs {ROUNDS} rounds, there are {n}"),
        );
    }
    (is(own <= most), format!("{name}: {shown}"))
}

fn finished(measured: &Measured, case: &'static str) -> (Verdict, String) {
    let Some(run) = median(measured, (case, Runtime::Morpheus)) else {
        return (Verdict::CannotJudge, format!("{case}: not measured"));
    };
    if stands_still(&run) {
        return (Verdict::Missed, format!("{case}: morpheus stands still"));
    }
    let Some(hog) = run.hog else {
        let why = run.failed.unwrap_or_else(|| "no hogs".into());
        return (Verdict::CannotJudge, format!("{case}: {why}"));
    };
    let text = match hog.unfinished {
        0 => "every hog finished its polls".into(),
        n => format!("{n} hogs did not finish a poll"),
    };
    (is(hog.unfinished == 0), format!("{case}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Summary;

    fn run(runtime: Runtime, p99: Option<u64>, max: u64) -> RunResult {
        RunResult {
            wake_ns: Summary {
                n: 1,
                p50: Some(1),
                p99,
                p999: None,
                max: Some(max),
                ..Summary::default()
            },
            ..RunResult::empty(runtime)
        }
    }

    fn judge(bar: Bar, runs: Vec<RunResult>) -> Verdict {
        bar.judge(&Measured::from([("case", runs)])).verdict
    }

    #[test]
    fn limits() {
        let bar = Bar::AtMost("case", Figure::WakeP99, 300e3);
        let morpheus = |p99, max| vec![run(Runtime::Morpheus, p99, max)];
        assert_eq!(judge(bar, morpheus(Some(211_000), 900_000)), Verdict::Ok);
        assert_eq!(
            judge(bar, morpheus(Some(311_000), 900_000)),
            Verdict::Missed
        );
        assert_eq!(judge(bar, morpheus(None, 900_000)), Verdict::CannotJudge);
        assert_eq!(judge(bar, morpheus(None, 200_000)), Verdict::Ok);
        let mut slow = run(Runtime::Morpheus, None, 900_000);
        slow.wake_ns.p50 = Some(310_000);
        assert_eq!(judge(bar, vec![slow]), Verdict::Missed);
        assert_eq!(judge(bar, vec![]), Verdict::CannotJudge);
        let failed = |why| vec![RunResult::failed(Runtime::Morpheus, why)];
        assert_eq!(judge(bar, failed("stands still: killed")), Verdict::Missed);
        assert_eq!(
            judge(bar, failed("--quota needs root")),
            Verdict::CannotJudge
        );
    }

    #[test]
    fn ratios() {
        let (own, other) = (("case", Runtime::Morpheus), ("case", Runtime::TOKIO));
        let bar = Bar::AtLeastTimes(Figure::WakeP99, other, own, 100.0);
        let runs = |a, b| {
            vec![
                run(Runtime::Morpheus, Some(a), a),
                run(Runtime::TOKIO, Some(b), b),
            ]
        };
        assert_eq!(judge(bar, runs(10, 1_000)), Verdict::Ok);
        assert_eq!(judge(bar, runs(10, 999)), Verdict::Missed);
        assert_eq!(judge(bar, runs(0, 0)), Verdict::CannotJudge);
    }

    #[test]
    fn no_worse_is_judged_within_the_others_noise() {
        let bar = Bar::NotWorse("case", Runtime::TOKIO_32);
        let runs = |own: u64, others: &[u64]| {
            let others = others
                .iter()
                .map(|p99| run(Runtime::TOKIO_32, Some(*p99), *p99));
            others
                .chain([run(Runtime::Morpheus, Some(own), own)])
                .collect::<Vec<_>>()
        };
        assert_eq!(judge(bar, runs(200, &[190, 250, 210])), Verdict::Ok);
        assert_eq!(judge(bar, runs(260, &[190, 250, 210])), Verdict::Missed);
        assert_eq!(judge(bar, runs(260, &[190])), Verdict::CannotJudge);
        assert_eq!(judge(bar, runs(180, &[190])), Verdict::Ok);
    }
}
