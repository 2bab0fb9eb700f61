//! Ratings: rate tasks and labels by their last polls.
//!
//! A **slow task** had a stalled poll: its next polls are handed off, each with a permit. A **CPU hog** had a poll that
//! used 5 ms of CPU time: there are fewer permits for hogs. Short polls in a row ([`CLEARED_AFTER`]) clear a task of both. Only
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

/// A thread that used less CPU time than the time since its poll began divided by this may have slept.
const IDLE_SHARE: u64 = 4;

/// Hog polls of a label after which the ladder may throttle.
const REPEAT_HOGS: u32 = 8;

/// Short polls in a row that clear a task: after its first long poll, after the second, and from the third on. A connection
/// that is kept alive alternates between long and short polls, and has to stay slow between two requests.
const CLEARED_AFTER: [u8; 3] = [3, 15, 60];
/// Short polls after which a task without a long one is taken for a task whose polls are short.
pub(crate) const PROVEN_AFTER: u8 = CLEARED_AFTER[0];
/// The bits of [`TaskRating::counts`] that count short polls; those above count long ones.
const GOOD_BITS: u32 = 6;
const MOST_GOOD: u8 = (1 << GOOD_BITS) - 1;

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

/// Whether a poll that began `stalled_ns` ago used so little CPU time that it may have slept. It may also have waited for a CPU.
pub(crate) fn may_sleep(stalled_ns: u64, cpu_ns: u64) -> bool {
    cpu_ns < stalled_ns / IDLE_SHARE
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
    ///
    /// A part of a task that is watched so leaves the rest of the task as it was: with `--cfg tokio_unstable` the task
    /// around it is watched as well, and may be handed off.
    Never,
}

/// The options of a watched future.
pub(crate) struct Options {
    pub(crate) label: &'static Label,
    /// `None`: the runtime's setting applies.
    pub(crate) demotable: Option<bool>,
    pub(crate) handoff: Handoff,
}

/// The rating of one task, in two bytes: the rating, and counts of its long polls and of the short ones since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRating {
    rating: Rating,
    counts: u8,
}

impl TaskRating {
    pub(crate) const fn clean() -> TaskRating {
        TaskRating {
            rating: Rating::Healthy,
            counts: 0,
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
        let before = self.rating;
        if verdict.contains(VerdictFlags::STALLED) || verdict.contains(VerdictFlags::HOG) {
            self.rating = match verdict.contains(VerdictFlags::HOG) {
                true => Rating::Hog,
                false => before.max(Rating::Slow),
            };
            let long_polls = (self.long_polls() + 1).min(CLEARED_AFTER.len() as u8);
            self.counts = long_polls << GOOD_BITS;
        } else {
            self.counts += u8::from(self.good_polls() < MOST_GOOD);
            if self.good_polls() >= self.cleared_after() {
                self.rating = Rating::Healthy;
            }
        }
        self.rating == Rating::Hog && before != Rating::Hog
    }

    fn long_polls(self) -> u8 {
        self.counts >> GOOD_BITS
    }

    /// Short polls since the last long one.
    pub(crate) fn good_polls(self) -> u8 {
        self.counts & MOST_GOOD
    }

    /// Whether there was a long poll so far.
    #[cfg(tokio_unstable)]
    pub(crate) fn has_long_polls(self) -> bool {
        self.long_polls() > 0
    }

    fn cleared_after(self) -> u8 {
        CLEARED_AFTER[usize::from(self.long_polls().saturating_sub(1))]
    }

    /// Whether the task's own last polls were short, so that the rating of its label says nothing about it.
    #[cfg(any(tokio_unstable, test))]
    pub(crate) fn is_proven(self) -> bool {
        self.rating == Rating::Healthy && self.good_polls() >= PROVEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_short_polls_clear_a_task() {
        let mut task = TaskRating::clean();
        assert!(task.learn(VerdictFlags::STALLED | VerdictFlags::HOG));
        for _ in 0..2 {
            let _ = task.learn(VerdictFlags::EMPTY);
            assert_eq!(task.rating(), Rating::Hog);
        }
        let _ = task.learn(VerdictFlags::EMPTY);
        assert!(task.is_clean());
    }

    #[test]
    fn a_task_with_several_long_polls_stays_slow_for_longer() {
        let mut task = TaskRating::clean();
        for cleared_after in [3, 15, 60, 60] {
            assert!(task.learn(VerdictFlags::STALLED | VerdictFlags::HOG));
            for _ in 1..cleared_after {
                let _ = task.learn(VerdictFlags::EMPTY);
                assert_eq!(task.rating(), Rating::Hog);
            }
            let _ = task.learn(VerdictFlags::EMPTY);
            assert!(task.is_clean());
        }
        assert!(task.is_proven());
        for _ in 0..1000 {
            let _ = task.learn(VerdictFlags::EMPTY);
        }
        assert!(task.is_proven() && task.learn(VerdictFlags::HOG) && !task.is_proven());
    }

    #[test]
    fn a_blocked_poll_makes_a_slow_task_and_no_hog() {
        let mut task = TaskRating::clean();
        assert!(!task.learn(VerdictFlags::STALLED | VerdictFlags::BLOCKED));
        assert_eq!(task.rating(), Rating::Slow);
    }
}
