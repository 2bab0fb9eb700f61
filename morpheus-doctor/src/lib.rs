//! Finds the line that blocks a running tokio process.
#![warn(missing_docs)]

pub mod model;
