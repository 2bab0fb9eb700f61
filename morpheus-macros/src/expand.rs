//! Rewrites `async fn f() -> T { … }` into a plain `fn f() -> T` that builds a runtime and runs the function in it.
//!
//! The user's function moves, unchanged and still `async`, inside the new one. So the compiler's messages
//! about its types and its `?` are those of any `async fn`, at the user's own tokens. The body is never
//! parsed: an unfinished body reaches the compiler (and an editor's analysis) as it is.
//!
//! A function with arguments, a generic function or a method cannot move. There the body becomes an `async`
//! block, which uses the names around it, and the expansion tells the compiler the type of the block.
//!
//! A refused function still leaves a function of its name, so that one mistake gives one message.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{AttrStyle, Attribute, ReturnType, Signature, Visibility};

use crate::options::{Flavor, Options};

/// The attribute that is expanded.
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

    /// The attribute with these words, as in the source.
    pub(crate) fn attribute_with(self, words: &str) -> String {
        self.attribute().replace(']', &format!("({words})]"))
    }

    /// The default flavor, as tokio's.
    pub(crate) fn flavor(self) -> Flavor {
        match self {
            Kind::Main => Flavor::MultiThread,
            Kind::Test => Flavor::CurrentThread,
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

/// Returns the whole expansion; mistakes become `compile_error!` at the wrong token.
pub(crate) fn expand(kind: Kind, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return with_error(&error, item),
    };
    if let Err(error) = check(kind, &function) {
        return with_error(&error, stand_in(&function));
    }
    match Options::parse(kind, arguments) {
        Ok(options) => rewrite(kind, &function, &options),
        Err(error) => with_error(&error, rewrite(kind, &function, &Options::of(kind))),
    }
}

fn with_error(error: &syn::Error, rest: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    quote! { #error #rest }
}

/// Returns a stand-in for a refused function: a `main` must exist, and callers must find the name.
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
    if kind == Kind::Main && signature.ident == "main" && !signature.inputs.is_empty() {
        let message = "`main` takes no arguments; a function of any other name may take some";
        return Err(syn::Error::new_spanned(&signature.inputs, message));
    }
    if kind == Kind::Test
        && let Some(second) = function.attributes.iter().find(|other| is_test(other))
    {
        let message = format!("{attribute} makes a test by itself: remove this second one");
        return Err(syn::Error::new_spanned(second, message));
    }
    Ok(())
}

/// Whether an attribute is `#[test]`, or its full name, as another attribute macro may have left it.
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

/// Whether the function can move into another one: it uses no name of the function or the `impl` around it. Of a method that is not
/// seen, and a function may start itself on a thread; neither does a test or `main`.
fn can_move(kind: Kind, function: &Function) -> bool {
    let signature = &function.signature;
    if kind == Kind::Main && signature.ident != "main" {
        return false;
    }
    // `const`, `unsafe`, `extern "C"`.
    let has_qualifiers = signature
        .to_token_stream()
        .into_iter()
        .take_while(|token| token.to_string() != "fn")
        .any(|token| token.to_string() != "async");
    let is_plain = !has_qualifiers
        && signature.inputs.is_empty()
        && signature.generics.params.is_empty()
        && signature.generics.where_clause.is_none();
    let mentions_self = |tokens| mentions(tokens, "Self");
    is_plain && !mentions_self(signature.to_token_stream()) && !mentions_self(function.body.clone())
}

fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Splits a body into its inner attributes, as attributes of the function, and the rest. An `async` block may
/// have no inner attributes.
fn without_inner_attributes(body: &TokenStream) -> (Vec<Attribute>, TokenStream) {
    let split = |input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_inner)?;
        let rest: TokenStream = input.parse()?;
        Ok((attributes, rest))
    };
    let Some(TokenTree::Group(block)) = body.clone().into_iter().next() else {
        return (Vec::new(), body.clone());
    };
    let Ok((mut attributes, rest)) = split.parse2(block.stream()) else {
        return (Vec::new(), body.clone());
    };
    for attribute in &mut attributes {
        attribute.style = AttrStyle::Outer;
    }
    let mut rest = Group::new(block.delimiter(), rest);
    rest.set_span(block.span());
    (attributes, TokenTree::Group(rest).into())
}

/// Tells the compiler the type of the block `morpheus_body`, where that type can be written.
fn type_of_body(output: &ReturnType) -> TokenStream {
    let output = match output {
        ReturnType::Default => quote! { () },
        ReturnType::Type(_, output) => output.to_token_stream(),
    };
    let is_never = output.to_string() == "!";
    if is_never || mentions(output.clone(), "impl") {
        return TokenStream::new();
    }
    quote! {
        if false {
            let _: &dyn ::core::future::Future<Output = #output> = &morpheus_body;
        }
    }
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
    // `clippy::unused_async`: the user may write a `main` that awaits nothing. The prefix `morpheus_` keeps
    // the names apart from constants and macro patterns that the user has in scope.
    let (inner, before, future) = if can_move(kind, function) {
        let before = quote! {
            #[allow(clippy::unused_async)]
            #signature #body
        };
        (Vec::new(), before, quote! { #name() })
    } else {
        let (inner, body) = without_inner_attributes(body);
        let type_of_body = type_of_body(&signature.output);
        let before = quote! {
            let morpheus_body = async #body;
            #type_of_body
        };
        (inner, before, quote! { morpheus_body })
    };
    let builder = builder(options);
    quote! {
        #(#attributes)*
        #(#inner)*
        #test
        #visibility #plain {
            #before

            let morpheus_built = #builder.build();
            match morpheus_built {
                ::core::result::Result::Ok(morpheus_runtime) => morpheus_runtime.block_on(#future),
                ::core::result::Result::Err(morpheus_error) => ::core::panic!(
                    "morpheus: the runtime could not be started: {}",
                    morpheus_error
                ),
            }
        }
    }
}

/// Returns `::morpheus_runtime::Builder::new_multi_thread()`, or the other flavor, and a call for each option
/// that is set.
fn builder(options: &Options) -> TokenStream {
    let krate = match &options.crate_path {
        Some(path) => path.clone(),
        None => {
            let name = Ident::new("morpheus_runtime", Span::call_site());
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
            let method = Ident::new(method, Span::call_site());
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
            let method = Ident::new(method, Span::call_site());
            calls.extend(quote! { .#method(::core::time::Duration::from_micros(#value)) });
        }
    }
    if let Some(paused) = options.start_paused {
        calls.extend(quote! { .start_paused(#paused) });
    }
    if let Some(name) = &options.name {
        calls.extend(quote! { .name(#name) });
    }
    let new = format!("new_{}", options.flavor.name());
    let new = Ident::new(&new, Span::call_site());
    quote! { #krate::Builder::#new() #calls }
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
    fn a_test_has_one_thread_unless_an_option_says_otherwise() {
        let item = quote! { async fn works() {} };
        let builder = |arguments| {
            let expansion = test_of(arguments, item.clone());
            let test = "# [:: core :: prelude :: v1 :: test] fn works ()";
            assert!(expansion.starts_with(test), "{expansion}");
            let begins = expansion.find("Builder :: ").unwrap();
            let ends = expansion.find(" . build ()").unwrap();
            expansion[begins..ends].to_owned()
        };
        assert_eq!(
            builder(TokenStream::new()),
            "Builder :: new_current_thread ()"
        );
        assert_eq!(
            builder(quote!(start_paused = true, name = "t")),
            "Builder :: new_current_thread () . start_paused (true) . name (\"t\")"
        );
        assert_eq!(
            builder(quote!(worker_threads = 3, flavor = "multi_thread")),
            "Builder :: new_multi_thread () . worker_threads (3usize) . max_spares (4usize)"
        );
    }

    #[test]
    fn a_function_with_arguments_becomes_a_block() {
        let expected = quote! {
            #[allow(unused)]
            unsafe fn sum<T: Num>(a: T, (b, c): (u32, u32)) -> u32 where T: Copy {
                let morpheus_body = async { a.into() + b + c };
                if false {
                    let _: &dyn ::core::future::Future<Output = u32> = &morpheus_body;
                }

                let morpheus_built = ::morpheus_runtime::Builder::new_multi_thread().build();
                match morpheus_built {
                    ::core::result::Result::Ok(morpheus_runtime) => morpheus_runtime.block_on(morpheus_body),
                    ::core::result::Result::Err(morpheus_error) => ::core::panic!(
                        "morpheus: the runtime could not be started: {}",
                        morpheus_error
                    ),
                }
            }
        };
        let expansion = main_of(
            TokenStream::new(),
            quote! {
                async unsafe fn sum<T: Num>(a: T, (b, c): (u32, u32)) -> u32 where T: Copy {
                    #![allow(unused)]
                    a.into() + b + c
                }
            },
        );
        assert_eq!(expansion, expected.to_string());
        for cannot_be_written in [
            quote! { async fn f(&self) -> ! { loop {} } },
            quote! { async fn f(&self) -> Option<impl Send> { None::<u8> } },
        ] {
            let expansion = main_of(TokenStream::new(), cannot_be_written);
            assert!(!expansion.contains("if false"), "{expansion}");
        }
        let item = quote! { async fn new() -> Self { Self(7) } };
        let expansion = main_of(TokenStream::new(), item);
        assert!(expansion.contains("async { Self (7) }"), "{expansion}");
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
                "`main` takes no arguments",
            ),
        ];
        for (item, message) in cases {
            refused(&main_of(TokenStream::new(), item), message);
        }
        let item = quote! { async fn main(count: usize) {} };
        let test = test_of(TokenStream::new(), item);
        assert!(!test.contains("compile_error"), "{test}");
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
    fn an_item_that_is_no_function_is_refused_and_kept() {
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
