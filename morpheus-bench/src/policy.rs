//! Scheduling policies, and what to do when the kernel refuses one.

use std::io;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use morpheus_harness::arguments::name_of;

/// How the kernel schedules a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The ordinary one.
    #[default]
    Other,
    /// Real-time: until it sleeps or yields.
    Fifo,
    /// Real-time: the same, in turns among threads of one priority.
    Rr,
    /// Real-time: a budget of CPU time in every period.
    Deadline,
}

impl Policy {
    /// The kernel's name for it.
    pub fn kernel_name(self) -> String {
        format!("SCHED_{}", name_of(&self).to_uppercase())
    }

    /// That the kernel refuses it, for this reason, and what to do.
    fn refused(self, error: &io::Error) -> String {
        let refused = format!("the kernel refuses the policy {}", name_of(&self));
        let advice = match error.raw_os_error() {
            Some(libc::EPERM) if self == Policy::Deadline => {
                "it needs root (CAP_SYS_NICE), a thread that may run on every CPU of its group, and in a container a \
                 share of real-time bandwidth"
            }
            Some(libc::EPERM) => {
                "it needs root (CAP_SYS_NICE) or a limit for it (ulimit -r, LimitRTPRIO=), and in a container a share \
                 of real-time bandwidth (cpu.rt_runtime_us)"
            }
            Some(libc::EBUSY) => {
                "deadline threads have promised away what CPU time there is; end one, or ask for a longer interval"
            }
            Some(libc::EINVAL) if self == Policy::Deadline => {
                "its period must lie within /proc/sys/kernel/sched_deadline_period_{min,max}_us"
            }
            Some(libc::ENOSYS) => "this kernel was built without it, or a seccomp filter hides it",
            _ => return format!("{refused}: {error}"),
        };
        format!("{refused} ({error}): {advice}")
    }

    /// Puts the calling thread under this policy: `priority` (1 to 99) counts for `fifo` and `rr`, `period` for
    /// `deadline`, which promises a tenth of it as CPU time, and at least 20 µs where that is less than half.
    ///
    /// Threads that it starts do not inherit it (a deadline thread could start none).
    ///
    /// # Errors
    /// When the kernel refuses; the text says what to do.
    pub fn take(self, priority: u32, period: Duration) -> Result<(), String> {
        const RESET_ON_FORK: u64 = 1;
        // The first version of it (48 bytes), which every kernel with the call accepts.
        // SAFETY: all zeroes are numbers.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        attributes.size = size_of::<libc::sched_attr>() as u32;
        attributes.sched_flags = RESET_ON_FORK;
        match self {
            Self::Other => return Ok(()),
            Self::Fifo | Self::Rr => {
                let policy = [libc::SCHED_FIFO, libc::SCHED_RR][usize::from(self == Self::Rr)];
                attributes.sched_policy = policy as u32;
                attributes.sched_priority = priority;
            }
            Self::Deadline => {
                let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
                attributes.sched_policy = libc::SCHED_DEADLINE as u32;
                attributes.sched_runtime = runtime_ns(period_ns);
                attributes.sched_deadline = period_ns;
                attributes.sched_period = period_ns;
            }
        }
        // SAFETY: `attributes` is readable for the size that stands in it; 0 is the calling thread.
        let failed =
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0;
        match failed {
            true => Err(self.refused(&io::Error::last_os_error())),
            false => Ok(()),
        }
    }
}

/// Gives the calling thread a policy by its number; `priority` is 0 but for the real-time ones.
///
/// # Errors
/// When the kernel refuses it.
pub fn set(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sched_param, on C libraries where it has more fields, too.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: `parameter` outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn runtime_ns(period_ns: u64) -> u64 {
    (period_ns / 10).max(20_000).min(period_ns / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_leave_room_for_others() {
        assert_eq!(
            [100_000, 30_000, 10_000_000].map(runtime_ns),
            [20_000, 15_000, 1_000_000]
        );
    }

    #[test]
    fn the_ordinary_policy_is_never_refused() {
        assert!(Policy::Other.take(0, Duration::ZERO).is_ok());
    }

    /// Whether it may or not, the kernel is asked, and priorities beyond its range it refuses for sure.
    #[test]
    fn refusals_say_what_to_do() {
        let taken = std::thread::spawn(|| Policy::Fifo.take(1_000, Duration::ZERO));
        let error = taken.join().unwrap().unwrap_err();
        assert!(
            error.starts_with("the kernel refuses the policy fifo"),
            "{error}"
        );
        let refused = |policy: Policy, code| policy.refused(&io::Error::from_raw_os_error(code));
        assert!(refused(Policy::Rr, libc::EPERM).contains("ulimit -r"));
        assert!(refused(Policy::Deadline, libc::EBUSY).contains("longer interval"));
    }
}
