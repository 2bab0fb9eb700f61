//! What a study's files come to: figures for each condition and kernel.
//!
//! The latency of a condition is the geometric mean of its kernels' medians, as in the study: each kernel counts
//! alike, however long it takes. What the repeats differ by is its noise.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::daemon;
use super::frequency::Sample;
use super::record::{Condition, Line, Reader, Run, Study};
use super::signal::Name;
use super::sysfs::TimeInState;
use super::trap::{self, Trap};
use crate::hdr_log::Entry;
use crate::histogram::{Counts, Latencies, Summary, median};
use crate::policy::Policy as Scheduling;
use crate::report;

/// The object that `--json` prints. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The machine, what was asked for, and the policies found.
    #[serde(flatten)]
    pub study: Study,
    /// The directory that was read.
    pub directory: String,
    /// What one should know of the figures, in sentences.
    pub notes: Vec<String>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
    /// In the order in which they were measured first.
    pub conditions: Vec<Figures>,
    /// Whether a governor that follows the load was a trap.
    pub trap: Trap,
}

/// A condition's.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The condition.
    #[serde(flatten)]
    pub condition: Condition,
    /// For people.
    pub name: String,
    /// The policy of the kernels' threads.
    pub policy: Scheduling,
    /// Geometric mean of the kernels' median service times; `None` unless every kernel has one.
    pub latency_ns: Option<f64>,
    /// The least and the greatest of it over the repeats.
    pub range_ns: Option<(f64, f64)>,
    /// Repeats that have all kernels.
    pub repeats: usize,
    /// Over that of the first condition with the governor `performance` and no load.
    pub versus_performance: Option<f64>,
    /// The frequency of the measured CPU, over all readings.
    pub mean_khz: Option<f64>,
    /// Part of the time that the measured CPU's policy was at its lowest frequency.
    pub share_of_lowest: Option<f64>,
    /// At its highest.
    pub share_of_highest: Option<f64>,
    /// Part of the windows that ended at the highest frequency that the measured CPU may have: the kernels' share of it.
    pub done_at_highest: Option<f64>,
    /// Part of the time that the kernels computed.
    pub busy_share: f64,
    /// Windows that were due.
    pub due: u64,
    /// Those that were not done in time.
    pub missed: u64,
    /// Each kernel's.
    pub kernels: Vec<KernelFigures>,
}

/// A kernel's in a condition, all repeats together.
#[derive(Clone, Debug, Serialize)]
pub struct KernelFigures {
    /// The kernel.
    pub kernel: Name,
    /// What it took.
    pub service_ns: Summary,
    /// From when a window was due until it was done.
    pub response_ns: Summary,
    /// How late it began.
    pub late_ns: Summary,
    /// The median service time of each repeat.
    pub repeat_p50_ns: Vec<u64>,
    /// Windows that were due.
    pub due: u64,
    /// Those that were not done in time.
    pub missed: u64,
    /// What the three summaries are of.
    #[serde(skip)]
    pub latencies: [Latencies; 3],
}

/// Reads a study and makes figures of it.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn analyse(directory: &Path) -> Result<Analysis, String> {
    let reader = Reader::new(directory)?;
    let (study, runs) = (reader.study.clone(), &reader.runs);
    let mut conditions: Vec<Figures> = Vec::new();
    for run in runs {
        if !conditions
            .iter()
            .any(|figures| figures.condition == run.condition)
        {
            conditions.extend(figures(&reader, &run.condition)?);
        }
    }
    let baseline = conditions.iter().find_map(|figures| {
        figures
            .condition
            .is("performance")
            .then_some(figures.latency_ns)?
    });
    for figures in &mut conditions {
        figures.versus_performance = figures
            .latency_ns
            .zip(baseline)
            .map(|(own, base)| own / base);
    }
    let trap = trap::judge(&study, &conditions);
    Ok(Analysis {
        directory: directory.display().to_string(),
        notes: notes(&study, runs),
        interrupted: runs.iter().any(|run| run.interrupted),
        study,
        conditions,
        trap,
    })
}

impl Condition {
    /// Whether it is schedutil beside Morpheus's scheduler.
    pub fn is_morpheus(&self) -> bool {
        self.scheduler == daemon::NAME && self.governor.as_deref() == Some(daemon::GOVERNOR)
    }

    /// Whether it is this governor, nothing else on the machine, and the kernel's own scheduler.
    pub fn is(&self, governor: &str) -> bool {
        self.governor.as_deref() == Some(governor)
            && self.load == 0
            && self.scheduler == super::placement::KERNELS_OWN
    }
}

fn notes(study: &Study, runs: &[Run]) -> Vec<String> {
    let mut notes = study.missing.clone();
    let mut add = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    if runs.iter().any(|run| run.condition.is_morpheus()) {
        add(
            "beside the scheduler morpheus, the kernels ran on a worker that is registered with it: as SCHED_OTHER, whatever \
             policy the others had"
                .into(),
        );
    }
    for run in runs {
        if let Some(why) = &run.refused {
            add(format!("{why}; measured as {}", run.policy.kernel_name()));
        }
        if let Some(why) = &run.spoilt {
            add(format!(
                "{}, {}, repeat {} is left out: {why}",
                run.condition.name(),
                run.kernel.text(),
                run.repeat + 1
            ));
        }
    }
    let not_settled = |run: &&Run| run.settled == Some(false) && run.spoilt.is_none();
    let count = runs.iter().filter(not_settled).count();
    if count > 0 {
        notes.push(format!(
            "in {count} of {} runs the median had not settled after the warm-up, nor in as long again",
            runs.len()
        ));
    }
    notes
}

/// What the figures are of, for a histogram log: of each condition and kernel.
pub fn histograms(conditions: &[Figures]) -> Vec<Entry<'_>> {
    let kinds = [
        ("service", Counts::Raw),
        ("response", Counts::FromIntendedStart),
        ("late", Counts::FromIntendedStart),
    ];
    let of_kernel = |figures: &Figures, kernel: &KernelFigures| {
        let name = format!("{}-{}", figures.condition.directory(), kernel.kernel.text());
        kinds.map(|(kind, counts)| (format!("{name}-{kind}"), counts.to_string()))
    };
    let mut entries = Vec::new();
    for figures in conditions {
        for kernel in &figures.kernels {
            let named = of_kernel(figures, kernel).into_iter();
            for ((tag, about), latencies) in named.zip(&kernel.latencies) {
                entries.push(Entry {
                    tag,
                    about,
                    latencies,
                });
            }
        }
    }
    entries
}

/// `None` when every run of the condition is spoilt.
fn figures(reader: &Reader, condition: &Condition) -> Result<Option<Figures>, String> {
    let runs: Vec<&Run> = reader
        .runs
        .iter()
        .filter(|run| run.condition == *condition && run.spoilt.is_none())
        .collect();
    let Some(first) = runs.first() else {
        return Ok(None);
    };
    let (mut kernels, mut busy_ns) = (Vec::new(), 0);
    let highest = reader
        .study
        .policy_of_cpu()
        .and_then(|policy| policy.limits_khz.1);
    let (mut known, mut at_highest) = (0_u64, 0_u64);
    for kernel in reader.study.config.kernels() {
        let runs: Vec<&Run> = runs
            .iter()
            .copied()
            .filter(|run| run.kernel == kernel)
            .collect();
        if !runs.is_empty() {
            let lines = reader.telemetry(condition, kernel)?;
            let lines = lines
                .into_iter()
                .filter(|line| runs.iter().any(|run| run.repeat == line.repeat));
            let lines: Vec<Line> = lines.collect();
            busy_ns += lines.iter().map(|line| line.service_ns).sum::<u64>();
            let khz = lines.iter().filter_map(|line| line.times.end_khz);
            for (khz, highest) in khz.zip(highest.iter().cycle()) {
                known += 1;
                at_highest += u64::from(khz >= *highest);
            }
            kernels.push(kernel_figures(kernel, &runs, &lines));
        }
    }
    let elapsed_ns: u64 = runs.iter().map(|run| run.elapsed_ns).sum();
    let by_repeat = by_repeat(&kernels, reader.study.config.kernels().len());
    let p50s: Option<Vec<f64>> = kernels
        .iter()
        .map(|kernel| kernel.service_ns.p50.map(|ns| ns as f64))
        .collect();
    let complete = kernels.len() == reader.study.config.kernels().len();
    let times = time_in_state(&reader.study, &runs);
    Ok(Some(Figures {
        name: condition.name(),
        condition: condition.clone(),
        policy: first.policy,
        latency_ns: p50s
            .filter(|_| complete)
            .and_then(|p50s| geometric_mean(&p50s)),
        range_ns: range(&by_repeat),
        repeats: by_repeat.len(),
        versus_performance: None,
        mean_khz: mean_khz(&reader.frequencies(condition), reader.study.config.cpu),
        share_of_lowest: times.as_ref().and_then(TimeInState::share_of_lowest),
        share_of_highest: times.as_ref().and_then(TimeInState::share_of_highest),
        done_at_highest: (known > 0).then(|| at_highest as f64 / known as f64),
        busy_share: busy_ns as f64 / elapsed_ns.max(1) as f64,
        due: kernels.iter().map(|kernel| kernel.due).sum(),
        missed: kernels.iter().map(|kernel| kernel.missed).sum(),
        kernels,
    }))
}

fn kernel_figures(kernel: Name, runs: &[&Run], lines: &[Line]) -> KernelFigures {
    let of = |time: fn(&Line) -> u64| {
        let mut latencies = Latencies::default();
        lines
            .iter()
            .for_each(|line| latencies.record_ns(time(line)));
        latencies
    };
    let latencies = [
        of(|line| line.service_ns),
        of(|line| line.times.response_ns()),
        of(|line| line.times.late_ns()),
    ];
    let mut repeats: HashMap<usize, Vec<f64>> = HashMap::new();
    for line in lines {
        let repeat = repeats.entry(line.repeat).or_default();
        repeat.push(line.service_ns as f64);
    }
    let mut repeats: Vec<(usize, Vec<f64>)> = repeats.into_iter().collect();
    repeats.sort_by_key(|(repeat, _)| *repeat);
    KernelFigures {
        kernel,
        service_ns: latencies[0].summary(),
        response_ns: latencies[1].summary(),
        late_ns: latencies[2].summary(),
        latencies,
        repeat_p50_ns: repeats
            .into_iter()
            .filter_map(|(_, times)| median(times).map(|ns| ns as u64))
            .collect(),
        due: runs.iter().map(|run| run.windows + run.not_begun).sum(),
        missed: runs.iter().map(|run| run.missed).sum(),
    }
}

/// The condition's latency in each repeat that has all `count` kernels.
fn by_repeat(kernels: &[KernelFigures], count: usize) -> Vec<f64> {
    let repeats = kernels
        .iter()
        .map(|kernel| kernel.repeat_p50_ns.len())
        .min();
    (0..repeats.filter(|_| kernels.len() == count).unwrap_or(0))
        .filter_map(|repeat| {
            let p50s = kernels
                .iter()
                .map(|kernel| kernel.repeat_p50_ns[repeat] as f64);
            geometric_mean(&p50s.collect::<Vec<_>>())
        })
        .collect()
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

/// `None` of nothing. A value of 0 counts as 1.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.max(1.0).ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

/// Of the policy that a CPU belongs to.
fn mean_khz(samples: &[Sample], cpu: usize) -> Option<f64> {
    let of_cpu = samples.iter().filter(|sample| sample.cpus.contains(&cpu));
    let khz: Vec<f64> = of_cpu
        .filter_map(|sample| sample.khz)
        .map(|khz| khz as f64)
        .collect();
    (!khz.is_empty()).then(|| khz.iter().sum::<f64>() / khz.len() as f64)
}

/// Over all runs, of the policy that the measured CPU belongs to.
fn time_in_state(study: &Study, runs: &[&Run]) -> Option<TimeInState> {
    let policy = study.policy_of_cpu()?;
    let mut total = TimeInState::default();
    for run in runs {
        let states = run
            .time_in_state
            .iter()
            .find(|states| states.policy == policy.name)?;
        for (khz, time) in states.after.since(&states.before).khz_and_10ms {
            match total
                .khz_and_10ms
                .iter_mut()
                .find(|(other, _)| *other == khz)
            {
                Some((_, sum)) => *sum += time,
                None => total.khz_and_10ms.push((khz, time)),
            }
        }
    }
    Some(total)
}

impl Study {
    /// The policy that the measured CPU belongs to.
    pub fn policy_of_cpu(&self) -> Option<&super::sysfs::Policy> {
        self.policies
            .iter()
            .find(|policy| policy.cpus.contains(&self.config.cpu))
    }
}

impl Figures {
    /// A kernel's figures.
    pub fn kernel(&self, name: Name) -> Option<&KernelFigures> {
        self.kernels.iter().find(|kernel| kernel.kernel == name)
    }
}

/// A percentile, or why there is none.
pub fn percentile(value: Option<u64>) -> String {
    value.map_or_else(|| "n too small".into(), report::time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_the_studys() {
        // Its kernels under `performance`, in µs, and what it gives as their latency.
        let mean = geometric_mean(&[14.12, 37.96, 496.27, 2_968.44]).unwrap();
        assert!((mean - 167.6).abs() < 0.1, "{mean}");
        let mean = geometric_mean(&[96.95, 199.12, 1_709.25, 10_262.70]).unwrap();
        assert!((mean - 762.8).abs() < 0.5, "{mean}");
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn the_frequency_is_that_of_the_measured_cpu() {
        let sample = |cpus: &[usize], khz| Sample {
            elapsed_ms: 0.0,
            policy: "policy".into(),
            cpus: cpus.to_vec(),
            governor: "x".into(),
            khz,
        };
        let samples = [
            sample(&[0, 1], Some(600)),
            sample(&[2], Some(9_000)),
            sample(&[0, 1], Some(1_000)),
            sample(&[0, 1], None),
        ];
        assert_eq!(mean_khz(&samples, 1), Some(800.0));
        assert_eq!(mean_khz(&samples, 7), None);
    }

    #[test]
    fn few_samples_say_so() {
        assert_eq!(percentile(None), "n too small");
        assert_eq!(percentile(Some(1_200)), "1.2 µs");
    }

    #[test]
    fn noise_is_over_repeats_that_have_every_kernel() {
        let kernel = |name, p50s: &[u64]| KernelFigures {
            latencies: Default::default(),
            kernel: name,
            service_ns: Summary::default(),
            response_ns: Summary::default(),
            late_ns: Summary::default(),
            repeat_p50_ns: p50s.to_vec(),
            due: 0,
            missed: 0,
        };
        let kernels = [
            kernel(Name::Car, &[100, 400, 900]),
            kernel(Name::NotchIir, &[100, 100]),
        ];
        let by_repeat = by_repeat(&kernels, 2);
        assert_eq!(by_repeat.len(), 2);
        let (least, most) = range(&by_repeat).unwrap();
        assert!((least - 100.0).abs() < 1e-6 && (most - 200.0).abs() < 1e-6);
        assert!(super::by_repeat(&kernels, 3).is_empty());
        assert_eq!(range(&[]), None);
    }
}
