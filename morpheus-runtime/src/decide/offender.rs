//! Offenders are remembered, by task and by label.
//!
//! A **suspect** had a stuck poll: it is polled in place. A **convict** had one that used 5 ms of CPU:
//! it also waits for a permit. Both are cleared by [`ACQUITTED_AFTER`] short polls. A wall clock convicts
//! nobody: a poll that was preempted looks long, and convicting it puts innocents behind hogs.
//!
//! What is remembered of a label, each runtime remembers for itself ([`History`](crate::decide::history::History)). A task's own
//! record goes with the task: a future that moves to a runtime with a larger budget is cleared there by its first short
//! polls, as it would be where it came from.

use morpheus_common::ladder;
use morpheus_common::slot::VerdictFlags;

use crate::settings::Settings;

/// CPU time in one poll that makes it an offence.
pub(crate) const OFFENCE_NS: u64 = 5_000_000;

/// Offences of a label after which the ladder may throttle.
const REPEAT_OFFENCES: u32 = 8;

/// Short polls in a row that clear a task.
const ACQUITTED_AFTER: u8 = 3;

/// What the ladder goes by on a runtime with these settings.
pub(crate) fn limits(settings: &Settings) -> ladder::Limits {
    ladder::Limits {
        budget_ns: settings.budget_ns,
        grace_ns: settings.grace_ns,
        offence_ns: OFFENCE_NS,
        repeat_offences: REPEAT_OFFENCES,
        policy: settings.policy,
    }
}

/// What is known of a task or a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Standing {
    /// Nothing bad among the last polls.
    Calm = 0,
    /// Something, but not enough to act on: polls are counted.
    Warm = 1,
    /// Polled in place.
    Suspect = 2,
    /// Polled in place, with a permit.
    Convict = 3,
}

impl Standing {
    pub(crate) fn from_number(number: u32) -> Standing {
        match number {
            0 => Standing::Calm,
            1 => Standing::Warm,
            2 => Standing::Suspect,
            _ => Standing::Convict,
        }
    }
}

/// Whether a task may be remembered as an offender at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offender {
    /// Remembered, polled in place, made to wait for a permit (the default).
    #[default]
    Allowed,
    /// Always polled inline, whatever it did: for a task that must never wait for others of its kind.
    /// Its stuck polls are still reported and still taken over.
    Never,
}

/// One task's own record: a byte of standing and a byte of good conduct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    standing: Standing,
    good_polls: u8,
}

impl Record {
    pub(crate) const fn clean() -> Record {
        Record {
            standing: Standing::Calm,
            good_polls: 0,
        }
    }

    #[inline]
    pub(crate) fn is_clean(self) -> bool {
        matches!(self.standing, Standing::Calm)
    }

    pub(crate) fn standing(self) -> Standing {
        self.standing
    }

    /// Takes the verdict on a poll that just ended. Returns whether it is a conviction.
    pub(crate) fn learn(&mut self, verdict: VerdictFlags) -> bool {
        if verdict.contains(VerdictFlags::OFFENCE) {
            let new = self.standing != Standing::Convict;
            *self = Record {
                standing: Standing::Convict,
                good_polls: 0,
            };
            return new;
        }
        if verdict.contains(VerdictFlags::STUCK) {
            self.standing = self.standing.max(Standing::Suspect);
            self.good_polls = 0;
        } else if self.standing != Standing::Calm {
            self.good_polls += 1;
            if self.good_polls >= ACQUITTED_AFTER {
                *self = Record::clean();
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
        let mut record = Record::clean();
        assert!(record.learn(VerdictFlags::STUCK | VerdictFlags::OFFENCE));
        assert!(!record.learn(VerdictFlags::OFFENCE), "convicted once only");
        for _ in 0..2 {
            let _ = record.learn(VerdictFlags::EMPTY);
            assert_eq!(record.standing(), Standing::Convict);
        }
        let _ = record.learn(VerdictFlags::EMPTY);
        assert!(record.is_clean());
    }

    #[test]
    fn a_blocked_poll_makes_a_suspect_not_a_convict() {
        let mut record = Record::clean();
        assert!(!record.learn(VerdictFlags::STUCK | VerdictFlags::BLOCKED));
        assert_eq!(record.standing(), Standing::Suspect);
    }
}
