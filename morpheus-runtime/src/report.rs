//! Telling who it was: stall events as they happen, and a table of labels at the end.

use std::fmt::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::Ordering;

use crate::history::{Histories, History};
use crate::label::{self, Label, Origin};
use crate::link::ActiveLink;
use crate::stacks;

/// At most one event per label and runtime in this time; the others are counted.
const EVENT_INTERVAL_NS: u64 = 1_000_000_000;

/// What was done about a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Observed,
    Requested,
    SpareReleased,
    AlreadyInPlace,
    /// Nothing, under [`Policy::Observe`](crate::Policy::Observe); else a spare would have been released.
    WouldReleaseSpare,
    /// The same; else the poll would have been in place.
    WouldPollInPlace,
}

impl Taken {
    fn words(self) -> &'static str {
        match self {
            Taken::Observed => "observed",
            Taken::Requested => "asked to yield",
            Taken::SpareReleased => "taken over",
            Taken::AlreadyInPlace => "polled in place",
            Taken::WouldReleaseSpare => "would have been taken over",
            Taken::WouldPollInPlace => "would have been polled in place",
        }
    }
}

/// A thread of Morpheus's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    Controller,
    Reporter,
    Joiner,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Thread::Controller => "controller",
            Thread::Reporter => "reporter",
            Thread::Joiner => "joiner",
        })
    }
}

/// An event for the application's subscriber, on its way to the [reporter](crate::reporter).
#[derive(Debug)]
pub(crate) enum Report {
    /// A watched poll is stuck.
    Stall { stall: Stall, suppressed: u64 },
    /// The canary is late, and this many spares were released, or would have been.
    Late {
        late_ns: u64,
        released: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Workers have given no sign of life, `blocked` of them because they sleep.
    Standing {
        workers: usize,
        blocked: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Every spare is in play; with the [`worst`] labels.
    SparesUsedUp {
        total: usize,
        worst: Vec<(Origin, u64)>,
    },
    /// No daemon was joined.
    NoLink(String),
    /// A daemon was joined.
    Joined(ActiveLink),
    /// The daemon has gone.
    DaemonGone(std::io::Error),
    /// A controller of a domain without workers has no thread.
    NoController(std::io::Error),
    /// A thread panicked.
    Panicked {
        thread: Thread,
        text: String,
        restarts: bool,
    },
    /// The subscriber panicked on this many reports.
    SubscriberPanicked { reports: u64 },
    /// Makes the reporter panic.
    #[cfg(test)]
    Fault,
}

impl Report {
    /// Makes the event. Calls the application's subscriber: for the reporter's thread alone.
    pub(crate) fn tell(&self) {
        match self {
            Report::Stall { stall, suppressed } => stall.tell(*suppressed),
            Report::Late {
                late_ns,
                released,
                taken,
                suppressed,
            } => tracing::warn!(
                target: "morpheus::stall",
                label = "not watched",
                late_us = late_ns / 1_000,
                released,
                step = taken.words(),
                suppressed,
                "work waits and nobody serves it"
            ),
            Report::Standing {
                workers,
                blocked,
                taken,
                suppressed,
            } => tracing::warn!(
                target: "morpheus::stall",
                label = "not watched",
                workers,
                blocked,
                step = taken.words(),
                suppressed,
                "workers stand in polls of tasks that are not watched"
            ),
            Report::SparesUsedUp { total, worst } => tell_spares_used_up(*total, worst),
            Report::NoLink(error) => {
                tracing::debug!(target: "morpheus::link", %error, "no link");
            }
            Report::Joined(link) => {
                tracing::info!(target: "morpheus::link", %link, "joined the daemon");
            }
            Report::DaemonGone(error) => {
                tracing::warn!(target: "morpheus::link", %error, "the daemon has gone: the watchdog goes on alone");
            }
            Report::NoController(error) => {
                tracing::error!(target: "morpheus::stall", %error, "no thread for the controller: watched polls go unseen");
            }
            Report::Panicked {
                thread,
                text,
                restarts: true,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus's panicked, and starts again");
            }
            Report::Panicked {
                thread: Thread::Controller,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", thread = %Thread::Controller, panic = %text, "the controller panicked again and again, and stays off: every spare worker is released for good");
            }
            Report::Panicked {
                thread,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus's panicked again and again, and stays off");
            }
            Report::SubscriberPanicked { reports } => {
                tracing::error!(target: "morpheus::stall", reports, "the subscriber panicked on reports: those are lost");
            }
            #[cfg(test)]
            Report::Fault => {}
        }
    }
}

/// Whether the subscriber wants details. Asks it nothing: that is a word that it set.
pub(crate) fn wants_details() -> bool {
    tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG
}

/// A stuck watched poll, reported once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) label: u32,
    pub(crate) stood_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) blocked: bool,
    pub(crate) taken: Taken,
}

impl Stall {
    /// What its runtime, which has these histories, is to report of it; nothing where it reported the label a moment ago.
    pub(crate) fn report(self, now_ns: u64, histories: &Histories) -> Option<Report> {
        let label = label::by_id(self.label)?;
        let suppressed = may_report(histories.of(label), now_ns)?;
        Some(Report::Stall {
            stall: self,
            suppressed,
        })
    }

    fn tell(&self, suppressed: u64) {
        let Some(label) = label::by_id(self.label) else {
            return;
        };
        tracing::warn!(
            target: "morpheus::stall",
            label = %label.origin(),
            stood_us = self.stood_ns / 1_000,
            cpu_us = self.cpu_ns / 1_000,
            state = if self.blocked { "blocked" } else { "running" },
            step = self.taken.words(),
            suppressed,
            "a task holds up its worker"
        );
    }
}

/// How many events were kept back since the last one; `None` when this one is kept back too.
fn may_report(history: &History, now_ns: u64) -> Option<u64> {
    let last_ns = history.reported_at_ns.load(Ordering::Relaxed);
    if last_ns != 0 && now_ns.saturating_sub(last_ns) < EVENT_INTERVAL_NS {
        history.suppressed.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    history.reported_at_ns.store(now_ns, Ordering::Relaxed);
    Some(history.suppressed.swap(0, Ordering::Relaxed))
}

/// Lets one event in an interval through, and counts the others.
#[derive(Debug, Default)]
struct Spacing {
    reported_at_ns: Option<u64>,
    suppressed: u64,
}

impl Spacing {
    /// As [`may_report`], for events without a label.
    fn may_report(&mut self, now_ns: u64) -> Option<u64> {
        let recent = self
            .reported_at_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < EVENT_INTERVAL_NS);
        if recent {
            self.suppressed += 1;
            return None;
        }
        self.reported_at_ns = Some(now_ns);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The events about tasks that are not watched, which have no label.
#[derive(Debug, Default)]
pub(crate) struct Unwatched {
    late: Spacing,
    standing: Spacing,
}

impl Unwatched {
    /// The canary is late; nothing where that was reported a moment ago.
    pub(crate) fn late(
        &mut self,
        now_ns: u64,
        late_ns: u64,
        released: usize,
        taken: Taken,
    ) -> Option<Report> {
        let suppressed = self.late.may_report(now_ns)?;
        Some(Report::Late {
            late_ns,
            released,
            taken,
            suppressed,
        })
    }

    /// `workers` have given no sign of life; nothing where that was reported a moment ago.
    pub(crate) fn standing(
        &mut self,
        now_ns: u64,
        workers: usize,
        blocked: usize,
        taken: Taken,
    ) -> Option<Report> {
        let suppressed = self.standing.may_report(now_ns)?;
        Some(Report::Standing {
            workers,
            blocked,
            taken,
            suppressed,
        })
    }
}

/// The labels with the most stuck polls on a runtime, up to five, and how many they had: those first that are being
/// polled (`polled` has their numbers).
pub(crate) fn worst(histories: &Histories, polled: &[u32]) -> Vec<(Origin, u64)> {
    let mut worst: Vec<&History> = histories
        .all()
        .filter(|history| history.stuck_polls() > 0)
        .collect();
    worst.sort_by_key(|history| {
        let is_polled = polled.contains(&history.label().id());
        std::cmp::Reverse((is_polled, history.stuck_polls()))
    });
    worst.truncate(5);
    worst
        .iter()
        .map(|history| (history.label().origin(), history.stuck_polls()))
        .collect()
}

/// The spares are used up: said loudly, with the worst offenders known.
fn tell_spares_used_up(total: usize, worst: &[(Origin, u64)]) {
    let mut names = String::new();
    for (origin, stuck_polls) in worst {
        let _ = write!(names, "{origin} ({stuck_polls} stuck polls), ");
    }
    let offenders = if names.is_empty() {
        "nobody that is watched: spawn suspects with morpheus_runtime::spawn to find out"
    } else {
        names.trim_end_matches(", ")
    };
    tracing::error!(
        target: "morpheus::stall",
        spares = total,
        offenders,
        "every spare worker is in play and work still waits: raise max_spares, or mend the offenders"
    );
}

fn stuck_polls(label: &Label) -> u64 {
    label.totals.stuck_polls.load(Ordering::Relaxed)
}

/// `MORPHEUS_SUMMARY=1`.
pub(crate) fn wants_summary() -> bool {
    std::env::var_os("MORPHEUS_SUMMARY").is_some_and(|value| value == "1")
}

/// With `MORPHEUS_SUMMARY=1`, prints the table of labels when the process exits.
pub(crate) fn summary_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if wants_summary() {
            // SAFETY: the handler touches only leaked labels and stderr, which outlive every thread.
            unsafe { libc::atexit(print_summary) };
        }
    });
}

extern "C" fn print_summary() {
    // A panic must not cross into C, and there is nobody left to tell.
    let _ = std::panic::catch_unwind(|| eprint!("{}{}", summary(), stacks::groups::summary()));
}

/// The table of labels that had a stuck poll, worst first, then the number of those that had none.
pub(crate) fn summary() -> String {
    let mut labels: Vec<&Label> = label::all()
        .filter(|label| stuck_polls(label) + label.totals.polls.load(Ordering::Relaxed) > 0)
        .collect();
    labels.sort_by_key(|label| {
        (
            std::cmp::Reverse(stuck_polls(label)),
            std::cmp::Reverse(label.totals.polls.load(Ordering::Relaxed)),
        )
    });
    let mut table = String::from("morpheus: labels of watched tasks\n");
    let _ = writeln!(
        table,
        "  {:>10} {:>8} {:>11} {:>8} {:>8} {:>9}  label",
        "polls", "stuck", "longest", "blocked", "running", "convicted"
    );
    for label in labels {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (stuck, blocked) = (stuck_polls(label), get(&label.totals.stuck_blocked));
        let convicted = get(&label.totals.convictions) > 0 || get(&label.totals.offences) > 0;
        let _ = writeln!(
            table,
            "  {:>10} {:>8} {:>8.1} ms {:>8} {:>8} {:>9}  {}",
            get(&label.totals.polls).max(stuck),
            stuck,
            get(&label.totals.longest_ns) as f64 / 1e6,
            blocked,
            stuck - blocked.min(stuck),
            if convicted { "yes" } else { "no" },
            label.origin(),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_label_are_spaced_on_each_runtime() {
        let label = label::of(Origin::Named("report spacing"));
        let (one, two) = (History::new(label), History::new(label));
        assert_eq!(may_report(&one, 5), Some(0));
        assert_eq!(may_report(&one, 6), None);
        assert_eq!(may_report(&two, 6), Some(0));
        assert_eq!(may_report(&one, 7), None);
        assert_eq!(may_report(&one, 5 + EVENT_INTERVAL_NS), Some(2));
    }

    #[test]
    fn the_worst_labels_are_those_of_the_runtime_that_asks() {
        let [bad, worse, elsewhere] = ["report: bad", "report: worse", "report: elsewhere"]
            .map(|name| label::of(Origin::Named(name)));
        let (here, there) = (Histories::default(), Histories::default());
        for (histories, label, stuck_polls) in
            [(&here, bad, 1), (&here, worse, 2), (&there, elsewhere, 3)]
        {
            for _ in 0..stuck_polls {
                histories.of(label).learn_stuck(false);
            }
        }
        let (bad, worse, elsewhere) = (
            (bad.origin(), 1, bad.id()),
            (worse.origin(), 2),
            (elsewhere.origin(), 3),
        );
        assert_eq!(worst(&here, &[]), [worse, (bad.0, bad.1)]);
        assert_eq!(worst(&here, &[bad.2]), [(bad.0, bad.1), worse]);
        assert_eq!(worst(&there, &[]), [elsewhere]);
    }

    #[test]
    fn the_summary_names_the_offender() {
        let label = label::of(Origin::Named("report summary"));
        History::new(label).learn_stuck(true);
        label.saw_duration(7_000_000);
        let summary = summary();
        let line = summary
            .lines()
            .find(|line| line.ends_with("report summary"))
            .unwrap();
        assert!(line.contains("7.0 ms"), "{line}");
    }
}
