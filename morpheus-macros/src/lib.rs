//! The attributes `#[morpheus_runtime::main]` and `#[morpheus_runtime::test]`.
//!
//! Use them through `morpheus_runtime`, which re-exports both and documents them: their examples need a runtime. The compiler
//! calls the functions in this file; `options` reads the words in the parentheses, `expand` rewrites the function.
#![warn(missing_docs)]

mod expand;
mod options;

use proc_macro::TokenStream;

use crate::expand::{Kind, expand};

#[allow(missing_docs, reason = "its docs are at the re-export")]
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Main, options.into(), item.into()).into()
}

#[allow(missing_docs, reason = "its docs are at the re-export")]
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Test, options.into(), item.into()).into()
}
