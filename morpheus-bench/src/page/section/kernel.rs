//! `kernel --json`: the runtime under several schedulers, a run a line.

use serde_json::Value;

use super::{Figure, Section, Table, coloured, names, over_rounds, rows};
use crate::page::claims::{number, text};
use crate::page::plot::rows::Row;
use crate::unit::Unit;

const MEASURED: [(&str, &str, Unit, &str); 5] = [
    (
        "Wake, p99",
        "wake_p99_ns",
        Unit::Time,
        "From another thread's wake until the task runs.",
    ),
    (
        "Timer, p99",
        "timer_p99_ns",
        Unit::Time,
        "How late a sleep ends.",
    ),
    (
        "Timer, median",
        "timer_p50_ns",
        Unit::Time,
        "How late a sleep ends.",
    ),
    (
        "Requests a second",
        "requests_per_s",
        Unit::Count,
        "Of the TCP server's clients.",
    ),
    (
        "CPUs of the other process",
        "neighbours_cpu",
        Unit::Count,
        "What busy threads beside the runtime kept.",
    ),
];

pub fn section(records: &[Value]) -> Result<Section, String> {
    let is = |record: &&Value, kind: &str| text(record, "record").as_deref() == Some(kind);
    let runs: Vec<&Value> = records.iter().filter(|record| is(record, "run")).collect();
    let host = records.iter().find(|record| is(record, "host")).cloned();
    let (scenes, schedulers) = (names(&runs, "scene"), names(&runs, "scheduler"));
    let mut section = Section {
        title: "kernel".into(),
        about: format!("{} runs under {}", runs.len(), schedulers.join("; ")),
        host,
        ..Section::default()
    };
    for (title, path, unit, what) in MEASURED {
        section.figures.extend(figure(
            &runs,
            &scenes,
            &schedulers,
            (title, path, unit, what),
        ));
    }
    let failed = runs.iter().filter_map(|run| {
        let (scheduler, scene) = (text(run, "scheduler")?, text(run, "scene")?);
        Some(format!(
            "{scene} under {scheduler} failed: {}.",
            text(run, "failed")?
        ))
    });
    section.notes.extend(failed.take(20));
    if section.figures.is_empty() {
        return Err("has no run with a figure: it is to be what `kernel --json` prints".into());
    }
    Ok(section)
}

fn figure(
    runs: &[&Value],
    scenes: &[String],
    schedulers: &[String],
    (title, path, unit, what): (&str, &str, Unit, &str),
) -> Option<Figure> {
    let mut table = Table::new(&[
        "scene",
        "scheduler",
        "median",
        "least",
        "greatest",
        "rounds",
    ]);
    let mut groups = Vec::new();
    for scene in scenes {
        let mut group = Vec::new();
        for scheduler in schedulers {
            let own = |run: &&&Value| {
                text(run, "scene").as_ref() == Some(scene)
                    && text(run, "scheduler").as_ref() == Some(scheduler)
            };
            let values: Vec<f64> = runs
                .iter()
                .filter(own)
                .filter_map(|run| number(run, path))
                .collect();
            let Some((median, interval)) = over_rounds(&values) else {
                continue;
            };
            let (low, high) = interval.unwrap_or((median, median));
            table.rows.push(vec![
                scene.clone(),
                scheduler.clone(),
                unit.show(median),
                unit.show(low),
                unit.show(high),
                values.len().to_string(),
            ]);
            group.push(Row {
                label: scheduler.clone(),
                value: Some(median),
                interval,
                ..Row::default()
            });
        }
        groups.push((scene.clone(), coloured(group)));
    }
    (!table.rows.is_empty()).then(|| Figure {
        title: title.into(),
        caption: format!("{what} Medians over rounds; line: least to greatest."),
        plot: rows(unit, groups),
        table,
    })
}
