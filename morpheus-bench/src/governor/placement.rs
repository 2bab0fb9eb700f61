//! On which CPU a thread runs, and with which policy of the kernel's.

use std::io;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;
use crate::host;
use crate::neighbours::Neighbours;
use crate::policy;

/// Scheduling policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// `SCHED_OTHER`: as every other thread
    Other,
    /// `SCHED_FIFO`: real time, until it sleeps
    Fifo,
    /// `SCHED_RR`: real time, in turns with its equals
    Rr,
}

impl Policy {
    /// As people know it.
    pub fn text(self) -> &'static str {
        match self {
            Policy::Other => "SCHED_OTHER",
            Policy::Fifo => "SCHED_FIFO",
            Policy::Rr => "SCHED_RR",
        }
    }
}

/// Gives the calling thread a policy; `priority` is for the real-time ones.
///
/// # Errors
/// When the kernel refuses it.
pub fn set_policy(policy: Policy, priority: u8) -> io::Result<()> {
    let (number, priority) = match policy {
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Fifo => (libc::SCHED_FIFO, priority.into()),
        Policy::Rr => (libc::SCHED_RR, priority.into()),
    };
    policy::set(number, priority)
}

/// So many busy processes on these CPUs, in turn. They end with the value, and with this process.
///
/// # Errors
/// When one cannot be started or moved there.
pub fn load(count: usize, cpus: &[usize]) -> Result<Neighbours, String> {
    let neighbours = Neighbours::start(count, || Command::new("/proc/self/exe"))
        .map_err(|error| format!("no load on the other CPUs: {error}"))?;
    for (pid, cpu) in neighbours.pids().into_iter().zip(cpus.iter().cycle()) {
        Cpus::of(&[*cpu])
            .give_to(pid)
            .map_err(|error| format!("no load on CPU {cpu}: {error}"))?;
    }
    Ok(neighbours)
}

/// Who schedules ordinary threads: a sched_ext scheduler by its name, or the kernel's own.
pub fn scheduler() -> String {
    host::scheduler().unwrap_or_else(|| KERNELS_OWN.into())
}

/// What [`scheduler`] says where no other one is loaded.
pub const KERNELS_OWN: &str = "kernel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_may_stay_one_and_no_priority_is_above_99() {
        std::thread::spawn(|| {
            assert!(set_policy(Policy::Other, 50).is_ok());
            assert!(set_policy(Policy::Fifo, 100).is_err());
        })
        .join()
        .unwrap();
    }
}
