// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF programs with clang (`CLANG` names another one) and makes their skeleton.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The names that are tried, in this order. Built and tested with 19.
const CLANGS: [&str; 6] = [
    "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18",
];
const OLDEST_CLANG: u32 = 18;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let common = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../morpheus-common/include");

    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed={}", common.display());
    println!("cargo:rerun-if-env-changed=CLANG");

    let arguments: [OsString; 6] = [
        "-I".into(),
        common.into(),
        // Atomic operations that return something; Linux 5.12.
        "-mcpu=v3".into(),
        "-Wall".into(),
        "-Werror".into(),
        // A macro of libbpf for programs without a context.
        "-Wno-unused-parameter".into(),
    ];
    let clang = clang();
    for name in ["observer", "scheduler"] {
        let built = SkeletonBuilder::new()
            .source(Path::new("src/bpf").join(format!("{name}.bpf.c")))
            .clang(&clang)
            .clang_args(&arguments)
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            panic!("the BPF programs of the {name} do not build: {error:#}");
        }
    }
}

/// The clang to use.
fn clang() -> OsString {
    if let Some(clang) = env::var_os("CLANG") {
        return clang;
    }
    CLANGS
        .iter()
        .find(|clang| version(clang).is_some_and(|version| version >= OLDEST_CLANG))
        .unwrap_or_else(|| {
            panic!(
                "morpheus-bpf needs clang {OLDEST_CLANG} or newer for its BPF programs (on Debian and Ubuntu: \
                 apt install clang-19 libelf-dev zlib1g-dev pkg-config), or CLANG set to one"
            )
        })
        .into()
}

/// The major version, from a line such as "Debian clang version 19.1.7 (3)".
fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("clang version ")?;
    rest.split('.').next()?.parse().ok()
}
