//! The benchmark `governor`: what the CPU's frequency governor does to periodic real-time work.
//!
//! `main` reads the command line (`config`). `prepare` says what will be measured, or a `refusal` why nothing is. `run` sets
//! each governor (`sysfs`), having written down what is to be put back (`state`), and measures each kernel of `signal` on one
//! CPU (`measure`, `placement`) while frequencies are logged (`frequency`). In the column with Morpheus's scheduler (`daemon`)
//! the kernels run on one of its workers (`worker`). Each run is put into files (`record`) and
//! into the `study`, of which come rows (`figures`) and sentences (`notes`). `actions` has the smaller commands.

mod actions;
mod config;
mod daemon;
mod figures;
mod frequency;
mod main;
mod measure;
mod notes;
mod placement;
mod prepare;
mod record;
mod run;
mod signal;
mod state;
mod study;
mod sysfs;
mod worker;

pub use main::main;
