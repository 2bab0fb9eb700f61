//! Whose code a function is: the application's, a library's, or what stands between an executor and a handler.
//!
//! The application's frame is the innermost one that is not a library's. A library's frame lies by its file
//! in the Rust library, in a cargo registry, in a git checkout of cargo or in one of Morpheus's own packages, or is C; where
//! the file is not known, its crate is one of those that everything passes through.

/// The packages of Morpheus that run in an application's threads, by their directories.
const OWN: &[&str] = &[
    "morpheus-runtime",
    "morpheus-stacks",
    "morpheus-link",
    "morpheus-system",
    "morpheus-common",
];

/// Crates whose frames are passed over where files are not known: the Rust library with what it is made of, the
/// executor, and what stands between an executor and a handler (adapters of futures, tracing,
/// servers).
const PLUMBING: &[&str] = &[
    "std",
    "core",
    "alloc",
    "proc_macro",
    "test",
    "hashbrown",
    "backtrace",
    "rustc_demangle",
    "compiler_builtins",
    "std_detect",
    "tokio",
    "tokio_util",
    "tokio_stream",
    "tokio_macros",
    "mio",
    "parking_lot",
    "parking_lot_core",
    "lock_api",
    "futures",
    "futures_core",
    "futures_util",
    "futures_executor",
    "futures_channel",
    "async_trait",
    "pin_project",
    "pin_project_lite",
    "tracing",
    "tracing_core",
    "tracing_futures",
    "tracing_subscriber",
    "tower",
    "tower_layer",
    "tower_service",
    "tower_http",
    "hyper",
    "hyper_util",
    "h2",
    "http",
    "http_body",
    "http_body_util",
    "axum",
    "axum_core",
    "tonic",
    "reqwest",
    "bytes",
    "libc",
];

/// Parts of paths that no application's code has.
const ELSEWHERE: &[&str] = &[
    "/rustc/",
    "/rustlib/src/",
    "/registry/src/",
    "/git/checkouts/",
];

/// Whether a function is the application's own.
/// `function` is a demangled name, with or without its path.
#[must_use]
pub fn is_application(function: &str, file: Option<&str>) -> bool {
    match file {
        Some(file) => {
            file.ends_with(".rs")
                && !ELSEWHERE.iter().any(|part| file.contains(part))
                && !is_own(file)
                && !crate_of(function).is_some_and(is_plumbing)
        }
        None => crate_of(function).is_some_and(|krate| !is_plumbing(krate)),
    }
}

/// Whether a function is some library's, other than those that everything passes through.
#[must_use]
pub fn is_library(function: &str, file: Option<&str>) -> bool {
    let krate = match file {
        Some(file) => crate_of_file(file).or_else(|| crate_of(function).map(str::to_owned)),
        None => crate_of(function).map(str::to_owned),
    };
    krate.is_some_and(|krate| !is_plumbing(&krate))
}

/// Whether a crate's frames are passed over.
#[must_use]
pub fn is_plumbing(krate: &str) -> bool {
    PLUMBING.contains(&krate) || OWN.iter().any(|package| package.replace('-', "_") == krate)
}

/// Whether a file is Morpheus's own, in a checkout.
fn is_own(file: &str) -> bool {
    // Built by itself, the package has no directory here: then by name only.
    let Some(checkout) = file!().strip_suffix("morpheus-stacks/src/owner.rs") else {
        return false;
    };
    OWN.iter()
        .any(|package| file.contains(&format!("{checkout}{package}/src/")))
}

/// The crate of a file in a cargo registry, by its directory: `name-1.2.3`.
#[must_use]
pub fn crate_of_file(file: &str) -> Option<String> {
    let (_, path) = file.split_once("/registry/src/")?;
    let (directory, _) = path.split_once('/')?.1.split_once('/')?;
    let version = directory
        .match_indices('-')
        .find(|(at, _)| directory[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
    Some(directory[..version.0].replace('-', "_"))
}

/// The crate in a demangled name: of the type, where it is a type's implementation of a trait. None for
/// names that are not Rust's.
#[must_use]
pub fn crate_of(function: &str) -> Option<&str> {
    let mut rest = function;
    loop {
        let trimmed = rest
            .trim_start_matches(['<', '&', '(', '[', '*'])
            .trim_start_matches("mut ")
            .trim_start_matches("const ")
            .trim_start_matches("dyn ");
        if trimmed.len() == rest.len() {
            break;
        }
        rest = trimmed;
    }
    let end = rest.find("::")?;
    let krate = &rest[..end];
    // With v0 mangling a crate may come with its number: `name[hash]`.
    let krate = krate.split('[').next().unwrap_or(krate);
    let is_name = !krate.is_empty()
        && krate
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(krate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_names() {
        for (name, expected) in [
            ("app::main::{{closure}}", Some("app")),
            (
                "<app::Hash as core::future::future::Future>::poll",
                Some("app"),
            ),
            (
                "<&mut app::Hash as core::future::Future>::poll",
                Some("app"),
            ),
            (
                "<core::pin::Pin<P> as core::future::Future>::poll",
                Some("core"),
            ),
            ("<alloc::boxed::Box<dyn app::X> as F>::poll", Some("alloc")),
            ("app[1f2e]::main", Some("app")),
            ("__libc_recv", None),
            ("0x7f00", None),
            ("<", None),
            ("", None),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }

    #[test]
    fn whose_frame_it_is() {
        assert!(is_application("app::slow", Some("src/main.rs")));
        assert!(is_application("app::slow", None));
        // As with `debug = "line-tables-only"`.
        assert!(is_application("slow", Some("/home/user/app/src/main.rs")));
        assert!(!is_application("slow", None));
        assert!(!is_application(
            "poll",
            Some("/rustc/0123/library/core/src/future.rs")
        ));
        assert!(!is_application("poll", Some(file!())));
        assert!(!is_application("tokio::runtime::park", None));
        assert!(!is_application("fopen64", Some("fopen.c")));
        let registry = "/home/user/.cargo/registry/src/index/serde-1.0/src/lib.rs";
        assert!(!is_application("serde::de", Some(registry)));
        assert!(is_library("de", Some(registry)));
        assert!(!is_library(
            "park",
            Some("/x/registry/src/index/parking_lot-0.12.1/src/a.rs")
        ));
        assert!(!is_library(
            "poll",
            Some("/x/registry/src/index/futures-util-0.3/src/a.rs")
        ));
        assert!(!is_library("read", Some("read.c")));
        let library = "/rustc/0123/library/std/src/thread/mod.rs";
        assert!(!is_application("app::<T as std::Thing>::f", Some(library)));
    }

    #[test]
    fn frames_of_morpheus_are_passed_over_by_file_and_by_name() {
        let checkout = file!().split("morpheus-stacks/src/").next().unwrap();
        // With `debug = "line-tables-only"` a name has no crate.
        for (file, function) in [
            // Around a watched poll.
            ("morpheus-runtime/src/poll/mark.rs", "marked"),
            ("morpheus-stacks/src/captor.rs", "tend"),
            ("morpheus-system/src/sleeper.rs", "nap"),
            ("morpheus-common/src/slot.rs", "publish_poll"),
        ] {
            let file = format!("{checkout}{file}");
            assert!(!is_application(function, Some(&file)), "{file}");
            // As a debugger of another directory would say it.
            let file = format!("/home/user/{file}");
            assert!(!is_application(function, Some(&file)), "{file}");
            let package = file.split("/src/").next().unwrap();
            let krate = package.rsplit('/').next().unwrap().replace('-', "_");
            assert!(!is_application(&format!("{krate}::{function}"), None));
            assert!(!is_library(&format!("<{krate}::T>::{function}"), None));
        }
        // Its tests and examples are applications.
        for file in [
            "morpheus-runtime/tests/stalls.rs",
            "examples/src/bin/hog.rs",
        ] {
            let file = format!("{checkout}{file}");
            assert!(is_application("slow", Some(&file)), "{file}");
        }
    }

    /// A package that the runtime is made of, and that is not known here, would get the blame for all stalls.
    #[test]
    fn all_packages_of_the_runtime_are_known() {
        let runtime = include_str!("../../morpheus-runtime/Cargo.toml");
        let dependencies = runtime.split("[dev-dependencies]").next().unwrap();
        let own: Vec<&str> = dependencies
            .lines()
            .filter(|line| line.starts_with("morpheus-"))
            .filter_map(|line| line.split(['.', ' ']).next())
            // It runs in the compiler.
            .filter(|&package| package != "morpheus-macros")
            .collect();
        assert!(own.contains(&"morpheus-stacks"), "{own:?}");
        for package in own {
            assert!(OWN.contains(&package), "{package}");
        }
    }
}
