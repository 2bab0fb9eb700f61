//! The CPU time that the host of a virtual machine takes away.

use std::fs;

/// CPU time that the host has taken from this machine's CPUs since it began, in steps of a tick: 10 ms on most systems. None where the
/// kernel does not tell; 0 on a machine of its own.
pub fn stolen_ns() -> Option<u64> {
    // SAFETY: `sysconf` takes any number and touches no memory of its caller; this one asks for a constant of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let ticks_per_second = u64::try_from(ticks_per_second).ok()?;
    let tick_ns = 1_000_000_000_u64.checked_div(ticks_per_second)?;
    let ticks = stolen_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(ticks.saturating_mul(tick_ns))
}

/// The eighth number of the first line: user, nice, system, idle, iowait, irq, softirq, steal.
fn stolen_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        assert_eq!(
            stolen_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1\n"),
            Some(88)
        );
        for stat in [
            "",
            "cpu  1 2 3",
            "cpu  1 2 3 4 5 6 7 x 9 10",
            "cpu0 1 2 3 4 5 6 7 8",
        ] {
            assert_eq!(stolen_ticks(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn this_system_tells() {
        let first = stolen_ns().unwrap();
        assert!(stolen_ns().unwrap() >= first);
    }
}
