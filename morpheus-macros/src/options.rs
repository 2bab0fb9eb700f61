//! Parses the words in the parentheses: `flavor = "multi_thread", worker_threads = 2, budget_us = 500`.
//!
//! It reports every mistake and not only the first, each at the wrong token.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, LitStr, Path, Token};

use crate::expand::Kind;

/// The tokio scheduler of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flavor::CurrentThread => "current_thread",
            Flavor::MultiThread => "multi_thread",
        }
    }
}

/// The options of the attribute. `None` keeps the builder's default.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) flavor: Flavor,
    pub(crate) start_paused: Option<bool>,
    pub(crate) name: Option<String>,
    pub(crate) worker_threads: Option<usize>,
    pub(crate) max_spares: Option<usize>,
    pub(crate) reserve: Option<usize>,
    pub(crate) budget_us: Option<u64>,
    pub(crate) grace_us: Option<u64>,
    pub(crate) report_after_us: Option<u64>,
    pub(crate) crate_path: Option<TokenStream>,
}

const KNOWN: &str = "`flavor`, `worker_threads`, `start_paused`, `name`, `max_spares`, `reserve`, `budget_us`, \
     `grace_us`, `report_after_us`, `crate`";

/// Options that only runtimes of one flavor have.
const OF_ONE_FLAVOR: [(&str, Flavor); 4] = [
    ("worker_threads", Flavor::MultiThread),
    ("max_spares", Flavor::MultiThread),
    ("reserve", Flavor::MultiThread),
    ("start_paused", Flavor::CurrentThread),
];

/// The default number of spares of a test's runtime. It is small, because many tests run at a time.
const SPARES_OF_A_TEST: usize = 4;

/// One `name = value`, or the bare name of an option without a value.
struct Word {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for Word {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        // `parse_any`, because `crate` is a keyword.
        let name = Ident::parse_any(input)?;
        let value = if input.parse::<Option<Token![=]>>()?.is_some() {
            let mut value: Expr = input.parse()?;
            // Where `macro_rules!` has put a literal in.
            while let Expr::Group(group) = value {
                value = *group.expr;
            }
            Some(value)
        } else {
            None
        };
        Ok(Word { name, value })
    }
}

impl Word {
    /// The error for a mistake in the value, or for a missing value.
    fn wants(&self, wanted: &str) -> syn::Error {
        match &self.value {
            Some(value) => syn::Error::new_spanned(value, wanted),
            None => syn::Error::new(self.name.span(), wanted),
        }
    }
}

impl Options {
    /// The options of an attribute without words.
    pub(crate) fn of(kind: Kind) -> Options {
        Options {
            flavor: kind.flavor(),
            start_paused: None,
            name: None,
            worker_threads: None,
            max_spares: None,
            reserve: None,
            budget_us: None,
            grace_us: None,
            report_after_us: None,
            crate_path: None,
        }
    }

    /// Reads the attribute's arguments.
    ///
    /// # Errors
    ///
    /// Returns all mistakes, combined into one error.
    pub(crate) fn parse(kind: Kind, arguments: TokenStream) -> syn::Result<Options> {
        let words = Punctuated::<Word, Token![,]>::parse_terminated.parse2(arguments)?;
        let mut options = Options::of(kind);
        let mut seen: Vec<String> = Vec::new();
        let mut mistakes = Vec::new();
        for word in &words {
            let name = word.name.to_string();
            let read = if seen.contains(&name) {
                Err(syn::Error::new(
                    word.name.span(),
                    format!("`{name}` is set twice"),
                ))
            } else {
                options.set(&name, word)
            };
            seen.push(name);
            mistakes.extend(read.err());
        }
        // With another mistake it is not known which flavor is meant.
        if mistakes.is_empty() {
            mistakes.extend(
                words
                    .iter()
                    .filter_map(|word| options.misplaced(kind, word)),
            );
        }
        if kind == Kind::Test && options.flavor == Flavor::MultiThread {
            options.max_spares.get_or_insert(SPARES_OF_A_TEST);
        }
        let combined = mistakes.into_iter().reduce(|mut all, mistake| {
            all.combine(mistake);
            all
        });
        combined.map_or(Ok(options), Err)
    }

    /// The error for an option that the flavor does not have.
    fn misplaced(&self, kind: Kind, word: &Word) -> Option<syn::Error> {
        let name = word.name.to_string();
        let (_, flavor) = OF_ONE_FLAVOR
            .into_iter()
            .find(|&(option, flavor)| option == name && flavor != self.flavor)?;
        let flavor = flavor.name();
        let value = word.value.to_token_stream();
        let message = format!(
            "`{name}` needs the flavor `{flavor}`, and this is `{}`: write `{}`",
            self.flavor.name(),
            kind.attribute_with(&format!("flavor = \"{flavor}\", {name} = {value}"))
        );
        Some(syn::Error::new(word.name.span(), message))
    }

    fn set(&mut self, name: &str, word: &Word) -> syn::Result<()> {
        match name {
            "flavor" => self.flavor = flavor(word)?,
            "start_paused" => self.start_paused = Some(boolean(name, word)?),
            "name" => {
                let wanted = "`name` needs a text in quotes: `name = \"server\"`";
                self.name = Some(text(word, wanted)?.value());
            }
            "worker_threads" => {
                let threads: usize = integer(name, word)?;
                if threads == 0 {
                    return Err(syn::Error::new_spanned(
                        &word.value,
                        "worker_threads must be at least 1",
                    ));
                }
                self.worker_threads = Some(threads);
            }
            "max_spares" => self.max_spares = Some(integer(name, word)?),
            "reserve" => self.reserve = Some(integer(name, word)?),
            "budget_us" => self.budget_us = Some(integer(name, word)?),
            "grace_us" => self.grace_us = Some(integer(name, word)?),
            "report_after_us" => self.report_after_us = Some(integer(name, word)?),
            "crate" => self.crate_path = Some(path(word)?),
            _ => return Err(syn::Error::new(word.name.span(), unknown(name))),
        }
        Ok(())
    }
}

/// The message for a word that is no option.
fn unknown(name: &str) -> String {
    match name {
        "multi_thread" | "current_thread" => {
            format!("`{name}` is a flavor: write `flavor = \"{name}\"`")
        }
        "budget" | "grace" | "report_after" => {
            format!("`{name}` is called `{name}_us` here; the options are {KNOWN}")
        }
        _ => format!("unknown option `{name}`; the options are {KNOWN}"),
    }
}

fn flavor(word: &Word) -> syn::Result<Flavor> {
    const FLAVORS: &str = "`flavor = \"multi_thread\"` or `flavor = \"current_thread\"`";
    let name = text(
        word,
        &format!("`flavor` needs a name in quotes: write {FLAVORS}"),
    )?;
    let message = match name.value().as_str() {
        "multi_thread" => return Ok(Flavor::MultiThread),
        "current_thread" => return Ok(Flavor::CurrentThread),
        "local" => "there is no flavor `local`: write `flavor = \"current_thread\"`, and spawn what is not `Send` on a \
                    `tokio::task::LocalSet`"
            .to_owned(),
        other => format!("there is no flavor `{other}`: write {FLAVORS}"),
    };
    Err(syn::Error::new(name.span(), message))
}

fn boolean(name: &str, word: &Word) -> syn::Result<bool> {
    match &word.value {
        Some(Expr::Lit(ExprLit {
            lit: Lit::Bool(literal),
            ..
        })) => Ok(literal.value),
        _ => Err(word.wants(&format!(
            "`{name}` needs `true` or `false`: `{name} = true`"
        ))),
    }
}

fn text(word: &Word, wanted: &str) -> syn::Result<LitStr> {
    match &word.value {
        Some(Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        })) => Ok(literal.clone()),
        _ => Err(word.wants(wanted)),
    }
}

fn integer<N>(name: &str, word: &Word) -> syn::Result<N>
where
    N: std::str::FromStr,
    N::Err: std::fmt::Display,
{
    let example = if name.ends_with("_us") { 1000 } else { 2 };
    let wanted = || format!("`{name}` needs an integer literal: `{name} = {example}`");
    match &word.value {
        None => Err(syn::Error::new(word.name.span(), wanted())),
        Some(Expr::Lit(ExprLit {
            lit: Lit::Int(literal),
            ..
        })) => literal
            .base10_parse()
            .map_err(|error| syn::Error::new(literal.span(), format!("`{name}`: {error}"))),
        Some(other) => Err(syn::Error::new_spanned(other, wanted())),
    }
}

fn path(word: &Word) -> syn::Result<TokenStream> {
    let wrong = |span: Span| {
        syn::Error::new(
            span,
            "`crate` needs a path in quotes: `crate = \"morpheus_runtime\"`",
        )
    };
    match &word.value {
        None => Err(wrong(word.name.span())),
        Some(Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        })) => literal
            .parse_with(Path::parse_mod_style)
            .map(Path::into_token_stream)
            .map_err(|_| wrong(literal.span())),
        Some(other) => Err(syn::Error::new_spanned(
            other,
            wrong(Span::call_site()).to_string(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn read(arguments: TokenStream) -> syn::Result<Options> {
        Options::parse(Kind::Main, arguments)
    }

    /// The messages of the error, in order.
    fn mistakes_of(kind: Kind, arguments: TokenStream) -> Vec<String> {
        Options::parse(kind, arguments)
            .expect_err("must be refused")
            .into_iter()
            .map(|mistake| mistake.to_string())
            .collect()
    }

    fn mistakes(arguments: TokenStream) -> Vec<String> {
        mistakes_of(Kind::Main, arguments)
    }

    #[test]
    fn nothing_keeps_the_defaults() {
        for (kind, flavor) in [
            (Kind::Main, Flavor::MultiThread),
            (Kind::Test, Flavor::CurrentThread),
        ] {
            let options = Options::parse(kind, TokenStream::new()).unwrap();
            assert_eq!(options.flavor, flavor);
            assert_eq!((options.worker_threads, options.max_spares), (None, None));
            assert!(options.crate_path.is_none() && options.start_paused.is_none());
        }
    }

    #[test]
    fn every_option_is_read() {
        let options = read(quote! {
            worker_threads = 2, max_spares = 8usize, reserve = 0, budget_us = 1_000, grace_us = 0x10, crate = "a::b",
            name = "server", flavor = "multi_thread",
        })
        .unwrap();
        assert_eq!(options.flavor, Flavor::MultiThread);
        assert_eq!(options.worker_threads, Some(2));
        assert_eq!(options.max_spares, Some(8));
        assert_eq!(options.reserve, Some(0));
        assert_eq!(options.budget_us, Some(1000));
        assert_eq!(options.grace_us, Some(16));
        assert_eq!(options.name.unwrap(), "server");
        let path = options.crate_path.unwrap();
        assert_eq!(path.to_string(), "a :: b");
        let options = read(quote!(flavor = "current_thread", start_paused = false)).unwrap();
        assert_eq!(options.flavor, Flavor::CurrentThread);
        assert_eq!(options.start_paused, Some(false));
    }

    #[test]
    fn a_test_with_several_threads_has_few_spares() {
        let test = |arguments| Options::parse(Kind::Test, arguments).unwrap().max_spares;
        assert_eq!(test(quote!(flavor = "multi_thread")), Some(4));
        assert_eq!(
            test(quote!(max_spares = 7, flavor = "multi_thread")),
            Some(7)
        );
        assert_eq!(test(quote!(flavor = "current_thread")), None);
        assert_eq!(
            read(quote!(flavor = "multi_thread")).unwrap().max_spares,
            None
        );
    }

    #[test]
    fn options_of_the_other_flavor_are_refused() {
        for name in ["worker_threads", "max_spares", "reserve"] {
            let arguments: TokenStream = format!("{name} = 2").parse().unwrap();
            let message = |attribute: &str| {
                format!(
                    "`{name}` needs the flavor `multi_thread`, and this is `current_thread`: write \
                     `#[morpheus_runtime::{attribute}(flavor = \"multi_thread\", {name} = 2)]`"
                )
            };
            assert_eq!(
                mistakes_of(Kind::Test, arguments.clone()),
                [message("test")]
            );
            let arguments = quote!(flavor = "current_thread", #arguments);
            assert_eq!(mistakes_of(Kind::Main, arguments), [message("main")]);
        }
        let message = |attribute: &str| {
            format!(
                "`start_paused` needs the flavor `current_thread`, and this is `multi_thread`: write \
                 `#[morpheus_runtime::{attribute}(flavor = \"current_thread\", start_paused = true)]`"
            )
        };
        assert_eq!(mistakes(quote!(start_paused = true)), [message("main")]);
        assert_eq!(
            mistakes_of(
                Kind::Test,
                quote!(start_paused = true, flavor = "multi_thread")
            ),
            [message("test")]
        );
        // Two mistakes at once, each at its own word.
        assert_eq!(
            mistakes_of(Kind::Test, quote!(worker_threads = 1, reserve = 1)).len(),
            2
        );
    }

    #[test]
    fn flavors_that_there_are_not() {
        let names = "`flavor = \"multi_thread\"` or `flavor = \"current_thread\"`";
        assert_eq!(
            mistakes(quote!(flavor = "single_thread", start_paused = true)),
            [format!("there is no flavor `single_thread`: write {names}")]
        );
        let local = &mistakes(quote!(flavor = "local"))[0];
        assert!(local.contains("there is no flavor `local`"), "{local}");
        assert!(local.contains("LocalSet"), "{local}");
        for wrong in [
            quote!(flavor),
            quote!(flavor = 2),
            quote!(flavor = current_thread),
        ] {
            assert_eq!(
                mistakes(wrong),
                [format!("`flavor` needs a name in quotes: write {names}")]
            );
        }
        assert_eq!(
            mistakes(quote!(current_thread)),
            ["`current_thread` is a flavor: write `flavor = \"current_thread\"`"]
        );
    }

    #[test]
    fn values_that_are_no_switch_and_no_text() {
        for wrong in [
            quote!(start_paused),
            quote!(start_paused = 1),
            quote!(start_paused = "true"),
        ] {
            assert_eq!(
                mistakes_of(Kind::Test, wrong),
                ["`start_paused` needs `true` or `false`: `start_paused = true`"]
            );
        }
        assert_eq!(
            mistakes(quote!(name = server)),
            ["`name` needs a text in quotes: `name = \"server\"`"]
        );
    }

    #[test]
    fn zero_workers() {
        assert_eq!(
            mistakes(quote!(worker_threads = 0)),
            ["worker_threads must be at least 1"]
        );
    }

    #[test]
    fn an_unknown_option_lists_the_known_ones() {
        assert_eq!(
            mistakes(quote!(spares = 3)),
            [format!("unknown option `spares`; the options are {KNOWN}")]
        );
        assert!(mistakes(quote!(budget = 3))[0].contains("called `budget_us` here"));
    }

    #[test]
    fn a_duplicate_is_refused_even_with_the_same_value() {
        assert_eq!(
            mistakes(quote!(worker_threads = 2, worker_threads = 2)),
            ["`worker_threads` is set twice"]
        );
    }

    #[test]
    fn every_mistake_is_reported() {
        assert_eq!(
            mistakes(quote!(worker_threads = 0, reserve = "two", grace_us)),
            [
                "worker_threads must be at least 1",
                "`reserve` needs an integer literal: `reserve = 2`",
                "`grace_us` needs an integer literal: `grace_us = 1000`",
            ]
        );
    }

    #[test]
    fn numbers_are_integer_literals() {
        for wrong in [
            quote!(worker_threads = -1),
            quote!(worker_threads = 1.5),
            quote!(worker_threads = COUNT),
        ] {
            assert_eq!(
                mistakes(wrong),
                ["`worker_threads` needs an integer literal: `worker_threads = 2`"]
            );
        }
        let too_large = quote!(budget_us = 99999999999999999999999);
        assert!(mistakes(too_large)[0].starts_with("`budget_us`: "));
    }

    #[test]
    fn the_crate_is_a_path_in_quotes() {
        for wrong in [
            quote!(crate),
            quote!(crate = a::b),
            quote!(crate = "a b"),
            quote!(crate = ""),
        ] {
            assert_eq!(
                mistakes(wrong),
                ["`crate` needs a path in quotes: `crate = \"morpheus_runtime\"`"]
            );
        }
    }

    #[test]
    fn a_mistake_points_at_its_own_token() {
        let arguments: TokenStream = "worker_threads = 2, spares = 3".parse().unwrap();
        let error = read(arguments).unwrap_err();
        let start = error.span().start();
        assert_eq!((start.line, start.column), (1, 20));
    }
}
