//! The parent's side: all measurements in their order, each in a child.

use std::time::Duration;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds, Row, means, rounds};
use morpheus_harness::unit::Unit;
use morpheus_harness::{host, interrupt, supervised};

use super::cases::{self, Case};
use super::child::{Answer, Job, Measurement};
use super::config::Options;
use super::contender::Contender;
use crate::flagged;

/// The figures of a measurement. Operations a second, which others on the machine disturb; CPU time of an operation, which
/// they hardly do; and where operations are timed one by one, their p99.
const FIGURES: [Figure<Measurement>; 3] = [
    Figure::new(RATE, Unit::Count, |measured| Some(measured.rate())),
    Figure::new(CPU, Unit::Time, |measured| Some(measured.cpu_each())),
    Figure::new("p99", Unit::Time, |measured| {
        measured.p99_ns.map(|ns| ns as f64)
    }),
];
const RATE: &str = "operations/s";
const CPU: &str = "CPU time";

/// The rate of each case is to be at least this.
const RATE_LIMIT: Limit = Limit::AtLeast(0.97);
/// CPU time of an operation is to be at most this.
const CPU_LIMIT: Limit = Limit::AtMost(1.03);
/// Likewise where every task is watched.
const WATCHED_CPU_LIMIT: Limit = Limit::AtMost(1.05);
/// The geometric mean of the rates is to be at least this.
const MEAN_LIMIT: Limit = Limit::AtLeast(0.99);

/// The time that starting a child, building a runtime and setting up a case take, about.
const START: Duration = Duration::from_millis(30);
/// The window, and the warm-up with it.
const WINDOWS: f64 = 1.6;
/// A child may take this many times as long as the window, plus [`GRACE`]: the machine may be slow and busy.
const MOST_WINDOWS: f64 = 100.0;
const GRACE: Duration = Duration::from_secs(60);

/// Measures everything, or until Ctrl-C.
pub fn measure(options: &Options) -> Envelope<Options> {
    let mut found = Envelope::new("compare", options.clone());
    let cases = options.cases();
    let each = START + Duration::from_secs_f64(options.window_ms * WINDOWS / 1e3);
    let measurements = 1 + options.pairs * (options.runtime.len() + 2);
    let expected = each * (cases.len() * options.against.len() * measurements) as u32;
    let mut progress = Progress::new(expected, options.json);
    let (mut all, mut unsettled) = (0, 0);
    for against in &options.against {
        for case in interrupt::until(&cases) {
            found.begin(case.name, case.operation);
            let contenders: Vec<Contender> = std::iter::once(*against)
                .chain(options.runtime.iter().copied())
                .collect();
            let measure = |contender: Contender, operations: Option<u64>| {
                progress.say(format!("{} on {contender}", case.name));
                let job = Job {
                    case: case.name.into(),
                    contender,
                    workers: options.workers,
                    operations,
                    window_ms: options.window_ms,
                };
                let answer = in_child(&job, |lasted| progress.tick(lasted.min(each)));
                progress.finish_run(each);
                answer.map_err(|error| format!("{contender}: {error}"))
            };
            let mut rounds = Rounds::new(options.runtime.len());
            if let Err(why) = fill(&mut rounds, &contenders, options.pairs, measure) {
                found.failed.push(format!("{}: {why}", case.name));
            }
            all += rounds.all().count();
            unsettled += rounds.all().filter(|measured| !measured.settled).count();
            found.rows.extend(rows(case, &contenders, &rounds));
        }
    }
    progress.clear();
    found.notes.extend((unsettled > 0).then(|| {
        format!("{unsettled} of {all} measurements began before the warm-up had settled.")
    }));
    let cpus = host::cpus();
    let shared = options.workers > cpus;
    found.notes.extend(shared.then(|| {
        format!(
            "{} workers share {cpus} CPUs: a check that everything works, and no measurement of a large machine.",
            options.workers
        )
    }));
    let means = means_of(&found.rows);
    found.rows.extend(means);
    found
}

/// One case: how many operations fit into a window, and then all rounds.
fn fill(
    rounds: &mut Rounds<Measurement>,
    contenders: &[Contender],
    pairs: usize,
    mut measure: impl FnMut(Contender, Option<u64>) -> Answer,
) -> Result<(), String> {
    let operations = measure(contenders[0], None)?.operations;
    rounds.fill(rounds::order(contenders.len() - 1, pairs), |place| {
        let measured = measure(contenders[place.contender], Some(operations));
        measured.map_err(|error| format!("{error} (pair {})", place.round + 1))
    })
}

fn rows(case: &Case, contenders: &[Contender], rounds: &Rounds<Measurement>) -> Vec<Row> {
    let names: Vec<String> = contenders.iter().map(Contender::to_string).collect();
    rounds.rows(case.name, &names, &FIGURES, |figure, contender| {
        match (figure.name, contenders[contender].watched) {
            (RATE, _) => Some(RATE_LIMIT),
            (CPU, false) => Some(CPU_LIMIT),
            (CPU, true) => Some(WATCHED_CPU_LIMIT),
            _ => None,
        }
    })
}

/// Over the cases in which nothing else computes. Those in which something does differ by orders of magnitude, and one of
/// them would outweigh all others.
fn means_of(rows: &[Row]) -> Vec<Row> {
    let counts = |name: &str| cases::named(name).is_some_and(|case| !case.beside_busy);
    means(rows, counts, |row| {
        (row.figure == RATE).then_some(MEAN_LIMIT)
    })
}

/// glibc gives the top of its heap back to the kernel when more than 128 KiB are free there. Whether that happens after a batch of
/// 10,000 tasks is chance: a single allocation at the top, made once and kept, prevents it. Without it the page faults of the next
/// batch halve the rate. So every contender keeps its heap, up to 1 GiB.
const KEEPS_HEAP: &str = "glibc.malloc.trim_threshold=1073741824";

fn in_child(job: &Job, tick: impl FnMut(Duration)) -> Answer {
    let bound = GRACE + Duration::from_secs_f64(job.window_ms * MOST_WINDOWS / 1e3);
    let mut program = match job.contender.runtime.needs_flag() {
        true => flagged::command("compare")?,
        false => supervised::own("compare"),
    };
    program.env("GLIBC_TUNABLES", KEEPS_HEAP);
    supervised::ask(program, job, bound, tick)
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Bar;

    use super::*;

    fn measurement(ns: f64) -> Measurement {
        Measurement {
            operations: 1_000,
            elapsed_ns: ns as u64,
            cpu_ns: ns as u64,
            p99_ns: None,
            settled: true,
        }
    }

    /// Rows of a case. The time and the CPU time of `runtime` are those of tokio times `slower`.
    fn rows_of(runtime: &str, slower: f64) -> Vec<Row> {
        let mut rounds = Rounds::new(1);
        for place in rounds::order(1, 12) {
            let ns = 1e6 + 1e3 * ((place.round + place.number) % 3) as f64;
            let factor = if place.contender == 0 { 1.0 } else { slower };
            rounds.add(place, measurement(ns * factor));
        }
        let contenders = ["tokio", runtime].map(|name| name.parse().unwrap());
        rows(cases::named("spawn").unwrap(), &contenders, &rounds)
    }

    fn judged(runtime: &str, slower: f64) -> Vec<Option<Bar>> {
        let rows = rows_of(runtime, slower);
        let ratios = rows.iter().filter_map(|row| row.ratio.as_ref());
        ratios.map(|ratio| ratio.judged).collect()
    }

    #[test]
    fn a_slower_runtime_misses_its_limits_and_a_faster_one_does_not() {
        let both = |bar: Bar| vec![Some(bar); 2];
        assert_eq!(judged("morpheus", 1.1), both(Bar::Missed));
        assert_eq!(judged("morpheus", 0.9), both(Bar::Met));
        // Watched tasks may cost more.
        assert_eq!(judged("morpheus", 1.04)[1], Some(Bar::Missed));
        assert_eq!(judged("morpheus-watched", 1.04)[1], Some(Bar::Met));
    }

    #[test]
    fn rates_are_the_other_way_round_than_times_and_there_is_no_p99_where_nothing_is_timed() {
        let rows = rows_of("morpheus", 2.0);
        let figures: Vec<&str> = rows.iter().map(|row| row.figure.as_str()).collect();
        assert_eq!(figures, [RATE, CPU, RATE, CPU]);
        assert!((rows[0].median.unwrap() - 1e6).abs() < 1e4);
        assert!((rows[1].median.unwrap() - 1_000.0).abs() < 10.0);
        let ratio = |row: &Row| row.ratio.as_ref().unwrap().median.unwrap();
        assert!((ratio(&rows[2]) - 0.5).abs() < 0.01 && (ratio(&rows[3]) - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_mean_leaves_out_what_is_beside_busy_tasks() {
        let mut rows = rows_of("morpheus", 1.1);
        let mut busy = rows_of("morpheus", 100.0);
        for row in &mut busy {
            row.case = "spawn_many_remote_busy1".into();
        }
        rows.extend(busy);
        let means = means_of(&rows);
        assert_eq!(means.len(), 2);
        let rate = means[0].ratio.as_ref().unwrap();
        assert!((rate.median.unwrap() - 1.0 / 1.1).abs() < 0.01);
        assert_eq!(
            (rate.judged, means[0].case.as_str()),
            (Some(Bar::Missed), "mean of 1")
        );
        assert_eq!(means[1].ratio.as_ref().unwrap().judged, None);
    }
}
