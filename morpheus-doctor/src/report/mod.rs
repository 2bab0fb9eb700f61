//! Shows a [`Report`](crate::model::Report): to people in a terminal, in a browser, and to other programs.
//!
//! - [`text`]: the summary at the end of a run. [`live`]: the table while it goes on.
//! - [`html`]: a page with a flame graph and a time line. [`folded`]: stacks for other flame-graph tools. [`json`]: the report itself.
//! - [`remedy`]: advice for a finding, by what it does and by the functions on its stack.
//! - [`units`], [`names`], [`words`], [`fold`]: durations, names, sentences and short stacks, which the printers have in common.

pub mod fold;
pub mod folded;
pub mod html;
pub mod json;
pub mod live;
pub mod names;
pub mod remedy;
pub mod text;
pub mod units;
pub mod words;
