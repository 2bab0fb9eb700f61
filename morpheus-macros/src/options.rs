//! The words in the parentheses: `worker_threads = 2, budget_us = 500`.
//!
//! Every mistake is reported, not only the first, each at the token that is wrong.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, Path, Token};

/// What the attribute asks for. `None` leaves the builder's default alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) worker_threads: Option<usize>,
    pub(crate) max_spares: Option<usize>,
    pub(crate) reserve: Option<usize>,
    pub(crate) budget_us: Option<u64>,
    pub(crate) grace_us: Option<u64>,
    pub(crate) report_after_us: Option<u64>,
    pub(crate) crate_path: Option<TokenStream>,
}

const KNOWN: &str = "`worker_threads`, `max_spares`, `reserve`, `budget_us`, `grace_us`, `report_after_us`, `crate`";

/// One `name = value`, or the bare name of an option whose value was forgotten.
struct Word {
    name: Ident,
    value: Option<Expr>,
}

impl Parse for Word {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        // `parse_any`, because `crate` is a keyword.
        let name = Ident::parse_any(input)?;
        let value = if input.parse::<Option<Token![=]>>()?.is_some() {
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Word { name, value })
    }
}

impl Options {
    /// Reads the attribute's arguments over `defaults`.
    ///
    /// # Errors
    ///
    /// All mistakes, combined into one error.
    pub(crate) fn parse(arguments: TokenStream, defaults: Options) -> syn::Result<Options> {
        let words = Punctuated::<Word, Token![,]>::parse_terminated.parse2(arguments)?;
        let mut options = defaults;
        let mut seen: Vec<String> = Vec::new();
        let mut mistakes: Option<syn::Error> = None;
        for word in words {
            let name = word.name.to_string();
            let read = if seen.contains(&name) {
                Err(syn::Error::new(
                    word.name.span(),
                    format!("`{name}` is set twice"),
                ))
            } else {
                options.set(&name, &word)
            };
            seen.push(name);
            if let Err(mistake) = read {
                match &mut mistakes {
                    Some(all) => all.combine(mistake),
                    None => mistakes = Some(mistake),
                }
            }
        }
        mistakes.map_or(Ok(options), Err)
    }

    fn set(&mut self, name: &str, word: &Word) -> syn::Result<()> {
        match name {
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

/// The message for a word that is no option; it helps those who come from tokio's attribute.
fn unknown(name: &str) -> String {
    match name {
        "flavor" => format!(
            "there is no `flavor`: a Morpheus runtime always has several threads; the options are {KNOWN}"
        ),
        "budget" | "grace" | "report_after" => {
            format!("`{name}` is called `{name}_us` here; the options are {KNOWN}")
        }
        _ => format!("unknown option `{name}`; the options are {KNOWN}"),
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
        Options::parse(arguments, Options::default())
    }

    /// Every message of the error, in order.
    fn mistakes(arguments: TokenStream) -> Vec<String> {
        read(arguments)
            .expect_err("must be refused")
            .into_iter()
            .map(|mistake| mistake.to_string())
            .collect()
    }

    #[test]
    fn nothing_keeps_the_defaults() {
        let defaults = Options {
            worker_threads: Some(1),
            ..Options::default()
        };
        let options = Options::parse(TokenStream::new(), defaults).unwrap();
        assert_eq!(options.worker_threads, Some(1));
        assert_eq!(options.max_spares, None);
        assert!(options.crate_path.is_none());
    }

    #[test]
    fn every_option_is_read() {
        let options = read(quote! {
            worker_threads = 2, max_spares = 8usize, reserve = 0, budget_us = 1_000, grace_us = 0x10, crate = "a::b",
        })
        .unwrap();
        assert_eq!(options.worker_threads, Some(2));
        assert_eq!(options.max_spares, Some(8));
        assert_eq!(options.reserve, Some(0));
        assert_eq!(options.budget_us, Some(1000));
        assert_eq!(options.grace_us, Some(16));
        let path = options.crate_path.unwrap();
        assert_eq!(path.to_string(), "a :: b");
    }

    #[test]
    fn a_given_option_beats_the_default_and_is_no_duplicate() {
        let defaults = Options {
            worker_threads: Some(1),
            ..Options::default()
        };
        let options = Options::parse(quote!(worker_threads = 3), defaults).unwrap();
        assert_eq!(options.worker_threads, Some(3));
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
        assert!(mistakes(quote!(flavor = "current_thread"))[0].contains("no `flavor`"));
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
