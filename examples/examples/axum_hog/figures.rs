//! The figures of one run, their medians over rounds, and the ratios between variants.

use morpheus_bench::histogram::{Summary, median};
use serde::{Deserialize, Serialize};

use crate::load::Seen;
use crate::variant::Variant;

/// The figures of one variant, of one round or as the median of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub variant: Variant,
    /// The reason why there are no figures.
    pub failed: Option<String>,
    pub ping_ns: Summary,
    /// From 0 to 1.
    pub ping_answered: f64,
    pub work_per_s: f64,
}

impl Run {
    pub fn new(variant: Variant, seen: Seen) -> Self {
        Self {
            variant,
            failed: None,
            ping_ns: seen.ping_ns,
            ping_answered: seen.ping_answered,
            work_per_s: seen.work_per_s,
        }
    }

    pub fn failed(variant: Variant, why: String) -> Self {
        Self {
            variant,
            failed: Some(why),
            ping_ns: Summary::default(),
            ping_answered: 0.0,
            work_per_s: 0.0,
        }
    }

    /// The medians of the rounds of one variant. A round that failed makes the whole fail: medians of the
    /// other rounds alone would hide it.
    fn median(variant: Variant, runs: &[Run]) -> Self {
        let own: Vec<&Run> = runs.iter().filter(|run| run.variant == variant).collect();
        if let Some(why) = own.iter().find_map(|run| run.failed.clone()) {
            return Self::failed(variant, why);
        }
        let of = |figure: fn(&Run) -> f64| median(own.iter().map(|run| figure(run)).collect());
        Self {
            variant,
            failed: None,
            ping_ns: Summary::median(own.iter().map(|run| &run.ping_ns)),
            ping_answered: of(|run| run.ping_answered).unwrap_or_default(),
            work_per_s: of(|run| run.work_per_s).unwrap_or_default(),
        }
    }
}

/// The medians of each variant that was measured, in the order of [`Variant::ALL`].
pub fn medians(runs: &[Run]) -> Vec<Run> {
    let is_measured = |variant: &Variant| runs.iter().any(|run| run.variant == *variant);
    Variant::ALL
        .into_iter()
        .filter(is_measured)
        .map(|variant| Run::median(variant, runs))
        .collect()
}

/// Ratios between the variants; `None` where a figure is missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratios {
    pub p99_morpheus_over_rewritten: Option<f64>,
    pub p99_more_workers_over_morpheus: Option<f64>,
    pub p99_tokio_over_morpheus: Option<f64>,
    pub p99_layer_over_rewritten: Option<f64>,
    pub work_layer_over_rewritten: Option<f64>,
    pub work_morpheus_over_rewritten: Option<f64>,
    pub work_morpheus_over_tokio: Option<f64>,
}

impl Ratios {
    pub fn of(medians: &[Run]) -> Self {
        let p99 = |variant| find(medians, variant)?.ping_ns.p99.map(|ns| ns as f64);
        let work = |variant| Some(find(medians, variant)?.work_per_s);
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
        let (own_p99, own_work) = (p99(Variant::Morpheus), work(Variant::Morpheus));
        Self {
            p99_morpheus_over_rewritten: ratio(own_p99, p99(Variant::Rewritten)),
            p99_more_workers_over_morpheus: ratio(p99(Variant::TokioMoreSlice), own_p99),
            p99_tokio_over_morpheus: ratio(p99(Variant::Tokio), own_p99),
            p99_layer_over_rewritten: ratio(p99(Variant::MorpheusLayer), p99(Variant::Rewritten)),
            work_layer_over_rewritten: ratio(
                work(Variant::MorpheusLayer),
                work(Variant::Rewritten),
            ),
            work_morpheus_over_rewritten: ratio(own_work, work(Variant::Rewritten)),
            work_morpheus_over_tokio: ratio(own_work, work(Variant::Tokio)),
        }
    }
}

/// The run of a variant, if it has figures.
pub fn find(medians: &[Run], variant: Variant) -> Option<&Run> {
    let of = |run: &&Run| run.variant == variant && run.failed.is_none();
    medians.iter().find(of)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn run(variant: Variant, p99_us: u64, work_per_s: f64) -> Run {
        let ns = Some(p99_us * 1_000);
        Run {
            variant,
            failed: None,
            ping_ns: Summary {
                n: 4_000,
                p50: ns.map(|ns| ns / 4),
                p99: ns,
                p999: None,
                max: ns,
                ..Summary::default()
            },
            ping_answered: 1.0,
            work_per_s,
        }
    }

    #[test]
    fn ratios_are_of_medians() {
        let rounds = [
            run(Variant::Morpheus, 1_000, 38.0),
            run(Variant::Morpheus, 9_000, 99.0),
            run(Variant::Morpheus, 500, 1.0),
            run(Variant::Rewritten, 2_000, 40.0),
            run(Variant::Tokio, 4_000_000, 40.0),
            Run::failed(Variant::TokioMoreSlice, "out of memory".into()),
        ];
        let medians = medians(&rounds);
        assert_eq!(medians.len(), 4, "those that were measured");
        let ratios = Ratios::of(&medians);
        assert_eq!(ratios.p99_morpheus_over_rewritten, Some(0.5));
        assert_eq!(ratios.p99_tokio_over_morpheus, Some(4_000.0));
        assert_eq!(ratios.p99_more_workers_over_morpheus, None);
        assert_eq!(ratios.work_morpheus_over_rewritten, Some(0.95));
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        let idle = [run(Variant::Morpheus, 1, 0.0), run(Variant::Tokio, 1, 0.0)];
        assert_eq!(Ratios::of(&idle).work_morpheus_over_tokio, None);
    }
}
