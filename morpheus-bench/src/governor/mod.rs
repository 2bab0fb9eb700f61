//! The benchmark `governor`: what the CPU's frequency governor does to periodic real-time work.
//!
//! `main` reads the command line (`config`). `run` sets each governor (`sysfs`), having written down what is to be
//! put back (`state`), and measures each kernel of `signal` on one CPU (`measure`, `placement`) while frequencies
//! are logged (`frequency`). In the column with Morpheus's scheduler (`daemon`) the kernels run on one of its workers
//! (`worker`). What comes out is in files (`record`), which `analyse` turns into figures, `trap` into a verdict and
//! `table` into text. `actions` has the smaller commands.

mod actions;
pub(crate) mod analyse;
mod config;
mod daemon;
pub(crate) mod frequency;
mod main;
mod measure;
mod placement;
pub(crate) mod record;
mod run;
mod signal;
mod state;
mod sysfs;
mod table;
mod trap;
mod worker;

pub use main::main;
