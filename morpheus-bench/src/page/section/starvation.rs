//! `starvation --json`: runtimes beside each other, or with `--suite` row by row.

use serde_json::Value;

use super::{
    Figure, SUMMARY, Section, Table, coloured, curves, marked, over_rounds, percentile, rows,
    summary_cells,
};
use crate::page::claims::{at, count, list, number, text, yes};
use crate::page::plot::lines::{Across, Point};
use crate::page::plot::rows::Row;
use crate::unit::Unit;

/// What is measured with a histogram: its name, where it is, and what it says.
const LATENCIES: [(&str, &str, &str); 4] = [
    (
        "Wake",
        "wake_ns",
        "From another thread's wake until the task runs.",
    ),
    ("Timer", "timer_ns", "How late a sleep ends."),
    (
        "Request",
        "load",
        "Of a TCP client, from the intended start of the request.",
    ),
    (
        "Wake by a hog",
        "lifo_ns",
        "From the wake by a hog that computes on until the woken task runs.",
    ),
];

pub fn section(object: &Value) -> Section {
    let suite = at(object, "rows").is_some();
    let mut section = Section {
        title: if suite {
            "starvation, the suite"
        } else {
            "starvation"
        }
        .into(),
        about: workload(&object["config"], suite),
        ..Section::default()
    };
    if suite {
        suite_figures(object, &mut section);
    } else {
        section.figures = figures(object);
    }
    section
}

fn workload(config: &Value, suite: bool) -> String {
    let mut parts = Vec::new();
    let plain = |path: &str| number(config, path).map(|x| Unit::Count.show(x));
    let mut add = |path: &str, before: &str, after: &str| {
        if let Some(shown) = plain(path).filter(|shown| shown != "0") {
            parts.push(format!("{before}{shown}{after}"));
        }
    };
    add("workers", "", " workers");
    if !suite {
        add("hogs", "", " hogs");
        add("hog_ms", "", " ms a poll of theirs");
        add("load", "", " TCP clients");
        add("busy", "", " busy innocents");
        add("neighbours", "", " busy threads of another process");
        add("quota", "", " CPUs by quota");
    }
    add("duration_s", "", " s a run");
    parts.extend(text(config, "link").map(|link| format!("link {link}")));
    parts.join(", ")
}

fn runtime(run: &Value) -> Option<String> {
    text(run, "runtime")
}

/// Every round's figure of a runtime.
fn rounds(runs: &[Value], name: &str, path: &str) -> Vec<f64> {
    let own = runs
        .iter()
        .filter(|run| runtime(run).as_deref() == Some(name));
    own.filter_map(|run| number(run, path)).collect()
}

fn stands_still(run: &Value) -> Option<String> {
    let why = text(run, "failed")?;
    Some(if why.contains("stands still") {
        "stands still".into()
    } else {
        why
    })
}

/// One row for each runtime: p99 over the rounds, and p50.
fn latency_rows(runs: &[Value], medians: &[&Value], path: &str) -> Vec<Row> {
    let row = |median: &&Value| {
        let label = runtime(median)?;
        let p99 = over_rounds(&rounds(runs, &label, &format!("{path}.p99")));
        let p50 = number(median, &format!("{path}.p50"));
        let instead = stands_still(median).unwrap_or_else(|| "n too small".into());
        // The medians of the file, so that the table and the plot say the same.
        let value = number(median, &format!("{path}.p99")).or(p99.map(|(value, _)| value));
        Some(Row {
            label,
            value,
            interval: p99.and_then(|(_, interval)| interval),
            second: value.and(p50),
            instead,
            slot: 0,
        })
    };
    coloured(medians.iter().filter_map(row).collect())
}

fn figures(object: &Value) -> Vec<Figure> {
    let runs = list(object, "runs");
    let medians: Vec<&Value> = match list(object, "medians") {
        [] => runs.iter().collect(),
        medians => medians.iter().collect(),
    };
    let many = runs
        .iter()
        .filter_map(|run| number(run, "round"))
        .fold(0.0, f64::max)
        + 1.0;
    let rounds_said = if many > 1.0 {
        format!(" Line: least to greatest of {many:.0} rounds.")
    } else {
        String::new()
    };
    let mut figures = Vec::new();
    for (name, path, what) in LATENCIES {
        let there: Vec<&Value> = medians
            .iter()
            .copied()
            .filter(|run| at(run, path).is_some())
            .collect();
        let measured = there
            .iter()
            .any(|run| number(run, &format!("{path}.p50")).is_some());
        if !measured {
            continue;
        }
        let mut table = Table::new(&["runtime"]);
        table.heads.extend(SUMMARY.map(str::to_owned));
        for run in &there {
            let mut cells = vec![runtime(run).unwrap_or_else(|| "–".into())];
            match stands_still(run) {
                Some(why) => cells.push(why),
                None => cells.extend(summary_cells(at(run, path).unwrap_or(&Value::Null))),
            }
            table.rows.push(cells);
        }
        figures.push(Figure {
            title: format!("{name}, p99"),
            caption: format!("{what} Filled: p99, hollow: p50.{rounds_said}"),
            plot: rows(
                Unit::Time,
                vec![(String::new(), latency_rows(runs, &there, path))],
            ),
            table,
        });
        let entries: Vec<(String, &Value)> = there
            .iter()
            .filter_map(|run| Some((runtime(run)?, at(run, path)?)))
            .collect();
        figures.push(Figure {
            title: format!("{name}, percentiles"),
            caption: format!("{what} {}", super::PERCENTILES),
            plot: curves(&entries),
            table: Table::default(),
        });
        if many > 2.0 {
            figures.push(round_by_round(runs, &there, name, path));
        }
    }
    figures.extend(hogs(&medians));
    figures.retain(|figure| figure.plot.is_some() || !figure.table.rows.is_empty());
    figures
}

fn round_by_round(runs: &[Value], medians: &[&Value], name: &str, path: &str) -> Figure {
    let names: Vec<String> = medians.iter().filter_map(|run| runtime(run)).collect();
    let point = |run: &Value| {
        let round = number(run, "round")?;
        let p99 = number(run, &format!("{path}.p99")).filter(|ns| *ns > 0.0)?;
        Some(Point::new(round + 1.0, p99))
    };
    let with_points = |label: String| {
        let own = runs
            .iter()
            .filter(|run| runtime(run).as_ref() == Some(&label));
        let points = own.filter_map(point).collect();
        (label, points)
    };
    let across = Across::Numbers {
        unit: Unit::Count,
        name: "round".into(),
        log: false,
    };
    Figure {
        title: format!("{name}, p99 of each round"),
        caption: "Whether rounds agree.".into(),
        plot: marked(across, names.into_iter().map(with_points).collect()),
        table: Table::default(),
    }
}

fn hogs(medians: &[&Value]) -> Option<Figure> {
    let with: Vec<&&Value> = medians
        .iter()
        .filter(|run| number(run, "hog.cpu_share").is_some())
        .collect();
    let row = |run: &&&Value| {
        Some(Row {
            label: runtime(run)?,
            value: number(run, "hog.cpu_share"),
            ..Row::default()
        })
    };
    let plot = rows(
        Unit::Count,
        vec![(
            String::new(),
            coloured(with.iter().filter_map(row).collect()),
        )],
    );
    let mut table = Table::new(&[
        "runtime",
        "hogs' CPUs",
        "their polls",
        "unfinished",
        "CPU of the controller",
    ]);
    table.rows = with
        .iter()
        .map(|run| {
            let or = |text: Option<String>| text.unwrap_or_else(|| "–".into());
            vec![
                or(runtime(run)),
                or(number(run, "hog.cpu_share").map(|x| format!("{x:.2}"))),
                or(count(run, "hog.polls")),
                or(count(run, "hog.unfinished")),
                or(number(run, "controller_cpu_share").map(|x| Unit::Share.show(x))),
            ]
        })
        .collect();
    Some(Figure {
        title: "What the hogs got".into(),
        caption: "CPUs that the hogs used: nobody is made faster by taking it from them.".into(),
        plot: Some(plot?),
        table,
    })
}

/// A row each, with what its bars say.
fn suite_figures(object: &Value, section: &mut Section) {
    let mut verdicts: Vec<(&str, usize)> = vec![
        ("ok", 0),
        ("missed", 0),
        ("cannot-judge", 0),
        ("reported", 0),
    ];
    let mut bars = Table::new(&["row", "bar", "what was measured"]);
    for row in list(object, "rows") {
        let name = text(row, "name").unwrap_or_else(|| "row".into());
        for check in list(row, "checks") {
            let verdict = text(check, "verdict").unwrap_or_default();
            if let Some((_, n)) = verdicts.iter_mut().find(|(known, _)| *known == verdict) {
                *n += 1;
            }
            let said = text(check, "text").unwrap_or_default();
            bars.rows.push(vec![name.clone(), in_words(&verdict), said]);
        }
        section.figures.extend(suite_row(row, &name));
    }
    let counts: Vec<Row> = verdicts
        .iter()
        .zip([2, 1, 6, 5])
        .map(|((verdict, n), slot)| Row {
            label: in_words(verdict),
            slot,
            value: Some(*n as f64),
            ..Row::default()
        })
        .collect();
    if !bars.rows.is_empty() {
        section.figures.insert(
            0,
            Figure {
                title: "The bars".into(),
                caption: "How many bars were met; the table has each.".into(),
                plot: rows(Unit::Count, vec![(String::new(), counts)]),
                table: bars,
            },
        );
    }
}

fn in_words(verdict: &str) -> String {
    match verdict {
        "ok" => "met",
        "cannot-judge" => "not judged",
        other => other,
    }
    .into()
}

fn suite_row(row: &Value, name: &str) -> Option<Figure> {
    let mut table = Table::new(&[
        "case",
        "runtime",
        "wake p50",
        "wake p99",
        "wake max",
        "timer p99",
        "rounds",
    ]);
    let mut groups = Vec::new();
    for case in list(row, "cases") {
        let runs = list(case, "runs");
        let case = text(case, "name").unwrap_or_else(|| "case".into());
        let mut names: Vec<String> = runs.iter().filter_map(runtime).collect();
        let mut seen = Vec::new();
        names.retain(|name| {
            !seen.contains(name) && {
                seen.push(name.clone());
                true
            }
        });
        let mut group = Vec::new();
        for label in names {
            let own: Vec<&Value> = runs
                .iter()
                .filter(|run| runtime(run).as_ref() == Some(&label))
                .collect();
            let of = |path: &str| over_rounds(&rounds(runs, &label, path));
            let (p99, p50) = (of("wake_ns.p99"), of("wake_ns.p50"));
            let failed = own.iter().find_map(|run| stands_still(run));
            let shown = |found: Option<(f64, Option<(f64, f64)>)>| {
                found.map_or("–".into(), |(ns, _)| Unit::Time.show(ns))
            };
            table.rows.push(vec![
                case.clone(),
                label.clone(),
                failed
                    .clone()
                    .filter(|_| p50.is_none())
                    .unwrap_or_else(|| shown(p50)),
                if own.len() == 1 {
                    percentile(own[0], "wake_ns.p99")
                } else {
                    shown(p99)
                },
                shown(of("wake_ns.max")),
                shown(of("timer_ns.p99")),
                own.len().to_string(),
            ]);
            group.push(Row {
                label,
                value: p99.map(|(value, _)| value),
                interval: p99.and_then(|(_, interval)| interval),
                second: p99.and(p50.map(|(value, _)| value)),
                instead: failed.unwrap_or_else(|| "n too small".into()),
                slot: 0,
            });
        }
        groups.push((case, coloured(group)));
    }
    let about = text(row, "about").unwrap_or_default();
    let idle = list(row, "cases")
        .iter()
        .any(|case| yes(case, "config.idle"));
    (!table.rows.is_empty()).then(|| Figure {
        title: format!("{name}: wake, p99"),
        caption: format!(
            "{about}. Filled: p99, hollow: p50, medians over rounds; line: least to greatest."
        ),
        plot: rows(Unit::Time, groups).filter(|_| !idle),
        table,
    })
}
