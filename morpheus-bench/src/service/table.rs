//! The output for people.

use super::WIDTH;
use super::config::Scene;
use super::result::{Medians, Ratio, Report, Spread};
use crate::report::{Table, count, note_early_end, time, wrap};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n" + &wrap(&title(report), WIDTH) + "\n\n";
    text += &latencies(&report.medians, report.config.scene);
    text += "\n";
    text += &ratios(&report.ratios);
    text += "\n";
    for one in &report.medians {
        if let Some(note) = note(one) {
            text += &(wrap(&format!("{}: {note}", one.variant), WIDTH) + "\n");
        }
    }
    let footnote = format!(
        "Latencies are from when a request was due by the timetable until its answer; what had no answer a second after \
         the last was due counts with its age. Once sent: from when it was sent, as a closed loop sees it, of those with an \
         answer. The clients of {} are a closed loop: they wait for their answers.",
        report.config.scene.path()
    );
    text += &(wrap(&footnote, WIDTH) + "\n");
    note_early_end(&mut text, report.interrupted);
    text
}

fn title(report: &Report) -> String {
    let config = &report.config;
    let busy = match config.scene {
        Scene::Hash => format!("each {} of CPU", time(config.hash_cpu_ns)),
        Scene::Blocking => "each blocked for 5 ms".into(),
    };
    format!(
        "{} workers, {} clients of {} ({busy}), /ping {}/s, /db {}/s, {} s after {} s, medians of {} rounds; wrk {}",
        config.workers,
        config.clients,
        config.scene.path(),
        count(config.ping_per_s.round() as u64),
        count(config.db_per_s.round() as u64),
        config.seconds,
        config.warmup_s,
        config.rounds,
        config.wrk,
    )
}

fn latencies(medians: &[Medians], scene: Scene) -> String {
    let mut table = Table::default();
    let mut column = |head: &str, expendable, cell: &dyn Fn(&Medians) -> String| {
        table.column(head, expendable, medians.iter().map(cell).collect());
    };
    let ns = |spread: Option<Spread>| {
        spread.map_or("–".into(), |spread| time(spread.median.round() as u64))
    };
    let rate = |spread: Option<Spread>| {
        spread.map_or("–".into(), |spread| {
            if spread.median < 100.0 {
                format!("{:.1}", spread.median)
            } else {
                count(spread.median.round() as u64)
            }
        })
    };
    column("", 0, &|one| one.variant.name().into());
    column("/ping p50", 0, &|one| ns(one.ping_p50_ns));
    column("p99", 0, &|one| ns(one.ping_p99_ns));
    column("least – most", 1, &|one| {
        range(one.ping_p99_ns, &|ns| time(ns.round() as u64))
    });
    column("max", 2, &|one| ns(one.ping_max_ns));
    column("answered", 0, &|one| {
        one.ping_answered.map_or("–".into(), |spread| {
            format!("{:.1} %", spread.median * 100.0)
        })
    });
    column("once sent p50", 3, &|one| ns(one.ping_took_p50_ns));
    column("/db p99", 0, &|one| ns(one.db_p99_ns));
    column("per s", 0, &|one| rate(one.db_per_s));
    column(&format!("{} per s", scene.path()), 0, &|one| {
        rate(one.work_per_s)
    });
    column("least – most", 1, &|one| {
        range(one.work_per_s, &|rate| count(rate.round() as u64))
    });
    table.render(WIDTH)
}

fn range(spread: Option<Spread>, shown: &dyn Fn(f64) -> String) -> String {
    spread.map_or("–".into(), |spread| {
        format!("{} – {}", shown(spread.least), shown(spread.most))
    })
}

fn ratios(ratios: &[Ratio]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let value = |ratio: &Ratio| match ratio.value {
        None => "–".into(),
        Some(value) if value < 0.1 => format!("{value:.4}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) => count(value.round() as u64),
    };
    let bar = |ratio: &Ratio| {
        ratio.bar.map_or_else(String::new, |bar| {
            let bar = if bar < 10.0 {
                bar.to_string()
            } else {
                count(bar.round() as u64)
            };
            format!("{} {bar}", if ratio.at_least { "≥" } else { "≤" })
        })
    };
    let met = |ratio: &Ratio| match ratio.met {
        None => String::new(),
        Some(true) => "met".into(),
        Some(false) => "missed".into(),
    };
    let mut table = Table::default();
    let names = ratios.iter().map(|ratio| ratio.name.clone()).collect();
    table.column("ratio of medians", 0, names);
    table.column("", 0, ratios.iter().map(value).collect());
    table.column("bar", 0, ratios.iter().map(bar).collect());
    table.column("", 0, ratios.iter().map(met).collect());
    table.render(WIDTH)
}

/// What is missing of a variant, and why.
fn note(one: &Medians) -> Option<String> {
    if let Some(why) = &one.failed {
        return Some(why.clone());
    }
    let lacks = [("/ping", one.ping_p99_ns), ("/db", one.db_p99_ns)]
        .into_iter()
        .filter(|(_, p99)| p99.is_none())
        .map(|(path, _)| path)
        .collect::<Vec<_>>();
    (!lacks.is_empty()).then(|| {
        format!(
            "no p99 of {}, n too small (1,000 a round are needed): --seconds gives more",
            lacks.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{report, run};
    use super::super::variant::Variant;
    use super::*;

    #[test]
    fn the_table_fits_and_has_the_bars() {
        let mut failed = run(Variant::TokioMore, 1, 0, 1.0);
        failed.figures = None;
        failed.failed = Some("the service ended meanwhile".into());
        let report = report(
            "",
            vec![
                run(Variant::Tokio, 700_000, 900, 12_345.0),
                failed,
                run(Variant::Rewritten, 1_500, 0, 40.0),
                run(Variant::Morpheus, 900, 0, 40.0),
                run(Variant::MorpheusLayer, 600, 0, 39.0),
            ],
        );
        let text = render(&report);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for expected in [
            "1.00 s",
            "69.0 %",
            "12,345",
            "tokio+32: the service ended meanwhile",
            "/ping p99: tokio / morpheus",
            "≥ 1,000",
            "≤ 1",
            "≥ 0.95",
            "met",
            "closed loop",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn too_few_for_a_p99_is_said() {
        let mut few = run(Variant::Morpheus, 900, 0, 40.0);
        if let Some(figures) = &mut few.figures {
            figures.db.late_ns.p99 = None;
        }
        let text = render(&report("", vec![few]));
        assert!(
            text.contains("morpheus: no p99 of /db, n too small"),
            "{text}"
        );
        let small = Ratio {
            name: "small".into(),
            value: Some(0.000_36),
            bar: Some(1.0),
            at_least: false,
            met: Some(true),
        };
        assert!(ratios(&[small]).contains("0.0004"));
    }
}
