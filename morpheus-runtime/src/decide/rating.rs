//! Ratings: rate tasks and labels by their last polls.
//!
//! A **slow task** had a stalled poll: its next polls are handed off, each with a permit. A **CPU hog** had a poll that
//! used 5 ms of CPU time: there are fewer permits for hogs. [`CLEARED_AFTER`] short polls clear a task of both. Only
//! CPU time makes a hog. By wall time a preempted poll looks long, and a healthy task would then wait behind hogs.
//!
//! Each runtime rates labels for itself ([`History`](crate::decide::history::History)). A task carries its own
//! rating. So a future that moves to a runtime with a larger budget keeps its rating until its first short polls
//! there clear it, as they would on the runtime that it came from.

use morpheus_common::ladder;
use morpheus_common::slot::VerdictFlags;

use crate::report::label::Label;
use crate::settings::Settings;

/// CPU time in one poll that makes it a hog poll, in nanoseconds.
pub(crate) const HOG_NS: u64 = 5_000_000;

/// Hog polls of a label after which the ladder may throttle.
const REPEAT_HOGS: u32 = 8;

/// Short polls in a row that clear a task.
const CLEARED_AFTER: u8 = 3;

/// Returns the limits of the ladder on a runtime with these settings.
pub(crate) fn limits(settings: &Settings) -> ladder::Limits {
    ladder::Limits {
        budget_ns: settings.budget_ns,
        grace_ns: settings.grace_ns,
        hog_ns: HOG_NS,
        repeat_hogs: REPEAT_HOGS,
        policy: settings.policy,
    }
}

/// The rating of a task or a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rating {
    /// No long poll among the last ones.
    Healthy = 0,
    /// Some long polls, but too few to act on. Polls are counted.
    Counted = 1,
    /// Polls are handed off.
    Slow = 2,
    /// Polls are handed off, with one of the permits for hogs.
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

/// Whether polls of a task may be handed off after the task was found slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handoff {
    /// Polls of a slow task are handed off, and wait for a permit first (the default).
    #[default]
    Allowed,
    /// Every poll runs inline, even if the task is slow: for a task that must never wait for others of its kind. Its
    /// stalled polls are still reported and still taken over.
    Never,
}

/// The options of a watched future.
pub(crate) struct Options {
    pub(crate) label: &'static Label,
    /// `None`: the runtime's setting applies.
    pub(crate) demotable: Option<bool>,
    pub(crate) handoff: Handoff,
}

/// The rating of one task: a byte for the rating and a byte that counts short polls.
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

    /// Learns the verdict on a poll that just ended. Returns whether it makes the task a CPU hog.
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
    fn three_short_polls_clear_a_task() {
        let mut task = TaskRating::clean();
        assert!(task.learn(VerdictFlags::STALLED | VerdictFlags::HOG));
        assert!(!task.learn(VerdictFlags::HOG), "it becomes a hog once");
        for _ in 0..2 {
            let _ = task.learn(VerdictFlags::EMPTY);
            assert_eq!(task.rating(), Rating::Hog);
        }
        let _ = task.learn(VerdictFlags::EMPTY);
        assert!(task.is_clean());
    }

    #[test]
    fn a_blocked_poll_makes_a_slow_task_and_no_hog() {
        let mut task = TaskRating::clean();
        assert!(!task.learn(VerdictFlags::STALLED | VerdictFlags::BLOCKED));
        assert_eq!(task.rating(), Rating::Slow);
    }
}
