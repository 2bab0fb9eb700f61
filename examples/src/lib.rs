//! Small programs, one idea each: see `examples/`. This library has what several of them need: the page that
//! shows stalls ([`stall_page`]), and a password hash of a given CPU time ([`password`]).
#![warn(missing_docs)]

#[cfg(doctest)]
mod guide;
pub mod password;
pub mod stall_page;

/// Compiles the examples in the docs of `morpheus_runtime::tower` here, where axum, tonic and hyper are
/// dependencies.
#[cfg(doctest)]
#[doc = include_str!("../../morpheus-runtime/src/api/tower.md")]
struct Tower;
