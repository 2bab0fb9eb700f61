//! Small programs, one idea each: see `examples/`.

/// The examples in the docs of `morpheus_runtime::tower` are compiled here, where axum, tonic and hyper are.
#[cfg(doctest)]
#[doc = include_str!("../../morpheus-runtime/src/tower.md")]
struct Tower;
