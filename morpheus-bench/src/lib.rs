//! Benchmarks for Morpheus: what a stuck task costs the others, measured beside tokio, smol and Go.
//!
//! The pieces that every benchmark needs live at the top: clocks and calibrated work ([`clock`],
//! [`work`]), histograms that refuse to give a percentile from too few samples ([`histogram`]), TCP
//! clients at a fixed rate ([`load`]), facts about the machine ([`host`]), words for people
//! ([`report`]) and one trait over the runtimes ([`executor`]). The benchmark `starvation` is built
//! from them in [`starvation`], and [`kernel`] compares schedulers by calling that. [`governor`] measures
//! what frequency governors do to light periodic work.
#![warn(missing_docs)]

pub mod clock;
pub mod executor;
pub mod governor;
pub mod histogram;
pub mod host;
pub mod interrupt;
pub mod kernel;
pub mod load;
pub mod neighbours;
pub mod order;
pub mod progress;
pub mod report;
pub mod starvation;
pub mod thread;
pub mod work;
