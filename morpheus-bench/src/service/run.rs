//! All measurements in their order, each of a service of its own, and the rows of what the clients saw.

use std::time::{Duration, Instant};

use morpheus_harness::envelope::Envelope;
use morpheus_harness::interrupt;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::report::time;
use morpheus_harness::rows::{Figure, Part, Rounds, Row, against, rounds};
use morpheus_harness::unit::Unit;

use super::config::{Options, Scene};
use super::load::{Load, Seen, Window};
use super::server::{Programs, Server, Work};
use super::variant::Variant;
use crate::tuned::MORE_WORKERS;

/// The time that starting and ending a service takes, about.
const AROUND: Duration = Duration::from_millis(500);

const P99: Figure<Seen> =
    Figure::<Seen>::latency("/ping p99", Part::P99, |seen| Some(&seen.ping.latency_ns));
const RATE: Figure<Seen> = Figure::count("answers/s", |seen| Some(seen.work_per_s));
/// All figures, the less important last.
const FIGURES: [Figure<Seen>; 8] = [
    P99,
    RATE,
    Figure::share("CPU", |seen| seen.cpu_share),
    Figure::<Seen>::latency("/ping p99 at first", Part::P99, |seen| {
        Some(&seen.first_pings_ns)
    }),
    Figure::<Seen>::latency("/ping p50", Part::P50, |seen| Some(&seen.ping.latency_ns)),
    Figure::<Seen>::latency("/ping max", Part::Max, |seen| Some(&seen.ping.latency_ns)),
    Figure::<Seen>::latency("/db p99", Part::P99, |seen| Some(&seen.db.latency_ns)),
    Figure::share("answered", |seen| Some(seen.ping.latency_ns.ended())),
];

const TO_BOUNDED: &str = "p99 ÷ tokio-bounded";
const TO_TUNED_BOUNDED: &str = "p99 ÷ tokio-tuned-bounded";
const TO_REWRITTEN: &str = "answers ÷ tokio-rewritten";
const TO_TUNED: &str = "p99 ÷ tokio-tuned";
/// Figures against those of another variant, in the same round.
const AGAINST: [(&str, Variant, &str); 4] = [
    (P99.name, Variant::Bounded, TO_BOUNDED),
    (P99.name, Variant::TunedBounded, TO_TUNED_BOUNDED),
    (RATE.name, Variant::Rewritten, TO_REWRITTEN),
    (P99.name, Variant::Tuned, TO_TUNED),
];

/// The latest that 99 % of the pings are answered beside handlers that block.
const BLOCKING_P99_LIMIT: Limit = Limit::AtMost(1e6);

/// Measures everything, or until Ctrl-C.
///
/// # Errors
/// Nothing can be measured at all; the text is for people.
pub fn measure(options: &Options) -> Result<Envelope<Options>, String> {
    // Before there is any load of ours: it reads how busy the machine is.
    let mut found = Envelope::new("service", options.clone());
    let programs = Programs::find(options.programs.as_deref())?;
    let mut work = Work::of_ms(options.work_ms);
    if options.scene == Scene::Hash {
        work = programs.calibrate(options.work_ms)?;
        let cpu = time(work.cpu_ns);
        found.notes.push(format!(
            "A hash is {} passes of argon2, {cpu} of CPU time.",
            work.passes
        ));
    }
    // Before anything is measured: a build takes both CPUs.
    let only = &options.only()[..];
    for &variant in only {
        found.measures(&programs.of(variant)?);
    }
    let each = AROUND + options.warmup() + options.window();
    let all = options.clients().len() * options.rounds * only.len();
    let mut progress = Progress::new(each * all as u32, options.json);
    for clients in interrupt::until(options.clients()) {
        let connections = options.connections.of_case();
        let case = format!("{clients} clients of {}{connections}", options.scene.path());
        let mut rounds = Rounds::in_turns(only.len());
        let places = rounds::in_turns(only.len(), options.rounds);
        let filled = rounds.fill(places, |place| {
            let variant = only[place.contender];
            let (round, rounds) = (place.round + 1, options.rounds);
            progress.say(format!("{case}, round {round} of {rounds}: {variant}"));
            let begun = Instant::now();
            let seen = one(&programs, variant, work, clients, options, || {
                progress.tick(begun.elapsed().min(each));
            });
            progress.finish_run(each);
            seen.map_err(|why| format!("{variant} (round {round}): {why}"))
        });
        let failed = filled.err().map(|why| format!("{case}: {why}"));
        found.failed.extend(failed);
        let rows = rows(&case, options.scene, clients, only, &rounds);
        found.add(&case, "each asks again once it has its answer", rows);
    }
    progress.clear();
    Ok(found)
}

/// One variant, once.
fn one(
    programs: &Programs,
    variant: Variant,
    work: Work,
    clients: usize,
    options: &Options,
    mut tick: impl FnMut(),
) -> Result<Seen, String> {
    let server = Server::start(programs, variant, work)?;
    let from = Instant::now() + options.warmup();
    let window = Window {
        from,
        end: from + options.window(),
    };
    let path = options.scene.path();
    let (address, connections) = (server.address(), options.connections);
    let load = Load::start(address, connections, path, clients, options.db_rate, window);
    let load = load.map_err(|error| format!("the clients do not start: {error}"))?;
    let mut looks = Vec::new();
    let mut seen = load.finish(|| {
        tick();
        let now = Instant::now();
        if (window.from..window.end).contains(&now) {
            looks.extend(server.cpu().map(|cpu| (now, cpu)));
        }
    })?;
    seen.cpu_share = share(&looks);
    server.end()?;
    if interrupt::happened() {
        return Err("ended by Ctrl-C".into());
    }
    Ok(seen)
}

/// The CPU time from the first look to the last, as a share of that time.
fn share(looks: &[(Instant, Duration)]) -> Option<f64> {
    let (first, last) = (looks.first()?, looks.last()?);
    let elapsed = last.0.duration_since(first.0);
    let used = last.1.saturating_sub(first.1);
    (!elapsed.is_zero()).then(|| used.as_secs_f64() / elapsed.as_secs_f64())
}

fn rows(
    case: &str,
    scene: Scene,
    clients: usize,
    only: &[Variant],
    rounds: &Rounds<Seen>,
) -> Vec<Row> {
    let names: Vec<String> = only.iter().map(Variant::to_string).collect();
    let mut rows = rounds.rows(case, &names, &FIGURES, |_, _| None);
    for (figure, other, named) in AGAINST {
        let named = (named, Unit::Factor);
        let times = against(&rows, other.name(), figure, named, |own, other| own / other);
        rows.extend(times);
    }
    let held = rows.into_iter().map(|row| {
        let own = only.iter().find(|variant| variant.name() == row.contender);
        let limit = own.and_then(|own| limit(scene, clients, *own, &row.figure));
        row.held(limit)
    });
    held.collect()
}

/// The limit that a figure is held against: the figures of Morpheus with the flag or the layer, and of Morpheus as it is
/// where it has spares enough.
fn limit(scene: Scene, clients: usize, variant: Variant, figure: &str) -> Option<Limit> {
    let knows = matches!(variant, Variant::MorpheusLayer | Variant::MorpheusFlag);
    let has_spares = variant == Variant::Morpheus && clients <= MORE_WORKERS;
    let (at_most, at_least) = (Limit::AtMost, Limit::AtLeast);
    match (scene, figure) {
        (Scene::Compute | Scene::Hash, TO_BOUNDED | TO_TUNED_BOUNDED) if knows => {
            Some(at_most(1.0))
        }
        (Scene::Compute | Scene::Hash, TO_REWRITTEN) if knows => Some(at_least(0.97)),
        (Scene::Compute | Scene::Hash, TO_TUNED) if has_spares => Some(at_most(1.0)),
        (Scene::Blocking, TO_REWRITTEN) if knows => Some(at_least(0.98)),
        (Scene::Blocking, figure) if knows && figure == P99.name => Some(BLOCKING_P99_LIMIT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use morpheus_harness::histogram::Summary;
    use morpheus_harness::pairs::Bar;
    use morpheus_harness::rows::Bound;

    use super::*;
    use crate::load::LoadSummary;

    /// Pings that were answered after `ping_ms`, or had no answer, and the rate of answers to the other requests.
    fn seen(ping_ms: f64, is_answered: bool, work_per_s: f64) -> Seen {
        let parts = [Part::P50, Part::P99];
        let latency_ns = Summary {
            n: 8_000,
            pending: if is_answered { 0 } else { 7_600 },
            p50: Some((ping_ms * 5e5) as u64),
            p99: Some((ping_ms * 1e6) as u64),
            at_least: parts.into_iter().filter(|_| !is_answered).collect(),
            ..Summary::default()
        };
        Seen {
            first_pings_ns: latency_ns.clone(),
            ping: LoadSummary {
                latency_ns,
                ..LoadSummary::default()
            },
            work_per_s,
            ..Seen::default()
        }
    }

    /// Rows of six rounds in which each variant's figures are the same.
    fn rows_of(scene: Scene, clients: usize, all: &[(Variant, Seen)]) -> Vec<Row> {
        let only: Vec<Variant> = all.iter().map(|(variant, _)| *variant).collect();
        let mut rounds = Rounds::in_turns(all.len());
        for place in rounds::in_turns(all.len(), 6) {
            rounds.add(place, all[place.contender].1.clone());
        }
        rows("clients", scene, clients, &only, &rounds)
    }

    fn judged(rows: &[Row]) -> Vec<(&str, &str, Bar)> {
        let judged = rows
            .iter()
            .filter_map(|row| Some((row.contender.as_str(), row.figure.as_str(), row.judged?)));
        judged.collect()
    }

    #[test]
    fn the_flag_is_held_against_the_expert_and_morpheus_as_it_is_against_tuned_tokio() {
        let all = [
            (Variant::Tuned, seen(0.7, true, 78.0)),
            (Variant::Rewritten, seen(4.0, true, 80.0)),
            (Variant::Bounded, seen(1.4, true, 74.0)),
            (Variant::TunedBounded, seen(0.6, true, 74.0)),
            (Variant::Morpheus, seen(0.6, true, 77.0)),
            (Variant::MorpheusFlag, seen(0.7, true, 70.0)),
        ];
        let few = rows_of(Scene::Compute, 4, &all);
        let expected = [
            ("morpheus+flag", "p99 ÷ tokio-bounded", Bar::Met),
            ("morpheus+flag", "p99 ÷ tokio-tuned-bounded", Bar::Missed),
            ("morpheus+flag", "answers ÷ tokio-rewritten", Bar::Missed),
            ("morpheus", "p99 ÷ tokio-tuned", Bar::Met),
        ];
        assert_eq!(judged(&few), expected);
        assert_eq!(judged(&rows_of(Scene::Compute, 40, &all)), expected[..3]);
        let blocking = rows_of(Scene::Blocking, 64, &all);
        let expected = [
            ("morpheus+flag", "/ping p99", Bar::Met),
            ("morpheus+flag", "answers ÷ tokio-rewritten", Bar::Missed),
        ];
        assert_eq!(judged(&blocking), expected);
    }

    #[test]
    fn the_share_of_a_cpu_is_that_between_the_looks() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let looks = [(0, 40), (500, 700), (1_000, 1_540)];
        let looks = looks.map(|(at, used)| (begin + ms(at), ms(used)));
        assert_eq!(share(&looks), Some(1.5));
        assert_eq!([share(&looks[..1]), share(&[])], [None; 2]);
    }

    #[test]
    fn what_has_no_answer_is_a_lower_bound() {
        let rows = rows_of(
            Scene::Compute,
            4,
            &[(Variant::Tokio, seen(8e3, false, 80.0))],
        );
        let least: Vec<(&str, bool)> = rows
            .iter()
            .map(|row| (row.figure.as_str(), row.bound == Bound::AT_LEAST))
            .collect();
        let expected = [
            ("/ping p99", true),
            ("answers/s", false),
            ("/ping p99 at first", true),
            ("/ping p50", true),
            ("answered", false),
        ];
        assert_eq!(least, expected);
    }
}
