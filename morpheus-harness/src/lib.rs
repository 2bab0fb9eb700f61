//! What every benchmark has in common around its measurement. A benchmark brings cases, contenders, one measurement and its figures
//! (`morpheus-bench` has them all); this crate decides in which order they are measured, judges, and shows what was found.
//!
//! ```text
//! arguments ──► order, settle ──► the measurement ──► histogram ──► stats, pairs ──► rows, envelope ──► text, JSON, hdr_log
//!               interrupt, progress    clock, thread                                     figures, page read the JSON back
//! ```
//!
//! Before a measurement: the command line ([`arguments`], [`refusal`]), the order of contenders in a round ([`order`]) and a warm-up
//! that knows its end ([`settle`]). Around it: children of the same program ([`supervised`]), Ctrl-C ([`interrupt`]) and
//! [`progress`]. For it: clocks ([`clock`]), what a thread asks of the kernel ([`thread`]), and histograms that refuse to give a
//! percentile from too few samples and say what they count ([`histogram`], [`hdr_log`]). After it: intervals and pairs ([`stats`],
//! [`pairs`]), rows with tables and JSON of one form ([`rows`], [`envelope`], [`record`], [`mod@unit`]), the machine that they are of
//! ([`host`], [`idle`]), words for people ([`report`]). From the JSON of many runs, [`figures`] fills the tables of documents, and
//! [`page`] makes a page with plots.
//!
//! Nothing here is part of what is measured, and so release builds do not optimize it. A function that runs within a measurement is
//! `#[inline]`: it is compiled with the benchmark that calls it, and optimized there.
#![warn(missing_docs)]

pub mod arguments;
pub mod clock;
pub mod envelope;
pub mod figures;
pub mod hdr_log;
pub mod histogram;
pub mod host;
pub mod idle;
pub mod interrupt;
pub mod order;
pub mod page;
pub mod pairs;
pub mod progress;
pub mod record;
pub mod refusal;
pub mod report;
pub mod rows;
pub mod settle;
pub mod stats;
pub mod supervised;
pub mod thread;
pub mod unit;
