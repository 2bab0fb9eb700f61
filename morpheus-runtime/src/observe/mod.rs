//! Observations of the controller: tokio's cores, the slots of watched polls, the canary. (`morpheus-link` reads the kernel's events.)

pub(crate) mod canary;
pub(crate) mod cores;
pub(crate) mod polls;
