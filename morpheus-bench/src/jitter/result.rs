//! Rows, lines and histograms of what was measured.

use std::path::Path;
use std::time::SystemTime;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::hdr_log::{self, Entry};
use morpheus_harness::histogram::{SAMPLES_FOR_P99, SAMPLES_FOR_P999, Summary};
use morpheus_harness::report::{count, time};
use morpheus_harness::rows::{Figure, Rounds, Row, SAMPLES};
use morpheus_harness::unit::Unit;
use morpheus_harness::{latency_figures, stats};

use super::answer;
use super::config::Options;
use super::plan::Series;
use super::sleep::Call;
use crate::policy::Policy;

const LATE: [Figure<Summary>; 4] = latency_figures!("late", |summary| Some(summary));

/// Adds the rows, and what is to be said of them; `warmup` says how that ended.
pub fn report(all: &[Series], warmup: String, options: &Options, found: &mut Envelope<Options>) {
    found.notes.push(warmup);
    let measured = || all.iter().filter(|series| !series.values.is_empty());
    for series in measured() {
        let (case, contender) = names(series, options);
        let counts = series.counts();
        let about = format!("how late each wake is, {counts}");
        found.add(&case, &about, rows(series, &case, &contender));
        // The table of a sweep has them as well, in the unit that fits.
        if !options.sweep {
            found.notes.push(in_three_units(series, &contender));
        }
    }
    let least = measured().map(|series| series.lateness.len()).min();
    if least.unwrap_or(0) < SAMPLES_FOR_P999 {
        let [p99, p999] = [SAMPLES_FOR_P99, SAMPLES_FOR_P999].map(count);
        let note = format!("A p99 needs {p99} sleeps, a p99.9 {p999}.");
        found.notes.push(note);
    }
    if options.policy != Policy::Other {
        let note = if all.iter().all(|series| series.slack_ns == 0) {
            "A real-time thread has no timer slack, whatever it asks for: the rows differ by chance."
        } else {
            "This kernel shows the slack asked for, but does not apply it to real-time threads."
        };
        found.notes.push(note.into());
    }
    if options.relative {
        let note = "Raw counts hide what a delay held up; the corrected ones fill in a sleep for each interval of it.";
        found.notes.push(note.into());
    }
    if let Some(host) = found.host.as_ref().filter(|_| options.sweep) {
        let answer = answer::answer(all, host, options.policy);
        found.notes.push(answer);
    }
}

/// The case and the contender. A sweep compares intervals of one kind, all else kinds of one interval.
fn names(series: &Series, options: &Options) -> (String, String) {
    let sleeper = &series.sleeper;
    let mut kind = match sleeper.call {
        Call::Nanosleep => format!("slack {}", time(sleeper.slack_ns)),
        Call::Select => "select".into(),
    };
    if options.load > 0 {
        kind += &format!(", load {}", series.load);
    }
    let interval = time(sleeper.interval.as_nanos() as u64);
    match options.sweep {
        true => (format!("sleeps, {kind}"), format!("of {interval}")),
        false => (format!("sleeps of {interval}"), kind),
    }
}

fn rows(series: &Series, case: &str, contender: &str) -> Vec<Row> {
    let mut names = vec![contender.to_owned()];
    let mut summaries = vec![series.lateness.summary()];
    if let Some(corrected) = series.corrected() {
        names = [series.counts().to_string(), "corrected".into()]
            .map(|counts| format!("{contender}, {counts}"))
            .to_vec();
        summaries.push(corrected.summary());
    }
    let figures: Vec<Figure<Summary>> = LATE.into_iter().chain([SAMPLES]).collect();
    let mut rows = Rounds::once(summaries).rows(case, &names, &figures, |_, _| None);
    let of = |figure: &str, unit, values| Row::new(case, &names[0], figure, unit, values);
    // Its interval is that of the sleeps, which are too many to be printed each.
    if let Some(p50) = rows.first_mut() {
        *p50 = Row {
            rounds: Vec::new(),
            curve: std::mem::take(&mut p50.curve),
            ..of(&p50.figure, Unit::Time, series.values.clone())
        };
    }
    for (figure, ns) in [
        ("mean", stats::mean(&series.values)),
        ("stdev", stats::deviation(&series.values)),
    ] {
        rows.extend(ns.map(|ns| of(figure, Unit::Time, vec![ns])));
    }
    for state in &series.idle {
        let figure = format!("in {}", state.name);
        rows.push(of(&figure, Unit::Share, vec![state.share]));
    }
    rows.push(of("its slack", Unit::Time, vec![series.slack_ns as f64]));
    for state in &series.idle {
        let figure = format!("{} entered", state.name);
        rows.push(of(&figure, Unit::Count, vec![state.entries as f64]));
    }
    rows
}

/// Mean and deviation, each in seconds, milliseconds and microseconds.
fn in_three_units(series: &Series, contender: &str) -> String {
    let shown = |ns: Option<f64>| match ns {
        Some(ns) => format!("{:.6} s, {:.6} ms, {:.3} µs", ns / 1e9, ns / 1e6, ns / 1e3),
        None => "n too small".into(),
    };
    format!(
        "{contender}: mean {}; stdev {}.",
        shown(stats::mean(&series.values)),
        shown(stats::deviation(&series.values))
    )
}

/// One line for each kind, as cyclictest prints a thread: whole microseconds.
pub fn cyclictest(all: &[Series]) -> String {
    let us = |ns: f64| (ns / 1e3) as u64;
    let line = |(number, series): (usize, &Series)| {
        let (values, sleeper) = (&series.values, &series.sleeper);
        let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
        format!(
            "T:{number:2} ({tid:5}) P:{priority:2} I:{interval} C:{n:7} Min:{:7} Act:{:5} Avg:{:5} Max:{:8}\n",
            us(least),
            us(values.last().copied().unwrap_or(0.0)),
            us(stats::mean(values).unwrap_or(0.0)),
            us(most),
            tid = series.tid,
            priority = sleeper.priority,
            interval = sleeper.interval.as_micros(),
            n = values.len(),
        )
    };
    all.iter().enumerate().map(line).collect()
}

/// Writes the histogram of each kind.
///
/// # Errors
/// The file cannot be written; the text is for people.
pub fn write_histograms(
    path: Option<&Path>,
    start: SystemTime,
    all: &[Series],
) -> Result<(), String> {
    let corrected: Vec<_> = all.iter().map(Series::corrected).collect();
    let mut entries = Vec::new();
    for (series, corrected) in all.iter().zip(&corrected) {
        let (tag, about) = (series.tag(), "corrected for coordinated omission");
        entries.push(Entry::new(&tag, series.counts(), &series.lateness));
        let corrected = corrected.as_ref();
        entries.extend(corrected.map(|all| Entry::new(tag + "-corrected", about, all)));
    }
    hdr_log::write(path, start, start.elapsed().unwrap_or_default(), entries)
}

#[cfg(test)]
mod tests {
    use morpheus_harness::idle::Residency;
    use morpheus_harness::report::WIDTH;

    use super::super::plan::tests::{measured, options};
    use super::*;

    fn text(line: &str, all: &[Series]) -> String {
        let options = options(line);
        let mut found = Envelope::new("jitter", options.clone());
        report(
            all,
            "Warm-up: 20 sleeps (settled).".into(),
            &options,
            &mut found,
        );
        let text = found.text();
        let is_narrow = text.lines().all(|line| line.chars().count() <= WIDTH);
        assert!(is_narrow, "{text}");
        text
    }

    #[test]
    fn mean_and_deviation_stand_in_three_units() {
        let text = text("10", &measured("10", |_| 105.0));
        for expected in [
            "mean 0.000105 s, 0.105050 ms, 105.049 µs;",
            "stdev 0.000000 s, 0.000029 ms, 0.029 µs.",
            "A p99 needs 1,000",
            "105 µs to 105 µs",
        ] {
            assert!(
                text.replace('\n', " ").contains(expected),
                "{expected}: {text}"
            );
        }
    }

    #[test]
    fn the_widest_table_fits() {
        let mut all = measured("10 --sweep", |_| 1_042.0);
        for series in &mut all {
            series.idle = ["POLL", "haltpoll"]
                .map(|name| Residency {
                    name: name.into(),
                    latency_us: 1,
                    share: 0.5,
                    entries: 3,
                })
                .to_vec();
        }
        let sweep = text("10 --sweep", &all);
        for expected in [
            "sleeps, select, medians",
            "of 100 ms",
            "in haltpoll",
            "50.0 %",
        ] {
            assert!(sweep.contains(expected), "{expected}: {sweep}");
        }
        let line = "10 --load 30 --relative";
        let loaded = text(line, &measured(line, |_| 1_042.0));
        assert!(
            loaded.contains("slack 1 ns, load 30, corrected"),
            "{loaded}"
        );
    }
}
