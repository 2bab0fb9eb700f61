//! What `--json` prints.

use serde::{Deserialize, Serialize};

use super::attack::{Attack, Who};
use super::config::Options;
use super::honest::{Counted, Honest as MeasuredHonest};
use crate::histogram::{Counts, Summary};
use crate::host::Host;
use crate::interrupt;
use crate::pairs::{Bar, Pairs, Verdict};
use crate::stats::Median;

/// At most so much of a section may it cost.
pub const BAR: f64 = 0.0005;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `liar`.
    pub bench: String,
    /// Facts about the machine.
    pub host: Host,
    /// Workers of the runtime.
    pub workers: usize,
    /// The link that was in force.
    pub link: String,
    /// How long an honest section computes, in milliseconds.
    pub critical_duration_ms: f64,
    /// Whether there were critical sections at all.
    pub with_critical: bool,
    /// Honest sections.
    pub honest: Honest,
    /// What the liar and the others got.
    pub beside: Vec<Beside>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// Honest sections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Honest {
    /// How many.
    pub sections: usize,
    /// CPU time of all together, in microseconds.
    pub within_us: u64,
    /// Of the same work without.
    pub without_us: u64,
    /// Elapsed time of all together.
    pub within_elapsed_us: u64,
    /// Of the same work without.
    pub without_elapsed_us: u64,
    /// CPU times, within against without, of each pair.
    pub pairs: Pairs,
    /// What they show.
    pub verdict: Verdict,
    /// The bar, as a share of the section.
    pub bar: f64,
    /// The pairs against it.
    pub judged: Bar,
    /// What entering and leaving takes, in nanoseconds, by many in a row.
    pub guard_ns: Option<Median>,
    /// That against the bar.
    pub guard_judged: Bar,
    /// Against sections.
    pub escalations: Escalations,
    /// Against the same work without.
    pub escalations_without: Escalations,
}

/// What the runtime did against somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalations {
    /// Demotions and throttling: none may happen in an honest section.
    pub slowed_down: u64,
    /// Demotions.
    pub demotions: u64,
    /// Throttling.
    pub throttles: u64,
    /// Requests to yield.
    pub requests: u64,
    /// Spares released for what waited.
    pub takeovers: u64,
}

/// What somebody got, and what the others did beside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// Who it was.
    pub who: Who,
    /// CPUs that it had.
    pub cpu_share: Option<f64>,
    /// CPUs that were its fair share.
    pub fair_share: f64,
    /// Busy processes.
    pub neighbours: usize,
    /// CPUs that those had together.
    pub neighbours_share: Option<f64>,
    /// What the lateness counts.
    pub counts: Counts,
    /// The others' wakes, in nanoseconds.
    pub wakes_ns: Summary,
    /// Wakes that were not served by the end; they count with their age.
    pub unserved: u64,
    /// What the runtime did.
    pub escalations: Escalations,
    /// Seconds that were measured.
    pub duration_s: f64,
}

impl From<Counted> for Escalations {
    fn from(counted: Counted) -> Self {
        Self {
            slowed_down: counted.demotions + counted.throttles,
            demotions: counted.demotions,
            throttles: counted.throttles,
            requests: counted.requests,
            takeovers: counted.takeovers,
        }
    }
}

impl Honest {
    fn new(honest: MeasuredHonest, section_ns: f64) -> Self {
        let verdict = honest.pairs.verdict();
        Self {
            sections: honest.sections,
            within_us: honest.within.as_micros() as u64,
            without_us: honest.without.as_micros() as u64,
            within_elapsed_us: honest.within_elapsed.as_micros() as u64,
            without_elapsed_us: honest.without_elapsed.as_micros() as u64,
            verdict,
            bar: BAR,
            judged: verdict.judge(BAR),
            guard_ns: honest.guard_ns,
            guard_judged: judge_guard(honest.guard_ns, section_ns),
            escalations: honest.escalations.into(),
            escalations_without: honest.escalations_without.into(),
            pairs: honest.pairs,
        }
    }
}

fn judge_guard(guard_ns: Option<Median>, section_ns: f64) -> Bar {
    let limit_ns = BAR * section_ns;
    match guard_ns {
        Some(guard) if guard.high <= limit_ns => Bar::Met,
        Some(guard) if guard.low > limit_ns => Bar::Missed,
        _ => Bar::Undecided,
    }
}

impl Report {
    /// Of what was measured.
    pub fn new(host: Host, options: &Options, honest: MeasuredHonest, attacks: &[Attack]) -> Self {
        Self {
            bench: "liar".into(),
            host,
            workers: options.workers,
            link: honest.link.clone(),
            critical_duration_ms: options.critical_duration_ms,
            with_critical: !options.without_critical,
            honest: Honest::new(honest, options.critical_duration_ms * 1e6),
            beside: attacks.iter().map(Beside::new).collect(),
            interrupted: interrupt::happened(),
        }
    }
}

impl Beside {
    fn new(attack: &Attack) -> Self {
        Self {
            who: attack.who,
            cpu_share: attack.share,
            fair_share: attack.fair,
            neighbours: attack.neighbours,
            neighbours_share: attack.neighbours_share,
            counts: Counts::FromIntendedStart,
            wakes_ns: attack.wakes.summary(),
            unserved: attack.unserved,
            escalations: attack.counted.into(),
            duration_s: attack.lasted.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_judged_by_its_interval() {
        let guard = |low, high| {
            Some(Median {
                median: low,
                low,
                high,
            })
        };
        // The bar of a section of 100 µs is 50 ns.
        let judged = [guard(5.0, 9.0), guard(40.0, 60.0), guard(60.0, 70.0), None]
            .map(|guard| judge_guard(guard, 100_000.0));
        assert_eq!(
            judged,
            [Bar::Met, Bar::Undecided, Bar::Missed, Bar::Undecided]
        );
    }

    #[test]
    fn only_demotions_and_throttling_slow_down() {
        let counted = Counted {
            requests: 7,
            takeovers: 5,
            demotions: 2,
            throttles: 1,
        };
        assert_eq!(Escalations::from(counted).slowed_down, 3);
    }
}
