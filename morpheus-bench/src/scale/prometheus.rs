//! The figures as a text file that Prometheus's node exporter reads.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use super::case::Case;
use super::result::Report;
use crate::stats::Spread;
use crate::unit::Unit;

/// The units that figures have, as Prometheus names them: a base unit, and how many of ours are one of it.
const UNITS: [(Unit, &str, f64); 4] = [
    (Unit::Time, "seconds", 1e9),
    (Unit::BytesPassed, "bytes_per_second", 1.0),
    (Unit::Count, "per_second", 1.0),
    (Unit::Share, "ratio", 1.0),
];

/// Writes the file: a reader sees the old one or the new one, and never a part.
///
/// # Errors
/// When it cannot be written, with its name.
pub fn write(path: &Path, report: &Report) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    let name = path
        .file_name()
        .ok_or_else(|| format!("{} is no file", path.display()))?;
    // Beside it, where a rename is possible; not ending in .prom, so that no exporter reads it.
    let mut beside = name.to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(render(report).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // What is left of it, if anything is.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(said)
}

/// The text exposition format.
fn render(report: &Report) -> String {
    let mut text = String::new();
    for (unit, name, ours) in UNITS {
        let cases: Vec<Case> = report
            .cases()
            .into_iter()
            .filter(|case| case.about().unit == unit)
            .collect();
        let name = format!("morpheus_scale_{name}");
        let mut lines = String::new();
        each(report, &cases, |labels, values, _| {
            let Some(spread) = Spread::of(values) else {
                return;
            };
            for (share, value) in spread.quantiles() {
                let _ = writeln!(
                    lines,
                    "{name}{{{labels},quantile=\"{share}\"}} {}",
                    value / ours
                );
            }
        });
        if !lines.is_empty() {
            let _ = writeln!(
                text,
                "# HELP {name} The figure of a case over its iterations; a quantile of 0.5 is the median."
            );
            let _ = writeln!(text, "# TYPE {name} gauge");
            text += &lines;
        }
    }
    for (name, help, failed) in [
        (
            "morpheus_scale_measured",
            "Iterations that have a figure.",
            false,
        ),
        (
            "morpheus_scale_failed",
            "Iterations that could not be measured.",
            true,
        ),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        each(report, &report.cases(), |labels, values, failures| {
            let count = if failed { failures } else { values.len() };
            let _ = writeln!(text, "{name}{{{labels}}} {count}");
        });
    }
    text
}

/// What was measured of each case under each scheduler: labels, values, failures.
fn each(report: &Report, cases: &[Case], mut show: impl FnMut(&str, &[f64], usize)) {
    for cpus in report.cpus() {
        for case in cases {
            for scheduler in report.schedulers() {
                let of = || report.of(cpus, *case, &scheduler);
                if of().next().is_none() {
                    continue;
                }
                let labels = format!(
                    "case=\"{}\",scheduler=\"{}\",cpus=\"{cpus}\"",
                    case.name(),
                    escape(&scheduler)
                );
                let failures = of().filter(|run| run.failed.is_some()).count();
                show(&labels, &report.values(cpus, *case, &scheduler), failures);
            }
        }
    }
}

/// A label's value may have anything in it but these three.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
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
