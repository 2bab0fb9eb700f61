//! `scale --json`: a whole machine under several schedulers, a run a line.

use clap::ValueEnum as _;
use serde_json::Value;

use super::{Figure, Section, Table, coloured, names, over_rounds, rows, thinned};
use crate::page::claims::{count, number, text};
use crate::page::plot::Plot;
use crate::page::plot::lines::{Across, Line, Lines, Point, Style};
use crate::page::plot::palette;
use crate::page::plot::rows::Row;
use crate::scale::case::{Case, Unit as Of};
use crate::stats::Spread;
use crate::unit::Unit;

/// More reasons why something failed tell nothing new.
const MOST_NOTES: usize = 20;

/// A round's number, and the figure.
type Round = (f64, f64);

/// What a scheduler reached in a case, with so many CPUs.
struct Reached {
    scheduler: String,
    cpus: String,
    rounds: Vec<Round>,
}

pub fn section(records: &[Value]) -> Result<Section, String> {
    let is = |record: &&Value, kind: &str| text(record, "record").as_deref() == Some(kind);
    let runs: Vec<&Value> = records.iter().filter(|record| is(record, "run")).collect();
    let schedulers = names(&runs, "scheduler");
    let mut section = Section {
        title: "scale".into(),
        about: format!("{} runs under {}", runs.len(), schedulers.join("; ")),
        host: records.iter().find(|record| is(record, "host")).map(of_all),
        ..Section::default()
    };
    for case in Case::value_variants() {
        let own = |run: &&&Value| text(run, "case") == Some(case.name());
        let runs: Vec<&Value> = runs.iter().filter(own).copied().collect();
        section.figures.extend(figures(*case, &runs, &schedulers));
    }
    let failed = runs.iter().filter_map(|run| {
        let (case, scheduler) = (text(run, "case")?, text(run, "scheduler")?);
        let why = text(run, "failed")?;
        Some(format!("{case} under {scheduler} failed: {why}."))
    });
    section.notes.extend(failed.take(MOST_NOTES));
    if section.figures.is_empty() {
        return Err("has no run with a figure: it is to be what `scale --json` prints".into());
    }
    Ok(section)
}

/// The machine. The scheduler in force when it was described is none of those that were measured.
fn of_all(host: &Value) -> Value {
    let mut host = host.clone();
    if let Some(host) = host.as_object_mut() {
        host.insert("scheduler".into(), "as each run says".into());
    }
    host
}

/// Medians, and where there is more than one round, each of them.
fn figures(case: Case, runs: &[&Value], schedulers: &[String]) -> Vec<Figure> {
    let mut reached = Vec::new();
    for cpus in cpus(runs) {
        for scheduler in schedulers {
            let own = |run: &&&Value| {
                count(run, "cpus").as_ref() == Some(&cpus)
                    && text(run, "scheduler").as_ref() == Some(scheduler)
                    && text(run, "failed").is_none()
            };
            let round = |run: &&Value| {
                let value = number(run, "measured.value").filter(|value| *value >= 0.0)?;
                Some((number(run, "iteration")?, value))
            };
            let rounds: Vec<Round> = runs.iter().filter(own).filter_map(round).collect();
            if !rounds.is_empty() {
                reached.push(Reached {
                    scheduler: scheduler.clone(),
                    cpus: cpus.clone(),
                    rounds,
                });
            }
        }
    }
    if reached.is_empty() {
        return Vec::new();
    }
    let (unit, of) = match case.about().unit {
        Of::Time => (Unit::Time, ""),
        Of::Share => (Unit::Share, ""),
        Of::Rate => (Unit::Count, " a second"),
        Of::Bytes => (Unit::BytesPassed, " a second"),
    };
    let title = format!("{}: {}{of}", case.name(), case.about().figure);
    let mut all = vec![medians(&title, case, unit, &reached)];
    all.extend(each_round(&title, unit, &reached));
    all
}

/// The numbers of CPUs, in the order in which they come first.
fn cpus(runs: &[&Value]) -> Vec<String> {
    let mut all = Vec::new();
    for cpus in runs.iter().filter_map(|run| count(run, "cpus")) {
        if !all.contains(&cpus) && all.len() < 16 {
            all.push(cpus);
        }
    }
    all
}

fn medians(title: &str, case: Case, unit: Unit, reached: &[Reached]) -> Figure {
    let mut table = Table::new(&[
        "scheduler",
        "CPUs",
        "median",
        "least",
        "1st quartile",
        "3rd quartile",
        "greatest",
        "rounds",
    ]);
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    for one in reached {
        let values: Vec<f64> = one.rounds.iter().map(|(_, value)| *value).collect();
        let (Some(spread), Some((median, interval))) = (Spread::of(&values), over_rounds(&values))
        else {
            continue;
        };
        let mut cells = vec![one.scheduler.clone(), one.cpus.clone()];
        let figures = [spread.median, spread.min, spread.q1, spread.q3, spread.max];
        cells.extend(figures.map(|value| unit.show(value)));
        cells.push(values.len().to_string());
        table.rows.push(cells);
        let row = Row {
            label: one.scheduler.clone(),
            value: Some(median),
            interval,
            ..Row::default()
        };
        let heading = heading(&one.cpus);
        match groups.last_mut() {
            Some((last, rows)) if *last == heading => rows.push(row),
            _ => groups.push((heading, vec![row])),
        }
    }
    let groups = groups
        .into_iter()
        .map(|(heading, rows)| (heading, coloured(rows)));
    Figure {
        title: title.to_owned(),
        caption: format!(
            "{} Medians over rounds; line: least to greatest.",
            sentence(case.about().what)
        ),
        plot: rows(unit, groups.collect()),
        table,
    }
}

fn heading(cpus: &str) -> String {
    let plural = if cpus == "1" { "" } else { "s" };
    format!("{cpus} CPU{plural}")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// A mark for each round: a median hides that there may be two ways in which a scheduler behaves.
fn each_round(title: &str, unit: Unit, reached: &[Reached]) -> Option<Figure> {
    if reached.iter().all(|one| one.rounds.len() < 2) {
        return None;
    }
    let several = reached.iter().any(|one| one.cpus != reached[0].cpus);
    let label = |one: &Reached| match several {
        true => format!("{}, {}", one.scheduler, heading(&one.cpus)),
        false => one.scheduler.clone(),
    };
    let labels: Vec<String> = reached.iter().map(label).collect();
    let mut table = Table::new(&["scheduler", "figures, from round to round"]);
    let mut lines = Vec::new();
    for ((one, label), slot) in reached.iter().zip(&labels).zip(palette::places(&labels)) {
        let mut points: Vec<Point> = one
            .rounds
            .iter()
            .map(|(round, value)| Point::new(*round, *value))
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let shown: Vec<String> = points.iter().map(|point| unit.show(point.y)).collect();
        table.rows.push(vec![label.clone(), shown.join(", ")]);
        lines.push(Line {
            label: label.clone(),
            slot,
            style: Style::Points,
            points: thinned(points),
        });
    }
    lines.truncate(super::MOST_LINES);
    Some(Figure {
        title: format!("{title}, round by round"),
        caption: "A mark for each round.".into(),
        plot: Some(Plot::Lines(Lines {
            across: Across::Numbers {
                unit: Unit::Count,
                name: "round".into(),
                log: false,
            },
            unit,
            from_zero: true,
            reference: None,
            lines,
        })),
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(case: &str, scheduler: &str, iteration: usize, value: f64) -> Value {
        json!({
            "record": "run", "bench": "scale", "case": case, "scheduler": scheduler, "ops": null, "cpus": 2,
            "iteration": iteration, "failed": null, "measured": {"value": value, "count": 1, "wall_ns": 1},
        })
    }

    #[test]
    fn a_case_has_its_medians_and_each_of_its_rounds() {
        let mut records = Vec::new();
        for (round, (theirs, ours)) in [(4e6, 1e6), (2e6, 3e6), (9e6, 2e6)].into_iter().enumerate()
        {
            records.push(run("latency", "default", round + 1, theirs));
            records.push(run("latency", "morpheus", round + 1, ours));
        }
        records.push(run("throughput", "default", 1, 1024.0 * 1024.0));
        let mut failed = run("burst", "default", 1, 1.0);
        failed["failed"] = json!("thrown out");
        records.push(failed);
        let section = section(&records).unwrap();
        let titles: Vec<&str> = section.figures.iter().map(|f| f.title.as_str()).collect();
        let expected = [
            "throughput: compressed a second",
            "latency: wake p99",
            "latency: wake p99, round by round",
        ];
        assert_eq!(titles, expected);
        let medians = &section.figures[1].table.rows;
        assert_eq!(
            medians[0][..4],
            ["default", "2", "4.00 ms", "2.00 ms"].map(str::to_owned)
        );
        assert_eq!(medians[1][2], "2.00 ms");
        let rounds = &section.figures[2];
        assert!(
            rounds.table.rows[1][1].contains("1.00 ms, 3.00 ms, 2.00 ms"),
            "{rounds:?}"
        );
        let Some(Plot::Lines(lines)) = &rounds.plot else {
            panic!("{rounds:?}");
        };
        assert_eq!(lines.lines.len(), 2);
        assert_eq!(lines.lines[0].points.len(), 3);
        assert_eq!(section.notes, ["burst under default failed: thrown out."]);
    }

    #[test]
    fn without_a_figure_it_says_what_it_is_to_be() {
        let mut failed = run("latency", "default", 1, 1.0);
        failed["failed"] = json!("thrown out");
        let unknown = run("speed", "default", 1, 1.0);
        for records in [vec![], vec![failed], vec![unknown]] {
            assert!(section(&records).unwrap_err().contains("scale --json"));
        }
    }
}
