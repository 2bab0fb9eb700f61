//! Checks that the header is C, and that `src/abi.autogen.rs` is bindgen's output for it.
//!
//! `MORPHEUS_BLESS=1 cargo test -p morpheus-common --test abi` writes the file again. The test needs libclang
//! (not the compiler). Without libclang it passes and reports that it was skipped, unless
//! `MORPHEUS_REQUIRE_LIBCLANG=1`.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;

use bindgen::callbacks::{AttributeInfo, ParseCallbacks, TypeKind};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/morpheus_abi.h");

/// The types that a BPF program has from vmlinux.h. With them the output depends neither on the kernel
/// headers nor on libclang's default target.
const PRELUDE: &str = "\
#define __VMLINUX_H__
typedef unsigned int __u32;
typedef unsigned long long __u64;
";

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Aligns each struct as the kernel does, also on 32-bit machines that align an integer of 64 bits to four bytes.
#[derive(Debug)]
struct Aligned;

impl ParseCallbacks for Aligned {
    fn add_attributes(&self, info: &AttributeInfo<'_>) -> Vec<String> {
        match info.kind {
            TypeKind::Struct => vec!["#[repr(align(8))]".to_owned()],
            _ => Vec::new(),
        }
    }
}

fn bindings() -> String {
    let bindings = bindgen::Builder::default()
        .header_contents(
            "morpheus_abi_bindings.h",
            &format!("{PRELUDE}#include \"{HEADER}\"\n"),
        )
        .use_core()
        .rust_target("1.88".parse().expect("a version that bindgen knows"))
        .allowlist_item("(morpheus|MORPHEUS)_.*")
        .derive_default(true)
        .parse_callbacks(Box::new(Aligned))
        .prepend_enum_name(false)
        .generate_comments(false)
        .disable_header_comment()
        .raw_line(
            "// Made from include/morpheus_abi.h by bindgen: change that, and see tests/abi.rs.",
        )
        // Not rustfmt, whose output depends on the installed version.
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .expect("bindgen reads the header");
    bindings.to_string()
}

/// Whether libclang is missing. bindgen's `runtime` feature panics if it cannot load the library, and has no
/// function to check before.
fn libclang_is_missing() -> bool {
    catch_unwind(bindgen::clang_version).is_err()
}

#[test]
fn bindings_are_those_of_the_header() {
    if libclang_is_missing() {
        return morpheus_testing::skip_unless_required(
            "libclang not found",
            "MORPHEUS_REQUIRE_LIBCLANG",
        );
    }
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi.autogen.rs");
    let made = bindings();
    if is_set("MORPHEUS_BLESS") {
        fs::write(&path, &made).expect("src/abi.autogen.rs can be written");
        return;
    }
    let checked_in = fs::read_to_string(&path).expect("src/abi.autogen.rs can be read");
    assert!(
        made == checked_in,
        "src/abi.autogen.rs differs from the output of bindgen for the header; \
         MORPHEUS_BLESS=1 cargo test -p morpheus-common --test abi writes it again"
    );
}

/// The header compiles as C11 in an application, with all warnings, and its own `_Static_assert`s hold.
#[test]
fn header_is_c() {
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-x",
            "c",
            HEADER,
        ])
        .output();
    match compiled {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(_) => morpheus_testing::skip("no C compiler"),
    }
}
