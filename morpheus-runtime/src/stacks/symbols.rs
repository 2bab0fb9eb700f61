//! Names and lines for addresses, and which frame is the application's.
//!
//! `backtrace` reads the program's own line tables, if it has any: with
//!
//! ```toml
//! [profile.release]
//! debug = "line-tables-only"
//! ```
//!
//! they cost nothing at run time, and without them there are names of functions only.
//!
//! The application's frame is the innermost one that is not somebody else's. Somebody else's is what lies
//! in the Rust library, in a cargo registry or in a git checkout of cargo's, by its file; and by its crate
//! ([`PLUMBING`]), for programs without line tables, for generic code of such a crate that the compiler gave
//! no file, and for this crate, which may be built from anywhere. C functions have no crate, and are never it.

use std::ffi::c_void;

use super::Frame;
use super::walk::Address;

/// Crates in which nobody looks for his own mistake: the Rust library with what it is made of, the
/// executor, this runtime, and what stands between an executor and a handler (adapters of futures, tracing,
/// servers), so that a frame of these is passed over where files are not known.
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
    "morpheus_runtime",
    "morpheus_common",
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

/// Parts of paths below which nobody's own code is.
const ELSEWHERE: &[&str] = &[
    "/rustc/",
    "/rustlib/src/",
    "/registry/src/",
    "/git/checkouts/",
];

/// The functions at an address, innermost first: those that were inlined there, and the one that has it.
pub(crate) fn frames_at(address: &Address) -> Vec<Frame> {
    // `backtrace` takes what it gets for a return address, and looks one before.
    let at = address.address.wrapping_add(u64::from(!address.is_return));
    let mut frames: Vec<Frame> = Vec::new();
    backtrace::resolve(at as *mut c_void, |symbol| {
        // Without the hash.
        let function = match symbol.name() {
            Some(name) => format!("{name:#}"),
            None => format!("{:#x}", address.address),
        };
        frames.push(Frame {
            is_application: false,
            function,
            file: symbol.filename().map(|file| file.display().to_string()),
            line: symbol.lineno(),
            searched: address.searched,
        });
    });
    if frames.is_empty() {
        frames.push(Frame {
            is_application: false,
            function: format!("{:#x}", address.address),
            file: None,
            line: None,
            searched: address.searched,
        });
    }
    for frame in &mut frames {
        frame.is_application = is_application(&frame.function, frame.file.as_deref());
    }
    frames
}

/// Whether a function is the application's own.
fn is_application(function: &str, file: Option<&str>) -> bool {
    let Some(krate) = crate_of(function) else {
        return false;
    };
    let elsewhere = |file: &str| ELSEWHERE.iter().any(|part| file.contains(part));
    !PLUMBING.contains(&krate) && !file.is_some_and(elsewhere)
}

/// Whether a function is some library's, other than those that everything passes through.
pub(crate) fn is_library(function: &str) -> bool {
    crate_of(function).is_some_and(|krate| !PLUMBING.contains(&krate))
}

/// The crate in a demangled name: of the type, where it is a type's implementation of a trait. None for
/// names that are not Rust's.
fn crate_of(function: &str) -> Option<&str> {
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
        assert!(!is_application("tokio::runtime::park", None));
        assert!(!is_application("fopen64", Some("fopen.c")));
        let registry = "/home/user/.cargo/registry/src/index/serde-1.0/src/lib.rs";
        assert!(!is_application("serde::de", Some(registry)));
        let library = "/rustc/0123/library/std/src/thread/mod.rs";
        assert!(!is_application("app::<T as std::Thing>::f", Some(library)));
    }

    #[test]
    fn this_line_is_found() {
        let (mut file, mut line, expected) = (None, None, line!() + 3);
        let mut addresses = Vec::new();
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as u64); // line!() + 3 is the call of `trace`, two above
            true
        });
        for address in addresses {
            for frame in frames_at(&Address {
                address,
                is_return: true,
                searched: false,
            }) {
                if frame.function.contains("this_line_is_found")
                    && !frame.function.contains("closure")
                {
                    (file, line) = (frame.file, frame.line);
                }
            }
        }
        assert!(file.is_some_and(|file| file.ends_with("symbols.rs")));
        assert!(
            line.is_some_and(|line| line.abs_diff(expected) <= 1),
            "{line:?} {expected}"
        );
    }
}
