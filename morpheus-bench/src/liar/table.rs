//! The output for people.

use super::WIDTH;
use super::result::{Beside, Escalations, Honest, Report};
use crate::pairs::{self, Bar};
use crate::report::{self, Table, count, maybe_time, wrap};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    text += &format!(
        "{} workers, link {}, sections of {} ms\n\n",
        report.workers, report.link, report.critical_duration_ms
    );
    text += &honest(&report.honest, report);
    if !report.beside.is_empty() {
        text += "\n";
        text += &beside(&report.beside);
    }
    report::note_early_end(&mut text, report.interrupted);
    text
}

fn honest(honest: &Honest, report: &Report) -> String {
    let n = honest.sections;
    let ms = report.critical_duration_ms;
    let overhead = |us: u64| pairs::percent(us as f64 / honest.without_us.max(1) as f64 - 1.0);
    let name = if report.with_critical {
        "with critical sections"
    } else {
        "without, to compare"
    };
    let mut table = Table::default();
    let column = |a: String, b: String| vec![a, b];
    let names = column(
        format!("{name} ({ms} ms × {n})"),
        format!("the same work without ({ms} ms × {n})"),
    );
    table.column("", 0, names);
    table.column(
        "CPU time",
        0,
        column(us(honest.within_us), us(honest.without_us)),
    );
    table.column(
        "elapsed",
        0,
        column(us(honest.within_elapsed_us), us(honest.without_elapsed_us)),
    );
    table.column(
        "overhead",
        0,
        column(overhead(honest.within_us), "–".into()),
    );
    let both = [honest.escalations, honest.escalations_without];
    let of = |figure: fn(&Escalations) -> u64| both.iter().map(|e| count(figure(e))).collect();
    table.column("escalations", 0, of(|e| e.slowed_down));
    table.column("requests", 1, of(|e| e.requests));
    table.column("takeovers", 1, of(|e| e.takeovers));
    let mut lines = vec![format!("The pairs: {}.", honest.verdict)];
    let bar = pairs::percent(honest.bar);
    let bar = bar.trim_start_matches('+');
    if report.with_critical {
        lines.push(format!(
            "Bar of {bar} of the section, by the pairs: {}.",
            honest.judged
        ));
        if let Some(guard) = honest.guard_ns {
            let share = pairs::percent(guard.median / (ms * 1e6));
            lines.push(format!(
                "Entering and leaving a section takes {:.1} ns ({:.1} to {:.1}), {} of it. Bar, by that: {}.",
                guard.median,
                guard.low,
                guard.high,
                share.trim_start_matches('+'),
                honest.guard_judged
            ));
        }
        let escalations = honest.escalations.slowed_down;
        let judged = if escalations == 0 {
            Bar::Met
        } else {
            Bar::Missed
        };
        lines.push(format!("No escalation within an honest section: {judged}."));
    }
    let lines = lines.iter().map(|line| wrap(line, WIDTH) + "\n");
    table.render(WIDTH) + "\n" + &lines.collect::<String>()
}

fn us(us: u64) -> String {
    format!("{} µs", count(us))
}

fn beside(rows: &[Beside]) -> String {
    let mut table = Table::default();
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let quantile = |ns: Option<u64>| ns.map_or("n too small".into(), report::time);
    let column = |cell: &dyn Fn(&Beside) -> String| rows.iter().map(cell).collect();
    let share = |row: &Beside| row.cpu_share.map_or("–".into(), percent);
    let fair = |row: &Beside| {
        row.cpu_share
            .map_or("–".into(), |_| percent(row.fair_share))
    };
    table.column("beside", 0, column(&|row| row.who.to_string()));
    table.column("its CPU", 0, column(&share));
    table.column("fair", 0, column(&fair));
    table.column(
        "neighbours",
        1,
        column(&|row| row.neighbours_share.map_or("–".into(), percent)),
    );
    table.column("wake p50", 0, column(&|row| maybe_time(row.wakes_ns.p50)));
    table.column("p99", 0, column(&|row| quantile(row.wakes_ns.p99)));
    table.column("max", 1, column(&|row| maybe_time(row.wakes_ns.max)));
    table.column(
        "demoted",
        2,
        column(&|row| count(row.escalations.demotions)),
    );
    table.column(
        "throttled",
        2,
        column(&|row| count(row.escalations.throttles)),
    );
    table.column(
        "requests",
        2,
        column(&|row| count(row.escalations.requests)),
    );
    table.column(
        "takeovers",
        2,
        column(&|row| count(row.escalations.takeovers)),
    );
    let neighbours = rows.first().map_or(0, |row| row.neighbours);
    let note = format!(
        "Beside {neighbours} busy processes. Wakes are of another task of the same runtime, {}; those that were not \
         served by the end count with their age.",
        rows.first()
            .map_or(String::new(), |row| row.counts.to_string())
    );
    format!("{}{}\n", table.render(WIDTH), wrap(&note, WIDTH))
}

#[cfg(test)]
mod tests {
    use super::super::attack::Who;
    use super::*;
    use crate::histogram::{Counts, Summary};

    #[test]
    fn the_widest_table_fits() {
        let row = |who| Beside {
            who,
            cpu_share: (who != Who::Nobody).then_some(0.987),
            fair_share: 0.5,
            neighbours: 127,
            neighbours_share: Some(63.5),
            counts: Counts::FromIntendedStart,
            wakes_ns: Summary {
                n: 900,
                p50: Some(999_000),
                p99: None,
                p999: None,
                max: Some(1_234_000_000),
                ..Summary::default()
            },
            unserved: 7,
            escalations: Escalations {
                slowed_down: 9,
                demotions: 1_000,
                throttles: 1_000,
                requests: 1_000,
                takeovers: 1_000,
            },
            duration_s: 1.0,
        };
        let text = beside(&[row(Who::Nobody), row(Who::Hog), row(Who::Liar)]);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        for expected in [
            "98.7 %",
            "50.0 %",
            "n too small",
            "from the intended start",
            "1,000",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
