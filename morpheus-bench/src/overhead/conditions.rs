//! Under which conditions something was measured, and a thread that has them.

use crate::cpus;
use std::panic;

use serde::Serialize;

use super::cpu::{self, Policy};

/// The policy of measuring threads where that is permitted.
pub const FIFO: &str = "SCHED_FIFO";

/// What the measuring threads have, and what they were refused.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The CPUs that are used, the source of migrations first.
    pub cpus: Vec<usize>,
    /// `SCHED_FIFO` where permitted, else `SCHED_OTHER`.
    pub policy: &'static str,
    /// Whether all memory was locked.
    pub memory_locked: bool,
    /// What could not be had, and what that means. Empty when everything could.
    pub notes: Vec<String>,
}

impl Conditions {
    /// Calls `measure` in a thread of its own: pinned to the first of `cpus`, real-time where that is permitted. Threads
    /// that it starts inherit both.
    ///
    /// # Errors
    /// When the thread cannot be started or pinned, and those of `measure`.
    pub fn measure<T: Send>(
        cpus: &[usize],
        measure: impl FnOnce(&mut Conditions) -> Result<T, String> + Send,
    ) -> Result<(Conditions, T), String> {
        let mut conditions = Conditions {
            cpus: cpus.to_vec(),
            policy: "SCHED_OTHER",
            memory_locked: false,
            notes: Vec::new(),
        };
        let first = *cpus.first().ok_or("no CPU to measure on")?;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                cpus::pin(first)?;
                match cpu::set_policy(Policy::Fifo) {
                    Ok(()) => conditions.policy = FIFO,
                    Err(error) => conditions.notes.push(format!(
                        "No real-time priority ({error}): measured as SCHED_OTHER, others may come between. It needs \
                         CAP_SYS_NICE or a limit (ulimit -r) of 80."
                    )),
                }
                measure(&mut conditions)
            });
            let thread = thread.map_err(|error| format!("no thread to measure in: {error}"))?;
            thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
        .map(|measured| (conditions, measured))
    }

    /// Locks all memory that is there by now, or notes that it may not.
    pub fn lock_memory(&mut self) {
        match cpu::lock_memory() {
            Ok(()) => self.memory_locked = true,
            Err(error) => self.notes.push(format!(
                "Memory is not locked ({error}): page faults may come between. It needs CAP_IPC_LOCK or a higher limit \
                 (ulimit -l)."
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_threads_are_pinned_and_what_is_refused_is_noted() {
        let cpus = cpus::allowed();
        let (conditions, on) = Conditions::measure(&cpus[..1], |_| Ok(cpus::allowed())).unwrap();
        assert_eq!(on, cpus[..1]);
        assert_eq!(conditions.notes.is_empty(), conditions.policy == FIFO);
        assert_eq!(cpus::allowed(), cpus, "the caller stays as it was");
    }

    #[test]
    fn errors_come_through() {
        assert!(Conditions::measure(&[], |_| Ok(())).is_err());
        assert!(Conditions::measure(&[100_000], |_| Ok(())).is_err());
        let cpus = cpus::allowed();
        let result = Conditions::measure(&cpus[..1], |_| Err::<(), _>("why".into()));
        assert_eq!(result.unwrap_err(), "why");
    }
}
