// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF objects with clang (`CLANG` names another one), links each program from its objects, and makes its skeleton.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::Linker;

/// The names that are tried, in this order. Built and tested with 19.
const CLANGS: [&str; 6] = [
    "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18",
];
const OLDEST_CLANG: u32 = 18;

/// The objects that scheduler and observer have.
const LINK: [&str; 3] = ["kernel/counters", "link/lease", "link/watch"];

/// The objects of each program, in `src/bpf`. The main one has its name and defines what the others share.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("observer", &[]),
    (
        "scheduler",
        &[
            "link/ladder",
            "link/loan",
            "options/crowd",
            "options/detect",
            "options/groups",
            "options/handoff",
            "options/hotplug",
            "options/hybrid",
            "options/later",
            "options/latency",
            "options/limit",
            "options/missed",
            "options/names",
            "options/near",
            "options/nodes",
            "options/quota",
            "options/reenqueue",
            "options/rescue",
            "options/speed",
            "options/starvation",
            "options/sync",
            "policy/policy",
        ],
    ),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let common = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../morpheus-common/include");

    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed={}", common.display());
    println!("cargo:rerun-if-env-changed=CLANG");

    let headers = headers(&out);
    let objects = out.join("objects");
    fs::create_dir_all(&objects).expect("OUT_DIR can be written");
    let clang = clang();
    let compile = |source: &str| {
        let object = objects.join(format!("{}.o", source.replace('/', "-")));
        let mut command = Command::new(&clang);
        command.args(["-g", "-O2", "-target", "bpf", "-fno-stack-protector"]);
        // Atomic operations that return something; Linux 5.12.
        command.args(["-mcpu=v3", "-Wall", "-Werror"]);
        // A macro of libbpf for programs without a context.
        command.arg("-Wno-unused-parameter");
        command.arg(format!("-D__TARGET_ARCH_{}", target()));
        for directory in [headers.as_path(), common.as_path(), Path::new("src/bpf")] {
            command.arg("-I").arg(directory);
        }
        command.arg("-c").arg(format!("src/bpf/{source}.bpf.c"));
        match command.arg("-o").arg(&object).status() {
            Ok(status) if status.success() => object,
            Ok(status) => panic!("src/bpf/{source}.bpf.c does not build: clang, {status}"),
            Err(error) => panic!("{} does not run: {error}", clang.display()),
        }
    };
    let shared = LINK.map(compile);
    if let Err(error) = link(&[compile("doctor")], &out, "doctor") {
        panic!("the doctor's skeleton cannot be made: {error}");
    }
    for (main, parts) in PROGRAMS {
        let mut own = vec![compile(main)];
        own.extend(parts.iter().map(|part| compile(part)));
        own.extend(shared.iter().cloned());
        if let Err(error) = link(&own, &out, main) {
            panic!("the objects of the {main} do not fit together: {error}");
        }
    }
}

/// The headers of libbpf, as its crate brings them. libbpf-cargo has them for itself alone: it compiles one source for each program,
/// and links that one, after which what it declares of others is taken for its own.
fn headers(out: &Path) -> PathBuf {
    let parent = out.join("include");
    let directory = parent.join("bpf");
    fs::create_dir_all(&directory).expect("OUT_DIR can be written");
    for (name, contents) in libbpf_rs::libbpf_sys::API_HEADERS {
        fs::write(directory.join(name), contents).expect("OUT_DIR can be written");
    }
    parent
}

/// The architecture as libbpf's headers name it.
fn target() -> String {
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    match target.as_str() {
        "x86_64" => "x86".to_owned(),
        "aarch64" => "arm64".to_owned(),
        _ => target,
    }
}

/// Links objects into one, as the kernel gets it, and makes its skeleton.
fn link(objects: &[PathBuf], out: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    let linked = out.join(format!("{name}.o"));
    let mut linker = Linker::new(&linked)?;
    for object in objects {
        linker.add_file(object)?;
    }
    linker.link()?;
    SkeletonBuilder::new()
        .obj(&linked)
        .generate(out.join(format!("{name}.skel.rs")))?;
    Ok(())
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
