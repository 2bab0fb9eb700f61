//! The measurements, each in a child process of its own: [`super::case`] says which function is for which case.

pub mod bounds;
pub mod contention;
pub mod deadline;
pub mod groups;
pub mod ipc;
pub mod launch;
pub mod messaging;
pub mod pcpu;
pub mod runtime;
pub mod soak;
pub mod spread;
pub mod stress;
pub mod throughput;
pub mod wake;
