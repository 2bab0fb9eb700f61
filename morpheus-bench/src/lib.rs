//! Benchmarks for Morpheus: what a stalled task costs the others, measured beside tokio, smol and Go.
//!
//! A directory for each benchmark; `morpheus-harness` has what they share around the measurement. The pieces of measurements lie at
//! the top: calibrated work ([`work`]), deadlines that do not drift ([`pace`]), wakes from outside of a runtime ([`wake`]), TCP
//! clients at a fixed rate ([`load`]), busy processes beside it ([`neighbours`]), the ways to write code that blocks ([`code`]) and
//! to tune tokio for it ([`tuned`]), one trait over the runtimes ([`executor`]); CPUs, policies and schedulers ([`cpus`], [`policy`],
//! [`scx`]). The benchmark `starvation` is built from them in [`starvation`]; [`scale`] compares schedulers by what the
//! whole machine does, and by calling that. [`jitter`] measures how late a sleeping thread wakes, [`latency`] response times at a
//! fixed rate on the runtime, [`overhead`] what the kernel and the caches charge for a switch and a migration, [`governor`] what
//! frequency governors do to light periodic work, [`liar`] what critical sections cost and what lying about them gains,
//! [`compare`] what the runtime costs beside tokio where no poll stalls, [`footprint`] what it takes of memory, [`loops`] what
//! checkpoints cost loops, [`instructions`] how many instructions the hot path takes. [`service`] drives a real service with a
//! real load generator.
#![warn(missing_docs)]

pub mod begin;
mod bustle;
pub mod code;
pub mod compare;
pub mod cpus;
pub mod escalation;
pub mod executor;
pub mod flagged;
pub mod footprint;
pub mod governor;
mod http;
pub mod instructions;
pub mod jitter;
pub mod latency;
pub mod liar;
pub mod load;
pub mod loops;
pub mod neighbours;
pub mod overhead;
pub mod pace;
pub mod policy;
mod random;
pub mod scale;
pub mod scx;
pub mod service;
pub mod starvation;
pub mod tuned;
pub mod wake;
pub mod work;
