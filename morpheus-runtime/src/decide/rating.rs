//! Slow tasks are remembered, by task and by label.
//!
//! A **slow task** had a stalled poll: it is handed off. A **CPU hog** had one that used 5 ms of CPU:
//! it also waits for a permit. Both are cleared by [`CLEARED_AFTER`] short polls. A wall clock CPU hogs
//! nobody: a poll that was preempted looks long, and convicting it puts innocents behind hogs.
//!
//! What is remembered of a label, each runtime remembers for itself ([`History`](crate::decide::history::History)). A task's own
//! record goes with the task: a future that moves to a runtime with a larger budget is cleared there by its first short
//! polls, as it would be where it came from.

use morpheus_common::ladder;
use morpheus_common::slot::VerdictFlags;

use crate::report::label::Label;
use crate::settings::Settings;

/// CPU time in one poll that makes it a hog poll.
pub(crate) const HOG_NS: u64 = 5_000_000;

/// Offences of a label after which the ladder may throttle.
const REPEAT_HOGS: u32 = 8;

/// Short polls in a row that clear a task.
const CLEARED_AFTER: u8 = 3;

/// What the ladder goes by on a runtime with these settings.
pub(crate) fn limits(settings: &Settings) -> ladder::Limits {
    ladder::Limits {
        budget_ns: settings.budget_ns,
        grace_ns: settings.grace_ns,
        hog_ns: HOG_NS,
        repeat_hogs: REPEAT_HOGS,
        policy: settings.policy,
    }
}

/// What is known of a task or a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rating {
    /// Nothing bad among the last polls.
    Healthy = 0,
    /// Something, but not enough to act on: polls are counted.
    Counted = 1,
    /// Handed off.
    Slow = 2,
    /// Handed off, with a permit.
    Hog = 3,
}

impl Rating {
    pub(crate) fn from_number(number: u32) -> Rating {
        match number {
            0 => Rating::Healthy,
            1 => Rating::Counted,
            2 => Rating::Slow,
            _ => Rating::Hog,
        }
    }
}

/// Whether polls of a task may be handed off once the task was found slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handoff {
    /// Remembered, handed off, made to wait for a permit (the default).
    #[default]
    Allowed,
    /// Always polled inline, whatever it did: for a task that must never wait for others of its kind.
    /// Its stalled polls are still reported and still taken over.
    Never,
}

/// How a future is watched.
pub(crate) struct Options {
    pub(crate) label: &'static Label,
    /// `None`: as the runtime says.
    pub(crate) demotable: Option<bool>,
    pub(crate) handoff: Handoff,
}

/// One task's own record: a byte of rating and a byte of good conduct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRating {
    rating: Rating,
    good_polls: u8,
}

impl TaskRating {
    pub(crate) const fn clean() -> TaskRating {
        TaskRating {
            rating: Rating::Healthy,
            good_polls: 0,
        }
    }

    #[inline]
    pub(crate) fn is_clean(self) -> bool {
        matches!(self.rating, Rating::Healthy)
    }

    pub(crate) fn rating(self) -> Rating {
        self.rating
    }

    /// Takes the verdict on a poll that just ended. Returns whether it is a conviction.
    pub(crate) fn learn(&mut self, verdict: VerdictFlags) -> bool {
        if verdict.contains(VerdictFlags::HOG) {
            let new = self.rating != Rating::Hog;
            *self = TaskRating {
                rating: Rating::Hog,
                good_polls: 0,
            };
            return new;
        }
        if verdict.contains(VerdictFlags::STALLED) {
            self.rating = self.rating.max(Rating::Slow);
            self.good_polls = 0;
        } else if self.rating != Rating::Healthy {
            self.good_polls += 1;
            if self.good_polls >= CLEARED_AFTER {
                *self = TaskRating::clean();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_short_polls_acquit() {
        let mut record = TaskRating::clean();
        assert!(record.learn(VerdictFlags::STALLED | VerdictFlags::HOG));
        assert!(!record.learn(VerdictFlags::HOG), "convicted once only");
        for _ in 0..2 {
            let _ = record.learn(VerdictFlags::EMPTY);
            assert_eq!(record.rating(), Rating::Hog);
        }
        let _ = record.learn(VerdictFlags::EMPTY);
        assert!(record.is_clean());
    }

    #[test]
    fn a_blocked_poll_makes_a_suspect_not_a_convict() {
        let mut record = TaskRating::clean();
        assert!(!record.learn(VerdictFlags::STALLED | VerdictFlags::BLOCKED));
        assert_eq!(record.rating(), Rating::Slow);
    }
}
