//! Under which conditions something is measured, and a thread that has them.

use std::panic;

use morpheus_harness::envelope::Envelope;
use rustix::mm::{MlockAllFlags, mlockall};
use serde::Serialize;

use super::cache::Geometry;
use super::config::Options;
use crate::{cpus, policy};

/// The policy of measuring threads where that is permitted.
pub const FIFO: &str = "SCHED_FIFO";
/// Their priority: above everything but the kernel's own threads that must not wait.
const PRIORITY: libc::c_int = 80;

/// The findings, and how they were measured.
pub type Found = Envelope<Config>;

/// The command line, and what the measuring threads were granted.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// The command line; the CPUs are those that are used, the source of migrations first.
    #[serde(flatten)]
    pub options: Options,
    /// `SCHED_FIFO` where permitted, else `SCHED_OTHER`.
    pub policy: &'static str,
    /// Whether all memory was locked.
    pub memory_locked: bool,
    /// The caches of the destination, where they matter.
    #[serde(flatten)]
    pub caches: Option<Geometry>,
}

impl From<Options> for Config {
    fn from(options: Options) -> Self {
        Self {
            options,
            policy: "SCHED_OTHER",
            memory_locked: false,
            caches: None,
        }
    }
}

/// Calls `measure` in a thread of its own: pinned to the first CPU, real-time where that is permitted. Threads that it
/// starts inherit both.
///
/// # Errors
/// When the thread cannot be started or pinned, and those of `measure`.
pub fn under<T: Send>(
    found: &mut Found,
    measure: impl FnOnce(&mut Found) -> Result<T, String> + Send,
) -> Result<T, String> {
    let cpus = &found.config.options.cpus;
    let first = *cpus.first().ok_or("no CPU to measure on")?;
    let names: Vec<String> = cpus.iter().map(usize::to_string).collect();
    found.notes.push(format!("CPU {}.", names.join(" → ")));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            cpus::pin(first)?;
            match policy::set(libc::SCHED_FIFO, PRIORITY) {
                Ok(()) => found.config.policy = FIFO,
                Err(error) => found.notes.push(format!(
                    "No real-time priority ({error}): measured as SCHED_OTHER, others may come between. It needs \
                     CAP_SYS_NICE or a limit (ulimit -r) of 80."
                )),
            }
            measure(found)
        });
        let thread = thread.map_err(|error| format!("no thread to measure in: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

/// Locks all memory that is there by now, or notes that it may not.
pub fn lock_memory(found: &mut Found) {
    match mlockall(MlockAllFlags::CURRENT) {
        Ok(()) => found.config.memory_locked = true,
        Err(error) => found.notes.push(format!(
            "Memory is not locked ({error}): page faults may come between. It needs CAP_IPC_LOCK or a higher limit \
             (ulimit -l)."
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    /// Nothing yet, of `overhead` with these arguments on these CPUs.
    pub fn nothing(arguments: &str, cpus: &[usize]) -> Found {
        let words = std::iter::once("overhead").chain(arguments.split_whitespace());
        let mut options = Options::parse_from(words);
        options.cpus = cpus.to_vec();
        Envelope::new("overhead", Config::from(options))
    }

    #[test]
    fn measuring_threads_are_pinned_and_what_is_refused_is_noted() {
        let cpus = cpus::allowed();
        let mut found = nothing("migration", &cpus[..1]);
        let on = under(&mut found, |_| Ok(cpus::allowed())).unwrap();
        assert_eq!(on, cpus[..1]);
        let is_refused = found
            .notes
            .iter()
            .any(|note| note.contains("No real-time priority"));
        assert_eq!(is_refused, found.config.policy != FIFO);
        assert_eq!(cpus::allowed(), cpus, "the caller stays as it was");
    }

    #[test]
    fn errors_come_through() {
        for cpus in [&[][..], &[100_000]] {
            assert!(under(&mut nothing("migration", cpus), |_| Ok(())).is_err());
        }
        let mut found = nothing("migration", &cpus::allowed()[..1]);
        let result = under(&mut found, |_| Err::<(), _>("why".into()));
        assert_eq!(result.unwrap_err(), "why");
    }
}
