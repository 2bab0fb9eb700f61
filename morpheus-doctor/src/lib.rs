//! Finds the line that blocks a running tokio process.
#![warn(missing_docs)]

pub mod anatomy;
pub mod arguments;
mod bounded;
pub mod counter;
mod debug_file;
pub mod diagnosis;
mod frame;
pub mod labels;
pub mod locations;
pub mod memory;
pub mod model;
mod modules;
pub mod names;
pub mod report;
pub mod run;
pub mod sampler;
pub mod source;
pub mod structure;
pub mod target;
pub mod unwind;
pub mod waits;

// The made-up reports of the tests use the same paths here and in `tests/`.
#[cfg(test)]
extern crate self as morpheus_doctor;
