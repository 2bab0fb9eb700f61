//! On which CPU a thread runs, and with which policy of the kernel's.

use std::io;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::neighbours::Neighbours;

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
    // SAFETY: all zeroes is a valid sched_param (its only field on Linux is a number).
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: `parameter` is initialised and outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, number, &parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs that this process may use, in order.
pub fn allowed() -> Vec<u32> {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is as large as is said, and outlives the call.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return vec![0];
    }
    (0..libc::CPU_SETSIZE as u32)
        // SAFETY: the index is below the set's size.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) })
        .collect()
}

/// Keeps a thread (0: the calling one) to these CPUs.
///
/// # Errors
/// When it may use none of them, or there is no such thread.
pub fn pin(thread: u32, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: the index is below the set's size.
        unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
    }
    // SAFETY: `set` is as large as is said, and outlives the call.
    match unsafe { libc::sched_setaffinity(thread as libc::pid_t, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// So many busy processes on these CPUs, in turn. They end with the value, and with this process.
///
/// # Errors
/// When one cannot be started or moved there.
pub fn load(count: usize, cpus: &[u32]) -> Result<Neighbours, String> {
    let neighbours = Neighbours::start(count, || Command::new("/proc/self/exe"))
        .map_err(|error| format!("no load on the other CPUs: {error}"))?;
    for (pid, cpu) in neighbours.pids().into_iter().zip(cpus.iter().cycle()) {
        pin(pid, &[*cpu]).map_err(|error| format!("no load on CPU {cpu}: {error}"))?;
    }
    Ok(neighbours)
}

/// Who schedules ordinary threads: a sched_ext scheduler by its name, or the kernel's own.
pub fn scheduler() -> String {
    let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    match ops.trim() {
        "" => KERNELS_OWN.into(),
        name => name.into(),
    }
}

/// What [`scheduler`] says where no other one is loaded.
pub const KERNELS_OWN: &str = "kernel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let all = allowed();
        let last = *all.last().unwrap();
        std::thread::spawn(move || {
            pin(0, &[last]).unwrap();
            assert_eq!(allowed(), [last]);
            assert!(pin(0, &[]).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(allowed(), all);
    }

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
