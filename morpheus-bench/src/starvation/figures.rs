//! The figures of a run.

use morpheus_harness::rows::{Figure, Part};

use super::result::RunResult;
use crate::executor::Escalations;

pub const WAKE_P50: &str = "wake p50";
pub const WAKE_P99: &str = "wake p99";
pub const MEANT_WAKE_P99: &str = "meant wake p99";
pub const WAKE_MAX: &str = "wake max";
pub const TIMER_P99: &str = "timer p99";
pub const TIMER_MAX: &str = "timer max";
pub const LIFO_MAX: &str = "LIFO max";
pub const MIXED_P99: &str = "mixed p99";
pub const MIXED_POLLS: &str = "mixed polls/s";
pub const REQUESTS: &str = "requests/s";
pub const REQUEST_P99: &str = "request p99";
pub const POLLS: &str = "polls/s";
pub const HOG_CPU: &str = "hogs' CPU";
pub const UNFINISHED: &str = "unfinished";
pub const NEIGHBOURS: &str = "neighbours' CPU";
pub const WAKEUPS: &str = "wakeups";
pub const CONTROLLER: &str = "controller";

/// A figure of the runtime's counts of its own interventions: a name, and the field of [`Escalations`]; where the link tells of
/// events, the kind of figure, too.
macro_rules! escalation {
    ($name:literal, $kind:ident, $field:ident) => {
        Figure::$kind($name, |run| Some(linked(run)?.$field as f64))
    };
    ($name:literal, $field:ident) => {
        Figure::count($name, |run| Some(run.escalations.as_ref()?.$field as f64))
    };
}

/// All figures, the less important last. Those that a run does not have are left out.
pub const FIGURES: [Figure<RunResult>; 38] = [
    wake(WAKE_P50, Part::P50),
    wake(WAKE_P99, Part::P99),
    timer("timer p50", Part::P50),
    timer(TIMER_P99, Part::P99),
    lifo("LIFO p50", Part::P50),
    // A hog wakes five times a second: a p99 would take minutes.
    lifo(LIFO_MAX, Part::Max),
    mixed("mixed p50", Part::P50),
    mixed(MIXED_P99, Part::P99),
    Figure::count(MIXED_POLLS, |run| run.mix_polls_per_s),
    Figure::count(REQUESTS, |run| Some(run.load.as_ref()?.requests_per_s)),
    request("request p50", Part::P50),
    request(REQUEST_P99, Part::P99),
    Figure::count(POLLS, |run| run.busy_polls_per_s),
    Figure::share(HOG_CPU, |run| Some(run.hog.as_ref()?.cpu_share)),
    Figure::share(NEIGHBOURS, |run| run.neighbours_cpu),
    Figure::count(WAKEUPS, |run| Some(run.wakeups? as f64)),
    wake(WAKE_MAX, Part::Max),
    timer(TIMER_MAX, Part::Max),
    Figure::share(CONTROLLER, |run| run.controller_cpu_share),
    wake("wake p99.9", Part::P999),
    Figure::count("hog polls", |run| Some(run.hog.as_ref()?.polls as f64)),
    Figure::count(UNFINISHED, |run| Some(run.hog.as_ref()?.unfinished as f64)),
    escalation!("requests to yield", requests),
    escalation!("takeovers", takeovers),
    escalation!("demotions", demotions),
    escalation!("throttles", throttles),
    escalation!("most spares", spares_peak),
    escalation!("link's events", count, link_events),
    escalation!("detected p99", time, detection_p99_ns),
    escalation!("replaced p99", time, takeover_p99_ns),
    // From the time at which the wake was meant to be.
    Figure::latency(MEANT_WAKE_P99, Part::P99, |run: &RunResult| {
        Some(&run.wake_intended_ns)
    }),
    Figure::count("asked for/s", |run| Some(run.load.as_ref()?.wanted_per_s)),
    Figure::count("hogs without a poll", |run| {
        Some(run.hog.as_ref()?.without_a_poll as f64)
    }),
    escalation!("convictions", convictions),
    escalation!("polls in place", in_place_polls),
    escalation!("most in place", in_place_peak),
    escalation!("detected p50", time, detection_p50_ns),
    Figure::count("wakes", |run| {
        Some(run.wake_ns.n as f64).filter(|n| *n > 0.0)
    }),
];

const fn wake(name: &'static str, part: Part) -> Figure<RunResult> {
    Figure::latency(name, part, |run| Some(&run.wake_ns))
}

const fn timer(name: &'static str, part: Part) -> Figure<RunResult> {
    Figure::latency(name, part, |run| Some(&run.timer_ns))
}

const fn lifo(name: &'static str, part: Part) -> Figure<RunResult> {
    Figure::latency(name, part, |run| run.lifo_ns.as_ref())
}

const fn mixed(name: &'static str, part: Part) -> Figure<RunResult> {
    Figure::latency(name, part, |run| run.mix_late_ns.as_ref())
}

const fn request(name: &'static str, part: Part) -> Figure<RunResult> {
    Figure::latency(name, part, |run| {
        run.load.as_ref().map(|load| &load.latency_ns)
    })
}

/// The counts of a run in which a link has reported events.
fn linked(run: &RunResult) -> Option<&Escalations> {
    run.escalations.as_ref().filter(|all| all.link_events > 0)
}

#[cfg(test)]
mod tests {
    use morpheus_harness::histogram::Summary;
    use morpheus_harness::rows::{Bound, Rounds};

    use super::*;
    use crate::executor::Runtime;

    fn rows(run: RunResult) -> Vec<morpheus_harness::rows::Row> {
        let rounds = Rounds::once(vec![run]);
        rounds.rows("hogs", &["tokio".into()], &FIGURES, |_, _| None)
    }

    #[test]
    fn what_was_not_served_is_a_lower_bound_and_what_a_run_does_not_have_has_no_row() {
        let summary = Summary {
            n: 1_000,
            p50: Some(1_000),
            p99: Some(990_000_000),
            max: Some(1_000_000_000),
            ..Summary::default()
        };
        let run = RunResult {
            wake_ns: Summary {
                at_least: vec![Part::P99],
                ..summary.clone()
            },
            timer_ns: summary,
            ..RunResult::empty(Runtime::TOKIO)
        };
        let all = rows(run);
        let of = |name: &str| all.iter().find(|row| row.figure == name).unwrap().bound;
        let found = [WAKE_P50, WAKE_P99, TIMER_P99, TIMER_MAX].map(of);
        let (exact, least) = (Bound::EXACT, Bound::AT_LEAST);
        assert_eq!(found, [exact, least, exact, exact]);
        assert_eq!(all.len(), 7, "{all:?}");
        assert!(rows(RunResult::failed(Runtime::GO, "go not found")).is_empty());
    }
}
