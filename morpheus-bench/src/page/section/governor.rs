//! `governor run`'s directory, or what `governor analyse --json` prints of one.

use std::path::Path;

use serde_json::Value;

use super::{
    Figure, MOST_LINES, SUMMARY, Section, Table, coloured, curves, rows, summary_cells, thinned,
    time,
};
use crate::governor;
use crate::governor::frequency::Sample;
use crate::governor::record::Reader;
use crate::page::claims::{at, count, list, number, numbers, text, texts};
use crate::page::plot::Plot;
use crate::page::plot::lines::{Across, Line, Lines, Point, Style};
use crate::page::plot::palette;
use crate::page::plot::rows::Row;
use crate::unit::Unit;

/// Of a study in a directory: with the frequencies over time, which the analysis does not have.
///
/// # Errors
/// When it cannot be read, or nothing was measured.
pub fn study(directory: &Path) -> Result<Section, String> {
    let analysis = governor::analyse::analyse(directory)?;
    let value = serde_json::to_value(&analysis).map_err(|error| error.to_string())?;
    let mut section = section(&value, Some(directory));
    if section
        .figures
        .iter()
        .all(|figure| figure.table.rows.is_empty())
    {
        return Err("has no run with a figure: `governor run` makes some".into());
    }
    super::finish(&mut section, &value);
    Ok(section)
}

/// Of an analysis; with `directory`, the study's that it is of.
pub fn section(object: &Value, directory: Option<&Path>) -> Section {
    let conditions: Vec<(String, &Value)> = list(object, "conditions")
        .iter()
        .filter_map(|condition| Some((text(condition, "name")?, condition)))
        .collect();
    let mut about = Vec::new();
    about.extend(number(object, "config.duration_s").map(|s| format!("{s} s a run")));
    about.extend(super::counted(object, "config.repeats", "repeat"));
    about.extend(text(object, "config.policy").map(|policy| format!("policy {policy}")));
    about.extend(count(object, "config.cpu").map(|cpu| format!("on CPU {cpu}")));
    let mut section = Section {
        title: "governor".into(),
        about: about.join(", "),
        notes: texts(object, "notes"),
        ..Section::default()
    };
    for note in texts(object, "trap.text") {
        if !section.notes.contains(&note) {
            section.notes.push(note);
        }
    }
    section.figures.push(latency(&conditions));
    section.figures.extend(kernels(&conditions));
    section.figures.extend(frequency(&conditions));
    if let Some(directory) = directory {
        section.figures.extend(over_time(object, directory));
    }
    section.figures.extend(responses(&conditions));
    section
        .figures
        .retain(|figure| figure.plot.is_some() || !figure.table.rows.is_empty());
    section
}

fn latency(conditions: &[(String, &Value)]) -> Figure {
    let mut table = Table::new(&[
        "condition",
        "latency",
        "versus performance",
        "windows due",
        "missed",
        "mean frequency",
        "at the lowest",
        "busy",
    ]);
    let or = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    table.rows = conditions
        .iter()
        .map(|(name, value)| {
            let shown = |path: &str, unit: Unit| or(number(value, path).map(|x| unit.show(x)));
            vec![
                name.clone(),
                time(value, "latency_ns"),
                shown("versus_performance", Unit::Factor),
                or(count(value, "due")),
                or(count(value, "missed")),
                shown("mean_khz", Unit::Frequency),
                shown("share_of_lowest", Unit::Share),
                shown("busy_share", Unit::Share),
            ]
        })
        .collect();
    let row = |(name, value): &(String, &Value)| Row {
        label: name.clone(),
        value: number(value, "latency_ns"),
        interval: <[f64; 2]>::try_from(numbers(value, "range_ns"))
            .ok()
            .filter(|[low, high]| low < high)
            .map(|[low, high]| (low, high)),
        ..Row::default()
    };
    let shown = coloured(conditions.iter().map(row).collect());
    Figure {
        title: "Latency by governor".into(),
        caption: "Geometric mean of the kernels' median service times; line: least to greatest of the repeats.".into(),
        plot: rows(Unit::Time, vec![(String::new(), shown)]),
        table,
    }
}

/// Names of the kernels, in the order of the first condition that has them.
fn kernel_names(conditions: &[(String, &Value)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, condition) in conditions {
        for name in list(condition, "kernels")
            .iter()
            .filter_map(|kernel| text(kernel, "kernel"))
        {
            if !names.contains(&name) && names.len() < 16 {
                names.push(name);
            }
        }
    }
    names
}

fn kernel_of<'a>(condition: &'a Value, name: &str) -> Option<&'a Value> {
    let mut kernels = list(condition, "kernels").iter();
    kernels.find(|kernel| text(kernel, "kernel").as_deref() == Some(name))
}

fn kernels(conditions: &[(String, &Value)]) -> Option<Figure> {
    let mut table = Table::new(&["kernel", "condition"]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    let mut groups = Vec::new();
    for kernel in kernel_names(conditions) {
        let mut group = Vec::new();
        for (name, condition) in conditions {
            let Some(found) = kernel_of(condition, &kernel) else {
                continue;
            };
            let mut cells = vec![kernel.clone(), name.clone()];
            cells.extend(summary_cells(
                at(found, "service_ns").unwrap_or(&Value::Null),
            ));
            table.rows.push(cells);
            let repeats = numbers(found, "repeat_p50_ns");
            group.push(Row {
                label: name.clone(),
                value: number(found, "service_ns.p50"),
                interval: super::over_rounds(&repeats).and_then(|(_, interval)| interval),
                ..Row::default()
            });
        }
        groups.push((kernel, coloured(group)));
    }
    (!table.rows.is_empty()).then(|| Figure {
        title: "Service time of each kernel, median".into(),
        caption: "Line: least to greatest of the repeats' medians.".into(),
        plot: rows(Unit::Time, groups),
        table,
    })
}

fn frequency(conditions: &[(String, &Value)]) -> Option<Figure> {
    let row = |(name, value): &(String, &Value)| Row {
        label: name.clone(),
        value: number(value, "mean_khz"),
        ..Row::default()
    };
    let shown: Vec<Row> = coloured(conditions.iter().map(row).collect());
    Some(Figure {
        title: "Mean frequency of the measured CPU".into(),
        caption: "Over all readings.".into(),
        plot: Some(rows(Unit::Frequency, vec![(String::new(), shown)])?),
        table: Table::default(),
    })
}

/// The measured CPU's frequency, one plot without load and one with.
fn over_time(object: &Value, directory: &Path) -> Vec<Figure> {
    let Ok(reader) = Reader::new(directory) else {
        return Vec::new();
    };
    let cpu = number(object, "config.cpu").map_or(0, |cpu| cpu as usize);
    let mut seen: Vec<_> = Vec::new();
    for run in &reader.runs {
        if !seen.contains(&&run.condition) {
            seen.push(&run.condition);
        }
    }
    let mut figures = Vec::new();
    for with_load in [false, true] {
        let chosen: Vec<_> = seen
            .iter()
            .copied()
            .filter(|condition| (condition.load > 0) == with_load)
            .collect();
        let names: Vec<String> = chosen.iter().map(|condition| condition.name()).collect();
        let slots = palette::places(&names);
        let line = |((condition, label), slot)| {
            let samples: &[Sample] = &reader.frequencies(condition);
            Line {
                label,
                slot,
                style: Style::Plain,
                points: thinned(joined(samples, cpu)),
            }
        };
        let named = chosen.into_iter().zip(names).zip(slots).take(MOST_LINES);
        let mut lines: Vec<Line> = named.map(line).collect();
        lines.retain(|line| line.points.len() > 1);
        if !lines.is_empty() {
            let load = if with_load {
                "with load"
            } else {
                "without load"
            };
            figures.push(Figure {
                title: format!("Frequency over time, {load}"),
                caption: "Of the measured CPU, the runs of each condition one after another."
                    .into(),
                plot: Some(Plot::Lines(Lines {
                    across: Across::Numbers {
                        unit: Unit::Time,
                        name: "time".into(),
                        log: false,
                    },
                    unit: Unit::Frequency,
                    from_zero: true,
                    reference: None,
                    lines,
                })),
                table: Table::default(),
            });
        }
    }
    figures
}

/// One line of time: each run's log begins at 0 again.
fn joined(samples: &[Sample], cpu: usize) -> Vec<Point> {
    let (mut offset_ms, mut last_ms) = (0.0, 0.0);
    let mut points = Vec::new();
    for sample in samples.iter().filter(|sample| sample.cpus.contains(&cpu)) {
        let (Some(khz), true) = (sample.khz, sample.elapsed_ms.is_finite()) else {
            continue;
        };
        if sample.elapsed_ms < last_ms {
            offset_ms += last_ms;
        }
        last_ms = sample.elapsed_ms.clamp(0.0, 1e12);
        points.push(Point::new((offset_ms + last_ms) * 1e6, khz as f64));
    }
    points
}

/// From when a window was due until it was done, for each kernel.
fn responses(conditions: &[(String, &Value)]) -> Vec<Figure> {
    let of = |kernel: String| {
        let entries: Vec<(String, &Value)> = conditions
            .iter()
            .filter_map(|(name, condition)| {
                let found = kernel_of(condition, &kernel)?;
                Some((name.clone(), at(found, "response_ns")?))
            })
            .collect();
        Figure {
            title: format!("Response time of {kernel}, percentiles"),
            caption: "From when a window was due until it was done.".into(),
            plot: curves(&entries),
            table: Table::default(),
        }
    };
    kernel_names(conditions).into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_laid_one_after_another() {
        let sample = |elapsed_ms, cpus: &[usize], khz| Sample {
            elapsed_ms,
            policy: "policy0".into(),
            cpus: cpus.to_vec(),
            governor: "schedutil".into(),
            khz,
        };
        let samples = [
            sample(1.0, &[0, 1], Some(600_000)),
            sample(2.0, &[2], Some(900_000)),
            sample(3.0, &[0, 1], None),
            sample(4.0, &[0, 1], Some(700_000)),
            sample(1.0, &[0, 1], Some(800_000)),
            sample(f64::NAN, &[0, 1], Some(1)),
        ];
        let points: Vec<(f64, f64)> = joined(&samples, 0)
            .iter()
            .map(|p| (p.x / 1e6, p.y))
            .collect();
        assert_eq!(
            points,
            [(1.0, 600_000.0), (4.0, 700_000.0), (5.0, 800_000.0)]
        );
    }
}
