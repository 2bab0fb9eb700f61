//! The benchmark `governor`: what the CPU's frequency governor does to periodic real-time work.
//!
//! `main` reads the command line (`config`). `run` sets each governor (`sysfs`), having written down what is to be
//! put back (`state`), and measures each kernel of `signal` on one CPU (`measure`, `placement`) while frequencies
//! are logged (`frequency`). In the column with Morpheus's scheduler (`daemon`) the kernels run on one of its workers
//! (`worker`). Each run is put into files (`record`) and among the `figures`. `actions` has the smaller commands.

mod actions;
mod config;
mod daemon;
mod figures;
mod frequency;
mod main;
mod measure;
mod placement;
mod record;
mod run;
mod signal;
mod state;
mod sysfs;
mod worker;

pub use main::main;
