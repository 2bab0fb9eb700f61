//! The summary: the table of labels and the stacks that `MORPHEUS_SUMMARY=1` prints when the process exits.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::report::label::{self, Label};
use crate::report::stacks;

/// Whether `MORPHEUS_SUMMARY=1` is set.
pub(crate) fn wants_summary() -> bool {
    std::env::var_os("MORPHEUS_SUMMARY").is_some_and(|value| value == "1")
}

/// The process that last built a runtime. A child that it forks exits with the same handler, and with locks that may be held for
/// ever.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Prints the summary when the process exits, if `MORPHEUS_SUMMARY=1` is set.
pub(crate) fn at_exit() {
    static ONCE: Once = Once::new();
    // Relaxed: pairs with the load in `print_summary`, and the C library's lock on its list of handlers orders the two.
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    ONCE.call_once(|| {
        if wants_summary() {
            // SAFETY: the handler touches only leaked labels and stderr, which outlive every thread.
            unsafe { libc::atexit(print_summary) };
        }
    });
}

extern "C" fn print_summary() {
    // Relaxed: see `at_exit`.
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    // A panic must not cross into C, and at exit there is no receiver for it, nor for an error of standard error.
    let _ = std::panic::catch_unwind(|| {
        let both = format!("{}{}", summary(), stacks::summary());
        std::io::stderr().write_all(both.as_bytes())
    });
}

/// Returns the table of labels, with the most stalled polls first.
pub(crate) fn summary() -> String {
    let counts = |label: &Label| (label.totals.stalled_polls.get(), label.totals.polls.get());
    let mut labels: Vec<&Label> = label::all()
        .filter(|label| counts(label) != (0, 0))
        .collect();
    labels.sort_by_key(|label| std::cmp::Reverse(counts(label)));
    let mut table = String::from("morpheus: labels of watched tasks\n");
    let _ = writeln!(
        table,
        "  {:>10} {:>8} {:>11} {:>8} {:>8} {:>9}  label",
        "polls", "stalled", "longest", "blocked", "running", "CPU hog"
    );
    for label in labels {
        let ((stalled, polls), blocked) = (counts(label), label.totals.stalled_blocked.get());
        let is_hog = label.totals.hog_ratings.get() > 0 || label.totals.hog_polls.get() > 0;
        let _ = writeln!(
            table,
            "  {:>10} {:>8} {:>8.1} ms {:>8} {:>8} {:>9}  {}",
            polls.max(stalled),
            stalled,
            label.totals.longest_ns.get() as f64 / 1e6,
            blocked,
            stalled - blocked.min(stalled),
            if is_hog { "yes" } else { "no" },
            label.origin(),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::label::Origin;

    #[test]
    fn the_summary_names_the_stalled_label() {
        let label = label::of(Origin::Named("report summary"));
        label.totals.count_stalled(true);
        label.saw_duration(7_000_000);
        let summary = summary();
        let line = summary
            .lines()
            .find(|line| line.ends_with("report summary"))
            .unwrap();
        assert!(line.contains("7.0 ms"), "{line}");
    }
}
