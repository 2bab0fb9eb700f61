//! Adds up what passed, failed and was skipped.

use std::fmt;
use std::ops::AddAssign;

use morpheus_testing::{ELSEWHERE, SKIPPED};

/// How much of each outcome there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) const PASSED: Counts = Counts {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    pub(crate) const FAILED: Counts = Counts {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    pub(crate) const SKIPPED: Counts = Counts {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// The outcome of a command that is no test run.
    pub(crate) fn of_command(success: bool) -> Counts {
        if success {
            Counts::PASSED
        } else {
            Counts::FAILED
        }
    }

    /// The outcome of a `cargo test`: the sum of its `test result:` lines; ignored tests count as skipped.
    ///
    /// A test that cannot run where it was started prints a line that says so (`morpheus-testing`), and libtest calls it
    /// passed. Here it counts as skipped, and a test that a guest runs counts there alone.
    ///
    /// A run that failed without a failed test (it did not compile, it was killed) counts as one failure, and so does one
    /// in which no test ran at all: a wrong `cfg` must not look like success.
    pub(crate) fn of_tests(success: bool, output: &str) -> Counts {
        let mut counts = Counts::default();
        let mut not_run = 0;
        for line in output.lines() {
            if let Some(result) = parse_result(line) {
                counts += result;
            } else if line.starts_with(SKIPPED) {
                not_run += 1;
                counts.skipped += 1;
            } else if line.starts_with(ELSEWHERE) {
                not_run += 1;
            }
        }
        let nothing_ran = counts.passed == 0 && counts.failed == 0;
        counts.passed = counts.passed.saturating_sub(not_run);
        if counts.failed == 0 && (!success || nothing_ran) {
            counts.failed = 1;
        }
        counts
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; …`, libtest's last line.
fn parse_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in numbers.split(';') {
        let Some((number, word)) = part.trim().split_once(' ') else {
            continue;
        };
        let slot = match word {
            "passed" => &mut counts.passed,
            "failed" => &mut counts.failed,
            "ignored" => &mut counts.skipped,
            _ => continue,
        };
        *slot = number.parse().ok()?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    const TWO_BINARIES: &str = "
     Running unittests src/lib.rs (target/debug/deps/common-1)

running 3 tests
test result: of a test is no result
test a ... ok

test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s

     Running tests/abi.rs (target/debug/deps/abi-2)

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s
  test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn results_of_several_binaries_are_summed() {
        assert_eq!(Counts::of_tests(false, TWO_BINARIES), counts(4, 2, 1));
    }

    #[test]
    fn a_success_is_what_the_lines_say() {
        let output = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(Counts::of_tests(true, output), counts(12, 0, 0));
    }

    #[test]
    fn a_failure_without_a_failed_test_counts_once() {
        assert_eq!(
            Counts::of_tests(false, "error: could not compile"),
            counts(0, 1, 0)
        );
        let killed = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(Counts::of_tests(false, killed), counts(2, 1, 0));
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        assert_eq!(Counts::of_tests(true, ""), counts(0, 1, 0));
        let empty = "test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.0s";
        assert_eq!(Counts::of_tests(true, empty), counts(0, 1, 3));
    }

    #[test]
    fn a_test_that_cannot_run_has_not_passed() {
        let output = "
running 4 tests
test a ... 
SKIPPED: needs root
ok

NOT RUN HERE: needs a guest of its own (cargo xtask vm)
test b ... says SKIPPED: in its name ... ok

test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
";
        assert_eq!(Counts::of_tests(true, output), counts(2, 0, 1));
        let all = "\nSKIPPED: no redis\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::of_tests(true, all), counts(0, 0, 1));
    }

    #[test]
    fn lines_that_are_no_results() {
        for line in [
            "test result: of a test",
            "a test result: ok. 1 passed; 0 failed",
            "test result: ok. many passed; 0 failed",
        ] {
            assert_eq!(parse_result(line), None, "{line}");
        }
    }

    #[test]
    fn the_last_line() {
        assert_eq!(counts(5, 0, 0).to_string(), "5 passed, 0 failed");
        assert_eq!(counts(5, 1, 2).to_string(), "5 passed, 1 failed, 2 skipped");
        let mut sum = Counts::of_command(true);
        sum += Counts::of_command(false);
        sum += Counts::SKIPPED;
        assert_eq!(sum, counts(1, 1, 1));
    }
}
