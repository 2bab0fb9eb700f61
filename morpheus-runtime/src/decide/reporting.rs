//! Chooses which stalls become events: one a second for each label. The others are counted.

use std::sync::atomic::Ordering;

use crate::decide::history::{Histories, History};
use crate::report::event::{Report, Stall, Taken};
use crate::report::label::{self, Origin};

/// At most one event per label and runtime in this time, in nanoseconds. The others are counted.
const EVENT_INTERVAL_NS: u64 = 1_000_000_000;

/// Returns the report of a stall on the runtime with these histories. `None` if the label had a report within the
/// interval.
pub(crate) fn stall(stall: Stall, now_ns: u64, histories: &Histories) -> Option<Report> {
    let label = label::by_id(stall.label)?;
    let suppressed = may_report(histories.of(label), now_ns)?;
    Some(Report::Stall { stall, suppressed })
}

/// Returns how many events were suppressed since the last one; `None` if this one is suppressed too.
fn may_report(history: &History, now_ns: u64) -> Option<u64> {
    let last_ns = history.reported_at_ns.load(Ordering::Relaxed);
    if last_ns != 0 && now_ns.saturating_sub(last_ns) < EVENT_INTERVAL_NS {
        history.suppressed.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    history.reported_at_ns.store(now_ns, Ordering::Relaxed);
    Some(history.suppressed.swap(0, Ordering::Relaxed))
}

/// Lets one event in an interval pass, and counts the others.
#[derive(Debug, Default)]
struct Spacing {
    reported_at_ns: Option<u64>,
    suppressed: u64,
}

impl Spacing {
    /// As the function [`may_report`], for events without a label.
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

/// Spaces the events about unwatched tasks, which have no label.
#[derive(Debug, Default)]
pub(crate) struct Unwatched {
    late: Spacing,
    stalled: Spacing,
}

impl Unwatched {
    /// Returns the report of a late canary. `None` if there was one within the interval.
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

    /// Returns the report that `workers` give no sign of life, `blocked` of them asleep. `None` if there was one
    /// within the interval.
    pub(crate) fn stalled(
        &mut self,
        now_ns: u64,
        workers: usize,
        blocked: usize,
        taken: Taken,
    ) -> Option<Report> {
        let suppressed = self.stalled.may_report(now_ns)?;
        Some(Report::WorkersStalled {
            workers,
            blocked,
            taken,
            suppressed,
        })
    }
}

/// Returns up to five labels with the most stalled polls on a runtime, and how many each had. Labels that are being
/// polled come first; `polled` has their numbers.
pub(crate) fn worst(histories: &Histories, polled: &[u32]) -> Vec<(Origin, u64)> {
    let mut worst: Vec<&History> = histories
        .all()
        .filter(|history| history.stalled_polls() > 0)
        .collect();
    worst.sort_by_key(|history| {
        let is_polled = polled.contains(&history.label().id());
        std::cmp::Reverse((is_polled, history.stalled_polls()))
    });
    worst.truncate(5);
    worst
        .iter()
        .map(|history| (history.label().origin(), history.stalled_polls()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_label_are_spaced_on_each_runtime() {
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
        for (histories, label, stalled_polls) in
            [(&here, bad, 1), (&here, worse, 2), (&there, elsewhere, 3)]
        {
            for _ in 0..stalled_polls {
                histories.of(label).learn_stalled_alone(false);
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
}
