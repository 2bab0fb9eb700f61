//! The switches that a thread has made.

use std::fs;

use morpheus_harness::thread::{VOLUNTARY_SWITCHES, number_in};

/// How often a thread of this process has left a CPU to another, voluntarily or not. (A yield counts as not: the thread
/// could have gone on.)
///
/// # Errors
/// When there is no such thread, or the kernel does not tell.
pub fn switches(thread: libc::pid_t) -> Result<u64, String> {
    let path = format!("/proc/self/task/{thread}/status");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    switches_in(&text).ok_or_else(|| format!("{path} does not count context switches"))
}

fn switches_in(status: &str) -> Option<u64> {
    let kinds = [VOLUNTARY_SWITCHES, "nonvoluntary_ctxt_switches:"];
    kinds.into_iter().map(|kind| number_in(status, kind)).sum()
}

#[cfg(test)]
mod tests {
    use morpheus_harness::thread;

    use super::*;

    #[test]
    fn switches_are_both_kinds_together() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n";
        assert_eq!(switches_in(status), Some(42));
        assert_eq!(switches_in("Name:\tx\n"), None);
        assert_eq!(switches_in("voluntary_ctxt_switches:\t12\n"), None);
    }

    #[test]
    fn sleeping_is_counted_as_a_switch() {
        let before = switches(thread::id()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(switches(thread::id()).unwrap() > before);
        assert!(switches(1 << 22).is_err());
    }
}
