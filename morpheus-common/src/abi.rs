//! The shared memory as plain structs and numbers: `include/morpheus_abi.h`, translated by bindgen.
//!
//! The header is the definition, and documents each word. `tests/abi.rs` fails if this module differs from
//! bindgen's output; `MORPHEUS_BLESS=1 cargo test -p morpheus-common --test abi` updates it.
//!
//! Never make a reference to one of these structs in memory that another thread may write: use
//! [`slot`](crate::slot) there.
#![allow(missing_docs, non_camel_case_types)]

include!("abi.autogen.rs");
