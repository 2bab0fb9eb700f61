// SPDX-License-Identifier: GPL-2.0-only
//! When the scheduler starts again after the kernel took it out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::exit::Exit;

/// How many ejections end the daemon, when they come within [`WINDOW`].
pub const MOST_EJECTIONS: usize = 5;
/// How long an ejection counts.
pub const WINDOW: Duration = Duration::from_secs(600);
/// The pause after the first ejection; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a change of the machine counts.
const CHANGES_WINDOW: Duration = Duration::from_secs(60);
/// The pause after the second change of the machine within its window; each further one doubles it. There is none after the
/// first one.
const FIRST_CHANGE_PAUSE: Duration = Duration::from_millis(100);
/// No pause after a change is longer.
const LONGEST_CHANGE_PAUSE: Duration = Duration::from_secs(8);

/// The next step when the scheduler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start again after a pause.
    Start {
        /// How long the kernel's own scheduler schedules meanwhile.
        after: Duration,
        /// How many ejections count now. 0 when the machine has changed, which is no ejection.
        ejections: usize,
    },
    /// A user wanted the scheduler to end (SysRq-S): it stays out.
    StayOut,
    /// The kernel ejected it [`MOST_EJECTIONS`] times within [`WINDOW`].
    GiveUp,
}

/// Remembers why the scheduler has ended before.
#[derive(Debug, Default)]
pub struct Restarts {
    ejections: VecDeque<Instant>,
    changes: VecDeque<Instant>,
}

impl Restarts {
    /// Decides what follows from an exit at `now`.
    pub fn next(&mut self, exit: &Exit, now: Instant) -> Next {
        if exit.is_error() {
            let ejections = count(&mut self.ejections, WINDOW, MOST_EJECTIONS, now);
            if ejections >= MOST_EJECTIONS {
                return Next::GiveUp;
            }
            return Next::Start {
                after: FIRST_PAUSE * (1 << (ejections - 1)),
                ejections,
            };
        }
        if !exit.wants_restart() {
            return Next::StayOut;
        }
        // From here on the pause stays the same.
        const MOST_CHANGES: usize = 9;
        let changes = count(&mut self.changes, CHANGES_WINDOW, MOST_CHANGES, now);
        let after = match changes {
            1 => Duration::ZERO,
            _ => LONGEST_CHANGE_PAUSE.min(FIRST_CHANGE_PAUSE * (1 << (changes - 2))),
        };
        Next::Start {
            after,
            ejections: 0,
        }
    }
}

/// Adds `now` to times of which the newest `most` count while they are younger than `window`. Returns how many do.
fn count(times: &mut VecDeque<Instant>, window: Duration, most: usize, now: Instant) -> usize {
    times.retain(|time| now.saturating_duration_since(*time) < window);
    times.push_back(now);
    while times.len() > most {
        times.pop_front();
    }
    times.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(kind: i32, code: i64) -> Exit {
        Exit {
            kind,
            code,
            reason: String::new(),
            message: String::new(),
            dump: String::new(),
        }
    }

    /// A stalled task.
    fn ejection() -> Exit {
        exit(1026, 0)
    }

    /// A CPU came or went.
    fn change() -> Exit {
        exit(66, 1 << 48 | 1 << 32)
    }

    fn start(after_ms: u64, ejections: usize) -> Next {
        Next::Start {
            after: Duration::from_millis(after_ms),
            ejections,
        }
    }

    #[test]
    fn pauses_double_and_the_fifth_ejection_is_the_last() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut restarts = Restarts::default();
        assert_eq!(restarts.next(&ejection(), at(0)), start(1000, 1));
        assert_eq!(restarts.next(&ejection(), at(100)), start(2000, 2));
        assert_eq!(restarts.next(&ejection(), at(200)), start(4000, 3));
        assert_eq!(restarts.next(&ejection(), at(300)), start(8000, 4));
        assert_eq!(restarts.next(&ejection(), at(599)), Next::GiveUp);
    }

    #[test]
    fn an_old_ejection_counts_no_more() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut restarts = Restarts::default();
        for seconds in 0..4 {
            restarts.next(&ejection(), at(seconds * 100));
        }
        // The first one is ten minutes old.
        assert_eq!(restarts.next(&ejection(), at(600)), start(8000, 4));
        // All are.
        assert_eq!(restarts.next(&ejection(), at(1300)), start(1000, 1));
        // One in three minutes goes on for ever.
        for step in 1..1000u64 {
            let next = restarts.next(&ejection(), at(1300 + step * 180));
            assert_ne!(next, Next::GiveUp, "{step}");
        }
    }

    #[test]
    fn a_change_of_the_machine_is_no_ejection() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut restarts = Restarts::default();
        assert_eq!(restarts.next(&change(), at(0)), start(0, 0));
        let pauses = (1..20).map(|step| restarts.next(&change(), at(step)));
        let expected = [100, 200, 400, 800, 1600, 3200, 6400].into_iter();
        let expected = expected.chain(std::iter::repeat_n(8000, 12));
        assert!(pauses.eq(expected.map(|ms| start(ms, 0))));
        assert_eq!(restarts.next(&ejection(), at(20)), start(1000, 1));
        // A quiet minute, and the next one is the first again.
        assert_eq!(restarts.next(&change(), at(60_020)), start(0, 0));
    }

    #[test]
    fn an_operator_who_wants_it_out_gets_it_out() {
        let now = Instant::now();
        let mut restarts = Restarts::default();
        let sysrq = exit(67, 0);
        assert_eq!(restarts.next(&sysrq, now), Next::StayOut);
        // An unregistration that does not ask for a restart.
        assert_eq!(restarts.next(&exit(66, 0), now), Next::StayOut);
        assert_eq!(restarts.next(&ejection(), now), start(1000, 1));
    }
}
