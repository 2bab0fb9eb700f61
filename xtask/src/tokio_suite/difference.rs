//! Where Morpheus differs from tokio, and whether a test did what it should.

use std::io;

use super::Mode;
use super::libtest::Ended;

/// A test of tokio's that fails on Morpheus, and has to.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The file and the test, as in `rt_metrics::num_workers`.
    pub(crate) test: &'static str,
    pub(crate) modes: &'static [Mode],
    pub(crate) how: How,
    /// One sentence.
    pub(crate) why: &'static str,
}

/// How a test shows a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Fails,
    /// It fails or passes, as threads happen to run.
    FailsAtTimes,
    /// It does not end; it gets less time than others.
    Hangs,
}

impl Difference {
    fn shows_as(&self, ended: Ended) -> bool {
        match self.how {
            How::Fails | How::FailsAtTimes => ended == Ended::Failed,
            How::Hangs => ended == Ended::Unfinished,
        }
    }
}

const BOTH: &[Mode] = &[Mode::Unwatched, Mode::Watched];

/// A test that wants a panic, or an error, where a runtime was built without I/O or without time.
const fn without_driver(test: &'static str) -> Difference {
    Difference {
        test,
        modes: BOTH,
        how: How::Fails,
        why: "I/O and time are always enabled",
    }
}

/// All differences. One that is not here fails the step, and so does one here that is none.
pub(crate) const DIFFERENCES: &[Difference] = &[
    without_driver("io_driver::panics_when_io_disabled"),
    without_driver("io_panic::async_fd_new_panic_caller"),
    without_driver("io_panic::async_fd_register_panic_caller"),
    without_driver("io_panic::async_fd_register_with_interest_panic_caller"),
    without_driver("io_panic::async_fd_try_new_panic_caller"),
    without_driver("io_panic::async_fd_try_with_interest_panic_caller"),
    without_driver("io_panic::async_fd_with_interest_panic_caller"),
    without_driver("net_panic::tcp_listener_from_std_panic_caller"),
    without_driver("net_panic::tcp_stream_from_std_panic_caller"),
    without_driver("net_panic::udp_socket_from_std_panic_caller"),
    without_driver("net_panic::unix_datagram_from_std_panic_caller"),
    without_driver("net_panic::unix_listener_bind_panic_caller"),
    without_driver("rt_basic::timeout_panics_when_no_time_handle"),
    without_driver("signal_panic::signal_panic_caller"),
    without_driver("time_panic::timeout_at_panic_caller"),
    without_driver("time_panic::timeout_panic_caller"),
    Difference {
        test: "rt_blocking_thread_exhaust::spawn_blocking_with_only_scheduler_workers",
        modes: BOTH,
        how: How::Hangs,
        why: "`on_thread_start` runs on the spares too, and the test's hook blocks from the ninth call on; also, the controller is a thread \
              of the pool, so that a call waits where tokio would panic because it can start none",
    },
    Difference {
        test: "rt_metrics::global_queue_depth_multi_thread",
        modes: &[Mode::Unwatched],
        how: How::FailsAtTimes,
        why: "tasks of Morpheus's own, the canary and those that hold the spares, wait in the queue too",
    },
    Difference {
        test: "rt_metrics::global_queue_depth_multi_thread",
        modes: &[Mode::Watched],
        how: How::FailsAtTimes,
        why: "a watched task that blocks hands off its worker, which takes what the test wants to see queued",
    },
    Difference {
        test: "rt_metrics::num_alive_tasks",
        modes: BOTH,
        how: How::Fails,
        why: "tokio counts the tasks that hold the spares",
    },
    Difference {
        test: "rt_metrics::num_workers",
        modes: BOTH,
        how: How::Fails,
        why: "tokio counts the spares as workers",
    },
    Difference {
        test: "rt_metrics::worker_park_unpark_count",
        modes: BOTH,
        how: How::Fails,
        why: "the test counts how often two of all workers park, and most are spares, which do not park while they are held",
    },
    Difference {
        test: "rt_panic::builder_worker_threads_panic_caller",
        modes: BOTH,
        how: How::Fails,
        why: "`worker_threads(0)` does not panic: `build` returns an error",
    },
    Difference {
        test: "rt_unstable_eager_driver_handoff::deadlocks_consistently",
        modes: BOTH,
        how: How::Fails,
        why: "the test wants tokio to deadlock behind a task that blocks, and a spare goes on instead",
    },
];

/// The difference that this test has to show in this mode, if there is one.
pub(crate) fn expected(test: &str, mode: Mode) -> Option<&'static Difference> {
    DIFFERENCES
        .iter()
        .find(|difference| difference.test == test && difference.modes.contains(&mode))
}

/// The verdict on a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// It failed among others, and passed alone.
    PassedAlone,
    /// It failed, as the table says; it passes on tokio.
    Differs(&'static str),
    Ignored,
    /// So it says nothing about Morpheus.
    FailsOnTokio,
    Wrong(&'static str),
}

pub(crate) const NEW_DIFFERENCE: &str = "fails, and passes on tokio";
pub(crate) const HANGS: &str = "does not end, and passes on tokio";
pub(crate) const NO_DIFFERENCE: &str = "no longer differs: remove it from the table of differences";
pub(crate) const IGNORED_DIFFERENCE: &str =
    "is ignored now: remove it from the table of differences";

/// Judges a test. One that does not end as expected runs `again`, alone: other tests may have taken its time. If it then fails, it has to
/// pass `on_tokio` to be a difference.
///
/// # Errors
///
/// Those of the two runs.
pub(crate) fn judge(
    ended: Ended,
    expected: Option<&'static Difference>,
    again: &mut dyn FnMut() -> io::Result<Ended>,
    on_tokio: &mut dyn FnMut() -> io::Result<Ended>,
) -> io::Result<Verdict> {
    let may_pass = expected.is_none_or(|difference| difference.how == How::FailsAtTimes);
    let as_expected = |ended| {
        (may_pass && ended == Ended::Passed)
            || expected.is_some_and(|difference| difference.shows_as(ended))
    };
    let last = if ended == Ended::Ignored || as_expected(ended) {
        ended
    } else {
        again()?
    };
    Ok(match (last, expected) {
        (Ended::Passed, _) if may_pass && ended != Ended::Passed => Verdict::PassedAlone,
        (Ended::Passed, _) if may_pass => Verdict::Passed,
        (Ended::Passed, _) => Verdict::Wrong(NO_DIFFERENCE),
        (Ended::Ignored, None) => Verdict::Ignored,
        (Ended::Ignored, Some(_)) => Verdict::Wrong(IGNORED_DIFFERENCE),
        (Ended::Failed | Ended::Unfinished, _) if on_tokio()? != Ended::Passed => {
            Verdict::FailsOnTokio
        }
        (_, Some(difference)) if difference.shows_as(last) => Verdict::Differs(difference.why),
        (Ended::Failed, _) => Verdict::Wrong(NEW_DIFFERENCE),
        (Ended::Unfinished, _) => Verdict::Wrong(HANGS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const FAILS: Option<&Difference> = Some(&Difference {
        test: "file::fails",
        modes: BOTH,
        how: How::Fails,
        why: "why",
    });
    const FAILS_AT_TIMES: Option<&Difference> = Some(&Difference {
        test: "file::fails_at_times",
        modes: BOTH,
        how: How::FailsAtTimes,
        why: "why",
    });
    const HANGS_FOR_EVER: Option<&Difference> = Some(&Difference {
        test: "file::hangs",
        modes: BOTH,
        how: How::Hangs,
        why: "why",
    });

    /// The verdict, and how often each of the two runs was asked for.
    fn judged(
        ended: Ended,
        expected: Option<&'static Difference>,
        again: Ended,
        on_tokio: Ended,
    ) -> (Verdict, u32, u32) {
        let (mut alone, mut control) = (0, 0);
        let verdict = judge(
            ended,
            expected,
            &mut || {
                alone += 1;
                Ok(again)
            },
            &mut || {
                control += 1;
                Ok(on_tokio)
            },
        )
        .unwrap();
        (verdict, alone, control)
    }

    #[test]
    fn what_is_as_expected_runs_once() {
        use Ended::{Failed, Ignored, Passed};
        assert_eq!(
            judged(Passed, None, Failed, Failed),
            (Verdict::Passed, 0, 0)
        );
        assert_eq!(
            judged(Ignored, None, Failed, Failed),
            (Verdict::Ignored, 0, 0)
        );
        assert_eq!(
            judged(Failed, FAILS, Passed, Passed),
            (Verdict::Differs("why"), 0, 1)
        );
    }

    #[test]
    fn a_failure_that_nobody_expects_needs_two_runs_and_a_control() {
        use Ended::{Failed, Passed, Unfinished};
        for first in [Failed, Unfinished] {
            assert_eq!(
                judged(first, None, Passed, Passed),
                (Verdict::PassedAlone, 1, 0)
            );
            assert_eq!(
                judged(first, None, Failed, Passed),
                (Verdict::Wrong(NEW_DIFFERENCE), 1, 1)
            );
            assert_eq!(
                judged(first, None, Unfinished, Passed),
                (Verdict::Wrong(HANGS), 1, 1)
            );
            assert_eq!(
                judged(first, None, Failed, Failed),
                (Verdict::FailsOnTokio, 1, 1)
            );
        }
    }

    #[test]
    fn a_difference_has_to_be_one() {
        use Ended::{Failed, Ignored, Passed};
        assert_eq!(
            judged(Passed, FAILS, Passed, Passed),
            (Verdict::Wrong(NO_DIFFERENCE), 1, 0)
        );
        assert_eq!(
            judged(Passed, FAILS, Failed, Passed),
            (Verdict::Differs("why"), 1, 1)
        );
        assert_eq!(
            judged(Failed, FAILS, Failed, Failed),
            (Verdict::FailsOnTokio, 0, 1)
        );
        assert_eq!(
            judged(Ignored, FAILS, Failed, Failed),
            (Verdict::Wrong(IGNORED_DIFFERENCE), 0, 0)
        );
    }

    #[test]
    fn a_difference_of_chance_may_pass() {
        use Ended::{Failed, Passed, Unfinished};
        assert_eq!(
            judged(Passed, FAILS_AT_TIMES, Failed, Failed),
            (Verdict::Passed, 0, 0)
        );
        assert_eq!(
            judged(Failed, FAILS_AT_TIMES, Passed, Passed),
            (Verdict::Differs("why"), 0, 1)
        );
        assert_eq!(
            judged(Unfinished, FAILS_AT_TIMES, Unfinished, Passed),
            (Verdict::Wrong(HANGS), 1, 1)
        );
    }

    #[test]
    fn to_fail_and_to_hang_are_two_differences() {
        use Ended::{Failed, Passed, Unfinished};
        assert_eq!(
            judged(Unfinished, HANGS_FOR_EVER, Passed, Passed),
            (Verdict::Differs("why"), 0, 1)
        );
        assert_eq!(
            judged(Failed, HANGS_FOR_EVER, Failed, Passed),
            (Verdict::Wrong(NEW_DIFFERENCE), 1, 1)
        );
        assert_eq!(
            judged(Unfinished, FAILS, Unfinished, Passed),
            (Verdict::Wrong(HANGS), 1, 1)
        );
    }

    #[test]
    fn each_difference_is_listed_once_with_one_sentence() {
        let mut seen = HashSet::new();
        for difference in DIFFERENCES {
            for mode in difference.modes {
                assert!(seen.insert((difference.test, mode)), "{}", difference.test);
            }
            assert!(difference.test.contains("::"), "{}", difference.test);
            assert!(!difference.modes.is_empty(), "{}", difference.test);
            assert!(!difference.modes.contains(&Mode::Tokio));
            assert!(!difference.why.is_empty() && !difference.why.ends_with('.'));
        }
        assert!(expected("rt_metrics::no_such_test", Mode::Watched).is_none());
        assert!(expected("rt_metrics::num_workers", Mode::Watched).is_some());
    }
}
