//! The thread that sleeps.

use std::ptr;
use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::{interrupt, thread};

use crate::cpus;
use crate::pace::Pace;
use crate::policy::Policy;

/// The system call that a thread sleeps in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Call {
    /// `clock_nanosleep` until a time.
    #[default]
    Nanosleep,
    /// `pselect` on nothing, for the time that is left.
    Select,
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeper {
    /// For how long.
    pub interval: Duration,
    /// By what call.
    pub call: Call,
    /// The timer slack that it asks for.
    pub slack_ns: u64,
    /// Whether each sleep begins when the one before is over.
    pub relative: bool,
    /// How it is scheduled.
    pub policy: Policy,
    /// With which priority.
    pub priority: u8,
    /// Where.
    pub cpu: Option<usize>,
}

/// The measurements of a thread.
#[derive(Clone, Debug, Default)]
pub struct Slept {
    /// How late each wake was.
    pub lateness_ns: Vec<u64>,
    /// Its thread id.
    pub tid: i32,
    /// The timer slack that it had.
    pub slack_ns: u64,
}

impl Sleeper {
    /// Sleeps on the calling thread until `enough` says so of a lateness, or Ctrl-C; `expected` wakes have room.
    ///
    /// # Errors
    /// When the kernel refuses the policy or the CPU.
    pub fn run(
        &self,
        expected: usize,
        mut enough: impl FnMut(usize, u64) -> bool,
    ) -> Result<Slept, String> {
        thread::set_timer_slack(self.slack_ns as libc::c_ulong);
        if let Some(cpu) = self.cpu {
            cpus::pin(cpu).map_err(|error| format!("--cpu: {error}"))?;
        }
        self.policy.take(self.priority.into(), self.interval)?;
        let interval_ns = self.interval.as_nanos() as u64;
        // Written once, so that no page fault falls into what is measured.
        let mut lateness_ns = vec![u64::MAX; expected];
        lateness_ns.clear();
        let mut pace = Pace::every(monotonic_ns(), interval_ns);
        while !interrupt::happened() {
            let due_ns = if self.relative {
                monotonic_ns() + interval_ns
            } else {
                pace.take()
            };
            if !self.call.sleep_until(due_ns) {
                break;
            }
            let late_ns = monotonic_ns().saturating_sub(due_ns);
            lateness_ns.push(late_ns);
            if enough(lateness_ns.len(), late_ns) {
                break;
            }
        }
        Ok(Slept {
            lateness_ns,
            tid: thread::id(),
            slack_ns: thread::timer_slack_ns(),
        })
    }
}

impl Call {
    /// Sleeps until a time of [`monotonic_ns`]; false when Ctrl-C ended it before that.
    pub fn sleep_until(self, at_ns: u64) -> bool {
        loop {
            let over = match self {
                Self::Nanosleep => {
                    let at = timespec(at_ns);
                    // SAFETY: `at` is readable; the remaining time of an absolute sleep is not asked for.
                    let error = unsafe {
                        libc::clock_nanosleep(
                            libc::CLOCK_MONOTONIC,
                            libc::TIMER_ABSTIME,
                            &at,
                            ptr::null_mut(),
                        )
                    };
                    error == 0
                }
                Self::Select => {
                    let left = timespec(at_ns.saturating_sub(monotonic_ns()));
                    let none = ptr::null_mut();
                    // SAFETY: no descriptors, no signal mask; `left` is readable.
                    unsafe { libc::pselect(0, none, none, none, &left, ptr::null()) == 0 }
                }
            };
            if over {
                return true;
            }
            if interrupt::happened() {
                return false;
            }
        }
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_calls_sleep_at_least_until_their_time() {
        for call in [Call::Nanosleep, Call::Select] {
            let at_ns = monotonic_ns() + 3_000_000;
            assert!(call.sleep_until(at_ns));
            assert!(monotonic_ns() >= at_ns, "{call:?}");
            // A time that has passed is no sleep.
            assert!(call.sleep_until(at_ns));
        }
    }

    #[test]
    fn the_thread_has_the_slack_and_counts_every_wake() {
        let sleeper = Sleeper {
            interval: Duration::from_micros(500),
            call: Call::Nanosleep,
            slack_ns: 7_000,
            relative: false,
            policy: Policy::Other,
            priority: 1,
            cpu: None,
        };
        let started_ns = monotonic_ns();
        let slept = std::thread::spawn(move || sleeper.run(20, |n, _| n == 20))
            .join()
            .unwrap()
            .unwrap();
        assert_eq!((slept.lateness_ns.len(), slept.slack_ns), (20, 7_000));
        assert!(monotonic_ns() - started_ns >= 10_000_000);
        let nowhere = Sleeper {
            cpu: Some(1_023),
            ..sleeper
        };
        assert!(
            nowhere
                .run(1, |_, _| true)
                .unwrap_err()
                .contains("CPU 1023")
        );
    }
}
