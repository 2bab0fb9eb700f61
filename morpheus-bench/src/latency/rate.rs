//! Operations at a rate as rows, and why a rate was not reached.

use morpheus_harness::envelope::Envelope;
use morpheus_harness::histogram::{FROM_INTENDED_START, RAW, Summary};
use morpheus_harness::report::{count, time};
use morpheus_harness::rows::{Figure, Rounds, Row, SAMPLES};
use morpheus_harness::unit::Unit;
use morpheus_harness::{host, latency_figures};

use super::config::Options;
use super::open::{ITERATIONS, Measured};

/// From this share of the asked rate on it is reached: the rest is the edge of the window.
const REACHED: f64 = 0.99;

const CASE: &str = "operations at a fixed rate";
const TOOK: [Figure<Summary>; 4] = latency_figures!("time", |summary| Some(summary));

/// Adds the rows. `iterations_per_us` is how fast a CPU computes.
pub fn report(
    measured: &Measured,
    options: &Options,
    iterations_per_us: f64,
    found: &mut Envelope<Options>,
) {
    let names = [
        format!("response time, {FROM_INTENDED_START}"),
        format!("service time, {RAW}"),
        "lateness of the thread that starts them".to_owned(),
    ];
    let all = [&measured.response, &measured.service, &measured.clock];
    let rounds = Rounds::once(all.map(|latencies| latencies.summary()).into());
    let figures: Vec<Figure<Summary>> = TOOK.into_iter().chain([SAMPLES]).collect();
    let about = "each computes for about 2 µs, and is due at a time of its own";
    let rows = rounds.rows(CASE, &names, &figures, |_, _| None);
    found.add(CASE, about, rows);
    let (reached, asked) = (measured.per_s(), options.rate());
    for (figure, rate) in [("reached/s", reached), ("asked for/s", asked)] {
        let row = Row::new(CASE, &names[0], figure, Unit::Count, vec![rate]);
        found.rows.push(row);
    }
    let [done, reached_per_s, asked_per_s] =
        [measured.done as f64, reached, asked].map(|number| count(number.round() as u64));
    let not = if measured.settled { "" } else { "not " };
    let mut note = format!(
        "{done} operations in {:.1} s (warm-up {:.1} s, {not}settled): {reached_per_s} a second of {asked_per_s} that were asked for.",
        measured.lasted.as_secs_f64(),
        measured.warmup.as_secs_f64(),
    );
    let work_ns = ITERATIONS as f64 / iterations_per_us * 1e3;
    if let Some(why) = why_not(measured, asked, work_ns) {
        note += &format!(" Not reached: {why}.");
    }
    found.notes.push(note);
}

/// Why the rate was not reached; in the order of what rules the rest out.
fn why_not(measured: &Measured, asked_per_s: f64, work_ns: f64) -> Option<String> {
    if measured.per_s() >= REACHED * asked_per_s {
        return None;
    }
    let cpus = host::cpus();
    let needed = asked_per_s * work_ns / 1e9;
    let late = measured.clock.summary().p50.unwrap_or(0);
    let missing = measured.asked.saturating_sub(measured.done);
    Some(if needed > 0.9 * cpus as f64 {
        format!("the computing alone needs {needed:.1} of {cpus} CPUs")
    } else if late > 100_000_000 {
        format!(
            "the thread that starts operations is late itself, by {} in the median: waking tasks at this rate \
             takes more CPU than there is beside the computing ({needed:.1} of {cpus} CPUs)",
            time(late)
        )
    } else {
        format!(
            "{} operations were started and not done by the end: the computing needs {needed:.1} of {cpus} CPUs, \
             the rest goes to waking tasks and to others on this machine",
            count(missing)
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use morpheus_harness::histogram::Latencies;
    use std::time::Duration;

    use super::*;

    /// `done` of 40,000 operations within a second.
    fn measured(done: u64, late_ns: u64) -> Measured {
        let of = |ns| {
            let mut latencies = Latencies::default();
            (0..2_000).for_each(|_| latencies.record_ns(ns));
            latencies
        };
        Measured {
            response: of(50_000),
            service: of(2_000),
            clock: of(late_ns),
            done,
            asked: 40_000,
            lasted: Duration::from_secs(1),
            warmup: Duration::from_millis(300),
            settled: true,
        }
    }

    #[test]
    fn a_missed_rate_has_a_reason() {
        let why = |done, late_ns, work_ns| why_not(&measured(done, late_ns), 40_000.0, work_ns);
        assert_eq!(why(39_700, 50_000, 2_000.0), None);
        let cpus = host::cpus() as f64;
        let full = why(20_000, 50_000, cpus * 1e9 / 40_000.0).unwrap();
        assert!(full.contains("the computing alone needs"), "{full}");
        let late = why(20_000, 300_000_000, 2_000.0).unwrap();
        assert!(late.contains("late itself, by 300 ms"), "{late}");
        let other = why(20_000, 50_000, 2_000.0).unwrap();
        assert!(
            other.contains("20,000 operations were started and not done"),
            "{other}"
        );
    }

    #[test]
    fn each_time_has_its_percentiles_and_the_rate_is_said() {
        let options = Options::parse_from(["latency", "--workers", "4"]);
        let mut found = Envelope::new("latency", options.clone());
        report(&measured(20_000, 50_000), &options, 500.0, &mut found);
        let text = found.text();
        for expected in [
            "response time, from the intended start",
            "service time, raw",
            "20,000 a second of 40,000 that were asked for. Not reached: 20,000 operations",
        ] {
            assert!(
                text.replace('\n', " ").contains(expected),
                "{expected}: {text}"
            );
        }
        let curves = found.rows.iter().filter(|row| row.curve.len() > 1);
        assert_eq!(curves.count(), 3);
    }
}
