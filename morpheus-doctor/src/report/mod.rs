//! Shows a [`Report`](crate::model::Report): to people in a terminal, and to other programs.
//!
//! - [`text`]: the summary at the end of a run.
//! - [`folded`]: stacks for flame-graph tools. [`json`]: the report itself.
//! - [`remedy`]: advice for a finding, by what it does and by the functions on its stack.
//! - [`units`], [`names`], [`words`], [`fold`]: durations, names, sentences and short stacks, which the printers have in common.

pub mod fold;
pub mod folded;
pub mod json;
pub mod names;
pub mod remedy;
pub mod text;
pub mod units;
pub mod words;
