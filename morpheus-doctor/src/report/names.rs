//! Names of functions and files, shortened for tables; and text of the target made safe for a terminal.

use unicode_width::UnicodeWidthChar;

/// Groups of `<…>` within each other, beyond which a name is left as it is.
const DEEPEST: usize = 8;

/// A function's name for tables: without hash, generic arguments and closures, and with the type (or, of a parameter, the trait) of an `impl` in place of it.
///
/// `app::handler::{{closure}}` becomes `app::handler`, `<app::Svc as tower::Service<Req>>::call` becomes `app::Svc::call`.
#[must_use]
pub fn short_function(name: &str) -> String {
    let name = name.trim();
    let short = without_generics(without_hash(name), DEEPEST).map(|name| without_closures(&name));
    match short {
        Some(short) if !short.is_empty() => short,
        _ => without_hash(name).to_owned(),
    }
}

/// Without the hash that the legacy mangling ends with.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((before, hash))
            if hash.len() == 16
                && hash.bytes().all(|b| b.is_ascii_hexdigit())
                && !before.is_empty() =>
        {
            before
        }
        _ => name,
    }
}

/// Without `<…>`; None where the brackets are no pairs, as in C++'s `operator<`.
fn without_generics(name: &str, deepest: usize) -> Option<String> {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        let before = &rest[..open];
        let close = open + closing(&rest[open..])?;
        let inside = &rest[open + 1..close];
        rest = &rest[close + 1..];
        short += before;
        let starts_a_path = short.is_empty() || short.ends_with(['&', '(', '[', ' ', ',']);
        let is_impl = inside.starts_with("impl ") || inside == "impl";
        if starts_a_path || is_impl {
            if deepest == 0 {
                return None;
            }
            let of_type = match is_impl {
                true => inside.rsplit_once(" for ").map_or(inside, |(_, of)| of),
                false => type_or_trait(inside),
            };
            short += &without_generics(of_type, deepest - 1)?;
        } else if short.ends_with("::") {
            short.truncate(short.len() - 2);
        }
    }
    short += rest;
    Some(short)
}

/// The type of `Type as Trait`, or the trait where the type has no path: a parameter, a reference to one, a primitive type.
fn type_or_trait(inside: &str) -> &str {
    let mut depth = 0usize;
    for (index, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if index > 0 && inside.as_bytes()[index - 1] != b'-' => {
                depth = depth.saturating_sub(1);
            }
            b' ' if depth == 0 && inside[index..].starts_with(" as ") => {
                let (of_type, of_trait) = (&inside[..index], &inside[index + 4..]);
                return if of_type.contains("::") {
                    of_type
                } else {
                    of_trait
                };
            }
            _ => {}
        }
    }
    inside
}

/// Where the bracket closes with which `text` begins. The arrow of `fn() -> T` is none.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut before) = (0usize, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before != b'-' => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
        before = byte;
    }
    None
}

/// Without path segments such as `{{closure}}`, `{closure#0}`, `{impl#3}` and `{shim:vtable#0}`.
fn without_closures(name: &str) -> String {
    let segments: Vec<&str> = name
        .split("::")
        .filter(|segment| !(segment.starts_with('{') && segment.ends_with('}')))
        .collect();
    segments.join("::")
}

/// The crate that a function belongs to: the first segment of its short name. None for names that are no path, as those of C.
#[must_use]
pub fn crate_of(function: &str) -> Option<String> {
    let short = short_function(function);
    let path = short.trim_start_matches(['&', '*', '(', '[', ' ']);
    let path = path
        .strip_prefix("mut ")
        .or_else(|| path.strip_prefix("dyn "))
        .unwrap_or(path);
    let (first, _) = path.split_once("::")?;
    let is_name = !first.is_empty() && first.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| first.to_owned())
}

/// A source file's name without the directories that are the same for all files of a registry, a git checkout or the toolchain.
#[must_use]
pub fn short_file(file: &str) -> &str {
    // `/rustc/HASH/library/…`
    if let Some((_, rest)) = file
        .strip_prefix("/rustc/")
        .and_then(|rest| rest.split_once('/'))
    {
        return rest;
    }
    if let Some((_, rest)) = file.split_once("/lib/rustlib/src/rust/") {
        return rest;
    }
    // `…/registry/src/INDEX/CRATE-VERSION/…`, `…/git/checkouts/REPOSITORY-HASH/REVISION/…`
    for directory in ["/registry/src/", "/git/checkouts/"] {
        if let Some((_, rest)) = file.split_once(directory)
            && let Some((_, rest)) = rest.split_once('/')
        {
            return rest;
        }
    }
    file
}

/// Text of the target, without characters that steer a terminal or turn text around.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_hostile(c) { '?' } else { c })
        .collect()
}

/// Controls, line and paragraph separators, and marks of direction.
#[must_use]
pub(crate) fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Columns of a terminal that a text takes.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The end of a text, in at most `most` columns: the end of a path tells more than its beginning.
#[must_use]
pub fn last_columns(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let (mut taken, mut start) = (0, text.len());
    for (index, c) in text.char_indices().rev() {
        taken += c.width().unwrap_or(0);
        if taken + 1 > most {
            break;
        }
        start = index;
    }
    match most {
        0 => String::new(),
        _ => format!("…{}", &text[start..]),
    }
}

/// The beginning of a text, in at most `most` columns.
#[must_use]
pub fn first_columns(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let (mut taken, mut end) = (0, 0);
    for (index, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken + 1 > most {
            break;
        }
        end = index + c.len_utf8();
    }
    match most {
        0 => String::new(),
        _ => format!("{}…", &text[..end]),
    }
}

/// As an argument of a shell.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_short() {
        for (name, short) in [
            ("app::handler::{{closure}}", "app::handler"),
            (
                "app::handler::{{closure}}::{{closure}}::h0123456789abcdef",
                "app::handler",
            ),
            ("app::handler::{async_fn#0}", "app::handler"),
            (
                "<app::Svc as tower::Service<http::Request<B>>>::call",
                "app::Svc::call",
            ),
            (
                "<alloc::vec::Vec<T,A> as core::ops::Drop>::drop",
                "alloc::vec::Vec::drop",
            ),
            (
                "<&mut F as core::ops::FnOnce<A>>::call_once",
                "core::ops::FnOnce::call_once",
            ),
            (
                "serde_json::from_slice::<app::Order>",
                "serde_json::from_slice",
            ),
            (
                "core::ptr::drop_in_place<alloc::string::String>",
                "core::ptr::drop_in_place",
            ),
            ("f::<fn(u8) -> alloc::vec::Vec<u8>>::g", "f::g"),
            (
                "core::impls::<impl core::FnOnce<A> for app::T<B>>::call_once",
                "core::impls::app::T::call_once",
            ),
            ("<<A as x::B>::C as D>::e", "x::B::C::e"),
            ("sqlite3_step+0x1f4", "sqlite3_step+0x1f4"),
            ("operator<(X const&)", "operator<(X const&)"),
            ("a>b", "a>b"),
            ("{{closure}}", "{{closure}}"),
            ("", ""),
            ("<", "<"),
            ("été::<ß>::{{closure}}", "été"),
        ] {
            assert_eq!(short_function(name), short, "{name}");
        }
    }

    #[test]
    fn brackets_without_end_are_no_danger() {
        let nested = format!("{}a{}", "<".repeat(100_000), ">".repeat(100_000));
        assert_eq!(short_function(&nested), nested);
    }

    #[test]
    fn crates() {
        for (function, name) in [
            ("tokio::runtime::task::poll", Some("tokio")),
            (
                "<core::pin::Pin<P> as core::future::Future>::poll",
                Some("core"),
            ),
            ("<&mut app::T as B>::c", Some("app")),
            ("<F as axum::Handler<T>>::call", Some("axum")),
            ("read", None),
            ("", None),
            ("::x", None),
        ] {
            assert_eq!(crate_of(function).as_deref(), name, "{function}");
        }
    }

    #[test]
    fn files_are_short() {
        for (file, short) in [
            ("src/main.rs", "src/main.rs"),
            ("/rustc/abc/library/std/src/fs.rs", "library/std/src/fs.rs"),
            (
                "/home/u/.cargo/registry/src/index.crates.io-1/regex-1.10/src/lib.rs",
                "regex-1.10/src/lib.rs",
            ),
            (
                "/home/u/.cargo/git/checkouts/tower-1/2ab/src/lib.rs",
                "2ab/src/lib.rs",
            ),
            (
                "/r/lib/rustlib/src/rust/library/core/src/x.rs",
                "library/core/src/x.rs",
            ),
            ("/rustc/", "/rustc/"),
        ] {
            assert_eq!(short_file(file), short);
        }
    }

    #[test]
    fn text_does_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb\u{9b}\u{202e}é"), "a?[2J?b??é");
    }

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(last_columns("app::orders::price", 9), "…s::price");
        assert_eq!(last_columns("很很很", 4), "…很");
        assert_eq!(first_columns("app::orders", 6), "app::…");
        assert_eq!(first_columns("很很很", 4), "很…");
        for most in 0..30 {
            for text in ["app::orders", "很很很很", "", "a\u{301}\u{301}b"] {
                assert!(columns(&last_columns(text, most)) <= most);
                assert!(columns(&first_columns(text, most)) <= most);
            }
        }
    }

    #[test]
    fn arguments_are_quoted_where_they_must_be() {
        assert_eq!(quoted("/usr/bin/app-1.2"), "/usr/bin/app-1.2");
        assert_eq!(quoted("a b'; rm"), "'a b'\\''; rm'");
        assert_eq!(quoted(""), "''");
    }
}
