//! The shared memory as plain structs and numbers: `include/morpheus_abi.h`, translated by bindgen.
//!
//! The header is the definition, and it has the documentation of each word. `tests/abi.rs` fails
//! when this module is not what bindgen makes of it; `MORPHEUS_BLESS=1 cargo test -p
//! morpheus-common --test abi` brings it up to date.
//!
//! Do not make a reference to one of these structs where somebody else may write: that is what
//! [`slot`](crate::slot) is for.
#![allow(missing_docs, non_camel_case_types)]

include!("abi.autogen.rs");
