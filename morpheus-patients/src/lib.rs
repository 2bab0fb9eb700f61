//! Services on plain tokio with one planted fault each: what `scx_morpheus doctor` is tried on.
//!
//! Each program in `src/bin` has an ordinary handler that calls an ordinary function, and that function computes or blocks
//! for longer than a poll may take. The line at fault ends with the comment `// CULPRIT`; [`PATIENTS`] says which
//! function that is and what its thread does there. Beside it every program serves healthy [`traffic`].
//!
//! The functions at fault are `#[inline(never)]`: an inlined function has no symbol, and cannot be named without debug
//! information. None of them ends with the call at fault, because a tail call leaves no frame on the stack.
#![warn(missing_docs)]

pub mod beside;
pub mod clock;
pub mod handler;
pub mod name_server;
mod patients;
pub mod pipe;
pub mod service;
pub mod traffic;
pub mod work;

pub use patients::{
    CROWD, CULPRIT, Fault, LABELLED, PATIENTS, Patient, VICTIM, culprit_line, victim_line,
};
