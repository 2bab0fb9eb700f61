//! What is measured, each in a child process of its own: see [`super::case`].

mod deadline;
mod ipc;
mod launch;
mod messaging;
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
    }
}
