//! The other load of the CPUs: busy processes, and the scheduler.

use morpheus_harness::host;

use crate::cpus::Cpus;
use crate::neighbours::Neighbours;

/// Starts `count` busy processes on these CPUs, in turn. They end with the value, and with this process.
///
/// # Errors
/// When one cannot be started or moved there.
pub fn load(count: usize, cpus: &[usize]) -> Result<Neighbours, String> {
    let neighbours = Neighbours::own(count)?;
    for (pid, cpu) in neighbours.pids().into_iter().zip(cpus.iter().cycle()) {
        Cpus::of(&[*cpu])
            .give_to(pid)
            .map_err(|error| format!("no load on CPU {cpu}: {error}"))?;
    }
    Ok(neighbours)
}

/// The scheduler of ordinary threads: a sched_ext scheduler by its name, or the kernel's own.
pub fn scheduler() -> String {
    host::scheduler().unwrap_or_else(|| KERNELS_OWN.into())
}

/// The answer of [`scheduler`] where no other one is loaded.
pub const KERNELS_OWN: &str = "kernel";
