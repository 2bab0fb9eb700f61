//! The figures as a text file that Prometheus's node exporter reads.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use morpheus_harness::stats::Spread;
use morpheus_harness::unit::Unit;

use super::result::{Report, Run};

/// The units that figures have, as Prometheus names them: a base unit, and how many of ours are one of it.
const UNITS: [(Unit, &str, f64); 4] = [
    (Unit::Time, "seconds", 1e9),
    (Unit::BytesPassed, "bytes_per_second", 1.0),
    (Unit::Count, "per_second", 1.0),
    (Unit::Share, "ratio", 1.0),
];

/// The help of figures with quantiles.
const QUANTILES: &str =
    "The figure of a case over its iterations; a quantile of 0.5 is the median.";

/// Writes the file: a reader sees the old one or the new one, and never a part.
///
/// # Errors
/// When it cannot be written, with its name.
pub fn write(path: &Path, report: &Report) -> Result<(), String> {
    // Beside it, where a rename is possible; not ending in .prom, so that no exporter reads it.
    let beside = path.with_added_extension(std::process::id().to_string());
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(render(report).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.map_err(|error| {
        // Removes the temporary file, if there is one.
        let _ = fs::remove_file(&beside);
        format!("{} cannot be written: {error}", path.display())
    })
}

/// A case under a scheduler.
struct Series {
    unit: Unit,
    labels: String,
    values: Vec<f64>,
    failures: usize,
}

/// Each case under each scheduler, as far as it was measured.
fn all_series(report: &Report) -> Vec<Series> {
    let mut all = Vec::new();
    for cpus in report.cpus() {
        for case in report.cases() {
            for scheduler in report.schedulers() {
                let runs: Vec<&Run> = report.of(cpus, case, &scheduler).collect();
                if runs.is_empty() {
                    continue;
                }
                all.push(Series {
                    unit: case.about().unit,
                    labels: format!(
                        "case=\"{}\",scheduler=\"{}\",cpus=\"{cpus}\"",
                        case.name(),
                        escape(&scheduler)
                    ),
                    values: runs.iter().filter_map(|run| run.figures()?.value).collect(),
                    failures: runs.iter().filter(|run| run.failed.is_some()).count(),
                });
            }
        }
    }
    all
}

/// The text exposition format.
fn render(report: &Report) -> String {
    let all = all_series(report);
    let mut text = String::new();
    for (unit, name, ours) in UNITS {
        let mut samples = Vec::new();
        for series in all.iter().filter(|series| series.unit == unit) {
            let quantiles = Spread::of(&series.values).map(|spread| spread.quantiles());
            for (share, value) in quantiles.into_iter().flatten() {
                let labels = format!("{},quantile=\"{share}\"", series.labels);
                samples.push((labels, value / ours));
            }
        }
        text += &metric(name, QUANTILES, &samples);
    }
    let counts = |of: fn(&Series) -> usize| -> Vec<(String, f64)> {
        let sample = |series: &Series| (series.labels.clone(), of(series) as f64);
        all.iter().map(sample).collect()
    };
    let measured = counts(|series| series.values.len());
    text += &metric("measured", "Iterations that have a figure.", &measured);
    let failed = counts(|series| series.failures);
    text + &metric("failed", "Iterations that could not be measured.", &failed)
}

/// A metric with its samples, each with its labels; nothing where there are none.
fn metric(name: &str, help: &str, samples: &[(String, f64)]) -> String {
    let name = format!("morpheus_scale_{name}");
    let mut text = String::new();
    if !samples.is_empty() {
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
    }
    for (labels, value) in samples {
        text += &format!("{name}{{{labels}}} {value}\n");
    }
    text
}

/// A label's value may have anything in it but these three.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::result::tests::run;
    use super::*;

    fn report() -> Report {
        let mut failed = run(Case::Pipe, "a \"b\"", 1, 1.0);
        failed.failed = Some("gone".into());
        let of = |iteration, value| run(Case::Latency, "default", iteration, value);
        Report {
            host: None,
            runs: vec![of(1, 1e6), of(2, 3e6), of(3, 2e6), failed],
        }
    }

    #[test]
    fn seconds_with_quantiles_and_counts() {
        let text = render(&report());
        for line in [
            "# TYPE morpheus_scale_seconds gauge",
            "morpheus_scale_seconds{case=\"latency\",scheduler=\"default\",cpus=\"2\",quantile=\"0.5\"} 0.002",
            "morpheus_scale_seconds{case=\"latency\",scheduler=\"default\",cpus=\"2\",quantile=\"1\"} 0.003",
            "morpheus_scale_measured{case=\"latency\",scheduler=\"default\",cpus=\"2\"} 3",
            "morpheus_scale_failed{case=\"pipe\",scheduler=\"a \\\"b\\\"\",cpus=\"2\"} 1",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        // A metric without a value has no head either.
        assert!(!text.contains("per_second"), "{text}");
    }

    #[test]
    fn the_file_is_replaced_and_nothing_is_left_beside_it() {
        let directory = std::env::temp_dir().join(format!("scale-prom-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("scale.prom");
        fs::write(&path, "old").unwrap();
        write(&path, &report()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), render(&report()));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let error = write(&directory.join("none/scale.prom"), &report()).unwrap_err();
        assert!(error.contains("cannot be written"), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }
}
