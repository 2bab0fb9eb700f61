//! Rewrites `async fn f() -> T { … }` into a plain `fn f() -> T` that builds a runtime and runs the function in it.
//!
//! The user's function moves, unchanged and still `async`, inside the new one. So the compiler's messages about its
//! types and its `?` are those of any `async fn`, at the user's own tokens. The body is never parsed: a half-written
//! one reaches the compiler (and an editor's analysis) as it is.
//!
//! A refused function still leaves something of its name behind, so that one mistake is one message.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Signature, Visibility};

use crate::options::Options;

/// Which of the two attributes is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Test,
}

impl Kind {
    fn attribute(self) -> &'static str {
        match self {
            Kind::Main => "#[morpheus_runtime::main]",
            Kind::Test => "#[morpheus_runtime::test]",
        }
    }

    /// A runtime for one test is small: tests run many at a time.
    fn defaults(self) -> Options {
        match self {
            Kind::Main => Options::default(),
            Kind::Test => Options {
                worker_threads: Some(1),
                max_spares: Some(4),
                ..Options::default()
            },
        }
    }
}

/// A function of which only the head is parsed.
struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = input.parse()?;
        if !input.peek(syn::token::Brace) {
            return Err(input.error("expected a function with a body"));
        }
        Ok(Function {
            attributes,
            visibility,
            signature,
            body: input.parse()?,
        })
    }
}

/// The whole expansion; mistakes become `compile_error!` at the wrong token.
pub(crate) fn expand(kind: Kind, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return with_error(&error, item),
    };
    if let Err(error) = check(kind, &function) {
        return with_error(&error, stand_in(&function));
    }
    match Options::parse(arguments, kind.defaults()) {
        Ok(options) => rewrite(kind, &function, &options),
        Err(error) => with_error(&error, rewrite(kind, &function, &kind.defaults())),
    }
}

fn with_error(error: &syn::Error, rest: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    quote! { #error #rest }
}

/// What stands for a refused function: a `main` must exist, and callers must find their name.
fn stand_in(function: &Function) -> TokenStream {
    let Function {
        visibility,
        signature,
        ..
    } = function;
    let name = &signature.ident;
    quote! { #[allow(dead_code)] #visibility fn #name() {} }
}

fn check(kind: Kind, function: &Function) -> syn::Result<()> {
    let signature = &function.signature;
    let attribute = kind.attribute();
    if signature.asyncness.is_none() {
        let message = format!("{attribute} needs an `async fn`: `async` is missing here");
        return Err(syn::Error::new_spanned(signature.fn_token, message));
    }
    if !signature.inputs.is_empty() {
        let message = format!("a function under {attribute} takes no arguments");
        return Err(syn::Error::new_spanned(&signature.inputs, message));
    }
    let generics = &signature.generics;
    if !generics.params.is_empty() {
        let message = format!("a function under {attribute} cannot be generic");
        return Err(syn::Error::new_spanned(&generics.params, message));
    }
    if let Some(clause) = &generics.where_clause {
        let message = format!("a function under {attribute} cannot have a `where` clause");
        return Err(syn::Error::new_spanned(clause, message));
    }
    // `const`, `unsafe` or `extern`: what a caller of the plain function would have to know about.
    let qualifiers: TokenStream = signature
        .to_token_stream()
        .into_iter()
        .take_while(|token| token.to_string() != "fn")
        .filter(|token| token.to_string() != "async")
        .collect();
    if !qualifiers.is_empty() {
        let message = format!("a function under {attribute} is a plain `async fn`");
        return Err(syn::Error::new_spanned(qualifiers, message));
    }
    if kind == Kind::Test
        && let Some(second) = function.attributes.iter().find(|other| is_test(other))
    {
        let message = format!("{attribute} makes a test by itself: remove this second one");
        return Err(syn::Error::new_spanned(second, message));
    }
    Ok(())
}

/// `#[test]`, or its full name, as another attribute macro may have left it.
fn is_test(attribute: &Attribute) -> bool {
    let names: Vec<String> = attribute
        .path()
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    matches!(names[..], ["test"] | ["core" | "std", "prelude", _, "test"])
}

fn rewrite(kind: Kind, function: &Function, options: &Options) -> TokenStream {
    let Function {
        attributes,
        visibility,
        signature,
        body,
    } = function;
    let name = &signature.ident;
    let plain = Signature {
        asyncness: None,
        ..signature.clone()
    };
    let test = match kind {
        Kind::Main => TokenStream::new(),
        Kind::Test => quote! { #[::core::prelude::v1::test] },
    };
    let builder = builder(options);
    // `clippy::unused_async`: a `main` that awaits nothing is the user's to write. The names with `morpheus_` in front
    // cannot be taken for a constant or a macro's pattern that the user has in scope.
    quote! {
        #(#attributes)*
        #test
        #visibility #plain {
            #[allow(clippy::unused_async)]
            #signature #body

            let morpheus_built = #builder.build();
            match morpheus_built {
                ::core::result::Result::Ok(morpheus_runtime) => morpheus_runtime.block_on(#name()),
                ::core::result::Result::Err(morpheus_error) => ::core::panic!(
                    "morpheus: the runtime could not be started: {}",
                    morpheus_error
                ),
            }
        }
    }
}

/// `::morpheus_runtime::Builder::new_multi_thread()` and a call for each option that is set.
fn builder(options: &Options) -> TokenStream {
    let krate = match &options.crate_path {
        Some(path) => path.clone(),
        None => {
            let name = proc_macro2::Ident::new("morpheus_runtime", Span::call_site());
            quote! { ::#name }
        }
    };
    let mut calls = TokenStream::new();
    let counts = [
        ("worker_threads", options.worker_threads),
        ("max_spares", options.max_spares),
        ("reserve", options.reserve),
    ];
    for (method, value) in counts {
        if let Some(value) = value {
            let method = proc_macro2::Ident::new(method, Span::call_site());
            calls.extend(quote! { .#method(#value) });
        }
    }
    let times = [
        ("budget", options.budget_us),
        ("grace", options.grace_us),
        ("report_after", options.report_after_us),
    ];
    for (method, value) in times {
        if let Some(value) = value {
            let method = proc_macro2::Ident::new(method, Span::call_site());
            calls.extend(quote! { .#method(::core::time::Duration::from_micros(#value)) });
        }
    }
    quote! { #krate::Builder::new_multi_thread() #calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main_of(arguments: TokenStream, item: TokenStream) -> String {
        expand(Kind::Main, arguments, item).to_string()
    }

    fn test_of(arguments: TokenStream, item: TokenStream) -> String {
        expand(Kind::Test, arguments, item).to_string()
    }

    /// Asserts that the expansion is refused with `message`, and still has the function's name.
    fn refused(expansion: &str, message: &str) {
        assert!(expansion.contains("compile_error !"), "{expansion}");
        assert!(expansion.contains(message), "{expansion}");
        assert!(expansion.contains("fn main ("), "{expansion}");
    }

    #[test]
    fn main_expands_to_this() {
        let expected = quote! {
            pub(crate) fn main() -> Result<(), Error> {
                #[allow(clippy::unused_async)]
                async fn main() -> Result<(), Error> { run().await }

                let morpheus_built = ::morpheus_runtime::Builder::new_multi_thread()
                    .worker_threads(2usize)
                    .max_spares(8usize)
                    .reserve(3usize)
                    .budget(::core::time::Duration::from_micros(500u64))
                    .grace(::core::time::Duration::from_micros(700u64))
                    .report_after(::core::time::Duration::from_micros(20000u64))
                    .build();
                match morpheus_built {
                    ::core::result::Result::Ok(morpheus_runtime) => morpheus_runtime.block_on(main()),
                    ::core::result::Result::Err(morpheus_error) => ::core::panic!(
                        "morpheus: the runtime could not be started: {}",
                        morpheus_error
                    ),
                }
            }
        };
        let expansion = main_of(
            quote!(
                report_after_us = 20_000,
                grace_us = 700,
                budget_us = 500,
                reserve = 3,
                max_spares = 8,
                worker_threads = 2
            ),
            quote! { pub(crate) async fn main() -> Result<(), Error> { run().await } },
        );
        assert_eq!(expansion, expected.to_string());
    }

    #[test]
    fn main_without_options_leaves_the_builder_alone() {
        let expansion = main_of(TokenStream::new(), quote! { async fn main() {} });
        assert!(
            expansion.contains(":: morpheus_runtime :: Builder :: new_multi_thread () . build ()"),
            "{expansion}"
        );
    }

    #[test]
    fn a_test_is_small_unless_told_otherwise() {
        let item = quote! { async fn works() {} };
        let expansion = test_of(TokenStream::new(), item.clone());
        assert!(
            expansion.starts_with("# [:: core :: prelude :: v1 :: test] fn works ()"),
            "{expansion}"
        );
        assert!(
            expansion.contains(
                "new_multi_thread () . worker_threads (1usize) . max_spares (4usize) . build ()"
            ),
            "{expansion}"
        );
        let expansion = test_of(quote!(worker_threads = 3), item);
        assert!(
            expansion.contains(
                "new_multi_thread () . worker_threads (3usize) . max_spares (4usize) . build ()"
            ),
            "{expansion}"
        );
    }

    #[test]
    fn attributes_stay_on_the_outer_function_alone() {
        let expansion = test_of(
            TokenStream::new(),
            quote! {
                #[ignore = "slow"]
                #[should_panic(expected = "x")]
                pub async fn works() {}
            },
        );
        assert!(
            expansion.starts_with(
                "# [ignore = \"slow\"] # [should_panic (expected = \"x\")] # [:: core :: prelude :: v1 :: test] pub fn works ()"
            ),
            "{expansion}"
        );
        assert_eq!(expansion.matches("ignore").count(), 1);
    }

    #[test]
    fn another_crate_path() {
        let expansion = main_of(quote!(crate = "crate::fake"), quote! { async fn main() {} });
        assert!(
            expansion.contains("= crate :: fake :: Builder :: new_multi_thread ()"),
            "{expansion}"
        );
        assert!(!expansion.contains(":: morpheus_runtime"), "{expansion}");
    }

    #[test]
    fn a_body_that_does_not_parse_goes_through_as_it_is() {
        let expansion = main_of(TokenStream::new(), quote! { async fn main() { let x = ; } });
        assert!(expansion.contains("{ let x = ; }"), "{expansion}");
        assert!(!expansion.contains("compile_error"), "{expansion}");
    }

    #[test]
    fn functions_that_are_refused() {
        let cases = [
            (quote! { fn main() {} }, "`async` is missing"),
            (
                quote! { async fn main(count: usize) {} },
                "takes no arguments",
            ),
            (quote! { async fn main(&self) {} }, "takes no arguments"),
            (quote! { async fn main<T>() {} }, "cannot be generic"),
            (quote! { async fn main<'a>() {} }, "cannot be generic"),
            (
                quote! { async fn main() where u8: Copy {} },
                "cannot have a `where` clause",
            ),
            (
                quote! { async unsafe fn main() {} },
                "is a plain `async fn`",
            ),
            (
                quote! { async extern "C" fn main() {} },
                "is a plain `async fn`",
            ),
        ];
        for (item, message) in cases {
            refused(&main_of(TokenStream::new(), item), message);
        }
    }

    #[test]
    fn a_second_test_attribute_is_refused() {
        for second in [quote!(#[test]), quote!(#[::core::prelude::v1::test])] {
            let expansion = test_of(TokenStream::new(), quote! { #second async fn main() {} });
            refused(&expansion, "remove this second one");
        }
        let fine = test_of(
            TokenStream::new(),
            quote! { #[my::test] async fn main() {} },
        );
        assert!(!fine.contains("compile_error"), "{fine}");
    }

    #[test]
    fn a_wrong_option_keeps_the_function() {
        let expansion = main_of(
            quote!(worker_threads = 0),
            quote! { async fn main() { run() } },
        );
        refused(&expansion, "worker_threads must be at least 1");
        assert!(
            expansion.contains("async fn main () { run () }"),
            "{expansion}"
        );
    }

    #[test]
    fn what_is_no_function_is_refused_and_kept() {
        for item in [quote! { struct Main; }, quote! { async fn main(); }] {
            let expansion = main_of(TokenStream::new(), item.clone());
            assert!(expansion.contains("compile_error !"), "{expansion}");
            assert!(expansion.ends_with(&item.to_string()), "{expansion}");
        }
        let expansion = main_of(TokenStream::new(), quote! { async fn main(); });
        assert!(expansion.contains("expected a function with a body"));
    }

    #[test]
    fn a_mistake_points_at_its_own_token() {
        let item: TokenStream = "pub fn main() {}".parse().unwrap();
        let function: Function = syn::parse2(item).unwrap();
        let start = check(Kind::Main, &function).unwrap_err().span().start();
        assert_eq!((start.line, start.column), (1, 4));
    }
}
