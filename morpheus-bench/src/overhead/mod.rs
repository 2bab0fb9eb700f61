//! The benchmark `overhead`: what a preemption, a migration and the cold cache after one cost.
//!
//! `main` reads the command line; `preemption`, `migration` and `cache` are the three measurements, each of which takes
//! turns by `experiment` in a thread that `conditions` has prepared (pinned, real-time and in locked memory where that is
//! permitted, and if not the output says so). `statistics` is what a figure is made of, `table` how it is shown.
//!
//! Every cost is a difference: the thing itself minus the same without it (the switch minus the yield that switches to
//! nobody, the migration minus the call that changes nothing, the walk over another core's lines minus that over own ones).
//! Both are measured in every experiment in the order A B B A, so that a machine that becomes slower favours neither, and
//! beside each difference stands A/A, that of two measurements of the same.

pub mod cache;
pub mod migration;
pub mod preemption;
pub mod statistics;

mod conditions;
mod cpu;
mod experiment;
mod main;
mod random;
mod table;

pub use crate::report::WIDTH;
pub use main::main;
