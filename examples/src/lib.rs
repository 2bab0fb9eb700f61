//! Small programs, one idea each: see `examples/`. Here is what several of them need: the page that shows stalls
//! ([`stall_page`]), and the hash of a password that takes as long as it should ([`password`]).
#![warn(missing_docs)]

#[cfg(doctest)]
mod guide;
pub mod password;
pub mod stall_page;

/// The examples in the docs of `morpheus_runtime::tower` are compiled here, where axum, tonic and hyper are.
#[cfg(doctest)]
#[doc = include_str!("../../morpheus-runtime/src/api/tower.md")]
struct Tower;
