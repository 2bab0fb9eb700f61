//! The output for people.

use super::WIDTH;
use super::plan::{Measured, Series};
use super::result::{Report, Row};
use super::sleep::Call;
use crate::histogram::{Counts, SAMPLES_FOR_P99, SAMPLES_FOR_P999};
use crate::interrupt;
use crate::policy::Policy;
use crate::report::{self, Table, maybe_time};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    text += &report::wrap(&title(report), WIDTH);
    text += "\n\n";
    text += &moments(report);
    text += "\n";
    text += &percentiles(report);
    text += &notes(report);
    text
}

fn title(report: &Report) -> String {
    let mut parts = vec![format!("policy {}", report.policy)];
    if report.priority > 0 {
        parts.push(format!("priority {}", report.priority));
    }
    parts.extend(report.cpu.map(|cpu| format!("on CPU {cpu}")));
    let warmup = report.warmup;
    let how = if warmup.settled {
        "settled"
    } else {
        "not settled"
    };
    parts.push(format!("warm-up {} sleeps ({how})", warmup.sleeps));
    format!("How late a sleeping thread wakes: {}", parts.join(", "))
}

/// Names of the rows, with what differs between them.
fn name(row: &Row, report: &Report) -> String {
    let differs = |of: fn(&Row) -> u64| report.rows.iter().any(|other| of(other) != of(row));
    let mut parts = vec![report::time(row.interval_ns)];
    if report.rows.iter().any(|row| row.call == Call::Select) {
        parts.push(match row.call {
            Call::Nanosleep => "nanosleep".into(),
            Call::Select => "select".into(),
        });
    }
    parts.push(format!("slack {}", report::time(row.slack_ns)));
    if differs(|row| row.load as u64) {
        parts.push(format!("load {}", row.load));
    }
    parts.join(", ")
}

/// Mean and deviation, each in seconds, milliseconds and microseconds.
fn moments(report: &Report) -> String {
    let mut table = Table::default();
    let mut names = Vec::new();
    let mut cells: [Vec<String>; 3] = Default::default();
    for row in &report.rows {
        for (what, ns) in [("mean", row.mean_ns), ("stdev", row.deviation_ns)] {
            names.push(format!("{}: {what}", name(row, report)));
            let shown = |scale: f64, digits: usize, unit: &str| {
                ns.map_or("–".into(), |ns| format!("{:.digits$} {unit}", ns / scale))
            };
            cells[0].push(shown(1e9, 6, "s"));
            cells[1].push(shown(1e6, 6, "ms"));
            cells[2].push(shown(1e3, 3, "µs"));
        }
    }
    table.column("sleep", 0, names);
    for (head, cells) in ["in s", "in ms", "in µs"].into_iter().zip(cells) {
        table.column(head, 0, cells);
    }
    table.render(WIDTH)
}

fn percentiles(report: &Report) -> String {
    let mut table = Table::default();
    let rows = || report.rows.iter();
    let median = |row: &Row| match row.median_ns {
        Some(m) => format!(
            "{} to {}",
            report::time(m.low as u64),
            report::time(m.high as u64)
        ),
        None => "n too small".into(),
    };
    let quantile = |ns: Option<u64>| ns.map_or("n too small".into(), report::time);
    let head = match rows().next().map(|row| row.counts) {
        Some(Counts::Raw) => "lateness, raw",
        _ => "lateness",
    };
    table.column(head, 0, rows().map(|row| name(row, report)).collect());
    table.column(
        "n",
        0,
        rows().map(|row| report::count(row.lateness_ns.n)).collect(),
    );
    table.column(
        "p50",
        0,
        rows().map(|row| maybe_time(row.lateness_ns.p50)).collect(),
    );
    table.column("95 % of it", 2, rows().map(median).collect());
    table.column(
        "p99",
        0,
        rows().map(|row| quantile(row.lateness_ns.p99)).collect(),
    );
    table.column(
        "p99.9",
        1,
        rows().map(|row| quantile(row.lateness_ns.p999)).collect(),
    );
    table.column(
        "max",
        0,
        rows().map(|row| maybe_time(row.lateness_ns.max)).collect(),
    );
    if rows().any(|row| row.corrected_ns.is_some()) {
        let p99 = |row: &Row| quantile(row.corrected_ns.as_ref().and_then(|s| s.p99));
        table.column("p99 corrected", 0, rows().map(p99).collect());
    }
    if rows().any(|row| !row.idle.is_empty()) {
        table.column("idle", 0, rows().map(idle).collect());
    }
    table.render(WIDTH)
}

/// The states in which the CPU was for a hundredth of the time or more.
fn idle(row: &Row) -> String {
    let states: Vec<String> = row
        .idle
        .iter()
        .filter(|state| state.share >= 0.01)
        .map(|state| format!("{:.0} % {}", state.share * 100.0, state.name))
        .collect();
    if states.is_empty() {
        "none".into()
    } else {
        states.join(", ")
    }
}

fn notes(report: &Report) -> String {
    let mut notes = Vec::new();
    let least = report
        .rows
        .iter()
        .map(|row| row.lateness_ns.n)
        .min()
        .unwrap_or(0);
    if least < SAMPLES_FOR_P999 {
        notes.push(format!(
            "A p99 needs {} sleeps, a p99.9 {}.",
            report::count(SAMPLES_FOR_P99),
            report::count(SAMPLES_FOR_P999)
        ));
    }
    if report.policy != Policy::Other {
        let none = report.rows.iter().all(|row| row.slack_in_force_ns == 0);
        notes.push(if none {
            "A real-time thread has no timer slack, whatever it asks for: the rows differ by chance.".into()
        } else {
            "This kernel shows the slack asked for, but does not apply it to real-time threads.".into()
        });
    }
    if let Some(Counts::Raw) = report.rows.first().map(|row| row.counts) {
        notes.push(
            "Raw counts hide what a delay held up; the corrected ones fill in a sleep for each interval of it.".into(),
        );
    }
    if report.interrupted {
        notes.push(interrupt::ENDED_EARLY.into());
    }
    notes.extend(report.answer.clone());
    let wrapped = notes.iter().map(|note| report::wrap(note, WIDTH) + "\n");
    wrapped.fold(String::new(), |text, note| text + "\n" + &note)
}

/// One line for each kind, as cyclictest prints a thread: whole microseconds.
pub fn cyclictest(measured: &Measured, priority: u8) -> String {
    let lines = measured.series.iter().enumerate();
    lines
        .map(|(number, series)| cyclictest_line(number, series, priority))
        .collect()
}

fn cyclictest_line(number: usize, series: &Series, priority: u8) -> String {
    let us = |ns: f64| (ns / 1e3) as u64;
    let values = &series.values;
    let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let most = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
    let mean = crate::stats::mean(values).unwrap_or(0.0);
    format!(
        "T:{number:2} ({tid:5}) P:{priority:2} I:{interval} C:{n:7} Min:{:7} Act:{:5} Avg:{:5} Max:{:8}\n",
        us(least),
        us(values.last().copied().unwrap_or(0.0)),
        us(mean),
        us(most),
        tid = series.tid,
        interval = series.condition.interval.as_micros(),
        n = values.len(),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::host::Host;
    use crate::idle::Residency;
    use crate::jitter::plan::Warmup;
    use crate::stats::Median;

    /// A row whose latencies lie around `us`.
    pub fn row(interval_ms: u64, call: Call, slack_ns: u64, us: f64) -> Row {
        let values: Vec<f64> = (0..100).map(|i| us * 1e3 + f64::from(i)).collect();
        let mut latencies = Latencies::default();
        values.iter().for_each(|ns| latencies.record_ns(*ns as u64));
        Row {
            interval_ns: interval_ms * 1_000_000,
            call,
            slack_ns,
            slack_in_force_ns: slack_ns,
            load: 0,
            counts: Counts::FromIntendedStart,
            mean_ns: crate::stats::mean(&values),
            deviation_ns: crate::stats::deviation(&values),
            median_ns: Median::of(&values),
            lateness_ns: latencies.summary(),
            corrected_ns: None,
            idle: Vec::new(),
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report {
            bench: "jitter".into(),
            host: Host::read(),
            policy: Policy::Other,
            priority: 0,
            cpu: None,
            warmup: Warmup {
                sleeps: 20,
                settled: true,
            },
            rows,
            answer: None,
            interrupted: false,
        }
    }

    #[test]
    fn mean_and_deviation_stand_in_three_units() {
        let text = render(&report(vec![row(10, Call::Nanosleep, 50_000, 105.0)]));
        assert!(
            text.contains("0.000105 s  0.105050 ms  105.049 µs"),
            "{text}"
        );
        assert!(
            text.contains("0.000000 s  0.000029 ms    0.029 µs"),
            "{text}"
        );
        assert!(
            text.contains("n too small") && text.contains("A p99 needs 1,000"),
            "{text}"
        );
    }

    #[test]
    fn the_widest_table_fits() {
        let mut wide = row(100, Call::Select, 50_000, 1_042.0);
        wide.load = 30;
        wide.idle = ["POLL", "haltpoll"]
            .map(|name| Residency {
                name: name.into(),
                latency_us: 1,
                share: 0.5,
                entries: 3,
            })
            .to_vec();
        let text = render(&report(vec![wide, row(1, Call::Nanosleep, 1, 3.0)]));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("50 % POLL, 50 % haltpoll"), "{text}");
    }
}
