//! Benchmarks for Morpheus: what a stuck task costs the others, measured beside tokio, smol and Go.
//!
//! The pieces that every benchmark needs live at the top. For measuring: clocks and calibrated work ([`clock`], [`work`]),
//! deadlines that do not drift ([`pace`]), wakes from outside of a runtime ([`wake`]), TCP clients at a fixed rate ([`load`]),
//! busy processes beside it ([`neighbours`]), the ways to write code that blocks ([`code`]) and to tune tokio for it ([`tuned`]),
//! one trait over the runtimes ([`executor`]). For judging: histograms that refuse to give a percentile from too few samples and
//! say what they count ([`histogram`], [`hdr_log`]), a warm-up that knows its end ([`settle`]), intervals and pairs ([`stats`],
//! [`pairs`], [`order`]); rows with tables and JSON of one form ([`rows`], [`envelope`], [`mod@unit`]). Around them: facts about
//! the machine ([`host`], [`idle`]), what threads ask of the kernel ([`thread`], [`cpus`], [`policy`]), schedulers ([`scx`]), and
//! words for people ([`report`], [`record`], [`progress`], [`interrupt`], [`arguments`]), and children of the same program
//! ([`supervised`]). The benchmark `starvation` is built from them in [`starvation`]; [`scale`] compares schedulers by what the
//! whole machine does, and by calling that. [`jitter`] measures how late a sleeping thread wakes, [`latency`] response times at a
//! fixed rate on the runtime, [`overhead`] what the kernel and the caches charge for a switch and a migration, [`governor`] what
//! frequency governors do to light periodic work, [`liar`] what critical sections cost and what lying about them gains,
//! [`compare`] what the runtime costs beside tokio where no poll stalls, [`footprint`] what it takes of memory, [`loops`] what
//! checkpoints cost loops, [`instructions`] how many instructions the hot path takes. [`service`] drives a real service with a
//! real load generator. [`page`] makes a page with plots of what they all print.
#![warn(missing_docs)]

pub mod arguments;
pub mod begin;
mod bustle;
pub mod clock;
pub mod code;
pub mod compare;
pub mod cpus;
pub mod envelope;
pub mod escalation;
pub mod executor;
pub mod figures;
pub mod flagged;
pub mod footprint;
pub mod governor;
pub mod hdr_log;
pub mod histogram;
pub mod host;
mod http;
pub mod idle;
pub mod instructions;
pub mod interrupt;
pub mod jitter;
pub mod latency;
pub mod liar;
pub mod load;
pub mod loops;
pub mod neighbours;
pub mod order;
pub mod overhead;
pub mod pace;
pub mod page;
pub mod pairs;
pub mod policy;
pub mod progress;
mod random;
pub mod record;
pub mod refusal;
pub mod report;
pub mod rows;
pub mod scale;
pub mod scx;
pub mod service;
pub mod settle;
pub mod starvation;
pub mod stats;
pub mod supervised;
pub mod thread;
pub mod tuned;
pub mod unit;
pub mod wake;
pub mod work;
