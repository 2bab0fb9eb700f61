//! Supervision: restarts a thread of this crate that panics, and gives up where that does not help.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock;

/// A thread restarts up to this many times within [`WINDOW_NS`]; the next panic ends it.
const RESTARTS: usize = 3;
const WINDOW_NS: u64 = 60 * clock::SECOND_NS;

/// The times of one thread's restarts in the last minute, in nanoseconds.
#[derive(Debug, Default)]
struct Restarts(Vec<u64>);

impl Restarts {
    /// Counts a restart and returns true, if the limit allows one.
    fn may_restart(&mut self, now_ns: u64) -> bool {
        self.0
            .retain(|at_ns| now_ns.saturating_sub(*at_ns) < WINDOW_NS);
        let may = self.0.len() < RESTARTS;
        if may {
            self.0.push(now_ns);
        }
        may
    }
}

/// Runs `body` until it returns, and again after a panic. Returns whether `body` returned: false after too
/// many panics.
///
/// `panicked` is called for each panic with its text, and with whether `body` runs again. The panic destroys
/// the state of `body`, so `body` builds it anew from what outlives it.
pub fn supervise(mut body: impl FnMut(), mut panicked: impl FnMut(&str, bool)) -> bool {
    let mut restarts = Restarts::default();
    loop {
        let Err(panic) = catch_unwind(AssertUnwindSafe(&mut body)) else {
            return true;
        };
        let restarts = restarts.may_restart(clock::now_ns());
        panicked(text_of(&*panic), restarts);
        dismiss(panic);
        if !restarts {
            return false;
        }
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text")
}

/// Drops the payload of a panic. A payload of the application's may panic in turn when it is dropped.
pub fn dismiss(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_restarts_in_a_minute_and_no_more() {
        let mut restarts = Restarts::default();
        let second = clock::SECOND_NS;
        for at in [1, 2, 3] {
            assert!(restarts.may_restart(at * second));
        }
        assert!(!restarts.may_restart(60 * second));
        assert!(
            restarts.may_restart(61 * second),
            "the first is a minute old"
        );
        assert!(!restarts.may_restart(61 * second));
    }

    #[test]
    fn a_body_that_returns_is_done() {
        let mut runs = 0;
        let mut reported = Vec::new();
        let returned = supervise(
            || {
                runs += 1;
                assert!(runs > 2, "run {runs}");
            },
            |text, restarts| reported.push((text.to_owned(), restarts)),
        );
        assert!(returned);
        assert_eq!(
            reported,
            [("run 1".to_owned(), true), ("run 2".to_owned(), true)]
        );
    }

    #[test]
    fn a_body_that_always_panics_is_given_up() {
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                panic!("in the destructor of a panic, on purpose");
            }
        }
        let mut runs = 0;
        let returned = supervise(
            || {
                runs += 1;
                std::panic::panic_any(Worse);
            },
            |text, _| assert_eq!(text, "a panic without a text"),
        );
        assert!(!returned);
        assert_eq!(runs, RESTARTS + 1);
    }
}
