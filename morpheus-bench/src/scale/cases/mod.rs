//! What is measured, each in a child process of its own: see [`super::case`].

mod contention;
mod deadline;
mod ipc;
mod launch;
mod messaging;
mod pcpu;
mod runtime;
mod soak;
mod stress;
mod throughput;
mod wake;

use super::case::Case;
use super::child::{Answer, Job};

/// Measures. Whatever was started has ended when this returns.
pub fn measure(job: &Job) -> Answer {
    match job.case {
        Case::Throughput => throughput::measure(job),
        Case::Latency => wake::latency(job),
        Case::Burst => wake::burst(job),
        Case::Longrun => wake::longrun(job),
        Case::Mixed => wake::mixed(job),
        Case::Deadline => deadline::measure(job),
        Case::Ipc => ipc::round_trip(job),
        Case::Launch => launch::measure(job),
        Case::Messaging => messaging::measure(job),
        Case::Pipe => ipc::pipe(job),
        Case::Regimes => contention::regimes(job),
        Case::Sojourn => contention::sojourn(job),
        Case::LongrunShares => contention::longrun_shares(job),
        Case::BurstRecovery => contention::burst_recovery(job),
        Case::IoBatch => contention::io_batch(job),
        Case::Hotplug => contention::hotplug(job),
        Case::WakeBurst => pcpu::wake_burst(job),
        Case::Steal => pcpu::steal(job),
        Case::Rescue => pcpu::rescue(job),
        Case::Stress | Case::TracedStress => stress::measure(job),
        Case::Soak => soak::measure(job),
        Case::RuntimeHogs2
        | Case::RuntimeHogs6
        | Case::RuntimeHogs20
        | Case::RuntimeWatched2
        | Case::RuntimeWatched6
        | Case::RuntimeWatched20
        | Case::RuntimeServer
        | Case::RuntimeServerHogs => runtime::measure(job),
        Case::Reload => Err("the parent does this, who may start schedulers".into()),
    }
}
